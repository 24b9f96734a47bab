//! Phases of DataVolumes, PersistentVolumeClaims and pods.

use std::fmt;
use std::str::FromStr;

/// `status.phase` of a DataVolume. [`Phase::Unset`] is the empty text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Nobody has looked at it, or no claim can be made of it.
    #[default]
    Unset,
    /// The PVC is not bound, or there is no capacity for it.
    Pending,
    /// The claim is bound, and no worker has begun.
    PvcBound,
    /// A worker is going to import.
    ImportScheduled,
    /// A worker imports.
    ImportInProgress,
    /// A clone is going to be made.
    CloneScheduled,
    /// A worker copies.
    CloneInProgress,
    /// A snapshot of the source is being taken.
    SnapshotForSmartCloneInProgress,
    /// A volume is being made of a snapshot.
    CloneFromSnapshotSourceInProgress,
    /// No longer used.
    SmartClonePvcInProgress,
    /// The storage clones the volume.
    CsiCloneInProgress,
    /// No longer used.
    ExpansionInProgress,
    /// No longer used.
    NamespaceTransferInProgress,
    /// The clone is being bound and grown.
    PrepClaimInProgress,
    /// The volume goes from the helper claim to the DataVolume's.
    RebindInProgress,
    /// An upload server is going to start.
    UploadScheduled,
    /// The upload server takes requests.
    UploadReady,
    /// The claim itself waits for a consumer.
    WaitForFirstConsumer,
    /// The claim waits for a consumer, and is filled before it sees it.
    PendingPopulation,
    /// Done.
    Succeeded,
    /// The claim is lost, or the source is not what it should be.
    Failed,
    /// The claim is in a phase that nobody knows.
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
    /// Its volume is gone, or is another claim's.
    Lost = "Lost",
}

phases! {
    /// `status.phase` of a pod, and what the controllers note of a worker on its claim.
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
