//! The result of a poll by a pod whose image the node pulls.

use api::v1beta1::DataImportCron;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use super::jobs::pulled_digest;
use crate::meta;

/// A pull that takes longer has failed.
const PULL_TIME_MAX: SignedDuration = SignedDuration::from_mins(30);

/// State of the pull of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodePull {
    Pulling,
    /// The digest or the reason. `None`: the pod was created for a poll that is over. The pod is to be deleted first.
    Ended(Option<Result<String, String>>),
}

pub fn node_pull(pod: &Pod, cron: &DataImportCron, now: Timestamp) -> NodePull {
    if pod.metadata.deletion_timestamp.is_some() {
        return NodePull::Pulling;
    }
    let owner = meta::controller(&pod.metadata);
    let is_foreign = owner.is_none_or(|owner| owner.uid != meta::uid(&cron.metadata));
    let created = pod.metadata.creation_timestamp.as_ref();
    let is_late = created.is_some_and(|created| now.duration_since(created.0) > PULL_TIME_MAX);
    match pulled_digest(pod) {
        None if !is_foreign && !is_late => NodePull::Pulling,
        None if is_foreign => NodePull::Ended(None),
        None => {
            let because = "no node has pulled the image in half an hour".to_owned();
            NodePull::Ended(Some(Err(because)))
        }
        Some(Ok(_)) if is_foreign || is_late => NodePull::Ended(None),
        Some(result) => NodePull::Ended(Some(result)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_without_a_digest_end_by_time_or_by_owner() {
        let cron: DataImportCron = serde_json::from_value(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron",
            "metadata": { "name": "cron", "namespace": "images", "uid": "u" },
            "spec": {
                "schedule": "", "managedDataSource": "fedora", "template": { "spec": {} },
            },
        }))
        .unwrap();
        let failed = || Some(Err("no node has pulled the image in half an hour".to_owned()));
        for (case, owner, is_terminating, minutes, expected) in [
            ("new", "u", false, 1, NodePull::Pulling),
            ("late", "u", false, 31, NodePull::Ended(failed())),
            ("of an earlier cron", "old", false, 1, NodePull::Ended(None)),
            ("of an earlier cron, late", "old", false, 31, NodePull::Ended(None)),
            ("terminating", "u", true, 31, NodePull::Pulling),
        ] {
            let deleted = is_terminating.then_some("2026-01-01T00:00:00Z");
            let pod: Pod = serde_json::from_value(json!({ "metadata": {
                "name": "poll", "creationTimestamp": "1970-01-01T00:00:00Z",
                "deletionTimestamp": deleted,
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "CronJob", "name": "x", "uid": owner, "controller": true,
                }],
            } }))
            .unwrap();
            let now = Timestamp::from_second(60 * minutes).unwrap();
            assert_eq!(node_pull(&pod, &cron, now), expected, "{case}");
        }
    }
}
