//! Warnings about PVCs that the controller does not know yet.
//!
//! The watches of PVCs and of events have no common order: a driver may refuse a new PVC before the watch of PVCs delivers
//! it. Some provisioners report an error that they consider final only once, so a warning that comes early must be kept.

use std::collections::VecDeque;

use k8s_openapi::api::core::v1::Event;
use parking_lot::Mutex;

/// Warnings kept for all namespaces together; the oldest are dropped first.
const KEPT_MAX: usize = 1024;
/// Warnings kept for one namespace, so that a tenant who creates events displaces only its own.
const OF_NAMESPACE_MAX: usize = 32;

/// Warnings about unknown PVCs, the oldest first.
#[derive(Default)]
pub struct EarlyWarnings(Mutex<VecDeque<Event>>);

impl EarlyWarnings {
    /// Keeps a warning until its PVC is delivered. One that names no UID cannot be assigned and is dropped.
    pub fn keep(&self, event: &Event) {
        if event.involved_object.uid.as_deref().is_none_or(str::is_empty) {
            return;
        }
        let namespace = &event.involved_object.namespace;
        let is_same_namespace = |kept: &Event| kept.involved_object.namespace == *namespace;
        let mut all = self.0.lock();
        if all.iter().filter(|kept| is_same_namespace(kept)).count() >= OF_NAMESPACE_MAX {
            let oldest = all.iter().position(is_same_namespace);
            oldest.and_then(|oldest| all.remove(oldest));
        }
        if all.len() >= KEPT_MAX {
            all.pop_front();
        }
        all.push_back(event.clone());
    }

    /// Removes and returns the warnings about the PVC with this UID, the oldest first.
    pub fn take(&self, uid: &str) -> Vec<Event> {
        let is_about = |event: &Event| event.involved_object.uid.as_deref() == Some(uid);
        let mut all = self.0.lock();
        // Each change of each PVC comes here, and hardly any has a warning that waits.
        if !all.iter().any(is_about) {
            return Vec::new();
        }
        let (taken, kept): (VecDeque<_>, _) = all.drain(..).partition(is_about);
        *all = kept;
        taken.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning(namespace: &str, uid: &str, message: &str) -> Event {
        let about = serde_json::json!({ "namespace": namespace, "name": "disk", "uid": uid });
        serde_json::from_value(serde_json::json!({
            "metadata": { "name": "e" }, "involvedObject": about, "message": message,
        }))
        .unwrap()
    }

    fn messages(early: &EarlyWarnings, uid: &str) -> Vec<String> {
        early.take(uid).into_iter().filter_map(|event| event.message).collect()
    }

    #[test]
    fn warnings_are_kept_by_uid_and_taken_once() {
        let early = EarlyWarnings::default();
        for (uid, message) in [("a", "1"), ("b", "2"), ("a", "3"), ("", "4")] {
            early.keep(&warning("vms", uid, message));
        }
        assert_eq!(messages(&early, "a"), ["1", "3"]);
        assert!(messages(&early, "a").is_empty());
        assert!(messages(&early, "").is_empty());
        assert_eq!(messages(&early, "b"), ["2"]);
    }

    #[test]
    fn a_tenant_displaces_only_its_own_warnings() {
        let early = EarlyWarnings::default();
        early.keep(&warning("victim", "v", "refused"));
        for number in 0..2 * KEPT_MAX {
            early.keep(&warning("hostile", &format!("h{number}"), "noise"));
        }
        assert_eq!(early.0.lock().len(), OF_NAMESPACE_MAX + 1);
        assert_eq!(messages(&early, "v"), ["refused"]);
        assert_eq!(messages(&early, &format!("h{}", 2 * KEPT_MAX - 1)), ["noise"]);
    }

    #[test]
    fn no_more_than_the_newest_are_kept_of_many_namespaces() {
        let early = EarlyWarnings::default();
        for number in 0..=KEPT_MAX {
            early.keep(&warning(&format!("n{number}"), &format!("u{number}"), "refused"));
        }
        assert_eq!(early.0.lock().len(), KEPT_MAX);
        assert!(messages(&early, "u0").is_empty());
    }
}
