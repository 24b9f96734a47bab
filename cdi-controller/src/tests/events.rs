//! Which component records an event, and how repeats are counted.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use super::fake::Fake;
use super::world::TestCluster;
use super::{DONE, blank};
use crate::engine::events::EventRecorder;
use controller_core::components::ALL as COMPONENTS;
use controller_core::event::Event;
use controller_core::object::ObjectRef;

/// Reason, component and count of each event.
fn recorded(fake: &Fake) -> Vec<(String, String, i64)> {
    let events = fake.0.lock().unwrap().events.clone();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let row = |event: &serde_json::Value| {
        assert_eq!(event["source"]["component"], event["reportingComponent"]);
        let count = event["count"].as_i64().unwrap();
        (text(&event["reason"]), text(&event["source"]["component"]), count)
    };
    events.iter().map(row).collect()
}

#[tokio::test(start_paused = true)]
async fn repeated_event_increments_the_count_of_the_existing_one() {
    let fake = Fake::default();
    let recorder = EventRecorder::new(fake.client());
    let claim: PersistentVolumeClaim = serde_json::from_value(
        json!({ "metadata": { "name": "disk", "namespace": "vms", "uid": "1" } }),
    )
    .unwrap();
    let record = async |component: &str, message: &str| {
        recorder
            .record(component, &ObjectRef::for_object(&claim), &Event::warning("Error", message))
            .await;
    };
    let counts = || recorded(&fake).into_iter().map(|(_, _, count)| count).collect::<Vec<_>>();
    for _ in 0..3 {
        record("a", "404").await;
    }
    assert_eq!(counts(), [1], "written once, counted in memory");
    tokio::time::advance(Duration::from_secs(10)).await;
    record("a", "404").await;
    assert_eq!(counts(), [4]);
    // The pause doubles.
    tokio::time::advance(Duration::from_secs(10)).await;
    record("a", "404").await;
    assert_eq!(counts(), [4]);
    tokio::time::advance(Duration::from_secs(10)).await;
    record("a", "404").await;
    assert_eq!(counts(), [6]);
    // Another message or another component is another event.
    record("a", "403").await;
    record("b", "404").await;
    assert_eq!(counts(), [6, 1, 1]);
    // Kubernetes has removed the event.
    fake.0.lock().unwrap().events.clear();
    tokio::time::advance(Duration::from_secs(3600)).await;
    record("a", "404").await;
    assert_eq!(counts(), [1]);
}

#[tokio::test(start_paused = true)]
async fn pause_between_two_writes_of_an_event_is_at_most_ten_minutes() {
    let fake = Fake::default();
    let recorder = EventRecorder::new(fake.client());
    let claim: PersistentVolumeClaim =
        serde_json::from_value(json!({ "metadata": { "name": "disk", "namespace": "vms" } }))
            .unwrap();
    let mut requests = Vec::new();
    for _ in 0..24 * 60 {
        recorder
            .record("a", &ObjectRef::for_object(&claim), &Event::normal("Bound", "PVC disk Bound"))
            .await;
        requests.push(fake.0.lock().unwrap().requests);
        tokio::time::advance(Duration::from_secs(60)).await;
    }
    // 10, 20, … 640 s, and then every ten minutes of a day.
    assert!((140..=155).contains(requests.last().unwrap()), "{:?}", requests.last());
    assert!(recorded(&fake)[0].2 > 1400, "all are counted: {:?}", recorded(&fake));
}

#[tokio::test(start_paused = true)]
async fn events_have_the_component_names_of_upstream_cdi() {
    for (has_driver, of_volume, of_claim) in [
        (true, "datavolume-import-controller", "import-populator"),
        (false, "datavolume-import-controller", "import-controller"),
    ] {
        let mut world = TestCluster::new("Immediate", has_driver);
        world.volume("disk", blank());
        world.until("disk", "Succeeded", DONE).await;
        let events = world.fake.0.lock().unwrap().events.clone();
        let of_kind = |kind: &str| -> BTreeSet<String> {
            let events = events.iter().filter(|event| event["involvedObject"]["kind"] == kind);
            let events = events.filter(|event| event["involvedObject"]["name"] == "disk");
            events.map(|event| event["source"]["component"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(of_kind("DataVolume"), BTreeSet::from([of_volume.to_owned()]), "{has_driver}");
        let expected = BTreeSet::from([of_claim.to_owned()]);
        assert_eq!(of_kind("PersistentVolumeClaim"), expected, "{has_driver}");
    }
    // Upstream's names.
    assert_eq!(
        COMPONENTS,
        [
            "datavolume-import-controller",
            "datavolume-upload-controller",
            "datavolume-external-population-controller",
            "datavolume-pvc-clone-controller",
            "datavolume-snapshot-clone-controller",
            "import-populator",
            "upload-populator",
            "clone-populator",
            "clone-controller",
            "import-controller",
            "upload-controller",
            "forklift-populator-controller",
            "dataimportcron-controller",
            "config-controller",
        ]
    );
}
