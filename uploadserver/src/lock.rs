//! The one way in which this crate locks a mutex.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ignores poisoning: no critical section of this crate can leave its value half changed.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
