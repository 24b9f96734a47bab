//! Work on all cores, its results in order, and never more of both than fits into memory.

use std::collections::VecDeque;
use std::thread;

use crossbeam_channel::{Sender, bounded, unbounded};

/// At most so many threads: more do not make a disk or a network faster.
const THREADS_MAX: usize = 8;

/// Threads for work that waits for a disk now and then.
pub fn threads() -> usize {
    thread::available_parallelism().map_or(2, |cores| cores.get() + 1).min(THREADS_MAX)
}

/// Does each job on some thread, with the state of that thread, and hands the results to `sink` in the order of the jobs.
/// At most two jobs a thread are begun or done and not yet handed over.
///
/// # Errors
/// The first of `jobs` or of `sink`.
pub fn in_order<J: Send, S: Send, R: Send, E>(
    states: Vec<S>,
    mut jobs: impl Iterator<Item = Result<J, E>>,
    work: impl Fn(&mut S, J) -> R + Sync,
    mut sink: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    let depth = 2 * states.len();
    thread::scope(|scope| {
        // Bounded by `depth`. That `orders` is dropped with this closure ends the threads.
        let (orders, queue) = unbounded::<(J, Sender<R>)>();
        for mut state in states {
            let (queue, work) = (queue.clone(), &work);
            scope.spawn(move || {
                for (job, done) in queue {
                    // Nobody waits for it where something has failed.
                    let _ = done.send(work(&mut state, job));
                }
            });
        }
        drop(queue);
        let mut begun = VecDeque::with_capacity(depth);
        let mut more = true;
        loop {
            while more && begun.len() < depth {
                match jobs.next() {
                    None => more = false,
                    Some(job) => {
                        let (done, result) = bounded(1);
                        // Fails only where all threads have panicked, and then the scope does.
                        let _ = orders.send((job?, done));
                        begun.push_back(result);
                    }
                }
            }
            let Some(result) = begun.pop_front() else { return Ok(()) };
            match result.recv() {
                Ok(result) => sink(result)?,
                Err(_) => return Ok(()), // a thread has panicked, and the scope hands that on
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
    fn results_come_in_the_order_of_the_jobs() {
        for count in [0, 1, 5, 500] {
            let mut results = Vec::new();
            let work = |state: &mut u64, job: u64| {
                *state += 1;
                if job.is_multiple_of(3) {
                    thread::yield_now();
                }
                job * job
            };
            in_order(vec![0; 3], numbers(count), work, |result| {
                results.push(result);
                Ok::<_, String>(())
            })
            .unwrap();
            assert_eq!(results, (0..count).map(|job| job * job).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_failure_on_either_side_ends_it() {
        let jobs = numbers(10).chain([Err("jobs".to_owned())]).chain(numbers(1000));
        let mut seen = 0;
        let failed = in_order(
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
        let failed = in_order(
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
    fn no_more_is_begun_than_fits() {
        let (begun, handed_over) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let jobs = numbers(300).inspect(|_| {
            let open = begun.fetch_add(1, Ordering::SeqCst) - handed_over.load(Ordering::SeqCst);
            assert!(open <= 4);
        });
        let sink = |_| {
            handed_over.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        in_order(vec![(); 2], jobs, |(), job| job, sink).unwrap();
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_panic_is_handed_on() {
        let work = |(): &mut (), job: u64| assert!(job != 5);
        let _ = in_order(vec![(); 2], numbers(100), work, |()| Ok(()));
    }
}
