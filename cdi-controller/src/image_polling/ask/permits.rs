//! How many sources are polled at a time, and which poll is next.
//!
//! The author of a DataImportCron chooses the server that is polled, and may choose one that responds as slowly as it
//! can. Each namespace therefore has few polls at a time, waiting polls are served namespace by namespace, and a
//! namespace without a running poll does not wait for others that use all permits, as with imports
//! ([`RunningByNamespace`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use controller_core::turns::RunningByNamespace;

/// Polls at a time. Namespaces without a running poll may exceed it, up to twice as many.
pub const POLLS_MAX: usize = 8;
/// Polls of one namespace at a time.
pub const POLLS_OF_NAMESPACE_MAX: usize = 2;
/// Polls of one server at a time. Namespaces without a poll of it may exceed it, up to twice as many.
pub const POLLS_OF_SERVER_MAX: usize = 2;

/// Running and waiting polls.
#[derive(Debug, Default)]
pub struct PollPermits {
    state: Arc<Mutex<State>>,
}

/// The permission to poll one source, until it is dropped.
#[derive(Debug)]
pub struct PollPermit {
    number: u64,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    active: Vec<Poll>,
    /// By namespace.
    waiting: BTreeMap<String, Waiting>,
    /// Grows with each poll, and each time a namespace is queued or served.
    count: u64,
}

#[derive(Debug)]
struct Poll {
    number: u64,
    namespace: String,
    /// Names and addresses of the server. Two polls that share one are of the same server.
    servers: Vec<String>,
}

/// The polls of a namespace that wait.
#[derive(Debug)]
struct Waiting {
    /// When the namespace was served last, or began to wait.
    since: u64,
    polls: VecDeque<(Poll, oneshot::Sender<PollPermit>)>,
}

impl PollPermits {
    /// Waits for a permission to poll a server, which has these names and addresses.
    pub async fn acquire(&self, namespace: &str, servers: &[String]) -> PollPermit {
        let (sender, granted) = oneshot::channel();
        {
            let mut state = lock(&self.state);
            state.count += 1;
            let count = state.count;
            let poll = Poll {
                number: count,
                namespace: namespace.to_owned(),
                servers: servers.to_owned(),
            };
            let new = || Waiting { since: count, polls: VecDeque::new() };
            let waiting = state.waiting.entry(namespace.to_owned()).or_insert_with(new);
            // Drop polls whose receiver is gone.
            waiting.polls.retain(|(_, sender)| !sender.is_closed());
            waiting.polls.push_back((poll, sender));
        }
        grant(&self.state);
        granted.await.expect("a sender stays in the queue until it sends a permit")
    }

    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        state.active.is_empty() && state.waiting.is_empty()
    }
}

impl Drop for PollPermit {
    fn drop(&mut self) {
        lock(&self.state).active.retain(|poll| poll.number != self.number);
        grant(&self.state);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock()
}

/// Grants all permits that are free.
fn grant(state: &Arc<Mutex<State>>) {
    loop {
        let Some((number, sender)) = lock(state).next() else { return };
        // Without the lock: if the receiver is gone, the permit comes back and is dropped.
        let _ = sender.send(PollPermit { number, state: Arc::clone(state) });
    }
}

impl State {
    /// Takes the poll that may begin now out of the queue: of the namespace that was served longest ago, its first one
    /// whose server is not busy.
    fn next(&mut self) -> Option<(u64, oneshot::Sender<PollPermit>)> {
        let mut queued: Vec<_> =
            self.waiting.iter().map(|(namespace, waiting)| (waiting.since, namespace)).collect();
        queued.sort_unstable();
        let (namespace, at) = queued.into_iter().find_map(|(_, namespace)| {
            let waiting = self.waiting.get(namespace)?;
            let at = waiting.polls.iter().position(|(poll, _)| self.may_begin(poll))?;
            Some((namespace.clone(), at))
        })?;
        self.count += 1;
        let waiting = self.waiting.get_mut(&namespace)?;
        let (poll, sender) = waiting.polls.remove(at)?;
        waiting.since = self.count;
        if waiting.polls.is_empty() {
            self.waiting.remove(&namespace);
        }
        let number = poll.number;
        self.active.push(poll);
        Some((number, sender))
    }

