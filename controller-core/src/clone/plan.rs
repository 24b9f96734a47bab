//! The method by which a volume is cloned, and why not a faster one.

use api::v1beta1::{ClaimVolumeMode, CloneStrategyOverride};
use contract::ByteCount;

use super::reason::{Fallback, Refusal, Wait};

/// A clone strategy, as profiles, the CDI object and annotations name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// The storage clones the PVC.
    CsiClone,
    /// The storage takes a snapshot and restores it to a PVC.
    Snapshot,
    /// One pod reads, another writes.
    Copy,
}

impl Strategy {
    pub const ALL: [Self; 3] = [Self::CsiClone, Self::Snapshot, Self::Copy];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CsiClone => "csi-clone",
            Self::Snapshot => "snapshot",
            Self::Copy => "copy",
        }
    }

    pub fn named(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.as_str() == text)
    }
}

impl From<CloneStrategyOverride> for Strategy {
    fn from(strategy: CloneStrategyOverride) -> Self {
        match strategy {
            CloneStrategyOverride::Copy => Self::Copy,
            CloneStrategyOverride::Snapshot => Self::Snapshot,
            CloneStrategyOverride::CsiClone => Self::CsiClone,
        }
    }
}

/// Inputs of the decision, fetched before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneFacts {
    pub target: TargetFacts,
    pub source: SourceFacts,
    /// Whether the content is a disk, which can be on a block device or in a file. Files need a file system.
    pub is_disk: bool,
    /// The strategy that the user requests in the annotation `cloneType` of the target.
    pub requested: Option<Strategy>,
    /// The strategy in the CDI object, for all targets that do not request one.
    pub strategy_override: Option<Strategy>,
}

/// The PVC to populate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetFacts {
    pub class: TargetClass,
    pub mode: ClaimVolumeMode,
    /// The requested size, at least the smallest size of its class.
    pub request: Option<ByteCount>,
    /// A client has inspected the source, and the target may be smaller than it.
    pub permissive: bool,
}

/// The storage class in the spec of a PVC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetClass {
    /// None. Kubernetes sets the default as soon as there is one.
    Unset,
    /// The empty string: no class is wanted.
    Empty,
    /// The named class does not exist.
    Missing {
        name: String,
    },
    Known(ClassFacts),
}

/// The target's storage class and its profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassFacts {
    pub provisioner: String,
    /// Whether PVCs can be expanded.
    pub expands: bool,
    /// The strategy in the profile.
    pub strategy: Option<Strategy>,
}

/// The source. `None`: it does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceFacts {
    Claim(Option<ClaimFacts>),
    Snapshot(Option<SnapshotFacts>),
}

/// A PVC that is cloned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimFacts {
    /// The driver of its volume ([`driver_of`](super::driver_of)).
    pub driver: Option<String>,
    pub mode: ClaimVolumeMode,
    /// The requested size.
    pub request: Option<ByteCount>,
    pub capacity: Option<ByteCount>,
    /// A class for a snapshot that source and target can share ([`snapshot_class`](super::snapshot_class)).
    pub snapshot_class: Option<String>,
}

/// A VolumeSnapshot that is cloned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotFacts {
    /// The VolumeSnapshotContent that it is bound to.
    pub content: Option<ContentFacts>,
    /// The smallest request of a PVC that is restored from it.
    pub restore_size: Option<ByteCount>,
}

/// The VolumeSnapshotContent of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentFacts {
    /// The driver that took it.
    pub driver: String,
    /// Mode of the volume that it was taken of.
    pub mode: ClaimVolumeMode,
}

/// The decision about a clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The clone waits for another object.
    Wait(Wait),
    /// The clone is impossible as requested.
    Refuse(Refusal),
    Clone(ClonePlan),
}

/// The method of a clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClonePlan {
    /// The storage clones the source.
    CsiClone,
    /// The storage takes a snapshot and restores it to a PVC; then the snapshot is deleted.
    Snapshot {
        /// Class of the snapshot.
        class: String,
    },
    /// The storage restores the source, a snapshot, to a PVC.
    Restore,
    /// One pod reads the source, another writes.
    Copy {
        /// Why no faster method is used. `None`: a copy was requested.
        because: Option<Fallback>,
    },
    /// The source, a snapshot, is restored to a temporary PVC, which is copied.
    RestoreAndCopy {
        /// Why no faster method is used.
        because: Fallback,
    },
}

