//! Volumes without a storage class, and DataVolumes that request one.

use serde_json::{Value, json};

use super::world::TestCluster;
use super::{DONE, places};

/// Kubernetes treats an absent class of a volume and an empty one alike.
fn put_volume(world: &TestCluster, class: Value) {
    world.fake.put(
        "persistentvolumes",
        json!({
            "metadata": { "name": "by-hand" },
            "spec": {
                "storageClassName": class, "volumeMode": "Block", "accessModes": ["ReadWriteMany"],
                "capacity": { "storage": "1Gi" },
            },
            "status": { "phase": "Available" },
        }),
    );
}

#[tokio::test(start_paused = true)]
async fn data_volume_without_a_class_uses_the_properties_of_a_classless_volume() {
    for class in [json!(null), json!("")] {
        for comes_later in [false, true] {
            let case = format!("{class}, later: {comes_later}");
            let mut world = TestCluster::new("Immediate", true);
            if !comes_later {
                put_volume(&world, class.clone());
            }
            world.volume(
                "disk",
                json!({
                    "source": { "blank": {} },
                    "storage": {
                        "storageClassName": "", "resources": { "requests": { "storage": "1Gi" } },
                    },
                }),
            );
            world.work().await;
            if comes_later {
                assert_eq!(places(&world, "persistentvolumeclaims"), [""; 0], "{case}");
                put_volume(&world, class.clone());
                world.work().await;
            }
            let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").expect(&case);
            let spec = &claim["spec"];
            assert_eq!(spec["storageClassName"], "", "{case}");
            assert_eq!(spec["volumeMode"], "Block", "{case}");
            assert_eq!(spec["accessModes"], json!(["ReadWriteMany"]), "{case}");
            world.until("disk", "Succeeded", DONE).await;
        }
    }
}
