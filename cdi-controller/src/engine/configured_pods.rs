//! Pods whose configuration is complete, which the cache does not show.

use std::collections::{HashSet, VecDeque};

use parking_lot::Mutex;

/// How many are recorded. Others are configured again.
const REMEMBERED: usize = 4096;

/// The last pods, by their UIDs.
#[derive(Default)]
pub struct ConfiguredPods(Mutex<(HashSet<String>, VecDeque<String>)>);

impl ConfiguredPods {
    /// Whether this pod is configured.
    pub fn contains(&self, uid: &str) -> bool {
        self.0.lock().0.contains(uid)
    }

    /// Records that the pod is configured.
    pub fn insert(&self, uid: &str) {
        let mut inner = self.0.lock();
        let (known, order) = &mut *inner;
        if known.insert(uid.to_owned()) {
            order.push_back(uid.to_owned());
        }
        if order.len() > REMEMBERED
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_remembered() {
        let configured_pods = ConfiguredPods::default();
        for n in 0..=REMEMBERED {
            configured_pods.insert(&n.to_string());
            configured_pods.insert(&n.to_string());
        }
        assert!(!configured_pods.contains("0"));
        assert!(configured_pods.contains("1") && configured_pods.contains(&REMEMBERED.to_string()));
    }
}
