//! Pods whose ServiceAccount was deleted and created again. Their tokens name the deleted one, so the API server rejects
//! their requests, and the kubelet keeps the tokens for an hour: only a new pod helps.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use crate::metadata;

/// The pods that are older than their accounts. `accounts`: ServiceAccounts by name.
pub fn pods_with_rejected_tokens<'a>(
    pods: &'a [Value],
    accounts: &BTreeMap<String, &Value>,
) -> Vec<&'a Value> {
    let is_rejected = |pod: &&Value| {
        let name = pod["spec"]["serviceAccountName"].as_str().unwrap_or_default();
        let account = accounts.get(name).and_then(|account| created(account));
        let is_older = created(pod).zip(account).is_some_and(|(pod, account)| pod < account);
        is_older && !metadata::is_terminating(pod)
    };
    pods.iter().filter(is_rejected).collect()
}

fn created(object: &Value) -> Option<Timestamp> {
    object["metadata"]["creationTimestamp"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_that_are_older_than_their_account_are_found() {
        let object = |account: &str, created: &str| {
            json!({
                "metadata": { "creationTimestamp": created },
                "spec": { "serviceAccountName": account },
            })
        };
        let account = object("", "2027-01-01T00:00:10Z");
        let accounts = BTreeMap::from([("cdi-sa".to_owned(), &account)]);
        let mut terminating = object("cdi-sa", "2027-01-01T00:00:09Z");
        terminating["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:11Z".into();
        for (pod, expected) in [
            (object("cdi-sa", "2027-01-01T00:00:09Z"), true),
            // Time stamps have seconds: it may have been created with either account.
            (object("cdi-sa", "2027-01-01T00:00:10Z"), false),
            (object("cdi-sa", "2027-01-01T00:00:11Z"), false),
            (object("other", "2027-01-01T00:00:09Z"), false),
            (object("cdi-sa", ""), false),
            (terminating, false),
        ] {
            let pods = [pod];
            assert_eq!(
                pods_with_rejected_tokens(&pods, &accounts).len() == 1,
                expected,
                "{pods:?}"
            );
        }
    }
}
