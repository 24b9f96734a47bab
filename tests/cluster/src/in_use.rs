//! Tests hold the cluster that they use, and `up` the one that it starts, so that `down` in another terminal does not remove it under
//! them.

use std::fs::{File, OpenOptions, TryLockError};

use anyhow::{Context, Result, bail};

use crate::State;

const FILE: &str = "in-use";

/// Holds a cluster until it is dropped or the process ends, also when that is killed: the kernel then releases the lock. Processes
/// that it starts do not inherit it.
#[derive(Debug)]
pub struct InUse {
    _lock: File,
}

impl InUse {
    /// Several processes may use a cluster at the same time.
    ///
    /// # Errors
    /// When the state folder cannot be written.
    pub fn hold(state: &State) -> Result<Self> {
        let lock = open(state)?;
        lock.lock_shared().with_context(|| format!("cannot lock {}", path(state)))?;
        Ok(Self { _lock: lock })
    }
}

/// # Errors
/// When a test or `up` uses the cluster.
pub(crate) fn ensure_unused(state: &State) -> Result<()> {
    match open(state)?.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => bail!(
            "the cluster in {} is not removed: tests or `cluster up` use it. Wait until they have ended, or end them first \
             (`fuser {}` prints their process IDs). Another cluster has another CDI_CLUSTER.",
            state.folder().display(),
            path(state)
        ),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path(state)))
        }
    }
}

fn open(state: &State) -> Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    options.open(state.path(FILE)).with_context(|| format!("cannot open {}", path(state)))
}

fn path(state: &State) -> String {
    state.text(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_is_not_removed_while_a_test_uses_it() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::in_folder(folder.path().join("state"));
        state.create().unwrap();
        ensure_unused(&state).unwrap();
        let (first, second) = (InUse::hold(&state).unwrap(), InUse::hold(&state).unwrap());
        drop(first);
        let error = crate::down(&state).unwrap_err().to_string();
        assert!(error.contains("tests or `cluster up` use it") && state.exists(), "{error}");
        drop(second);
        ensure_unused(&state).unwrap();
    }
}
