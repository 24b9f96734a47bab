//! Which way a volume is cloned, and why not a faster one.

use api::v1beta1::{ClaimVolumeMode, CloneStrategyOverride};
use contract::ByteCount;

use super::reason::{Fallback, Refusal, Wait};

/// A way to clone, as profiles, the CDI object and annotations name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// The storage makes one claim of another.
    CsiClone,
    /// The storage takes a snapshot, and makes a claim of that.
    Snapshot,
    /// A pod reads, another writes.
    Copy,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::CsiClone, Self::Snapshot, Self::Copy];

    /// As on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CsiClone => "csi-clone",
            Self::Snapshot => "snapshot",
            Self::Copy => "copy",
        }
    }

    /// The one of this name.
    pub fn named(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.as_str() == text)
    }
}

impl From<CloneStrategyOverride> for Strategy {
    fn from(said: CloneStrategyOverride) -> Self {
        match said {
            CloneStrategyOverride::Copy => Self::Copy,
            CloneStrategyOverride::Snapshot => Self::Snapshot,
            CloneStrategyOverride::CsiClone => Self::CsiClone,
        }
    }
}

/// What the way depends on, fetched before anyone decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneFacts {
    /// What is to be filled.
    pub target: TargetFacts,
    /// With what.
    pub source: SourceFacts,
    /// What goes over is a disk, which is at home on a device as in a file. Files are not.
    pub is_disk: bool,
    /// What the user asks for in the annotation `cloneType` of the target.
    pub requested: Option<Strategy>,
    /// The CDI object's word for all claims that are cloned, unless they say something themselves.
    pub strategy_override: Option<Strategy>,
}

/// The claim that is to be filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetFacts {
    /// What it says of its storage class.
    pub class: TargetClass,
    /// A device or a file system.
    pub mode: ClaimVolumeMode,
    /// What it requests; not less than the smallest claim of its class.
    pub request: Option<ByteCount>,
    /// Somebody has looked into the source, and knows that the target need not be as large.
    pub permissive: bool,
}

/// A claim's word on its storage class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetClass {
    /// None. Kubernetes fills in the default as soon as there is one.
    Unset,
    /// None, and none is wanted.
    Empty,
    /// One that is not there.
    Missing {
        /// Its name.
        name: String,
    },
    /// One that is.
    Known(ClassFacts),
}

/// The target's storage class and its profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassFacts {
    /// The driver.
    pub provisioner: String,
    /// Claims may grow.
    pub expands: bool,
    /// What the profile recommends.
    pub strategy: Option<Strategy>,
}

/// What is cloned. `None`: it is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceFacts {
    /// A claim.
    Claim(Option<ClaimFacts>),
    /// A VolumeSnapshot.
    Snapshot(Option<SnapshotFacts>),
}

/// A claim that is cloned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimFacts {
    /// The driver of its volume ([`driver_of`](super::driver_of)).
    pub driver: Option<String>,
    /// A device or a file system.
    pub mode: ClaimVolumeMode,
    /// What it requests.
    pub request: Option<ByteCount>,
    /// What it has.
    pub capacity: Option<ByteCount>,
    /// A class for a snapshot that source and target can share ([`snapshot_class`](super::snapshot_class)).
    pub snapshot_class: Option<String>,
}

/// A VolumeSnapshot that is cloned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotFacts {
    /// The VolumeSnapshotContent that it is bound to.
    pub content: Option<ContentFacts>,
    /// The least that a claim made of it has to request.
    pub restore_size: Option<ByteCount>,
}

/// The storage's side of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentFacts {
    /// Who took it.
    pub driver: String,
    /// Of the volume that it was taken of.
    pub mode: ClaimVolumeMode,
}

/// What becomes of a clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing until something else is there.
    Wait(Wait),
    /// It cannot be done as it is asked for.
    Refuse(Refusal),
    /// It is done like this.
    Clone(ClonePlan),
}

/// How a clone is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClonePlan {
    /// The storage makes the claim of the source.
    CsiClone,
    /// A snapshot is taken, the claim is made of it, and the snapshot goes.
    Snapshot {
        /// Class of the snapshot.
        class: String,
    },
    /// The claim is made of the snapshot that is the source.
    Restore,
    /// One pod reads the source, another writes.
    Copy {
        /// Why it is no faster way. `None`: somebody asked for a copy.
        because: Option<Fallback>,
    },
    /// The source, a snapshot, becomes a claim for a while, which is copied.
    RestoreAndCopy {
        /// Why it is no faster way.
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

    /// Why it is a copy, where something faster was wanted.
    pub fn fallback(&self) -> Option<&Fallback> {
        match self {
            Self::CsiClone | Self::Snapshot { .. } | Self::Restore => None,
            Self::Copy { because } => because.as_ref(),
            Self::RestoreAndCopy { because } => Some(because),
        }
    }
}

/// The wanted way to clone, or a copy and the first reason for it. Namespaces play no part.
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

/// The storage restores a snapshot in one way only, so that the only strategy that can be asked for is a copy of what was
/// restored, and only by the user: what is set for many claims is not meant for snapshots.
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
