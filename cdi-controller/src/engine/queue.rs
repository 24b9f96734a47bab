//! Work that waits: each object once, however often it was announced, and never twice at the same time.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

pub use controller_core::object::Key;

/// After the first failure; each further one doubles it.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(200);
/// What the doubling ends at. A watch wakes sooner, when something changes.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(120);

/// What comes after a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A watch tells when there is more to do.
    Wait,
    /// Nobody is going to tell: look again then.
    After(Duration),
    /// It failed: again, later and later.
    Retry,
}

/// The queue of one controller.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Key>,
    /// What is in `ready`.
    waiting: HashSet<Key>,
    working: HashSet<Key>,
    /// Announced while it was being worked on.
    again: HashSet<Key>,
    /// What is not due yet, by time; numbered, as two may be due at once.
    later: BTreeMap<(Instant, u64), Key>,
    due: HashMap<Key, (Instant, u64)>,
    failures: HashMap<Key, u32>,
    count: u64,
}

impl State {
    fn push(&mut self, key: Key) {
        if let Some(slot) = self.due.remove(&key) {
            self.later.remove(&slot);
        }
        if self.waiting.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    fn push_later(&mut self, key: Key, at: Instant) {
        if self.waiting.contains(&key) || self.due.get(&key).is_some_and(|(due, _)| *due <= at) {
            return;
        }
        if let Some(slot) = self.due.remove(&key) {
            self.later.remove(&slot);
        }
        self.count += 1;
        let slot = (at, self.count);
        self.later.insert(slot, key.clone());
        self.due.insert(key, slot);
    }

    fn pop(&mut self, now: Instant) -> Option<Key> {
        while let Some(entry) = self.later.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let key = entry.remove();
            self.due.remove(&key);
            if self.working.contains(&key) {
                self.again.insert(key);
            } else {
                self.push(key);
            }
        }
        let key = self.ready.pop_front()?;
        self.waiting.remove(&key);
        self.working.insert(key.clone());
        Some(key)
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces work.
    pub fn add(&self, key: Key) {
        let mut state = self.state();
        if state.working.contains(&key) {
            state.again.insert(key);
        } else {
            state.push(key);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Announces work that can wait a little, so that what comes meanwhile is done together.
    pub fn add_after(&self, key: Key, delay: Duration) {
        self.state().push_later(key, Instant::now() + delay);
        self.changed.notify_one();
    }

    /// Takes the next piece of work, and waits for it. [`Queue::done`] has to follow.
    pub async fn next(&self) -> Key {
        loop {
            let next = {
                let mut state = self.state();
                if let Some(key) = state.pop(Instant::now()) {
                    drop(state);
                    // Another worker minds what is left.
                    self.changed.notify_one();
                    return key;
                }
                state.later.first_key_value().map(|((at, _), _)| *at)
            };
            match next {
                Some(at) => {
                    tokio::select! {
                        () = self.changed.notified() => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
                None => self.changed.notified().await,
            }
        }
    }

    /// The work on `key` has ended.
    pub fn done(&self, key: Key, next: Next) {
        let mut state = self.state();
        state.working.remove(&key);
        let delay = match next {
            Next::Retry => {
                let failures = state.failures.entry(key.clone()).or_default();
                let delay = RETRY_DELAY_MIN.saturating_mul(1 << (*failures).min(20));
                *failures += 1;
                Some(delay.min(RETRY_DELAY_MAX))
            }
            Next::After(delay) => {
                state.failures.remove(&key);
                Some(delay)
            }
            Next::Wait => {
                state.failures.remove(&key);
                None
            }
        };
        if state.again.remove(&key) {
            state.push(key);
        } else if let Some(delay) = delay {
            state.push_later(key, Instant::now() + delay);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// How much waits: now, and until later.
    pub fn depth(&self) -> (usize, usize) {
        let state = self.state();
        (state.ready.len(), state.later.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("vms", name)
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_waits_once_and_is_worked_on_once_at_a_time() {
        let queue = Queue::default();
        for name in ["a", "b", "a", "a"] {
            queue.add(key(name));
        }
        assert_eq!(queue.next().await, key("a"));
        queue.add(key("a"));
        assert_eq!(queue.next().await, key("b"), "a is being worked on");
        assert_eq!(queue.depth(), (0, 0));
        queue.done(key("a"), Next::Wait);
        assert_eq!(queue.next().await, key("a"), "it was announced meanwhile");
        queue.done(key("a"), Next::Wait);
        queue.done(key("b"), Next::Wait);
        let idle = tokio::time::timeout(Duration::from_secs(3600), queue.next()).await;
        assert!(idle.is_err(), "nothing is left");
    }

    #[tokio::test(start_paused = true)]
    async fn who_fails_waits_longer_each_time_until_it_succeeds() {
        let queue = Queue::default();
        queue.add(key("a"));
        let mut delays = Vec::new();
        for _ in 0..14 {
            let begin = Instant::now();
            let next = queue.next().await;
            delays.push(begin.elapsed());
            queue.done(next, Next::Retry);
        }
        assert_eq!(delays[0], Duration::ZERO);
        let timer = Duration::from_millis(2); // of the runtime
        for (n, delay) in delays.iter().enumerate().skip(1) {
            let wanted = RETRY_DELAY_MIN.saturating_mul(1 << (n - 1)).min(RETRY_DELAY_MAX);
            assert!(*delay >= wanted && *delay <= wanted + timer, "{n}: {delay:?}");
        }
        let next = queue.next().await;
        queue.done(next, Next::After(Duration::ZERO));
        let next = queue.next().await;
        queue.done(next, Next::Retry);
        let begin = Instant::now();
        queue.next().await;
        assert!(begin.elapsed() <= RETRY_DELAY_MIN + timer, "a success is a new beginning");
    }

    #[tokio::test(start_paused = true)]
    async fn the_sooner_of_two_times_counts_and_news_cut_a_wait_short() {
        let queue = Queue::default();
        let begin = Instant::now();
        queue.add_after(key("a"), Duration::from_secs(60));
        queue.add_after(key("a"), Duration::from_secs(10));
        queue.add_after(key("a"), Duration::from_secs(30));
        assert_eq!(queue.depth(), (0, 1));
        let a = queue.next().await;
        assert_eq!(begin.elapsed().as_secs(), 10);
        queue.done(a, Next::After(Duration::from_secs(60)));
        queue.add(key("a"));
        queue.next().await;
        assert_eq!(begin.elapsed().as_secs(), 10);
        assert_eq!(queue.depth(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn many_workers_miss_nothing() {
        let queue = std::sync::Arc::new(Queue::default());
        let done = std::sync::Arc::new(Mutex::new(Vec::new()));
        let mut workers = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let (queue, done) = (queue.clone(), done.clone());
            workers.spawn(async move {
                loop {
                    let key = queue.next().await;
                    tokio::time::sleep(Duration::from_millis(7)).await;
                    done.lock().unwrap().push(key.clone());
                    queue.done(key, Next::Wait);
                }
            });
        }
        for n in 0..500u64 {
            queue.add_after(key(&n.to_string()), Duration::from_millis(n * 37 % 900));
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        let mut done = std::mem::take(&mut *done.lock().unwrap());
        done.sort();
        done.dedup();
        assert_eq!(done.len(), 500);
    }
}
