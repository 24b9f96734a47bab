//! What the cluster complains of claims that are not bound yet.

use std::collections::HashMap;

use crate::engine::queue::Key;
use controller_core::bound::Seen;
use parking_lot::Mutex;

/// Of one claim so many are kept: the newest.
const OF_ONE: usize = 4;
/// Of so many claims. A cluster with more of them has one trouble, and the first ones tell of it.
const CLAIMS: usize = 4096;

/// The latest warnings, by claim.
#[derive(Default)]
pub struct PvcWarnings(Mutex<HashMap<Key, Vec<Seen>>>);

impl PvcWarnings {
    /// Keeps one.
    pub fn note(&self, claim: Key, seen: Seen) {
        let mut all = self.0.lock();
        if all.len() >= CLAIMS && !all.contains_key(&claim) {
            return;
        }
        let of_claim = all.entry(claim).or_default();
        of_claim.retain(|known| known.event != seen.event);
        of_claim.push(seen);
        of_claim.sort_by_key(|seen| seen.at);
        if of_claim.len() > OF_ONE {
            of_claim.remove(0);
        }
    }

    /// Those about a claim.
    pub fn of(&self, namespace: &str, name: &str) -> Vec<Seen> {
        let all = self.0.lock();
        all.get(&Key::new(namespace, name)).cloned().unwrap_or_default()
    }

    /// The claim is bound, or gone.
    pub fn forget(&self, namespace: &str, name: &str) {
        let mut all = self.0.lock();
        all.remove(&Key::new(namespace, name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use controller_core::event::Event;

    #[test]
    fn the_newest_few_are_kept_until_the_claim_is_bound() {
        let pvc_warnings = PvcWarnings::default();
        for second in 0..6 {
            let at = Some(jiff::Timestamp::from_second(second).unwrap());
            let event = Event::warning("ProvisioningFailed", format!("try {}", second % 5));
            pvc_warnings.note(Key::new("vms", "disk"), Seen { event, at });
        }
        let kept: Vec<_> =
            pvc_warnings.of("vms", "disk").into_iter().map(|seen| seen.event.message).collect();
        assert_eq!(kept, ["try 2", "try 3", "try 4", "try 0"]);
        pvc_warnings.forget("vms", "disk");
        assert!(pvc_warnings.of("vms", "disk").is_empty());
    }
}
