//! Permits one transfer at a time, and none after a successful one.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::completion_mark::CompletionMark;

/// The state of the volume.
#[derive(Clone, Debug, Default)]
pub struct VolumeSlot(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
    mark: CompletionMark,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Busy,
    Done(Completed),
}

/// What a successful transfer wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// By a clone instead of an upload.
    pub cloned: bool,
    /// All blocks are allocated.
    pub preallocated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotUnavailable {
    /// Another transfer is running.
    Busy,
    Done,
}

impl VolumeSlot {
    /// `mark` is written on completion.
    pub fn new(mark: CompletionMark) -> Self {
        Self(Arc::new(Shared { mark, ..Shared::default() }))
    }

    /// The lease ends when it is dropped.
    pub fn acquire(&self) -> Result<VolumeLease, SlotUnavailable> {
        let mut state = self.0.lock();
        match *state {
            State::Busy => Err(SlotUnavailable::Busy),
            State::Done(_) => Err(SlotUnavailable::Done),
            State::Idle => {
                *state = State::Busy;
                Ok(VolumeLease(self.clone()))
            }
        }
    }

    pub fn is_complete(&self) -> bool {
        matches!(*self.0.lock(), State::Done(_))
    }

    pub async fn completed(&self) -> Completed {
        self.wait_for(|state| match state {
            State::Done(completed) => Some(completed),
            State::Idle | State::Busy => None,
        })
        .await
    }

    /// Returns once no transfer is running: what the volume holds, if it is complete by then.
    pub async fn until_idle(&self) -> Option<Completed> {
        self.wait_for(|state| match state {
            State::Done(completed) => Some(Some(completed)),
            State::Idle => Some(None),
            State::Busy => None,
        })
        .await
    }

    async fn wait_for<T>(&self, find: impl Fn(State) -> Option<T>) -> T {
        loop {
            let changed = self.0.changed.notified(); // registered before the state is read, so no change is missed
            let state = *self.0.lock();
            if let Some(found) = find(state) {
                return found;
            }
            changed.await;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn set(&self, state: State) {
        *self.lock() = state;
        self.changed.notify_waiters();
    }
}

/// The permission of a running transfer to write the volume.
#[derive(Debug)]
pub struct VolumeLease(VolumeSlot);

impl VolumeLease {
    /// Call it before the response is sent: writes the completion mark, and rejects all later transfers. Blocks.
    pub fn complete(self, completed: Completed) {
        self.0.0.mark.write(completed);
        self.0.0.set(State::Done(completed));
    }
}

impl Drop for VolumeLease {
    fn drop(&mut self) {
        let busy = *self.0.0.lock() == State::Busy;
        if busy {
            self.0.0.set(State::Idle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UPLOADED: Completed = Completed { cloned: false, preallocated: true };

    #[test]
    fn volume_is_written_once_and_by_one_transfer_at_a_time() {
        let slot = VolumeSlot::default();
        let lease = slot.acquire().unwrap();
        assert_eq!(slot.acquire().unwrap_err(), SlotUnavailable::Busy);
        drop(lease);
        assert!(!slot.is_complete());
        slot.acquire().unwrap().complete(UPLOADED);
        assert!(slot.is_complete());
        assert_eq!(slot.acquire().unwrap_err(), SlotUnavailable::Done);
    }

    #[tokio::test]
    async fn waiters_are_notified() {
        let slot = VolumeSlot::default();
        assert_eq!(slot.until_idle().await, None, "idle from the start");
        let lease = slot.acquire().unwrap();
        let waiting = tokio::spawn({
            let slot = slot.clone();
            async move { (slot.completed().await, slot.until_idle().await) }
        });
        tokio::task::yield_now().await;
        drop(lease);
        slot.acquire().unwrap().complete(UPLOADED);
        assert_eq!(waiting.await.unwrap(), (UPLOADED, Some(UPLOADED)));
    }
}
