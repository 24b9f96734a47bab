//! What always holds, whatever happens in whatever order.

use proptest::prelude::*;

use super::*;

/// Something that happens in a cluster.
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
    Look,
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
        6 => Just(Event::Look),
        1 => Just(Event::Wait),
    ]
}

fn happen(world: &mut World, event: &Event) {
    let current = world.current();
    match event {
        Event::Publish(number) => world.publish(*number),
        Event::Progress(phase) => {
            let running = current.filter(|name| !is_done(world, name));
            if let Some(name) = running {
                world.progress(&name, phase);
            }
        }
        Event::Fail => {
            let running = current.filter(|name| !is_done(world, name));
            if let Some(name) = running {
                world.fail(&name, "it fails");
            }
        }
        Event::SnapshotsReady => world.snapshots_are_ready(),
        Event::Default(class) => world.set_default(class),
        Event::Form(form) => world.set_form(form),
        Event::Pin(number) => {
            let pinned = number.map(digest);
            world.annotate(key::PINNED_DIGEST, pinned.as_deref());
        }
        Event::DeleteVolume => {
            if let Some(name) = current {
                world.delete(Kind::Volume, &name);
            }
        }
        Event::DeleteSource => world.delete(Kind::Source, "fedora"),
        Event::DropVolumeKeepClaim => {
            let done = current.filter(|name| is_done(world, name));
            world.volumes.retain(|volume| volume.metadata.name != done);
        }
        Event::Look => {
            world.look();
        }
        Event::Wait => world.now += SignedDuration::from_hours(13),
    }
}

fn is_done(world: &World, name: &str) -> bool {
    world.volumes.iter().any(|volume| {
        meta::name(&volume.metadata) == name && state::phase_of(volume) == "Succeeded"
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// `World::look` watches that no look loses the image that people use; here the looks are many and the world is wild.
    #[test]
    fn no_look_loses_a_good_image_and_all_ends_well(
        keep in prop::option::of(0..3_i32),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut world = World::new(json!({ "importsToKeep": keep }));
        world.publish(1);
        for event in &events {
            happen(&mut world, event);
        }
        // In the end the world calms down, and what was asked for is there.
        world.set_default("a");
        world.annotate(key::PINNED_DIGEST, None);
        world.publish(7);
        for _ in 0..12 {
            world.settle();
            let Some(name) = world.current() else { continue };
            world.volumes.iter_mut().for_each(|volume| {
                if let Some(status) = &mut volume.status {
                    status.conditions = None;
                }
            });
            world.progress(&name, "Succeeded");
            world.snapshots_are_ready();
        }
        world.settle();
        prop_assert_eq!(world.says("UpToDate"), "True UpToDate: Latest import is up to date");
        prop_assert!(world.is_usable());
        let stands_for = world.stands_for().unwrap();
        prop_assert!(stands_for.ends_with(&name(7)), "{}", stands_for);
    }
}
