use super::*;

fn polled(cluster: &TestCluster, result: PollResult) -> Polled {
    Polled { at: cluster.now, result }
}

fn newest(number: u32) -> PollResult {
    PollResult::Newest { digest: digest(number), image_stream_ref: None }
}

fn failed(failures: u32) -> PollResult {
    PollResult::Failed { failures, because: "the registry does not answer".into() }
}

fn next(cluster: &TestCluster) -> Timestamp {
    meta::annotation(&cluster.cron.metadata, key::NEXT_TIME).unwrap().parse().unwrap()
}

#[test]
fn new_cron_polls_at_once_and_then_by_schedule() {
    let mut cluster = TestCluster::new(json!({}));
    let plan = cluster.reconcile();
    assert_eq!(plan.poll, Some(Poller::Registry));
    assert_eq!(
        meta::annotation(&cluster.cron.metadata, key::NEXT_TIME),
        Some("2026-11-21T20:00:00Z")
    );
    let at = cluster.now;
    let plan = cluster.reconcile_with(Some(&polled(&cluster, newest(1))));
    assert_eq!(plan.poll, None);
    assert_eq!(
        meta::annotation(&cluster.cron.metadata, key::DESIRED_DIGEST),
        Some(digest(1).as_str())
    );
    assert_eq!(
        meta::annotation(&cluster.cron.metadata, key::LAST_TIME),
        Some(at.to_string().as_str())
    );
    let midnight: Timestamp = "2026-11-22T00:00:00Z".parse().unwrap();
    let late = next(&cluster).duration_since(midnight);
    assert!(late >= SignedDuration::ZERO && late <= SignedDuration::from_mins(5), "{late}");
    let last = cluster.cron.status.as_ref().unwrap().last_execution_timestamp.clone();
    assert_eq!(last, Some(Time(at)));
    // No poll is due before.
    cluster.settle();
    let plan = cluster.reconcile();
    assert_eq!((plan.poll, plan.look_again), (None, Some(next(&cluster))));
    cluster.now = next(&cluster);
    assert_eq!(cluster.reconcile().poll, Some(Poller::Registry));
    // A user may remove the time or set it.
    cluster.annotate(key::NEXT_TIME, None);
    assert_eq!(cluster.reconcile().poll, Some(Poller::Registry));
    cluster.annotate(key::NEXT_TIME, Some("2027-01-01T00:00:00Z"));
    assert_eq!(cluster.reconcile().poll, None);
    cluster.annotate(key::NEXT_TIME, Some("soon"));
    assert_eq!(cluster.reconcile().poll, Some(Poller::Registry));
}

#[test]
fn schedule_without_a_next_time_polls_only_once() {
    for schedule in ["0 0 30 2 *", "0 0 1 1 * 2020"] {
        let mut cluster = TestCluster::new(json!({ "schedule": schedule }));
        assert_eq!(cluster.reconcile().poll, Some(Poller::Registry));
        cluster.reconcile_with(Some(&polled(&cluster, newest(1))));
        cluster.settle();
        let plan = cluster.reconcile();
        assert_eq!((plan.poll, plan.look_again), (None, None), "{schedule}");
        // A time that a user sets is due, and a failed poll is retried.
        cluster.annotate(key::NEXT_TIME, Some("2026-01-01T00:00:00Z"));
        assert_eq!(cluster.reconcile().poll, Some(Poller::Registry));
        cluster.reconcile_with(Some(&polled(&cluster, failed(1))));
        assert!(cluster.reconcile().look_again.is_some());
        cluster.now = next(&cluster);
        assert_eq!(cluster.reconcile().poll, Some(Poller::Registry));
    }
}

#[test]
fn cron_with_an_empty_schedule_never_polls_and_imports_a_digest_set_by_hand() {
    let mut cluster = TestCluster::new(json!({ "schedule": "" }));
    cluster.settle();
    assert_eq!(meta::annotation(&cluster.cron.metadata, key::NEXT_TIME), None);
    assert_eq!(cluster.reconcile().poll, None);
    cluster.import(1);
    assert_eq!(cluster.condition("UpToDate"), "True UpToDate: Latest import is up to date");
}

#[test]
fn invalid_schedule_is_reported_in_a_condition() {
    let mut cluster = TestCluster::new(json!({ "schedule": "now and then" }));
    cluster.settle();
    assert!(
        cluster
            .condition("UpToDate")
            .starts_with("False IllegalSchedule: \"now and then\" is no cron schedule")
    );
}

#[test]
fn failed_polls_change_the_condition_once_and_are_retried_with_backoff() {
    let mut cluster = TestCluster::new(json!({ "schedule": "0 0 1 1 *" }));
    cluster.import(1);
    let mut waits = Vec::new();
    let mut changes = 0;
    for failures in 1..=12 {
        let before = cluster.cron.status.clone();
        cluster.reconcile_with(Some(&polled(&cluster, failed(failures))));
        let after = cluster.cron.status.as_ref().unwrap().conditions.clone();
        changes += usize::from(before.unwrap().conditions != after);
        cluster.settle();
        assert_eq!(cluster.condition("UpToDate"), "False PollFailed: the registry does not answer");
        assert_eq!(cluster.data_source_target(), Some(format!("pvc {}", name(1))));
        waits.push(next(&cluster).duration_since(cluster.now).as_secs());
        cluster.now = next(&cluster);
    }
    assert_eq!(changes, 1, "the message is constant");
    assert!(waits.windows(2).all(|two| two[0] <= two[1] + 2), "{waits:?}");
    assert!(waits[0] <= 60 && waits[11] > 40 * 60 && waits[11] <= 60 * 60, "{waits:?}");
    // A poll succeeds again.
    cluster.reconcile_with(Some(&polled(&cluster, PollResult::Unchanged)));
    cluster.settle();
    assert_eq!(cluster.condition("UpToDate"), "True UpToDate: Latest import is up to date");
}

#[test]
fn failed_poll_is_retried_no_later_than_by_schedule() {
    let mut cluster = TestCluster::new(json!({ "schedule": "*/10 * * * *" }));
    cluster.reconcile_with(Some(&polled(&cluster, failed(20))));
    let waited = next(&cluster).duration_since(cluster.now);
    assert!(waited <= SignedDuration::from_mins(12), "{waited}");
    assert_eq!(cluster.condition("UpToDate"), "False PollFailed: the registry does not answer");
}

#[test]
fn retry_delay_grows_to_an_hour_and_differs_between_crons() {
    for failures in 0..40 {
        let waits = ["a/a", "a/b", "a/c"].map(|place| patience(failures, place).as_secs());
        assert!(waits.iter().all(|wait| (45..=3600).contains(wait)), "{failures}: {waits:?}");
    }
    let all: std::collections::BTreeSet<_> =
        (0..100).map(|n| patience(9, &format!("images/cron-{n}"))).collect();
    assert!(all.len() > 80);
}
