//! How far a DataVolume is.

use std::fmt;
use std::str::FromStr;

/// `status.phase` of a DataVolume. [`Phase::Unset`] is the empty text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Nobody has looked at it, or no claim can be made of it.
    #[default]
    Unset,
    /// The claim is not bound, or there is no room for it.
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
