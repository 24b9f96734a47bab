//! Clones without a size, of a file system whose disk is known to be smaller.

use api::annotations::{request, state};
use serde_json::{Value, json};

use super::super::fake::Fake;
use super::super::world::TestCluster;
use super::{Rights, cluster, phases, volume};

const GOLDEN: &str = "persistentvolumeclaims/vms/golden";

/// The PVC `golden` with a file system of 1 GiB, and a disk on it whose worker has recorded this size and capacity.
fn files(size: Option<(&str, &str)>, content: Option<&str>) -> Fake {
    let fake = cluster("copy", "vms", true);
    fake.change(GOLDEN, |claim| {
        claim["spec"]["volumeMode"] = "Filesystem".into();
        let annotations = &mut claim["metadata"]["annotations"];
        *annotations = json!({});
        if let Some((size, capacity)) = size {
            annotations[state::SOURCE_VIRTUAL_SIZE] = size.into();
            annotations[state::SOURCE_CAPACITY] = capacity.into();
        }
        if let Some(content) = content {
            annotations[request::CONTENT_TYPE] = content.into();
        }
    });
    fake
}

#[tokio::test(start_paused = true)]
async fn clone_of_a_file_system_is_large_enough_for_its_disk() {
    const DISK: &str = "943718400"; // 900 MiB
    let rights = Rights::new();
    // A file system of this size takes more than the overhead of 6 %: contract/src/small_volume.rs has what.
    for (name, noted, content, mode, expected) in [
        ("device", Some((DISK, "1Gi")), None, "Block", "900Mi"),
        ("file system", Some((DISK, "1Gi")), None, "Filesystem", "1068331057"),
        ("content type kubevirt", Some((DISK, "1Gi")), Some("kubevirt"), "Block", "900Mi"),
        ("not known", None, None, "Block", "1Gi"),
        ("expanded since", Some((DISK, "950Mi")), None, "Block", "1Gi"),
        ("more than there is", Some(("9999999999", "1Gi")), None, "Block", "1Gi"),
    ] {
        let fake = files(noted, content);
        let mut spec =
            super::block(json!({ "pvc": { "namespace": "vms", "name": "golden" } }), None);
        spec["storage"]["volumeMode"] = mode.into();
        volume(&fake, spec, None);
        let mut world = rights.controllers(fake, &[]);
        let phases = phases(&mut world).await;
        assert_eq!(phases.last().map(String::as_str), Some("Succeeded"), "{name}: {phases:?}");
        let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
        let size: &Value = &claim["spec"]["resources"]["requests"]["storage"];
        assert_eq!(size, expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn virtual_size_of_an_imported_disk_is_recorded_on_its_pvc() {
    const TERMINATION_MESSAGE: &str =
        r#"{"preallocationApplied":false,"message":"Import Complete","virtualSize":1000000000}"#;
    for has_driver in [true, false] {
        for (mode, expected) in [("Filesystem", json!("1000000000")), ("Block", json!(null))] {
            let mut world = TestCluster::new("Immediate", has_driver);
            world.volume(
                "disk",
                json!({
                    "source": { "blank": {} },
                    "pvc": {
                        "storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
                        "volumeMode": mode, "resources": { "requests": { "storage": "1Gi" } },
                    },
                }),
            );
            world.until("disk", "Succeeded", TERMINATION_MESSAGE).await;
            let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
            let annotations = &claim["metadata"]["annotations"];
            let case = format!("{mode}, with a driver: {has_driver}");
            assert_eq!(annotations[state::SOURCE_VIRTUAL_SIZE], expected, "{case}");
            let is_noted = annotations[state::SOURCE_CAPACITY] == "1Gi";
            assert_eq!(is_noted, !expected.is_null(), "{case}");
        }
    }
}
