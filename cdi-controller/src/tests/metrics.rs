//! Metrics of StorageProfiles and pending DataVolumes.

use serde_json::{Value, json};

use super::world::TestCluster;
use super::{DONE, blank};
use crate::engine::metrics::page;

/// The value of a series, by its name and all its labels.
fn value(world: &TestCluster, series: &str) -> Option<String> {
    let text = page(&world.engine);
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map(str::to_owned)
}

fn about_fast(complete: bool, rwx: bool, smart: bool, degraded: bool) -> String {
    format!(
        "kubevirt_cdi_storageprofile_info{{storageclass=\"fast\",provisioner=\"csi.example\",complete=\"{complete}\",\
         default=\"true\",virtdefault=\"false\",rwx=\"{rwx}\",smartclone=\"{smart}\",degraded=\"{degraded}\"}}"
    )
}

fn teach(world: &TestCluster, spec: Value) {
    world.fake.change("storageprofiles//fast", |profile| profile["spec"] = spec);
}

#[tokio::test(start_paused = true)]
async fn storage_profile_metric_reports_missing_capabilities() {
    let mut world = TestCluster::new("Immediate", true);
    world.work().await;
    let nothing = about_fast(false, false, false, true);
    assert_eq!(value(&world, &nothing).as_deref(), Some("1"));
    teach(
        &world,
        json!({ "claimPropertySets": [{ "accessModes": ["ReadWriteOnce"], "volumeMode": "Block" }] }),
    );
    world.work().await;
    assert_eq!(value(&world, &nothing), None, "one series for each class");
    assert_eq!(value(&world, &about_fast(true, false, false, true)).as_deref(), Some("1"));
    teach(
        &world,
        json!({
            "cloneStrategy": "csi-clone",
            "claimPropertySets": [{ "accessModes": ["ReadWriteMany"], "volumeMode": "Block" }],
        }),
    );
    world.work().await;
    assert_eq!(value(&world, &about_fast(true, true, true, false)).as_deref(), Some("1"));
    world.fake.0.lock().unwrap().objects.remove("storageclasses//fast");
    world.work().await;
    assert!(!page(&world.engine).contains("storageclass=\"fast\""), "it went with its class");
}

#[tokio::test(start_paused = true)]
async fn data_volumes_waiting_for_a_default_class_are_counted() {
    let mut world = TestCluster::new("Immediate", true);
    let class = world.fake.get("storageclasses", "", "fast").unwrap();
    world.fake.0.lock().unwrap().objects.remove("storageclasses//fast");
    let mut spec = blank();
    let mut storage = spec.as_object_mut().unwrap().remove("pvc").unwrap();
    for key in ["storageClassName", "accessModes", "volumeMode"] {
        storage.as_object_mut().unwrap().remove(key);
    }
    spec["storage"] = storage;
    world.volume("disk", spec);
    world.work().await;
    let pending = "kubevirt_cdi_datavolume_pending";
    assert_eq!(value(&world, pending).as_deref(), Some("1"));
    world.fake.put("storageclasses", class);
    world.work().await;
    teach(
        &world,
        json!({ "claimPropertySets": [{ "accessModes": ["ReadWriteOnce"], "volumeMode": "Block" }] }),
    );
    world.until("disk", "Succeeded", DONE).await;
    assert_eq!(value(&world, pending).as_deref(), Some("0"));
}
