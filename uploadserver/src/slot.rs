//! One transfer at a time, and one success in a life.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::mark::Mark;

/// Where the one volume of this process stands.
#[derive(Clone, Debug, Default)]
pub struct Slot(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
    mark: Mark,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Busy,
    Done(Completed),
}

/// What the volume was filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// By a clone, and not by an upload.
    pub cloned: bool,
    /// Every byte has its room.
    pub preallocated: bool,
}

/// Why a transfer cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Another one runs: try again.
    Busy,
    /// The volume is complete.
    Done,
}

impl Slot {
    /// Of a volume that is still to be filled, and marked once it is.
    pub fn new(mark: Mark) -> Self {
        Self(Arc::new(Shared { mark, ..Shared::default() }))
    }

    /// The right to fill the volume, until it is dropped.
    ///
    /// # Errors
    /// When somebody has it, or has used it.
    pub fn claim(&self) -> Result<Claim, Taken> {
        let mut state = self.0.lock();
        match *state {
            State::Busy => Err(Taken::Busy),
            State::Done(_) => Err(Taken::Done),
            State::Idle => {
                *state = State::Busy;
                Ok(Claim(self.clone()))
            }
        }
    }

    /// Returns once the volume is complete.
    pub async fn done(&self) -> Completed {
        self.wait_for(|state| match state {
            State::Done(completed) => Some(completed),
            State::Idle | State::Busy => None,
        })
        .await
    }

    /// Returns once nobody is at it: with what it holds, if the volume is complete then.
    pub async fn quiet(&self) -> Option<Completed> {
        self.wait_for(|state| match state {
            State::Done(completed) => Some(Some(completed)),
            State::Idle => Some(None),
            State::Busy => None,
        })
        .await
    }

    async fn wait_for<T>(&self, look: impl Fn(State) -> Option<T>) -> T {
        loop {
            let changed = self.0.changed.notified(); // before looking: no change is missed
            let state = *self.0.lock();
            if let Some(found) = look(state) {
                return found;
            }
            changed.await;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, state: State) {
        *self.lock() = state;
        self.changed.notify_waiters();
    }
}

/// A transfer that runs. Dropped, however that comes about, it leaves the slot free for another try.
#[derive(Debug)]
pub struct Claim(Slot);

impl Claim {
    /// The volume is complete and durable: nobody else may write to it, nor a process that comes after this one. Before anybody
    /// is told. Blocks.
    pub fn finish(self, completed: Completed) {
        self.0.0.mark.keep(completed);
        self.0.0.enter(State::Done(completed));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let busy = *self.0.0.lock() == State::Busy;
        if busy {
            self.0.0.enter(State::Idle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UPLOADED: Completed = Completed { cloned: false, preallocated: true };

    #[test]
    fn a_volume_is_filled_once_and_by_one_at_a_time() {
        let slot = Slot::default();
        let claim = slot.claim().unwrap();
        assert_eq!(slot.claim().unwrap_err(), Taken::Busy);
        drop(claim);
        slot.claim().unwrap().finish(UPLOADED);
        assert_eq!(slot.claim().unwrap_err(), Taken::Done);
    }

    #[tokio::test]
    async fn whoever_waits_is_told() {
        let slot = Slot::default();
        assert_eq!(slot.quiet().await, None, "nobody was ever at it");
        let claim = slot.claim().unwrap();
        let waiting = tokio::spawn({
            let slot = slot.clone();
            async move { (slot.done().await, slot.quiet().await) }
        });
        tokio::task::yield_now().await;
        drop(claim);
        slot.claim().unwrap().finish(UPLOADED);
        assert_eq!(waiting.await.unwrap(), (UPLOADED, Some(UPLOADED)));
    }
}
