//! Jobs on several threads, with their results in the order of the jobs and a bound on both.

use std::collections::VecDeque;
use std::thread;

use crossbeam_channel::{Sender, bounded, unbounded};

/// More threads make neither a disk nor a network faster.
const THREADS_MAX: usize = 8;
/// Jobs per thread that are started and not yet passed on, at most.
pub const STARTED_EACH: usize = 2;

/// One more thread than cores: some wait for the disk.
pub fn thread_count() -> usize {
    thread::available_parallelism().map_or(2, |cores| cores.get() + 1).min(THREADS_MAX)
}

/// Runs each job on one of `states.len()` threads, with the state of that thread, and passes the results to `sink` in the order
/// of the jobs. At most [`STARTED_EACH`] jobs per thread are started and not yet passed on.
///
/// # Errors
/// The first error of `jobs` or `sink`.
pub fn process_in_order<J: Send, S: Send, R: Send, E>(
    states: Vec<S>,
    mut jobs: impl Iterator<Item = Result<J, E>>,
    work: impl Fn(&mut S, J) -> R + Sync,
    mut sink: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    let depth = STARTED_EACH * states.len();
    thread::scope(|scope| {
        // Bounded by `depth`. The threads end when `job_queue` is dropped with this closure.
        let (job_queue, queue) = unbounded::<(J, Sender<R>)>();
        for mut state in states {
            let (queue, work) = (queue.clone(), &work);
            scope.spawn(move || {
                for (job, done) in queue {
                    // The receiver is gone if another job has failed.
                    let _ = done.send(work(&mut state, job));
                }
            });
        }
        drop(queue);
        let mut started = VecDeque::with_capacity(depth);
        let mut more = true;
        loop {
            while more && started.len() < depth {
                match jobs.next() {
                    None => more = false,
                    Some(job) => {
                        let (done, result) = bounded(1);
                        // Fails only if all threads have panicked; the scope then panics too.
                        let _ = job_queue.send((job?, done));
                        started.push_back(result);
                    }
                }
            }
            let Some(result) = started.pop_front() else { return Ok(()) };
            match result.recv() {
                Ok(result) => sink(result)?,
                Err(_) => return Ok(()), // a thread has panicked, and the scope panics too
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn numbers(count: u64) -> impl Iterator<Item = Result<u64, String>> {
        (0..count).map(Ok)
    }

    #[test]
    fn results_have_the_order_of_the_jobs() {
        for count in [0, 1, 5, 500] {
            let mut results = Vec::new();
            let work = |state: &mut u64, job: u64| {
                *state += 1;
                if job.is_multiple_of(3) {
                    thread::yield_now();
                }
                job * job
            };
            process_in_order(vec![0; 3], numbers(count), work, |result| {
                results.push(result);
                Ok::<_, String>(())
            })
            .unwrap();
            assert_eq!(results, (0..count).map(|job| job * job).collect::<Vec<_>>());
        }
    }

    #[test]
    fn error_of_jobs_or_sink_ends_the_run() {
        let jobs = numbers(10).chain([Err("jobs".to_owned())]).chain(numbers(1000));
        let mut seen = 0;
        let failed = process_in_order(
            vec![(); 2],
            jobs,
            |(), job| job,
            |_| {
                seen += 1;
                Ok(())
            },
        );
        assert_eq!(failed, Err("jobs".to_owned()));
        assert!(seen <= 10);
        let failed = process_in_order(
            vec![(); 2],
            numbers(1000),
            |(), job| job,
            |result| match result {
                7 => Err("sink".to_owned()),
                _ => Ok(()),
            },
        );
        assert_eq!(failed, Err("sink".to_owned()));
    }

    #[test]
    fn started_jobs_are_bounded() {
        let (started, passed_on) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let jobs = numbers(300).inspect(|_| {
            let open = started.fetch_add(1, Ordering::SeqCst) - passed_on.load(Ordering::SeqCst);
            assert!(open <= 4);
        });
        let sink = |_| {
            passed_on.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        process_in_order(vec![(); 2], jobs, |(), job| job, sink).unwrap();
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn panic_of_a_thread_is_propagated() {
        let work = |(): &mut (), job: u64| assert!(job != 5);
        let _ = process_in_order(vec![(); 2], numbers(100), work, |()| Ok(()));
    }
}
