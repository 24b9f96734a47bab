//! The slots of one server, shared by its accept loop and its connections.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::slots::{Admission, Capacity, Eviction, Id, Slots, Source};

pub(super) struct Registry {
    table: Mutex<SlotTable>,
    /// A slot may be free, or a connection may be evicted now. Only the accept loop waits for it.
    changed: Notify,
}

struct SlotTable {
    slots: Slots,
    /// Signals the connection's task to end it.
    evictions: HashMap<Id, oneshot::Sender<Eviction>>,
}

/// A slot, for as long as a connection has it.
pub(super) struct Lease {
    pub id: Id,
    pub registry: Arc<Registry>,
    /// Resolves when the connection is evicted.
    pub evicted: oneshot::Receiver<Eviction>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut table = self.registry.table();
        table.slots.remove(self.id);
        table.evictions.remove(&self.id);
        drop(table);
        self.registry.changed.notify_one();
    }
}

impl Registry {
    pub fn new(capacity: Capacity) -> Arc<Self> {
        let table = SlotTable { slots: Slots::new(capacity), evictions: HashMap::new() };
        Arc::new(Self { table: Mutex::new(table), changed: Notify::new() })
    }

    /// A slot for a connection from `source`. Waits only while all slots are protected; then the kernel's backlog bounds
    /// how many clients wait.
    pub async fn admit(self: &Arc<Self>, source: Source) -> Lease {
        loop {
            if let Some(lease) = self.try_admit(source, Instant::now()) {
                return lease;
            }
            self.changed.notified().await;
        }
    }

    fn try_admit(self: &Arc<Self>, source: Source, now: Instant) -> Option<Lease> {
        let mut table = self.table();
        let id = match table.slots.admit(source, now) {
            Admission::Full => return None,
            Admission::Admitted(id) => id,
            Admission::Instead { id, victim, eviction } => {
                if let Some(sender) = table.evictions.remove(&victim) {
                    let _ = sender.send(eviction); // fails if the connection is ending by itself
                }
                id
            }
        };
        let (sender, evicted) = oneshot::channel();
        table.evictions.insert(id, sender);
        drop(table);
        Some(Lease { id, registry: Arc::clone(self), evicted })
    }

    pub fn protect(&self, id: Id) {
        self.table().slots.protect(id);
    }

    pub fn release(&self, id: Id) {
        self.table().slots.release(id, Instant::now());
        self.changed.notify_one();
    }

    fn table(&self) -> MutexGuard<'_, SlotTable> {
        self.table.lock()
    }
}
