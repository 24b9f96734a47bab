//! Invariants that hold for any sequence of events.

use proptest::prelude::*;

use super::*;

/// An event in the cluster.
#[derive(Clone, Debug)]
enum Event {
    Publish(u32),
    Progress(&'static str),
    Fail,
    SnapshotsReady,
    Default(&'static str),
    Form(&'static str),
    Pin(Option<u32>),
    DeleteVolume,
    DeleteSource,
    DropVolumeKeepClaim,
    Reconcile,
    Wait,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (1..6_u32).prop_map(Event::Publish),
        2 => prop_oneof![Just("ImportScheduled"), Just("ImportInProgress"), Just("Failed")]
            .prop_map(Event::Progress),
        4 => Just(Event::Progress("Succeeded")),
        1 => Just(Event::Fail),
        4 => Just(Event::SnapshotsReady),
        1 => prop_oneof![Just("a"), Just("b"), Just("")].prop_map(Event::Default),
        1 => prop_oneof![Just("pvc"), Just("snapshot")].prop_map(Event::Form),
        1 => prop::option::of(1..6_u32).prop_map(Event::Pin),
        1 => Just(Event::DeleteVolume),
        1 => Just(Event::DeleteSource),
        1 => Just(Event::DropVolumeKeepClaim),
        6 => Just(Event::Reconcile),
        1 => Just(Event::Wait),
    ]
}

fn happen(cluster: &mut TestCluster, event: &Event) {
    let current = cluster.current();
    match event {
        Event::Publish(number) => cluster.publish(*number),
        Event::Progress(phase) => {
            let running = current.filter(|name| !is_done(cluster, name));
            if let Some(name) = running {
                cluster.progress(&name, phase);
            }
        }
        Event::Fail => {
            let running = current.filter(|name| !is_done(cluster, name));
            if let Some(name) = running {
                cluster.fail(&name, "it fails");
            }
        }
        Event::SnapshotsReady => cluster.snapshots_are_ready(),
        Event::Default(class) => cluster.set_default(class),
        Event::Form(form) => cluster.set_form(form),
        Event::Pin(number) => {
            let pinned = number.map(digest);
            cluster.annotate(key::PINNED_DIGEST, pinned.as_deref());
        }
        Event::DeleteVolume => {
            if let Some(name) = current {
                cluster.delete(Kind::Volume, &name);
            }
        }
        Event::DeleteSource => cluster.delete(Kind::Source, "fedora"),
        Event::DropVolumeKeepClaim => {
            let done = current.filter(|name| is_done(cluster, name));
            cluster.volumes.retain(|volume| volume.metadata.name != done);
        }
        Event::Reconcile => {
            cluster.reconcile();
        }
        Event::Wait => cluster.now += SignedDuration::from_hours(13),
    }
}

fn is_done(cluster: &TestCluster, name: &str) -> bool {
    cluster.volumes.iter().any(|volume| {
        meta::name(&volume.metadata) == name && state::phase_of(volume) == "Succeeded"
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// [`TestCluster::reconcile`] asserts that no reconcile loses the usable image; this test runs it after random
    /// events.
    #[test]
    fn no_reconcile_loses_a_usable_image_and_the_latest_is_imported_in_the_end(
        keep in prop::option::of(0..3_i32),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut cluster = TestCluster::new(json!({ "importsToKeep": keep }));
        cluster.publish(1);
        for event in &events {
            happen(&mut cluster, event);
        }
        // Once no more events occur, the desired image is imported.
        cluster.set_default("a");
        cluster.annotate(key::PINNED_DIGEST, None);
        cluster.publish(7);
        for _ in 0..12 {
            cluster.settle();
            let Some(name) = cluster.current() else { continue };
            cluster.volumes.iter_mut().for_each(|volume| {
                if let Some(status) = &mut volume.status {
                    status.conditions = None;
                }
            });
            cluster.progress(&name, "Succeeded");
            cluster.snapshots_are_ready();
        }
        cluster.settle();
        prop_assert_eq!(cluster.condition("UpToDate"), "True UpToDate: Latest import is up to date");
        prop_assert!(cluster.is_usable());
        let target = cluster.data_source_target().unwrap();
        prop_assert!(target.ends_with(&name(7)), "{}", target);
    }
}
