//! The size of the disk in a PVC with a file system, as reported by the worker that filled it. Clones of the PVC need
//! capacity for the disk only, not for the overhead of the file system.
//!
//! The keys, misspelt as they are, and their validity are those of upstream CDI: the size is valid while the PVC has
//! the capacity that it had then. The disk in an expanded PVC may have been expanded too.

use api::annotations::state;
use contract::ByteCount;
use contract::termination::ExitMessage;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::meta::{self, Changes};

/// Records the size of the disk that the worker has reported.
pub fn record_virtual_size(
    changes: &mut Changes,
    claim: &PersistentVolumeClaim,
    message: &ExitMessage,
) {
    let Some(size) = message.virtual_size else { return };
    let status = claim.status.as_ref();
    let capacity = status.and_then(|status| status.capacity.as_ref()?.get("storage"));
    if let Some(capacity) = capacity.filter(|_| !meta::is_block(claim)) {
        changes.set(&claim.metadata, state::SOURCE_VIRTUAL_SIZE, size.to_string());
        changes.set(&claim.metadata, state::SOURCE_CAPACITY, capacity.0.as_str());
    }
}

/// The recorded size, if it is still valid. Users may write it, so one above the capacity is ignored.
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
    fn virtual_size_is_recorded_for_a_file_system_of_known_capacity() {
        let message = ExitMessage { virtual_size: Some(7 << 20), ..ExitMessage::default() };
        for (mode, capacity, is_noted) in [
            ("Filesystem", Some("10Mi"), true),
            ("Filesystem", None, false),
            ("Block", Some("10Mi"), false),
        ] {
            let mut claim = claim(mode, json!({}), capacity);
            let mut changes = Changes::default();
            record_virtual_size(&mut changes, &claim, &message);
            claim.metadata.annotations = Some(changes.applied_to(&claim.metadata));
            let expected = is_noted.then_some(ByteCount::new(7 << 20));
            assert_eq!(noted(&claim), expected, "{mode} {capacity:?}");
            changes = Changes::default();
            record_virtual_size(&mut changes, &claim, &ExitMessage::default());
            assert!(changes.is_empty());
        }
    }

    #[test]
    fn virtual_size_is_valid_while_the_capacity_is_the_same() {
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
