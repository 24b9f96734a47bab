//! Claims that pods copy to: an upload server beside the target, and a pod that reads the source and sends it.
//!
//! ```text
//! target: CloneRequest ──► upload server ready ──► source pod ──► both have ended: CloneOf
//!            (upload)          (upload)             finalizer      source pod and finalizer go
//! ```

mod pod;

use api::annotations::{request, state};
use api::conditions::reason;
use api::events;
use api::labels::finalizer;
use contract::ByteCount;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::clone::Origin;
use crate::event::Event;
use crate::import::{Exit, report};
use crate::meta::{self, Changes};

pub use pod::{Facts, pod, secret};

/// What the source's pod says of a target that has all its room.
const PREALLOCATED: &str = "Preallocation applied";
/// What is told when all is there.
const COMPLETE: &str = "Clone Complete";

/// Name of the pod that reads for a claim, in the namespace of the source.
pub fn pod_name(claim: &ObjectMeta) -> String {
    format!("{}-source-pod", meta::uid(claim))
}

/// The client that the target's upload server believes: the pod that reads the source, and nobody else.
pub fn client_name(claim: &ObjectMeta, source: &Origin) -> String {
    let (namespace, name) = (meta::namespace(claim), meta::name(claim));
    format!("{}/{}-{namespace}/{name}", source.namespace, source.name)
}

/// Where a copy stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The target's side is not ready, and a watch will tell.
    Waiting,
    /// The source may be read.
    Ready,
    /// All is there, or nobody wants it any more: what is left of it goes.
    Over,
}

/// Where the copy to a claim stands.
pub fn stage(claim: &PersistentVolumeClaim) -> Stage {
    let metadata = &claim.metadata;
    let is_wanted = meta::has_annotation(metadata, request::CLONE_REQUEST);
    if metadata.deletion_timestamp.is_some()
        || !is_wanted
        || meta::is_true(metadata, state::CLONE_OF)
    {
        return Stage::Over;
    }
    let is_done = meta::annotation(metadata, state::POD_PHASE) == Some("Succeeded");
    let has_server = is_done || meta::is_true(metadata, state::POD_READY);
    if meta::claim_phase(claim) == "Bound" && has_server { Stage::Ready } else { Stage::Waiting }
}

/// Whether the pod that reads has been noted, and somebody has promised to tidy it up.
pub fn has_finalizer(claim: &ObjectMeta) -> bool {
    claim.finalizers.iter().flatten().any(|name| name == finalizer::CLONE_SOURCE)
}

/// What follows for a claim from the pod that reads for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Annotations to change.
    pub annotations: Changes,
    /// On the claim.
    pub events: Vec<Event>,
}

/// What follows for a claim from the pod that reads for it.
pub fn plan(claim: &ObjectMeta, pod: &Pod) -> Plan {
    let mut said = Changes::default();
    let mut events = Vec::new();
    let report = report(pod);
    let noted = meta::annotation(claim, state::POD_RESTARTS).and_then(|text| text.parse().ok());
    said.set(claim, state::POD_RESTARTS, report.restarts.max(noted.unwrap_or(0)).to_string());
    let mut run = |running: bool, reason: &str, message: &str| {
        said.set(claim, state::SOURCE_RUNNING, running.to_string());
        said.set(claim, state::SOURCE_RUNNING_REASON, reason);
        said.set(claim, state::SOURCE_RUNNING_MESSAGE, message);
    };
    match (&report.exit, &report.running) {
        _ if report.phase == "Succeeded" => run(false, reason::COMPLETED, COMPLETE),
        (Some(Exit::Text { reason, text, .. }), _) => run(false, reason, text),
        (Some(Exit::Message(_)), _) => {}
        (None, Some((running, reason, message))) => run(*running, reason, message),
        (None, None) => {}
    }
    if report.phase == "Succeeded" {
        if let Some(Exit::Text { text, .. }) = &report.exit
            && text.contains(PREALLOCATED)
        {
            said.set(claim, state::PREALLOCATION, "true");
        }
        said.set(claim, state::CLONE_OF, "true");
        events.push(Event::normal(events::CLONE_SUCCEEDED, COMPLETE));
    }
    Plan { annotations: said, events }
}

/// A source and a target that do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// One holds a disk, the other files.
    #[error("source contentType ({source_has}) and target contentType ({target_has}) do not match")]
    Content {
        /// What the source holds.
        source_has: String,
        /// What the target is to hold.
        target_has: String,
    },
    /// Files go to a file system, and come from one.
    #[error("source volumeMode and target volumeMode do not match, contentType (archive)")]
    Mode,
    /// There is no room.
    #[error("target has less room for a disk than its source: {offered} < {needed}")]
    TooSmall {
        /// What the source may hold.
        needed: ByteCount,
        /// What fits into the target.
        offered: ByteCount,
    },
}

impl Mismatch {
    /// What people are told.
    pub fn event(&self) -> Event {
        Event::warning(events::INCOMPATIBLE_PVC, self.to_string())
    }
}

/// What a claim holds, a disk unless it says otherwise.
pub fn content_of(claim: &ObjectMeta) -> &str {
    let said = meta::annotation(claim, request::CONTENT_TYPE).filter(|text| !text.is_empty());
    said.unwrap_or(api::v1beta1::ContentType::Kubevirt.as_str())
}

/// Whether the source can be copied to the claim. `room`: bytes of a disk that fit into each, where that is known.
///
/// # Errors
/// [`Mismatch`].
pub fn check(
    source: &PersistentVolumeClaim,
    claim: &PersistentVolumeClaim,
    room: Option<(ByteCount, ByteCount)>,
) -> Result<(), Mismatch> {
    let (source_has, target_has) = (content_of(&source.metadata), content_of(&claim.metadata));
    if source_has != target_has {
        let (source_has, target_has) = (source_has.to_owned(), target_has.to_owned());
        return Err(Mismatch::Content { source_has, target_has });
    }
    let is_disk = source_has == api::v1beta1::ContentType::Kubevirt.as_str();
    if !is_disk && meta::is_block(source) != meta::is_block(claim) {
        return Err(Mismatch::Mode);
    }
    let is_permissive = meta::has_annotation(&claim.metadata, request::PERMISSIVE_CLONE);
    match room.filter(|(needed, offered)| needed > offered && !is_permissive) {
        Some((needed, offered)) => Err(Mismatch::TooSmall { needed, offered }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
