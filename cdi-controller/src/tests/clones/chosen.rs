//! Clones whose strategy the user selects by annotation.

use api::annotations::state;
use serde_json::json;

use super::super::places;
use super::{Rights, claim_of_a_source, cluster, of_claim, rounds, volume};

#[tokio::test(start_paused = true)]
async fn clone_type_annotation_selects_the_strategy() {
    let rights = Rights::new();
    for (profile, wanted, expected) in [
        ("snapshot", "copy", "copy"),
        ("snapshot", "csi-clone", "csi-clone"),
        ("copy", "snapshot", "snapshot"),
        ("copy", "fastest", "copy"),
    ] {
        for is_volume in [false, true] {
            let case = format!("{profile}, {wanted}, by a DataVolume: {is_volume}");
            let fake = cluster(profile, "vms", true);
            if is_volume {
                volume(&fake, of_claim("vms"), None);
                fake.change("datavolumes/vms/disk", |volume| {
                    volume["metadata"]["annotations"] = json!({ state::CLONE_TYPE: wanted });
                });
            } else {
                claim_of_a_source(&fake, "vms", "disk", json!({ state::CLONE_TYPE: wanted }));
            }
            let mut world = rights.controllers(fake, &[]);
            rounds(&mut world, 25).await;
            let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
            assert_eq!(claim["status"]["phase"], "Bound", "{case}");
            let annotations = &claim["metadata"]["annotations"];
            assert_eq!(annotations[state::CLONE_TYPE], expected, "{case}");
            assert_eq!(annotations[state::CLONE_PHASE], "Succeeded", "{case}");
            assert_eq!(places(&world, "pods"), [""; 0], "{case}");
        }
    }
}
