//! The state of a VolumeSnapshot that decisions about clones need.

use api::annotations::import;
use api::v1beta1::ClaimVolumeMode;

use super::SnapshotState;
use crate::meta;
use crate::snapshot::{VolumeSnapshot, VolumeSnapshotContent};

pub fn state_of(
    snapshot: &VolumeSnapshot,
    content: Option<&VolumeSnapshotContent>,
) -> SnapshotState {
    let metadata = &snapshot.metadata;
    let status = snapshot.status.as_ref();
    let noted = meta::annotation(metadata, import::SOURCE_VOLUME_MODE).and_then(mode_named);
    SnapshotState {
        name: meta::name(metadata).to_owned(),
        namespace: meta::namespace(metadata).to_owned(),
        created_at: metadata.creation_timestamp.as_ref().map(|time| time.0),
        taken: status.is_some_and(|status| status.creation_time.is_some()),
        ready: snapshot.is_ready(),
        restore_size: snapshot.restore_size().and_then(meta::bytes),
        mode: content.and_then(content_mode).or(noted),
        error: status.and_then(|status| status.error.as_ref()?.message.clone()),
        is_terminating: metadata.deletion_timestamp.is_some(),
        uid: metadata.uid.clone(),
    }
}

pub fn content_mode(content: &VolumeSnapshotContent) -> Option<ClaimVolumeMode> {
    content.spec.source_volume_mode.as_deref().and_then(mode_named)
}

fn mode_named(text: &str) -> Option<ClaimVolumeMode> {
    [ClaimVolumeMode::Block, ClaimVolumeMode::Filesystem]
        .into_iter()
        .find(|mode| mode.as_str() == text)
}
