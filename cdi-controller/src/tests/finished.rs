//! DataVolumes that have had their time: they go, and their claims stay.

use api::annotations::request;
use serde_json::{Value, json};

use super::world::World;
use super::{DONE, blank, places, reasons};

const CONFIG: &str = "cdiconfigs//config";
const DISK: &str = "persistentvolumeclaims/vms/disk";

fn cluster(ttl: Value) -> World {
    let world = World::new("Immediate", true);
    world.fake.change(CONFIG, |config| config["spec"]["dataVolumeTTLSeconds"] = ttl);
    world
}

/// Everybody takes turns for a while.
async fn live(world: &mut World) {
    for _ in 0..12 {
        world.work().await;
        world.others(DONE);
    }
}

/// The claim has its volume, nobody owns it, and nothing is left of the DataVolume.
fn check_only_the_claim_is_left(world: &World, case: &str) {
    assert_eq!(places(world, "datavolumes"), [""; 0], "{case}");
    assert_eq!(places(world, "persistentvolumeclaims"), [DISK], "{case}");
    let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
    assert_eq!(claim["status"]["phase"], "Bound", "{case}");
    assert_eq!(claim["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len), 0, "{case}");
    for plural in ["pods", "volumeimportsources"] {
        assert_eq!(places(world, plural), [""; 0], "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_data_volume_goes_when_it_has_had_its_time_and_its_claim_stays() {
    let mut world = cluster(json!(0));
    world.volume("disk", blank());
    live(&mut world).await;
    check_only_the_claim_is_left(&world, "no time at all");
    assert!(reasons(&world).contains(&"DataVolumeCollected".to_owned()), "{:?}", reasons(&world));
    let writes = world.fake.0.lock().unwrap().writes.clone();
    let at = |what: &str| writes.iter().rposition(|write| write == what);
    let released = at(&format!("change {DISK}"));
    assert!(released < at("delete datavolumes/vms/disk"), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn it_stays_until_then_and_nobody_polls() {
    let mut world = cluster(json!(3600));
    world.volume("disk", blank());
    world.until("disk", "Succeeded", DONE).await;
    let requests = world.fake.0.lock().unwrap().requests;
    live(&mut world).await;
    assert_eq!(world.status("disk")["phase"], "Succeeded");
    assert_eq!(world.fake.0.lock().unwrap().requests, requests);
    // An hour later.
    world.fake.change("datavolumes/vms/disk", |volume| {
        for condition in volume["status"]["conditions"].as_array_mut().unwrap() {
            condition["lastTransitionTime"] = "2020-01-01T00:00:00Z".into();
        }
    });
    live(&mut world).await;
    check_only_the_claim_is_left(&world, "an hour later");
}

#[tokio::test(start_paused = true)]
async fn a_time_that_is_set_later_is_not_for_what_is_there_already() {
    for (ttl, said, is_kept) in [
        (json!(null), None, true),
        (json!(-1), None, true),
        (json!(-1), Some("true"), true),
        (json!(0), Some("false"), true),
        (json!(0), None, false),
    ] {
        let mut world = cluster(ttl.clone());
        world.volume("disk", blank());
        if let Some(said) = said {
            world.fake.change("datavolumes/vms/disk", |volume| {
                volume["metadata"]["annotations"] =
                    json!({ request::DELETE_AFTER_COMPLETION: said });
            });
        }
        live(&mut world).await;
        let case = format!("{ttl} {said:?}");
        assert_eq!(places(&world, "datavolumes").len() == 1, is_kept, "{case}");
        if is_kept && said.is_none() {
            world.fake.change(CONFIG, |config| config["spec"]["dataVolumeTTLSeconds"] = json!(0));
            live(&mut world).await;
            assert_eq!(places(&world, "datavolumes").len(), 1, "{case}: it was there before");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_data_volume_of_a_machine_stays_with_it() {
    let mut world = cluster(json!(0));
    let machine = json!({ "metadata": { "name": "vm", "namespace": "vms", "uid": "vm-uid" } });
    world.fake.put("configmaps", machine); // whatever it is, it is there
    world.volume("disk", blank());
    world.fake.change("datavolumes/vms/disk", |volume| {
        volume["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": "vm-uid",
            "controller": true, "blockOwnerDeletion": true,
        }]);
    });
    live(&mut world).await;
    assert_eq!(world.status("disk")["phase"], "Succeeded");
    let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
    assert_eq!(claim["metadata"]["ownerReferences"][0]["kind"], "DataVolume");
    // The machine goes, and takes along what is its own.
    world.fake.delete("configmaps/vms/vm");
    live(&mut world).await;
    for plural in ["datavolumes", "persistentvolumeclaims"] {
        assert_eq!(places(&world, plural), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_request_fails_no_claim_is_lost() {
    let requests = {
        let mut world = cluster(json!(0));
        world.volume("disk", blank());
        live(&mut world).await;
        world.fake.0.lock().unwrap().requests
    };
    for number in 1..=requests {
        for is_lost in [false, true] {
            let world = cluster(json!(0));
            {
                let mut state = world.fake.0.lock().unwrap();
                if is_lost {
                    state.loses_answer = Some(number)
                } else {
                    state.refuses = Some(number)
                }
            }
            world.volume("disk", blank());
            let mut world = World::over(world.fake);
            live(&mut world).await;
            // A new process, for whatever is put off until later.
            let mut world = World::over(world.fake);
            live(&mut world).await;
            check_only_the_claim_is_left(&world, &format!("{number} {is_lost}"));
        }
    }
}
