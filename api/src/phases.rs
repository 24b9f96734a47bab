//! Phases of DataVolumes, PersistentVolumeClaims and pods.

use std::fmt;
use std::str::FromStr;

/// `status.phase` of a DataVolume. [`Phase::Unset`] is the empty text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Not reconciled yet, or it describes no valid PVC.
    #[default]
    Unset,
    /// The PVC is not bound, or there is no capacity for it.
    Pending,
    /// The PVC is bound, and no worker has started.
    PvcBound,
    /// An import is scheduled.
    ImportScheduled,
    /// A worker imports.
    ImportInProgress,
    /// A clone is scheduled.
    CloneScheduled,
    /// A worker copies.
    CloneInProgress,
    /// A snapshot of the source is being taken.
    SnapshotForSmartCloneInProgress,
    /// A volume is being restored from a snapshot.
    CloneFromSnapshotSourceInProgress,
    /// No longer used.
    SmartClonePvcInProgress,
    /// The storage clones the volume.
    CsiCloneInProgress,
    /// No longer used.
    ExpansionInProgress,
    /// No longer used.
    NamespaceTransferInProgress,
    /// The clone is being bound and expanded.
    PrepClaimInProgress,
    /// The volume is being rebound from the intermediate PVC to the DataVolume's.
    RebindInProgress,
    /// An upload server is scheduled.
    UploadScheduled,
    /// The upload server accepts requests.
    UploadReady,
    /// The PVC itself waits for a consumer.
    WaitForFirstConsumer,
    /// The PVC waits for a consumer, and is populated before it is bound.
    PendingPopulation,
    /// The PVC is populated and may be used.
    Succeeded,
    /// The PVC is lost, or the content is not as expected.
    Failed,
    /// The PVC has an unknown phase.
    Unknown,
    /// Between two stages of an import.
    Paused,
}

impl Phase {
    /// All, in the order of their declaration.
    pub const ALL: [Self; 23] = [
        Self::Unset,
        Self::Pending,
        Self::PvcBound,
        Self::ImportScheduled,
        Self::ImportInProgress,
        Self::CloneScheduled,
        Self::CloneInProgress,
        Self::SnapshotForSmartCloneInProgress,
        Self::CloneFromSnapshotSourceInProgress,
        Self::SmartClonePvcInProgress,
        Self::CsiCloneInProgress,
        Self::ExpansionInProgress,
        Self::NamespaceTransferInProgress,
        Self::PrepClaimInProgress,
        Self::RebindInProgress,
        Self::UploadScheduled,
        Self::UploadReady,
        Self::WaitForFirstConsumer,
        Self::PendingPopulation,
        Self::Succeeded,
        Self::Failed,
        Self::Unknown,
        Self::Paused,
    ];

    /// As on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unset => "",
            Self::Pending => "Pending",
            Self::PvcBound => "PVCBound",
            Self::ImportScheduled => "ImportScheduled",
            Self::ImportInProgress => "ImportInProgress",
            Self::CloneScheduled => "CloneScheduled",
            Self::CloneInProgress => "CloneInProgress",
            Self::SnapshotForSmartCloneInProgress => "SnapshotForSmartCloneInProgress",
            Self::CloneFromSnapshotSourceInProgress => "CloneFromSnapshotSourceInProgress",
            Self::SmartClonePvcInProgress => "SmartClonePVCInProgress",
            Self::CsiCloneInProgress => "CSICloneInProgress",
            Self::ExpansionInProgress => "ExpansionInProgress",
            Self::NamespaceTransferInProgress => "NamespaceTransferInProgress",
            Self::PrepClaimInProgress => "PrepClaimInProgress",
            Self::RebindInProgress => "RebindInProgress",
            Self::UploadScheduled => "UploadScheduled",
            Self::UploadReady => "UploadReady",
            Self::WaitForFirstConsumer => "WaitForFirstConsumer",
            Self::PendingPopulation => "PendingPopulation",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
            Self::Paused => "Paused",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// Not a phase that this version knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such phase of a DataVolume")]
pub struct NoSuchPhase;

impl FromStr for Phase {
    type Err = NoSuchPhase;

    fn from_str(text: &str) -> Result<Self, NoSuchPhase> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == text).ok_or(NoSuchPhase)
    }
}

/// A phase of an object of Kubernetes, by its text on the wire.
macro_rules! phases {
    ($(#[$doc:meta])* $name:ident: $($(#[$variant_doc:meta])* $variant:ident = $text:literal),* $(,)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name {
            /// None is set yet: the object is new.
            #[default]
            Unset,
            $($(#[$variant_doc])* $variant,)*
            /// Another text, of a later version of Kubernetes.
            Unknown,
        }

        impl $name {
            /// As on the wire.
            pub const fn as_str(self) -> &'static str {
                match self {
                    Self::Unset => "",
                    $(Self::$variant => $text,)*
                    Self::Unknown => "Unknown",
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    "" => Self::Unset,
                    $($text => Self::$variant,)*
                    _ => Self::Unknown,
                }
            }
        }
    };
}

phases! {
    /// `status.phase` of a PersistentVolumeClaim.
    ClaimPhase:
    /// It has no volume yet.
    Pending = "Pending",
    /// It has a volume.
    Bound = "Bound",
    /// Its volume does not exist, or is bound to another PVC.
    Lost = "Lost",
}

phases! {
    /// `status.phase` of a pod, and the phase of a worker that the controllers record on its PVC.
    PodPhase:
    /// A container has not started.
    Pending = "Pending",
    /// A container runs, starts or is restarted.
    Running = "Running",
    /// All containers have ended with 0.
    Succeeded = "Succeeded",
    /// All containers have ended, one with another code.
    Failed = "Failed",
}

impl PodPhase {
    /// No container has started.
    pub const fn is_waiting(self) -> bool {
        matches!(self, Self::Unset | Self::Pending)
    }

    /// All containers have ended.
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_reads_as_it_is_written() {
        for phase in Phase::ALL {
            assert_eq!(phase.to_string().parse(), Ok(phase));
        }
        assert_eq!("succeeded".parse::<Phase>(), Err(NoSuchPhase));
    }
}
