//! Warning events about PVCs that are not bound yet.

use std::collections::HashMap;

use crate::engine::queue::Key;
use controller_core::bound::ObservedEvent;
use parking_lot::Mutex;

/// The newest warnings that are kept for one PVC.
const OF_ONE: usize = 4;
/// The PVCs for which warnings are kept. If more have warnings, they have a common cause, which the first ones report.
const CLAIMS: usize = 4096;

/// The latest warnings, by PVC.
#[derive(Default)]
pub struct PvcWarnings(Mutex<HashMap<Key, Vec<ObservedEvent>>>);

impl PvcWarnings {
    pub fn record(&self, claim: Key, seen: ObservedEvent) {
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

    pub fn for_pvc(&self, namespace: &str, name: &str) -> Vec<ObservedEvent> {
        let all = self.0.lock();
        all.get(&Key::new(namespace, name)).cloned().unwrap_or_default()
    }

    /// The PVC is bound or deleted.
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
    fn newest_warnings_are_kept_until_the_pvc_is_bound() {
        let pvc_warnings = PvcWarnings::default();
        for second in 0..6 {
            let at = Some(jiff::Timestamp::from_second(second).unwrap());
            let event = Event::warning("ProvisioningFailed", format!("try {}", second % 5));
            pvc_warnings.record(Key::new("vms", "disk"), ObservedEvent { event, at });
        }
        let kept: Vec<_> = pvc_warnings
            .for_pvc("vms", "disk")
            .into_iter()
            .map(|seen| seen.event.message)
            .collect();
        assert_eq!(kept, ["try 2", "try 3", "try 4", "try 0"]);
        pvc_warnings.forget("vms", "disk");
        assert!(pvc_warnings.for_pvc("vms", "disk").is_empty());
    }
}