    fn may_begin(&self, poll: &Poll) -> bool {
        let namespace = poll.namespace.as_str();
        let all = self.active.iter().map(|active| active.namespace.as_str());
        if all.clone().filter(|active| *active == namespace).count() >= POLLS_OF_NAMESPACE_MAX {
            return false;
        }
        let of_server = |server: &String| -> RunningByNamespace {
            let polls = self.active.iter().filter(|active| active.servers.contains(server));
            polls.map(|active| active.namespace.as_str()).collect()
        };
        all.collect::<RunningByNamespace>().may_start(namespace, POLLS_MAX)
            && poll
                .servers
                .iter()
                .all(|server| of_server(server).may_start(namespace, POLLS_OF_SERVER_MAX))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::time::Duration;

    use super::*;

    /// A permit, if there is one at once: time is virtual.
    async fn try_acquire(
        permits: &PollPermits,
        namespace: &str,
        servers: &[&str],
    ) -> Option<PollPermit> {
        let servers: Vec<_> = servers.iter().map(|server| (*server).to_owned()).collect();
        let acquired = permits.acquire(namespace, &servers);
        tokio::time::timeout(Duration::from_secs(1), acquired).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_has_at_most_two_polls() {
        let permits = PollPermits::default();
        let mut held = Vec::new();
        for number in 0..8 {
            let server = format!("slow{number}");
            held.push(try_acquire(&permits, "hostile", &[&server]).await);
        }
        let count = held.iter().flatten().count();
        assert_eq!(count, 2, "eight servers of one namespace");
        assert!(try_acquire(&permits, "other", &["quay.io"]).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_without_a_poll_begins_one_while_others_use_all_permits() {
        let permits = PollPermits::default();
        let mut held = Vec::new();
        for (number, namespace) in ["a", "b", "c", "d"].into_iter().cycle().take(8).enumerate() {
            let server = format!("slow{number}");
            held.push(try_acquire(&permits, namespace, &[&server]).await.unwrap());
        }
        assert!(try_acquire(&permits, "a", &["x"]).await.is_none());
        let first = try_acquire(&permits, "other", &["quay.io"]).await;
        assert!(first.is_some());
        assert!(try_acquire(&permits, "other", &["quay.io"]).await.is_none(), "not two");
        for number in 0..4 {
            held.push(try_acquire(&permits, &format!("more{number}"), &[]).await.unwrap());
        }
        assert!(try_acquire(&permits, "last", &[]).await.is_none(), "there is an end to it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_has_two_polls_whatever_it_is_called() {
        let permits = PollPermits::default();
        let mut held = Vec::new();
        for number in 0..3 {
            let namespace = format!("n{}", number / 2);
            let name = format!("name{number}.example");
            held.push(try_acquire(&permits, &namespace, &[&name, "192.0.2.1"]).await);
        }
        assert!(held[0].is_some() && held[1].is_some());
        // Another namespace has its poll of a server that the first one keeps busy, and one only.
        assert!(held[2].is_some());
        assert!(try_acquire(&permits, "n1", &["192.0.2.1"]).await.is_none());
        assert!(try_acquire(&permits, "n1", &["192.0.2.2"]).await.is_some());
        held.clear();
        assert!(try_acquire(&permits, "n1", &["192.0.2.1"]).await.is_some());
        assert!(permits.is_idle(), "nothing is kept of what is over");
    }

    type Acquiring<'a> = Pin<Box<dyn Future<Output = PollPermit> + 'a>>;

    /// One that waits, in the queue.
    async fn queue<'a>(permits: &'a PollPermits, namespace: &'a str) -> Acquiring<'a> {
        let mut acquiring: Acquiring = Box::pin(permits.acquire(namespace, &[]));
        assert!(tokio::time::timeout(Duration::ZERO, &mut acquiring).await.is_err());
        acquiring
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_are_served_in_turn_however_many_polls_they_queue() {
        let permits = PollPermits::default();
        let mut held = Vec::new();
        // So many namespaces that even one without any poll waits.
        for number in 0..9 {
            let namespace = format!("n{number}");
            held.push(try_acquire(&permits, &namespace, &[]).await.unwrap());
        }
        let mut hostile = Vec::new();
        for _ in 0..100 {
            hostile.push(queue(&permits, "hostile").await);
        }
        let mut other = queue(&permits, "other").await;
        held.truncate(8);
        let first = tokio::time::timeout(Duration::ZERO, &mut hostile[0]).await;
        assert!(first.is_ok(), "it has waited longest");
        held.truncate(7);
        assert!(tokio::time::timeout(Duration::ZERO, &mut other).await.is_ok(), "not the 101st");
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_poll_does_not_block_the_queue() {
        let permits = PollPermits::default();
        let held = [
            try_acquire(&permits, "a", &[]).await.unwrap(),
            try_acquire(&permits, "a", &[]).await.unwrap(),
        ];
        let (gone, mut waits) = (queue(&permits, "a").await, queue(&permits, "a").await);
        drop(gone);
        drop(held);
        assert!(tokio::time::timeout(Duration::ZERO, &mut waits).await.is_ok());
        drop(waits);
        assert!(permits.is_idle());
    }
}
