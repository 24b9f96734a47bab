//! Cloning: the choice of a method, and its steps.
//!
//! [`plan_clone`] decides once, and the decision is written to annotations of the target. From then on [`advance`]
//! plans the next step from the objects in the cluster. There is no other state: a controller that was killed between
//! two steps continues after a restart.
//!
//! ```text
//! csi-clone     CSIClone ──────────────────────► PrepClaim ─► Rebind ─► Succeeded
//! snapshot      Snapshot ─► SnapshotClone ─────► PrepClaim ─► Rebind
//! restore                   SnapshotClone ─────► PrepClaim ─► Rebind
//! copy                                           HostClone ─► Rebind
//! restore, copy             SnapshotClone ─► PrepClaim ─► HostClone ─► Rebind
//!
//! any of the first two ── the driver refuses, or takes too long ──► copy
//! ```
//!
//! Without a populator, pods copy to the target itself, and a snapshot is restored to a PVC before ([`restore`]).

mod driver;
mod driver_failure;
mod facts;
mod in_use;
mod objects;
mod origin;
mod phase;
mod plan;
mod prep_pod;
mod progress;
mod reason;
mod request;
mod restored;
mod restored_notes;
mod snapshot_facts;
mod steps;
mod target;
mod token;
mod turns;

pub use driver::{
    Choice, ChosenClass, NotItsVolume, SnapshotClass, driver_of, named_by_both, snapshot_class,
};
pub use driver_failure::patience;
pub use facts::{Facts, IntermediateObjects, Names, SnapshotState, Source};
pub use in_use::{events as events_of_writers, free_of, writers};
pub use objects::Snapshot;
pub use origin::{Origin, OriginKind};
pub use phase::{Error, OrphanedObject, Phase, Step, advance, delete_orphans};
pub use plan::{
    ClaimFacts, ClassFacts, CloneFacts, ClonePlan, ContentFacts, Decision, SnapshotFacts,
    SourceFacts, Strategy, TargetClass, TargetFacts, plan_clone,
};
pub use progress::{
    StepProgress, plan_bound, plan_decision, plan_progress, plan_queued, plan_refusal,
    plan_release, plan_step, plan_stuck, plan_without_source,
};
pub use reason::{Fallback, Refusal, Wait};
pub use request::{NOT_MET, annotate, clone_source, component, mismatch, no_populator};
pub use restored::{
    RestoreFacts, RestoreStep, RestoredCleanupFacts, RestoredPvc, is_restored_pod, needs_restored,
    plan_restored_cleanup, restore, restored_for, restored_of, restored_pod_name, restored_uid,
    volume_of_restored,
};
pub use restored_notes::{
    has_copy_source, is_copied, restore_finished, restore_progress, restored_origin,
};
pub use snapshot_facts::{content_mode, state_of};
pub use target::{
    NOT_COPIED, Progress, chosen_priority_class, decided, has_finalizer, is_retained, mode_of,
    noted_plan, owner, owner_uid, progressed, requested, stuck, target_labels,
};
pub use token::{HeldToken, TokenFacts, TokenHolder, TokenRefusal, verify_clone_token};
pub use turns::{has_begun, is_active};