impl ClonePlan {
    /// Value of the annotation `cloneType`.
    pub const fn strategy(&self) -> Strategy {
        match self {
            Self::CsiClone => Strategy::CsiClone,
            Self::Snapshot { .. } | Self::Restore => Strategy::Snapshot,
            Self::Copy { .. } | Self::RestoreAndCopy { .. } => Strategy::Copy,
        }
    }

    /// Why it is a copy, if a faster method was requested.
    pub fn fallback(&self) -> Option<&Fallback> {
        match self {
            Self::CsiClone | Self::Snapshot { .. } | Self::Restore => None,
            Self::Copy { because } => because.as_ref(),
            Self::RestoreAndCopy { because } => Some(because),
        }
    }
}

/// The requested method, or a copy and the first reason for it. Namespaces have no influence.
pub fn plan_clone(facts: &CloneFacts) -> Decision {
    let class = match &facts.target.class {
        TargetClass::Unset => return Decision::Wait(Wait::ForClass),
        TargetClass::Empty => return Decision::Refuse(Refusal::EmptyClass),
        TargetClass::Missing { name } => {
            return Decision::Refuse(Refusal::NoClass { name: name.clone() });
        }
        TargetClass::Known(class) => class,
    };
    match &facts.source {
        SourceFacts::Claim(None) | SourceFacts::Snapshot(None) => Decision::Wait(Wait::ForSource),
        _ if changes_mode_of_files(facts) => Decision::Refuse(Refusal::ModeOfFiles),
        SourceFacts::Claim(Some(source)) => of_claim(facts, class, source),
        SourceFacts::Snapshot(Some(source)) => of_snapshot(facts, class, source),
    }
}

fn changes_mode_of_files(facts: &CloneFacts) -> bool {
    let mode = match &facts.source {
        SourceFacts::Claim(claim) => claim.as_ref().map(|claim| claim.mode),
        SourceFacts::Snapshot(snapshot) => {
            let content = snapshot.as_ref().and_then(|snapshot| snapshot.content.as_ref());
            content.map(|content| content.mode)
        }
    };
    !facts.is_disk && mode.is_some_and(|mode| mode != facts.target.mode)
}

fn of_claim(facts: &CloneFacts, class: &ClassFacts, source: &ClaimFacts) -> Decision {
    let target = &facts.target;
    if let (Some(needed), Some(offered)) = (source.request, target.request)
        && offered < needed
        && !target.permissive
    {
        return Decision::Refuse(Refusal::TooSmall { needed, offered });
    }
    let wanted = facts.requested.or(facts.strategy_override).or(class.strategy);
    let wanted = wanted.unwrap_or(Strategy::Snapshot);
    let copy = |because| Decision::Clone(ClonePlan::Copy { because });
    let plan = match (wanted, &source.snapshot_class) {
        (Strategy::Copy, _) => return copy(None),
        (Strategy::Snapshot, None) => return copy(Some(Fallback::NoSnapshotClass)),
        (Strategy::Snapshot, Some(class)) => ClonePlan::Snapshot { class: class.clone() },
        (Strategy::CsiClone, _) => ClonePlan::CsiClone,
    };
    if source.driver.as_ref() != Some(&class.provisioner) {
        return copy(Some(Fallback::DriversDiffer));
    }
    if source.mode != target.mode {
        return copy(Some(Fallback::ModesDiffer));
    }
    let (Some(has), Some(wants)) = (source.capacity, target.request) else {
        return Decision::Refuse(Refusal::NoSizes);
    };
    if has < wants && !class.expands {
        return copy(Some(Fallback::CannotGrow));
    }
    Decision::Clone(plan)
}

/// The storage has one method to restore a snapshot. The only other strategy is a copy of the restored PVC, which only
/// the user can request: the CDI object and the profile do not apply to snapshots.
fn of_snapshot(facts: &CloneFacts, class: &ClassFacts, source: &SnapshotFacts) -> Decision {
    let target = &facts.target;
    let copy = |because| Decision::Clone(ClonePlan::RestoreAndCopy { because });
    let Some(content) = &source.content else { return Decision::Refuse(Refusal::NoContent) };
    if content.driver != class.provisioner {
        return copy(Fallback::NotOfThisDriver);
    }
    if facts.requested == Some(Strategy::Copy) {
        return copy(Fallback::Requested);
    }
    let (Some(has), Some(wants)) = (source.restore_size, target.request) else {
        return Decision::Refuse(Refusal::NoSizes);
    };
    if has < wants && !class.expands {
        return copy(Fallback::CannotGrow);
    }
    if content.mode != target.mode {
        return copy(Fallback::ModesDiffer);
    }
    Decision::Clone(ClonePlan::Restore)
}
