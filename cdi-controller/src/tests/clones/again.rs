//! The target PVC of a finished clone is deleted: it is created and filled again.

use api::annotations::request;

use super::{DONE, Rights, check_clean, cluster, phases, rounds};

#[tokio::test(start_paused = true)]
async fn clone_is_repeated_if_its_pvc_is_deleted() {
    let rights = Rights::new();
    for (strategy, namespace, has_driver) in [
        ("csi-clone", "vms", true),
        ("csi-clone", "images", true),
        ("snapshot", "images", true),
        ("copy", "vms", true),
        ("copy", "images", true),
        ("copy", "vms", false),
        ("copy", "images", false),
    ] {
        let case = format!("{strategy} from {namespace}, with a driver: {has_driver}");
        let fake = cluster(strategy, namespace, has_driver);
        rights.clone_of_claim(&fake, namespace);
        let mut world = rights.controllers(fake, &[]);
        world.until("disk", "Succeeded", DONE).await;
        let before = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
        world.fake.delete("persistentvolumeclaims/vms/disk");
        let mut were_others = false;
        for _ in 0..40 {
            world.work().await;
            let claim = world.fake.get("persistentvolumeclaims", "vms", "disk");
            let is_done = world.status("disk")["phase"] == "Succeeded";
            let is_bound = claim.is_some_and(|claim| claim["status"]["phase"] == "Bound");
            assert!(!is_done || is_bound, "{case}: done without a volume");
            were_others |= !is_done;
            world.simulate_cluster(DONE);
        }
        assert!(were_others, "{case}: the DataVolume never reported that its PVC is filled again");
        assert_eq!(world.status("disk")["phase"], "Succeeded", "{case}");
        let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
        assert_ne!(claim["metadata"]["uid"], before["metadata"]["uid"], "{case}");
        check_clean(&world, namespace, &case);
    }
}

#[tokio::test(start_paused = true)]
async fn clone_whose_pvc_and_source_are_deleted_waits_for_its_source() {
    let rights = Rights::new();
    let fake = cluster("csi-clone", "vms", true);
    rights.clone_of_claim(&fake, "vms");
    let mut world = rights.controllers(fake, &[]);
    world.until("disk", "Succeeded", DONE).await;
    let golden = world.fake.get("persistentvolumeclaims", "vms", "golden").unwrap();
    world.fake.delete("persistentvolumeclaims/vms/golden");
    world.fake.delete("persistentvolumeclaims/vms/disk");
    rounds(&mut world, 5).await;
    assert_eq!(world.status("disk")["phase"], "Pending");
    assert!(world.status("disk")["conditions"].to_string().contains("CloneWithoutSource"));
    world.fake.put("persistentvolumeclaims", golden);
    assert_eq!(phases(&mut world).await.last().map(String::as_str), Some("Succeeded"));
    check_clean(&world, "vms", "the source is back");
}

/// `storage.populatedFor` on a DataVolume marks its PVC, once populated, as restored. A backup program restores the PVC
/// of such a DataVolume: the controller does not create another one, and does not report success without it.
#[tokio::test(start_paused = true)]
async fn restored_data_volume_whose_pvc_is_deleted_waits_for_it() {
    let rights = Rights::new();
    let fake = cluster("csi-clone", "vms", true);
    rights.clone_of_claim(&fake, "vms");
    fake.change("datavolumes/vms/disk", |volume| {
        volume["metadata"]["annotations"][request::POPULATED_FOR] = "disk".into();
    });
    let mut world = rights.controllers(fake, &[]);
    world.until("disk", "Succeeded", DONE).await;
    let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
    assert_eq!(claim["metadata"]["annotations"][request::POPULATED_FOR], "disk");
    assert_eq!(claim["status"]["phase"], "Bound");
    let volume = world.fake.get("datavolumes", "vms", "disk").unwrap();
    assert_eq!(volume["metadata"]["annotations"][request::PRE_POPULATED], "disk");
    world.fake.delete("persistentvolumeclaims/vms/disk");
    rounds(&mut world, 5).await;
    assert_eq!(world.fake.get("persistentvolumeclaims", "vms", "disk"), None);
    assert_eq!(world.status("disk")["phase"], "Pending");
    assert!(world.status("disk")["conditions"].to_string().contains("No PVC found"));
    world.fake.put("persistentvolumeclaims", claim);
    world.until("disk", "Succeeded", DONE).await;
}
