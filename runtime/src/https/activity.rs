//! The activity of one connection: requests that run, responses that are being sent, idle time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::Limits;
use super::registry::Registry;
use super::slots::Id;

pub(super) struct Activity {
    registry: Arc<Registry>,
    id: Id,
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    /// Number of the next request.
    next: u64,
    /// Requests whose handler runs, and whether the handler has accepted them.
    running: BTreeMap<u64, bool>,
    /// Responses that are being sent, and since when.
    sending: BTreeMap<u64, Instant>,
    /// Since when both are empty.
    idle_since: Instant,
    has_served: bool,
    /// The client has presented a certificate that was verified.
    is_certified: bool,
    /// The next response ends the connection.
    is_retired: bool,
}

impl State {
    fn is_protected(&self) -> bool {
        self.is_certified || self.running.values().any(|accepted| *accepted)
    }

    /// When the connection exceeds a limit. `None` while a handler runs: handlers have limits of their own.
    fn deadline(&self, limits: &Limits) -> Option<Instant> {
        if !self.running.is_empty() {
            return None;
        }
        if let Some((_, since)) = self.sending.first_key_value() {
            return Some(*since + limits.sending);
        }
        let patience = if self.has_served { limits.idle } else { limits.patience };
        Some(self.idle_since + patience)
    }
}

impl Activity {
    pub fn new(registry: Arc<Registry>, id: Id, is_certified: bool) -> Arc<Self> {
        if is_certified {
            registry.protect(id);
        }
        let state = State {
            next: 0,
            running: BTreeMap::new(),
            sending: BTreeMap::new(),
            idle_since: Instant::now(),
            has_served: false,
            is_certified,
            is_retired: false,
        };
        Arc::new(Self { registry, id, state: Mutex::new(state), changed: Notify::new() })
    }

    /// The head of a request is complete.
    pub fn start_request(self: &Arc<Self>) -> Running {
        let mut state = self.state();
        let request = state.next;
        state.next += 1;
        state.running.insert(request, false);
        Running { activity: Arc::clone(self), request }
    }

    /// An accepted request is in flight.
    pub fn is_working(&self) -> bool {
        let state = self.state();
        state.is_protected() && !state.running.is_empty()
    }

    pub fn has_served(&self) -> bool {
        self.state().has_served
    }

    /// From now on a response ends the connection.
    pub fn retire(&self) {
        self.state().is_retired = true;
    }

    pub fn is_retired(&self) -> bool {
        self.state().is_retired
    }

    /// Returns once the connection exceeds a limit.
    pub async fn overdue(&self, limits: &Limits) {
        loop {
            let changed = self.changed.notified();
            let deadline = self.state().deadline(limits);
            let far = Instant::now() + Duration::from_secs(3600);
            tokio::select! {
                () = changed => {}
                () = sleep_until(deadline.unwrap_or(far)) => {
                    let deadline = self.state().deadline(limits);
                    if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                        return;
                    }
                }
            }
        }
    }

    fn accept(&self, request: u64) {
        let mut state = self.state();
        if let Some(accepted) = state.running.get_mut(&request) {
            *accepted = true;
            self.registry.protect(self.id);
        }
    }

    /// Changes the state. Releases the slot's protection if the connection waits from now on.
    fn finish(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        let was_protected = state.is_protected();
        change(&mut state);
        let is_idle = state.running.is_empty() && state.sending.is_empty();
        if is_idle {
            (state.idle_since, state.has_served) = (Instant::now(), true);
        }
        // Under the lock, so that the registry sees changes in order.
        if !state.is_protected() && (was_protected || is_idle) {
            self.registry.release(self.id);
        }
        drop(state);
        self.changed.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// A request whose handler runs.
pub(super) struct Running {
    activity: Arc<Activity>,
    request: u64,
}

impl Running {
    pub fn in_flight(&self) -> InFlight {
        InFlight { activity: Arc::clone(&self.activity), request: self.request }
    }

    /// The handler has returned its response.
    pub fn sending(self) -> Sending {
        let (activity, request) = (Arc::clone(&self.activity), self.request);
        activity.state().sending.insert(request, Instant::now());
        Sending { activity, request } // and this drops `self`
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.activity.finish(|state| {
            state.running.remove(&self.request);
        });
    }
}

/// A response that is being sent.
pub(super) struct Sending {
    activity: Arc<Activity>,
    request: u64,
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.activity.finish(|state| {
            state.sending.remove(&self.request);
        });
    }
}

/// A request in flight, as its handler sees it: [`serve`](super::serve) adds it to the request's extensions.
#[derive(Clone)]
pub struct InFlight {
    activity: Arc<Activity>,
    request: u64,
}

impl InFlight {
    /// Protects the request's connection from eviction until its handler returns. Call it once the request has
    /// proved worth it (its token is valid, its body is complete): until then a flood may evict it.
    pub fn accept(&self) {
        self.activity.accept(self.request);
    }
}
