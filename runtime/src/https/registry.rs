//! The slots of one server, shared by its accept loop and its connections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::slots::{Admission, Capacity, Eviction, Id, Slots, Source};

pub(super) struct Registry {
    books: Mutex<Books>,
    /// A slot may be free, or a connection may be evicted now. Only the accept loop waits for it.
    changed: Notify,
}

struct Books {
    slots: Slots,
    /// How the task of a connection is told to end it.
    evictions: HashMap<Id, oneshot::Sender<Eviction>>,
}

/// A slot, for as long as a connection has it.
pub(super) struct Lease {
    pub id: Id,
    pub registry: Arc<Registry>,
    /// Resolves when the connection has to leave.
    pub evicted: oneshot::Receiver<Eviction>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut books = self.registry.books();
        books.slots.remove(self.id);
        books.evictions.remove(&self.id);
        drop(books);
        self.registry.changed.notify_one();
    }
}

impl Registry {
    pub fn new(capacity: Capacity) -> Arc<Self> {
        let books = Books { slots: Slots::new(capacity), evictions: HashMap::new() };
        Arc::new(Self { books: Mutex::new(books), changed: Notify::new() })
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
        let mut books = self.books();
        let id = match books.slots.admit(source, now) {
            Admission::Full => return None,
            Admission::Admitted(id) => id,
            Admission::Instead { id, victim, eviction } => {
                if let Some(told) = books.evictions.remove(&victim) {
                    let _ = told.send(eviction); // the connection may be ending by itself
                }
                id
            }
        };
        let (sender, evicted) = oneshot::channel();
        books.evictions.insert(id, sender);
        drop(books);
        Some(Lease { id, registry: Arc::clone(self), evicted })
    }

    pub fn protect(&self, id: Id) {
        self.books().slots.protect(id);
    }

    pub fn release(&self, id: Id) {
        self.books().slots.release(id, Instant::now());
        self.changed.notify_one();
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
