use super::*;

fn answered(world: &World, answer: PollResult) -> Polled {
    Polled { at: world.now, result: answer }
}

fn newest(number: u32) -> PollResult {
    PollResult::Newest { digest: digest(number), image_stream_ref: None }
}

fn failed(failures: u32) -> PollResult {
    PollResult::Failed { failures, because: "the registry does not answer".into() }
}

fn next(world: &World) -> Timestamp {
    meta::annotation(&world.cron.metadata, key::NEXT_TIME).unwrap().parse().unwrap()
}

#[test]
fn a_new_cron_asks_at_once_and_then_when_it_is_time() {
    let mut world = World::new(json!({}));
    let plan = world.look();
    assert_eq!(plan.poll, Some(Poller::Registry));
    assert_eq!(
        meta::annotation(&world.cron.metadata, key::NEXT_TIME),
        Some("2026-11-21T20:00:00Z")
    );
    let at = world.now;
    let plan = world.look_with(Some(&answered(&world, newest(1))));
    assert_eq!(plan.poll, None);
    assert_eq!(
        meta::annotation(&world.cron.metadata, key::DESIRED_DIGEST),
        Some(digest(1).as_str())
    );
    assert_eq!(
        meta::annotation(&world.cron.metadata, key::LAST_TIME),
        Some(at.to_string().as_str())
    );
    let midnight: Timestamp = "2026-11-22T00:00:00Z".parse().unwrap();
    let late = next(&world).duration_since(midnight);
    assert!(late >= SignedDuration::ZERO && late <= SignedDuration::from_mins(5), "{late}");
    let last = world.cron.status.as_ref().unwrap().last_execution_timestamp.clone();
    assert_eq!(last, Some(Time(at)));
    // Nothing is asked before.
    world.settle();
    let plan = world.look();
    assert_eq!((plan.poll, plan.look_again), (None, Some(next(&world))));
    world.now = next(&world);
    assert_eq!(world.look().poll, Some(Poller::Registry));
    // A hand that takes the time away is heeded, and so is one that sets it.
    world.annotate(key::NEXT_TIME, None);
    assert_eq!(world.look().poll, Some(Poller::Registry));
    world.annotate(key::NEXT_TIME, Some("2027-01-01T00:00:00Z"));
    assert_eq!(world.look().poll, None);
    world.annotate(key::NEXT_TIME, Some("soon"));
    assert_eq!(world.look().poll, Some(Poller::Registry));
}

#[test]
fn a_schedule_that_never_comes_again_asks_once_and_not_without_end() {
    for schedule in ["0 0 30 2 *", "0 0 1 1 * 2020"] {
        let mut world = World::new(json!({ "schedule": schedule }));
        assert_eq!(world.look().poll, Some(Poller::Registry));
        world.look_with(Some(&answered(&world, newest(1))));
        world.settle();
        let plan = world.look();
        assert_eq!((plan.poll, plan.look_again), (None, None), "{schedule}");
        // A hand that sets a time is heeded, and whoever did not answer is asked again.
        world.annotate(key::NEXT_TIME, Some("2026-01-01T00:00:00Z"));
        assert_eq!(world.look().poll, Some(Poller::Registry));
        world.look_with(Some(&answered(&world, failed(1))));
        assert!(world.look().look_again.is_some());
        world.now = next(&world);
        assert_eq!(world.look().poll, Some(Poller::Registry));
    }
}

#[test]
fn an_empty_schedule_never_asks_and_imports_what_is_set_by_hand() {
    let mut world = World::new(json!({ "schedule": "" }));
    world.settle();
    assert_eq!(meta::annotation(&world.cron.metadata, key::NEXT_TIME), None);
    assert_eq!(world.look().poll, None);
    world.import(1);
    assert_eq!(world.says("UpToDate"), "True UpToDate: Latest import is up to date");
}

#[test]
fn a_schedule_that_is_none_is_told() {
    let mut world = World::new(json!({ "schedule": "now and then" }));
    world.settle();
    assert!(
        world
            .says("UpToDate")
            .starts_with("False IllegalSchedule: \"now and then\" is no cron schedule")
    );
}

#[test]
fn an_unanswered_question_is_told_once_and_asked_less_and_less_often() {
    let mut world = World::new(json!({ "schedule": "0 0 1 1 *" }));
    world.import(1);
    let mut waits = Vec::new();
    let mut changes = 0;
    for failures in 1..=12 {
        let before = world.cron.status.clone();
        world.look_with(Some(&answered(&world, failed(failures))));
        let told = world.cron.status.as_ref().unwrap().conditions.clone();
        changes += usize::from(before.unwrap().conditions != told);
        world.settle();
        assert_eq!(world.says("UpToDate"), "False PollFailed: the registry does not answer");
        assert_eq!(world.stands_for(), Some(format!("pvc {}", name(1))));
        waits.push(next(&world).duration_since(world.now).as_secs());
        world.now = next(&world);
    }
    assert_eq!(changes, 1, "the words are the same");
    assert!(waits.windows(2).all(|two| two[0] <= two[1] + 2), "{waits:?}");
    assert!(waits[0] <= 60 && waits[11] > 40 * 60 && waits[11] <= 60 * 60, "{waits:?}");
    // An answer at last.
    world.look_with(Some(&answered(&world, PollResult::Unchanged)));
    world.settle();
    assert_eq!(world.says("UpToDate"), "True UpToDate: Latest import is up to date");
}

#[test]
fn a_failure_is_never_waited_out_for_longer_than_the_schedule_says() {
    let mut world = World::new(json!({ "schedule": "*/10 * * * *" }));
    world.look_with(Some(&answered(&world, failed(20))));
    let waited = next(&world).duration_since(world.now);
    assert!(waited <= SignedDuration::from_mins(12), "{waited}");
    assert_eq!(world.says("UpToDate"), "False PollFailed: the registry does not answer");
}

#[test]
fn patience_grows_to_an_hour_and_differs_from_cron_to_cron() {
    for failures in 0..40 {
        let waits = ["a/a", "a/b", "a/c"].map(|place| patience(failures, place).as_secs());
        assert!(waits.iter().all(|wait| (45..=3600).contains(wait)), "{failures}: {waits:?}");
    }
    let all: std::collections::BTreeSet<_> =
        (0..100).map(|n| patience(9, &format!("images/cron-{n}"))).collect();
    assert!(all.len() > 80);
}
