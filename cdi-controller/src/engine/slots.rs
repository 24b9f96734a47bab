//! Limits how many imports or clones run at once. A slot is reserved in memory while its objects are being created, so that
//! no lock is held during an API call; from then on, the cache shows them.

use std::collections::HashSet;

use controller_core::object::Key;
use controller_core::turns::RunningByNamespace;
use parking_lot::{Mutex, MutexGuard};

/// The slots that are reserved, by pool. Imports have one pool, clones one for each storage class.
#[derive(Default)]
pub struct Slots(Mutex<HashSet<(String, Key)>>);

/// A reserved slot. Dropping it frees the slot.
pub struct Slot<'a> {
    slots: &'a Slots,
    entry: (String, Key),
}

impl Slots {
    /// Reserves a slot for a PVC, unless as many are taken as may be: by the PVCs that `at_work` finds in the cache, and by
    /// reservations of others.
    pub fn reserve(
        &self,
        pool: &str,
        claim: Key,
        at_work: impl FnOnce() -> Vec<Key>,
        most: usize,
    ) -> Option<Slot<'_>> {
        let mut reserved = self.lock();
        // A PVC that has a reservation may be in the cache already.
        let mut taken: HashSet<Key> = at_work().into_iter().collect();
        taken.extend(reserved.iter().filter(|(of, _)| of == pool).map(|(_, key)| key.clone()));
        let taken: RunningByNamespace = taken.iter().map(|key| key.namespace.as_str()).collect();
        if !taken.may_start(&claim.namespace, most) {
            return None;
        }
        let entry = (pool.to_owned(), claim);
        reserved.insert(entry.clone());
        Some(Slot { slots: self, entry })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<(String, Key)>> {
        self.0.lock()
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.slots.lock().remove(&self.entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_slot_counts_once_until_it_is_dropped() {
        let slots = Slots::default();
        let key = |name: &str| Key::new("vms", name);
        let reserve = |pool: &str, name: &str, at_work: &[&str]| {
            let at_work: Vec<Key> = at_work.iter().map(|name| key(name)).collect();
            slots.reserve(pool, key(name), || at_work, 2)
        };
        let first = reserve("", "a", &[]).unwrap();
        let second = reserve("", "b", &["a"]).unwrap();
        assert!(reserve("", "c", &["a"]).is_none(), "a and b");
        assert!(reserve("fast", "c", &[]).is_some(), "another pool");
        drop((first, second));
        assert!(reserve("", "c", &["a"]).is_some(), "a alone");
        assert!(reserve("", "c", &["a", "b"]).is_none(), "both are at work");
    }
}
