mod always;
mod cluster;
mod data_source;
mod forms;
mod imports;
mod polling;
mod retention;
mod sources;

use api::annotations::{cron as key, request};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::*;
use cluster::{TestCluster, digest, name};

#[test]
fn absent_status_members_are_null_in_the_patch() {
    let members = status_members(&DataImportCronStatus::default());
    assert_eq!(members.as_object().unwrap().len(), 6);
    assert!(members.as_object().unwrap().values().all(Value::is_null), "{members}");
}

#[test]
fn cron_with_a_running_poll_is_reconciled_after_the_poll_delay() {
    let now: Timestamp = "2026-11-21T20:00:00Z".parse().unwrap();
    let second = Duration::from_secs(1);
    let at = |seconds: i64| Some(now + jiff::SignedDuration::from_secs(seconds));
    for (look_again, wait, expected) in [
        (None, None, Requeue::OnChange),
        (at(0), None, Requeue::After(Duration::ZERO)),
        (at(-5), None, Requeue::After(Duration::ZERO)),
        (at(7), None, Requeue::After(7 * second)),
        (at(86_400), None, Requeue::After(SLEEP_MAX)),
        (at(0), Some(5 * second), Requeue::After(5 * second)),
        (at(1), Some(5 * second), Requeue::After(second)),
        (None, Some(5 * second), Requeue::After(5 * second)),
    ] {
        let plan = CronPlan { look_again, ..CronPlan::default() };
        assert_eq!(plan.requeue(wait, now), expected, "{look_again:?} {wait:?}");
    }
}
