//! What sources of virtual machines have in common: they are imported in stages, each with the changes since the one
//! before, and they can be stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pipeline::{Delta, Source};

use crate::error::Error;
use crate::vddk::VddkWatch;

/// Between which states of the disk a stage lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoints {
    /// The state that the target has in the end. `None`: what the disk is now.
    pub current: Option<String>,
    /// The state that it has already. `None`: none, everything is copied.
    pub previous: Option<String>,
}

impl Checkpoints {
    /// From texts in which an empty one means none.
    pub fn between(current: &str, previous: &str) -> Self {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Self { current: some(current), previous: some(previous) }
    }

    /// What the pipeline has to know of the stage, if it is not the first. `backing`: the changes come as an image above
    /// the state before.
    pub(crate) fn delta(&self, backing: bool) -> Option<Delta> {
        let previous = self.previous.as_ref()?;
        let stage = format!("{previous} to {}", self.current.as_deref().unwrap_or_default());
        Some(Delta { stage, backing: backing.then(|| previous.clone()) })
    }
}

/// A source that is ready, and how it has to be imported.
pub struct StageSource {
    /// Where the bytes come from. Dropping it disconnects from the server, and may take some seconds.
    pub source: Arc<dyn Source>,
    /// For [`pipeline::Options::delta`].
    pub delta: Option<Delta>,
    /// Reports about the server: of VDDK only.
    pub info: Option<VddkWatch>,
}

/// Set to stop an import, for example by a handler of SIGTERM.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// From now on everything stops that looks at the flag.
    pub fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn check(&self, name: &str) -> Result<(), Error> {
        if self.is_set() { Err(Error::Stopped { name: name.to_owned() }) } else { Ok(()) }
    }

    /// Waits, and not longer than until the flag is set.
    pub(crate) fn sleep(&self, time: Duration, name: &str) -> Result<(), Error> {
        const LOOK_EVERY: Duration = Duration::from_millis(100);
        let end = Instant::now() + time;
        loop {
            self.check(name)?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }
}
