//! A worker pod that was created and does not run yet.

use std::time::Duration;

use api::annotations::state;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use crate::meta::Changes;
use crate::plan::{Plan, Requeue, Write};

/// A worker that does not run by then is waiting for something that only the events of its pod name.
const STARTING_MAX: Duration = Duration::from_secs(10);
/// Between two lookups of those events.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(30);

/// For how long a pod is expected to be starting. `None`: the time of its creation is not known.
pub fn starting_time_left(pod: &Pod, now: Timestamp) -> Option<Duration> {
    let created = pod.metadata.creation_timestamp.as_ref()?;
    let age = Duration::try_from(now.duration_since(created.0)).unwrap_or_default();
    Some(STARTING_MAX.saturating_sub(age))
}

/// Whether the pod is expected to be starting still.
pub fn is_young(pod: &Pod, now: Timestamp) -> bool {
    starting_time_left(pod, now).is_some_and(|left| !left.is_zero())
}

/// Reports on the PVC what delays its worker: a Secret or ConfigMap that does not exist, a volume that cannot be mounted.
/// `warning`: reason and message of the pod's last warning.
pub fn plan_delayed_start(claim: &PersistentVolumeClaim, warning: Option<(&str, &str)>) -> Plan {
    let mut changes = Changes::default();
    if let Some((reason, message)) = warning {
        changes.set(&claim.metadata, state::RUNNING, "false");
        changes.set(&claim.metadata, state::RUNNING_REASON, reason);
        changes.set(&claim.metadata, state::RUNNING_MESSAGE, message);
    }
    let requeue = Requeue::After(LOOKUP_INTERVAL);
    Plan { requeue, ..Plan::writes(Write::annotations(claim, &changes)) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parsed<K: serde::de::DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn pod_is_expected_to_start_for_ten_seconds() {
        let created = |time: Value| parsed(json!({ "metadata": { "creationTimestamp": time } }));
        let at = |second| Timestamp::from_second(second).unwrap();
        let pod: Pod = created(json!("1970-01-01T00:01:40Z"));
        for (now, left) in [(100, 10), (103, 7), (110, 0), (1000, 0), (99, 10)] {
            let left = Some(Duration::from_secs(left));
            assert_eq!(starting_time_left(&pod, at(now)), left, "{now}");
            assert_eq!(is_young(&pod, at(now)), left != Some(Duration::ZERO), "{now}");
        }
        assert_eq!(starting_time_left(&created(Value::Null), at(100)), None);
    }

    #[test]
    fn delay_is_reported_once_and_looked_up_again() {
        let mut claim: PersistentVolumeClaim =
            parsed(json!({ "metadata": { "name": "disk", "namespace": "vms" } }));
        let quiet = plan_delayed_start(&claim, None);
        assert_eq!((quiet.writes, quiet.requeue), (vec![], Requeue::After(LOOKUP_INTERVAL)));
        let plan = plan_delayed_start(&claim, Some(("FailedMount", "no Secret")));
        let [Write::Patch { merge, guarded: false, .. }] = plan.writes.as_slice() else {
            panic!("{:?}", plan.writes)
        };
        let written = &merge["metadata"]["annotations"];
        assert_eq!(written[state::RUNNING_MESSAGE], "no Secret");
        claim.metadata.annotations = parsed(written.clone());
        let again = plan_delayed_start(&claim, Some(("FailedMount", "no Secret")));
        assert_eq!((again.writes, again.requeue), (vec![], Requeue::After(LOOKUP_INTERVAL)));
    }
}
