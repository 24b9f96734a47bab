//! Which tests use the cluster at the same time: most do together, and some disturb all others and need it for themselves.
//!
//! A test that needs the cluster for itself waits until no other test runs, and no other test waits for it: such tests come last.
//! With a fair lock, each of them would keep all tests from starting until the slowest one has ended, and the processors idle.

use parking_lot::{Condvar, Mutex};

/// Of the whole cluster, for the tests of one program.
pub static CLUSTER: Sharing = Sharing::new();

pub struct Sharing {
    users: Mutex<Users>,
    changed: Condvar,
}

struct Users {
    together: usize,
    is_alone: bool,
}

/// The right to use the cluster together with others, until it is dropped.
pub struct Together<'a>(&'a Sharing);

/// The right to use the cluster alone, until it is dropped.
pub struct Alone<'a>(&'a Sharing);

impl Sharing {
    const fn new() -> Self {
        let users = Users { together: 0, is_alone: false };
        Self { users: Mutex::new(users), changed: Condvar::new() }
    }

    /// Waits until no test uses it alone.
    pub fn together(&self) -> Together<'_> {
        let mut users = self.users.lock();
        self.changed.wait_while(&mut users, |users| users.is_alone);
        users.together += 1;
        Together(self)
    }

    /// `None` while a test uses it alone.
    pub fn try_together(&self) -> Option<Together<'_>> {
        let mut users = self.users.lock();
        if users.is_alone {
            return None;
        }
        users.together += 1;
        Some(Together(self))
    }

    /// Waits until no test uses it.
    pub fn alone(&self) -> Alone<'_> {
        let mut users = self.users.lock();
        self.changed.wait_while(&mut users, |users| users.is_alone || users.together > 0);
        users.is_alone = true;
        Alone(self)
    }
}

impl Drop for Together<'_> {
    fn drop(&mut self) {
        self.0.users.lock().together -= 1;
        self.0.changed.notify_all();
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.users.lock().is_alone = false;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn waiting_for_the_cluster_alone_delays_no_other_test() {
        let sharing = Sharing::new();
        let (is_waiting, waits) = mpsc::channel();
        let (is_alone, alone) = mpsc::channel();
        let first = sharing.together();
        thread::scope(|scope| {
            scope.spawn(|| {
                is_waiting.send(()).unwrap();
                let held = sharing.alone();
                is_alone.send(sharing.try_together().is_none()).unwrap();
                drop(held);
            });
            waits.recv().unwrap();
            for _ in 0..100 {
                thread::yield_now();
                drop(sharing.together());
            }
            assert!(alone.try_recv().is_err(), "alone together with another test");
            drop(first);
            assert!(alone.recv().unwrap(), "together with a test that is alone");
        });
        assert!(sharing.try_together().is_some());
    }
}
