//! The size of the disk in a claim with a file system, as the worker that filled it has said. Clones of the claim need room
//! for the disk, and not for what the file system keeps for itself.
//!
//! The keys, misspelt as they are, and their validity are those of upstream CDI: the size holds for as long as the claim has
//! the capacity that it had then. A claim that has grown may have a disk that has grown too.

use api::annotations::state;
use contract::ByteCount;
use contract::termination::ExitMessage;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::meta::{self, Changes};

/// Notes what a worker has said of the disk in a claim.
pub fn note(changes: &mut Changes, claim: &PersistentVolumeClaim, message: &ExitMessage) {
    let Some(size) = message.virtual_size else { return };
    let status = claim.status.as_ref();
    let capacity = status.and_then(|status| status.capacity.as_ref()?.get("storage"));
    if let Some(capacity) = capacity.filter(|_| !meta::is_block(claim)) {
        changes.set(&claim.metadata, state::SOURCE_VIRTUAL_SIZE, size.to_string());
        changes.set(&claim.metadata, state::SOURCE_CAPACITY, capacity.0.as_str());
    }
}

/// What was noted, where it still holds. Users may write it, so that it is never more than the claim has.
pub fn noted(claim: &PersistentVolumeClaim) -> Option<ByteCount> {
    let noted = |key| meta::annotation(&claim.metadata, key);
    let size = noted(state::SOURCE_VIRTUAL_SIZE)?.parse().ok().map(ByteCount::new)?;
    let capacity = meta::bytes(claim.status.as_ref()?.capacity.as_ref()?.get("storage")?)?;
    let capacity_then = meta::bytes(&Quantity(noted(state::SOURCE_CAPACITY)?.to_owned()))?;
    let holds = !meta::is_block(claim) && capacity_then == capacity;
    (holds && size.get() > 0 && size <= capacity).then_some(size)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(mode: &str, annotations: Value, capacity: Option<&str>) -> PersistentVolumeClaim {
        serde_json::from_value(json!({
            "metadata": { "name": "disk", "annotations": annotations },
            "spec": { "volumeMode": mode },
            "status": { "capacity": capacity.map(|size| json!({ "storage": size })) },
        }))
        .unwrap()
    }

    #[test]
    fn a_size_is_noted_for_a_file_system_whose_capacity_is_known() {
        let message = ExitMessage { virtual_size: Some(7 << 20), ..ExitMessage::default() };
        for (mode, capacity, is_noted) in [
            ("Filesystem", Some("10Mi"), true),
            ("Filesystem", None, false),
            ("Block", Some("10Mi"), false),
        ] {
            let mut claim = claim(mode, json!({}), capacity);
            let mut changes = Changes::default();
            note(&mut changes, &claim, &message);
            claim.metadata.annotations = Some(changes.applied_to(&claim.metadata));
            let expected = is_noted.then_some(ByteCount::new(7 << 20));
            assert_eq!(noted(&claim), expected, "{mode} {capacity:?}");
            changes = Changes::default();
            note(&mut changes, &claim, &ExitMessage::default());
            assert!(changes.is_empty());
        }
    }

    #[test]
    fn a_size_holds_as_long_as_the_capacity_does() {
        for (size, then, now, expected) in [
            ("7340032", "10Mi", "10Mi", Some(7_340_032)),
            ("7340032", "10Mi", "10485760", Some(7_340_032)),
            ("7340032", "10Mi", "20Mi", None),
            ("99999999", "10Mi", "10Mi", None),
            ("0", "10Mi", "10Mi", None),
            ("-1", "10Mi", "10Mi", None),
            ("many", "10Mi", "10Mi", None),
            ("7340032", "some", "10Mi", None),
        ] {
            let notes = json!({ state::SOURCE_VIRTUAL_SIZE: size, state::SOURCE_CAPACITY: then });
            let found = noted(&claim("Filesystem", notes, Some(now)));
            assert_eq!(found.map(ByteCount::get), expected, "{size} {then} {now}");
        }
    }
}
