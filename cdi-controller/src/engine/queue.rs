//! The work queue of a controller: an object waits in it once, however often it was added, and is worked on by one worker at
//! a time.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

pub use controller_core::object::Key;

use controller_core::plan::Requeue;

/// Upper bound of the delay after the first failure; each further one doubles it.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(200);
/// Upper bound of every delay. A watch ends a delay earlier, when something changes.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(120);

/// Uniformly distributed over all values.
type Random = fn() -> u64;

/// The queue of one controller.
pub struct Queue {
    state: Mutex<State>,
    changed: Notify,
    random: Random,
}

impl Default for Queue {
    fn default() -> Self {
        Self::with_random(kernel_random)
    }
}

#[derive(Default)]
struct State {
    ready: VecDeque<Key>,
    /// The keys in `ready`.
    waiting: HashSet<Key>,
    working: HashSet<Key>,
    /// Added while it was being worked on.
    again: HashSet<Key>,
    /// Not due yet, by time; numbered, because two may be due at the same time.
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
    /// The source of jitter is an argument so that tests are deterministic.
    fn with_random(random: Random) -> Self {
        Self { state: Mutex::default(), changed: Notify::default(), random }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// An object that is being worked on is worked on once more afterwards.
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

    /// Adds the object after `delay`, so that changes in between are reconciled together. An earlier due time is kept.
    pub fn add_after(&self, key: Key, delay: Duration) {
        self.state().push_later(key, Instant::now() + delay);
        self.changed.notify_one();
    }

    /// Waits for the next object. The caller must call [`Queue::finish`] with it.
    pub async fn next(&self) -> Key {
        loop {
            let next = {
                let mut state = self.state();
                if let Some(key) = state.pop(Instant::now()) {
                    drop(state);
                    // `notify_one` may have been called once for several objects: wake the next worker.
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

    /// Ends the reconciliation of `key`.
    pub fn finish(&self, key: Key, requeue: Requeue) {
        let mut state = self.state();
        state.failures.remove(&key);
        let delay = match requeue {
            Requeue::OnChange => None,
            Requeue::After(delay) => Some(delay),
            Requeue::Now => Some(Duration::ZERO),
        };
        self.end(state, key, delay);
    }

    /// Ends a failed reconciliation of `key`, which is repeated with exponential back-off and jitter.
    pub fn retry(&self, key: Key) {
        let mut state = self.state();
        let failures = state.failures.entry(key.clone()).or_default();
        let delay = retry_delay(*failures, (self.random)());
        *failures = failures.saturating_add(1);
        self.end(state, key, Some(delay));
    }

    fn end(&self, mut state: MutexGuard<'_, State>, key: Key, delay: Option<Duration>) {
        state.working.remove(&key);
        if state.again.remove(&key) {
            state.push(key);
        } else if let Some(delay) = delay {
            state.push_later(key, Instant::now() + delay);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// How many objects are ready, and how many are not due yet.
    pub fn depth(&self) -> (usize, usize) {
        let state = self.state();
        (state.ready.len(), state.later.len())
    }
}

/// The delay after one more failure than `failures`: between half of the back-off and all of it. Without jitter, objects
/// that failed together (for example because the API server was down) would all be retried at the same moment.
fn retry_delay(failures: u32, random: u64) -> Duration {
    let backoff = RETRY_DELAY_MIN.saturating_mul(1 << failures.min(20)).min(RETRY_DELAY_MAX);
    let half = backoff / 2;
    let jitter = half.as_nanos() * u128::from(random) / u128::from(u64::MAX);
    half + Duration::from_nanos(u64::try_from(jitter).unwrap_or(u64::MAX))
}

/// Where the kernel has no random numbers, delays have no jitter.
fn kernel_random() -> u64 {
    runtime::random_bytes::<8>().map_or(u64::MAX, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn key(name: &str) -> Key {
        Key::new("vms", name)
    }

    #[test]
    fn retry_delay_doubles_to_its_maximum_with_jitter_below_it() {
        let milliseconds = |failures, random| retry_delay(failures, random).as_millis();
        for (failures, least, most) in [
            (0, 100, 200),
            (1, 200, 400),
            (2, 400, 800),
            (9, 51_200, 102_400),
            (10, 60_000, 120_000),
            (20, 60_000, 120_000),
            (u32::MAX, 60_000, 120_000),
        ] {
            assert_eq!(milliseconds(failures, 0), least);
            assert_eq!(milliseconds(failures, u64::MAX), most);
            let middle = milliseconds(failures, u64::MAX / 2);
            assert!(middle.abs_diff((least + most) / 2) <= 1, "{failures}: {middle}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn objects_that_fail_together_are_retried_apart() {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let queue = Queue::with_random(|| NEXT.fetch_add(u64::MAX / 4, Ordering::Relaxed));
        let names = ["a", "b", "c", "d"];
        for name in names {
            queue.add(key(name));
        }
        for name in names {
            assert_eq!(queue.next().await, key(name));
        }
        for name in names {
            queue.retry(key(name));
        }
        let failed = Instant::now();
        for (name, earliest) in names.into_iter().zip([100, 125, 150, 175]) {
            assert_eq!(queue.next().await, key(name));
            let delay = failed.elapsed().as_millis();
            assert!((earliest..earliest + 5).contains(&delay), "{name}: {delay} ms");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn object_waits_once_and_has_one_worker_at_a_time() {
        let queue = Queue::default();
        for name in ["a", "b", "a", "a"] {
            queue.add(key(name));
        }
        assert_eq!(queue.next().await, key("a"));
        queue.add(key("a"));
        assert_eq!(queue.next().await, key("b"), "a is being worked on");
        assert_eq!(queue.depth(), (0, 0));
        queue.finish(key("a"), Requeue::OnChange);
        assert_eq!(queue.next().await, key("a"), "it was added meanwhile");
        queue.finish(key("a"), Requeue::OnChange);
        queue.finish(key("b"), Requeue::OnChange);
        let idle = tokio::time::timeout(Duration::from_secs(3600), queue.next()).await;
        assert!(idle.is_err(), "nothing is left");
    }

    #[tokio::test(start_paused = true)]
    async fn delay_of_a_failing_object_grows_until_it_succeeds() {
        let queue = Queue::with_random(|| u64::MAX);
        queue.add(key("a"));
        let mut delays = Vec::new();
        for _ in 0..14 {
            let begin = Instant::now();
            let next = queue.next().await;
            delays.push(begin.elapsed());
            queue.retry(next);
        }
        assert_eq!(delays[0], Duration::ZERO);
        let timer = Duration::from_millis(2); // of the runtime
        for (n, delay) in delays.iter().enumerate().skip(1) {
            let wanted = RETRY_DELAY_MIN.saturating_mul(1 << (n - 1)).min(RETRY_DELAY_MAX);
            assert!(*delay >= wanted && *delay <= wanted + timer, "{n}: {delay:?}");
        }
        let next = queue.next().await;
        queue.finish(next, Requeue::After(Duration::ZERO));
        let next = queue.next().await;
        queue.retry(next);
        let begin = Instant::now();
        queue.next().await;
        assert!(begin.elapsed() <= RETRY_DELAY_MIN + timer, "a success resets the back-off");
    }

    #[tokio::test(start_paused = true)]
    async fn earliest_due_time_counts_and_a_change_ends_the_delay() {
        let queue = Queue::default();
        let begin = Instant::now();
        queue.add_after(key("a"), Duration::from_secs(60));
        queue.add_after(key("a"), Duration::from_secs(10));
        queue.add_after(key("a"), Duration::from_secs(30));
        assert_eq!(queue.depth(), (0, 1));
        let a = queue.next().await;
        assert_eq!(begin.elapsed().as_secs(), 10);
        queue.finish(a, Requeue::After(Duration::from_secs(60)));
        queue.add(key("a"));
        queue.next().await;
        assert_eq!(begin.elapsed().as_secs(), 10);
        assert_eq!(queue.depth(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn many_workers_handle_every_object() {
        let queue = std::sync::Arc::new(Queue::default());
        let done = std::sync::Arc::new(Mutex::new(Vec::new()));
        let mut workers = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let (queue, done) = (queue.clone(), done.clone());
            workers.spawn(async move {
                loop {
                    let key = queue.next().await;
                    tokio::time::sleep(Duration::from_millis(7)).await;
                    done.lock().push(key.clone());
                    queue.finish(key, Requeue::OnChange);
                }
            });
        }
        for n in 0..500u64 {
            queue.add_after(key(&n.to_string()), Duration::from_millis(n * 37 % 900));
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        let mut done = std::mem::take(&mut *done.lock());
        done.sort();
        done.dedup();
        assert_eq!(done.len(), 500);
    }
}
