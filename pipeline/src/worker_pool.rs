//! Threads that process a bounded queue and stop at the first failure.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::Error;

/// Threads that run jobs in any order. The queue is bounded, so a slow pool slows its callers.
///
/// After the first failure the remaining jobs are dropped unseen, and every later call reports it.
pub struct WorkerPool<J> {
    jobs: Option<Sender<J>>,
    threads: Vec<JoinHandle<()>>,
    state: Arc<State>,
}

/// Shared by the threads and the submitters.
#[derive(Default)]
struct State {
    inner: Mutex<Inner>,
    idle: Condvar,
}

#[derive(Default)]
struct Inner {
    /// Jobs that were submitted and are not done.
    pending: usize,
    failed: bool,
    /// The first failure, until it is returned.
    failure: Option<Error>,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No job runs under the lock, so the counters are right even after a panic.
        self.inner.lock()
    }

    fn fail(&self, error: Error) {
        let mut inner = self.lock();
        if !inner.failed {
            inner.failed = true;
            inner.failure = Some(error);
        }
    }

    fn check(inner: &mut Inner) -> Result<(), Error> {
        match (inner.failed, inner.failure.take()) {
            (false, _) => Ok(()),
            (true, Some(error)) => Err(error),
            (true, None) => Err(Error::Stopped),
        }
    }
}

impl<J: Send + 'static> WorkerPool<J> {
    /// Starts `threads` threads named `name`, each with its own worker, created by `make`; at most `queue` jobs wait.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start<W>(
        name: &str,
        threads: usize,
        queue: usize,
        make: impl Fn() -> W,
    ) -> Result<Self, Error>
    where
        W: FnMut(J) -> Result<(), Error> + Send + 'static,
    {
        let (jobs, waiting) = bounded(queue);
        let state = Arc::new(State::default());
        let mut workers = Self { jobs: Some(jobs), threads: Vec::new(), state };
        for _ in 0..threads.max(1) {
            let (waiting, state, work) = (waiting.clone(), Arc::clone(&workers.state), make());
            let thread = std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || run_jobs(&waiting, &state, work))
                .map_err(Error::Thread)?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Adds a job. Waits while the queue is full.
    ///
    /// # Errors
    /// The first failure of any job so far; the new one is then dropped.
    pub fn submit(&self, job: J) -> Result<(), Error> {
        {
            let mut inner = self.state.lock();
            State::check(&mut inner)?;
            inner.pending += 1;
        }
        let sent = self.jobs.as_ref().map(|jobs| jobs.send(job));
        if !matches!(sent, Some(Ok(()))) {
            self.state.lock().pending -= 1;
            return Err(Error::Panicked);
        }
        Ok(())
    }

    /// Returns once every job submitted so far is done.
    ///
    /// # Errors
    /// The first failure of any of them.
    pub fn drain(&self) -> Result<(), Error> {
        let mut inner = self.state.lock();
        while inner.pending > 0 {
            self.state.idle.wait(&mut inner);
        }
        State::check(&mut inner)
    }
}

impl<J> Drop for WorkerPool<J> {
    fn drop(&mut self) {
        self.jobs = None; // the threads end when the queue is empty and closed
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // failures are in the state
        }
    }
}

fn run_jobs<J>(waiting: &Receiver<J>, state: &State, mut work: impl FnMut(J) -> Result<(), Error>) {
    for job in waiting {
        let failed_before = state.lock().failed;
        if !failed_before {
            // A panic is a failure like any other. The thread continues, so that `drain` does not wait forever.
            let done = catch_unwind(AssertUnwindSafe(|| work(job)));
            if let Err(error) = done.unwrap_or(Err(Error::Panicked)) {
                state.fail(error);
            }
        }
        let mut inner = state.lock();
        inner.pending -= 1;
        if inner.pending == 0 {
            state.idle.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn every_job_is_done_before_drain_returns() {
        let sum = Arc::new(AtomicU64::new(0));
        let workers = WorkerPool::start("test", 3, 2, || {
            let sum = Arc::clone(&sum);
            move |job: u64| {
                sum.fetch_add(job, Ordering::Relaxed);
                Ok(())
            }
        })
        .unwrap();
        (1..=1000).for_each(|job| workers.submit(job).unwrap());
        workers.drain().unwrap();
        assert_eq!(sum.load(Ordering::Relaxed), 500_500);
    }

    #[test]
    fn the_first_failure_is_returned_and_later_jobs_are_dropped() {
        let done = Arc::new(AtomicU64::new(0));
        let workers = WorkerPool::start("test", 1, 100, || {
            let done = Arc::clone(&done);
            move |job: u64| {
                done.fetch_add(1, Ordering::Relaxed);
                if job == 3 { Err(Error::NeedsScratch { because: "three".into() }) } else { Ok(()) }
            }
        })
        .unwrap();
        let submitted = (1..=50).try_for_each(|job| workers.submit(job));
        let error = submitted.and_then(|()| workers.drain()).unwrap_err();
        assert!(matches!(error, Error::NeedsScratch { .. }), "{error}");
        assert!(matches!(workers.drain(), Err(Error::Stopped)), "the failure stays known");
        assert_eq!(done.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_panicking_job_is_a_failure() {
        let workers = WorkerPool::start("test", 1, 1, || |_: u64| panic!("on purpose")).unwrap();
        let _ = (0..10).try_for_each(|job| workers.submit(job));
        assert!(workers.drain().is_err());
    }
}
