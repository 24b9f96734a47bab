//! DataImportCrons in a disconnected cluster: polls fail for a day.

use std::time::Duration;

use api::annotations::cron as key;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use testkit::ReservedPort;

use super::golden::{annotate, condition_summary, create_cron, cron, run_until_stable};
use super::golden_polls::Server;
use super::log_lines::LogLines;
use super::world::TestCluster;
use super::{DONE, reasons};

/// Never due during a test, so that only the delay after a failure decides.
const SCHEDULE: &str = "0 0 29 2 *";
const PAST: &str = "2026-01-01T00:00:00Z";
const OUTAGE: SignedDuration = SignedDuration::from_hours(24);
/// The longest interval between polls that fail.
const INTERVAL_MAX: SignedDuration = SignedDuration::from_hours(1);
/// An interval is three quarters of an hour at least, once it has grown.
const POLLS_MAX: usize = 24 * 4 / 3 + 8;
/// A poll tries twice: the first failure, and that of the poll.
const LINES_PER_POLL_MAX: usize = 2;

/// Lets the time until the next poll pass, and polls.
async fn poll_again(world: &mut TestCluster) -> SignedDuration {
    let next = cron(world)["metadata"]["annotations"][key::NEXT_TIME].clone();
    let next: Timestamp = next.as_str().unwrap().parse().unwrap();
    let wait = next.duration_since(Timestamp::now()).max(SignedDuration::ZERO);
    tokio::time::advance(Duration::try_from(wait).unwrap()).await;
    annotate(world, key::NEXT_TIME, PAST);
    run_until_stable(world, DONE).await;
    wait
}

async fn expect_quiet_outage(world: &mut TestCluster, marker: &str, case: &str) {
    let lines = LogLines::record(marker);
    world.fake.0.lock().unwrap().events.clear();
    world.fake.0.lock().unwrap().writes.clear();
    let (mut offline, mut polls) = (SignedDuration::ZERO, 0);
    while offline < OUTAGE {
        // The first one after a success is due by the schedule.
        offline += poll_again(world).await.min(INTERVAL_MAX);
        polls += 1;
        assert_eq!(condition_summary(&cron(world), "UpToDate"), "False PollFailed", "{case}");
    }
    assert!((24..=POLLS_MAX).contains(&polls), "{case}: {polls} polls in {offline:#}");
    let lines = lines.take();
    let failures = lines.iter().filter(|line| line.contains("cannot poll the source")).count();
    assert_eq!(failures, polls, "{case}: {lines:#?}");
    assert!(lines.len() <= polls * LINES_PER_POLL_MAX, "{case}: {lines:#?}");
    assert_eq!(reasons(world), [""; 0], "{case}");
    // The time of the next poll, and once the condition.
    let writes = world.fake.0.lock().unwrap().writes.clone();
    assert!(writes.len() <= polls + 2, "{case}: {writes:#?}");
}

#[tokio::test(start_paused = true)]
async fn polls_that_fail_for_a_day_record_no_event_and_log_two_lines_each() {
    // No server of another test gets it.
    let port = ReservedPort::new();
    let address = format!("127.0.0.1:{}", port.number());
    let mut world = TestCluster::new("Immediate", true);
    let source = json!({ "http": { "url": format!("http://{address}/a.img") } });
    create_cron(&world, json!({ "schedule": SCHEDULE, "source": source }));
    run_until_stable(&mut world, DONE).await;
    expect_quiet_outage(&mut world, &address, "never reachable").await;
}

#[tokio::test(start_paused = true)]
async fn outage_after_an_import_records_no_event_and_ends_with_the_first_poll_that_succeeds() {
    let server = Server::start("v1");
    let mut world = TestCluster::new("Immediate", true);
    let source = json!({ "http": { "url": server.url() } });
    create_cron(&world, json!({ "schedule": SCHEDULE, "source": source }));
    run_until_stable(&mut world, DONE).await;
    server.set("");
    expect_quiet_outage(&mut world, &server.url(), "lost").await;
    server.set("v1");
    poll_again(&mut world).await;
    assert_eq!(condition_summary(&cron(&world), "UpToDate"), "True UpToDate");
}
