//! Which coding the data of a clone gets. Compression takes CPU time and saves network, and which of the two is scarce shows
//! only during the transfer: a pod with 0.75 of a core compresses less than its network could send, a network of 1 Gbit/s
//! takes less than two cores compress.
//!
//! A slow network and a slow receiver look the same to the sender, so the choice does not depend on an explanation: it tries
//! another coding for a while and keeps it if the content went faster. Which one is tried depends on what the thread that
//! writes the stream does. While it waits for compressed data, less compression may help; while it sends without a pause,
//! more may help, or less where the receiver has no time to decompress.

use std::time::Duration;

use clonestream::extents::Coding;

/// By the CPU time that they take.
const CODINGS: [Coding; 3] = [Coding::Plain, Coding::Lz4, Coding::Zstd];
/// The one in between: short clones end with it.
const FIRST: usize = 1;

/// Content that is not measured after a change: until then socket buffers fill or drain.
const SETTLING: u64 = 16 << 20;
/// What is measured at once: several periods of a CPU quota (100 ms), which a pod may use up at their beginning.
const WINDOW_TIME: Duration = Duration::from_millis(250);
const WINDOW_CONTENT: u64 = 32 << 20;
/// On slow networks a window ends before it has its content.
const WINDOW_TIME_MAX: Duration = Duration::from_secs(2);

/// A coding is kept if content goes faster by this factor.
const GAIN: f64 = 1.05;
/// While the writer sends for at least this share of the time, the network or the receiver is what the transfer waits for.
const BUSY: f64 = 0.7;
/// Windows without another trial in a direction that did not help, or from which a trial came. Doubles with each failure.
const PAUSE_MIN: u32 = 8;
const PAUSE_MAX: u32 = 128;

/// What was sent in some time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    /// Bytes of data before compression.
    pub content: u64,
    pub elapsed: Duration,
    /// Of `elapsed`, what the writer spent encrypting and writing to the socket.
    pub sending: Duration,
}

impl Window {
    fn add(&mut self, more: Self) {
        self.content += more.content;
        self.elapsed += more.elapsed;
        self.sending += more.sending;
    }

    fn is_complete(&self) -> bool {
        self.elapsed >= WINDOW_TIME_MAX
            || self.elapsed >= WINDOW_TIME && self.content >= WINDOW_CONTENT
    }

    /// Bytes of content per second.
    fn rate(&self) -> f64 {
        self.content as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// The choice so far, and what was measured since the last change.
pub(super) struct CodingChoice {
    /// Of [`CODINGS`].
    current: usize,
    trial: Option<Trial>,
    less: Pause,
    more: Pause,
    settled: u64,
    window: Window,
}

/// Another coding, until it is known whether it is better.
struct Trial {
    before: usize,
    rate_before: f64,
}

/// How many windows pass before the next trial in a direction.
struct Pause {
    left: u32,
    next: u32,
}

impl Pause {
    const NONE: Self = Self { left: 0, next: PAUSE_MIN };

    fn start_pause(&mut self) {
        self.left = self.next;
        self.next = (self.next * 2).min(PAUSE_MAX);
    }
}

impl Default for CodingChoice {
    fn default() -> Self {
        let (less, more) = (Pause::NONE, Pause::NONE);
        let (settled, window) = (0, Window::default());
        Self { current: FIRST, trial: None, less, more, settled, window }
    }
}

impl CodingChoice {
    /// The coding for what is compressed from now on.
    pub(super) fn current(&self) -> Coding {
        CODINGS[self.current]
    }

    /// Takes what was measured while data with `coding` was sent.
    pub(super) fn record(&mut self, coding: Coding, sent: Window) {
        if coding != self.current() {
            return; // compressed before the last change
        }
        if self.settled < SETTLING {
            self.settled += sent.content;
            return;
        }
        self.window.add(sent);
        if self.window.is_complete() {
            let window = std::mem::take(&mut self.window);
            self.decide(&window);
        }
    }

    fn decide(&mut self, window: &Window) {
        self.less.left = self.less.left.saturating_sub(1);
        self.more.left = self.more.left.saturating_sub(1);
        let rate = window.rate();
        if let Some(Trial { before, rate_before }) = self.trial.take() {
            let is_more = self.current > before;
            if rate < rate_before * GAIN {
                (if is_more { &mut self.more } else { &mut self.less }).start_pause();
                return self.change_to(before);
            }
            (if is_more { &mut self.less } else { &mut self.more }).start_pause();
        }
        let is_busy = window.sending.as_secs_f64() >= BUSY * window.elapsed.as_secs_f64();
        let more = (self.current + 1).min(CODINGS.len() - 1);
        let tried = if is_busy && self.more.left == 0 && more > self.current {
            more
        } else if self.less.left == 0 {
            self.current.saturating_sub(1)
        } else {
            self.current
        };
        if tried != self.current {
            self.trial = Some(Trial { before: self.current, rate_before: rate });
            self.change_to(tried);
        }
    }

    fn change_to(&mut self, coding: usize) {
        self.current = coding;
        self.settled = 0;
        tracing::debug!("data is sent with coding {:?} from now on", self.current());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1e6;

    /// What bounds a transfer, in MB/s: the sender's threads and the receiver by the content of each coding, the network by
    /// what is sent of it.
    struct Environment {
        sender: [f64; 3],
        receiver: [f64; 3],
        network: f64,
    }

    /// What remains of a system disk (`bench/results/2026-11-22-compressors.md`).
    const SHARES: [f64; 3] = [1.0, 0.42, 0.28];

    impl Environment {
        fn drained(&self, coding: usize) -> f64 {
            self.receiver[coding].min(self.network / SHARES[coding])
        }

        fn rate(&self, coding: usize) -> f64 {
            self.sender[coding].min(self.drained(coding))
        }

        fn best(&self) -> usize {
            (0..3).max_by(|a, b| self.rate(*a).total_cmp(&self.rate(*b))).unwrap()
        }

        /// Seconds for so many megabytes of content, and how many of them each coding got.
        fn send(&self, megabytes: u32) -> (f64, [u32; 3]) {
            let mut choice = CodingChoice::default();
            let (mut seconds, mut by_coding) = (0.0, [0; 3]);
            for _ in 0..megabytes {
                let coding = choice.current;
                let elapsed = 1.0 / self.rate(coding);
                let sending = 1.0 / self.drained(coding);
                seconds += elapsed;
                by_coding[coding] += 1;
                let sent = Window {
                    content: MB as u64,
                    elapsed: Duration::from_secs_f64(elapsed),
                    sending: Duration::from_secs_f64(sending),
                };
                choice.record(CODINGS[coding], sent);
            }
            (seconds, by_coding)
        }
    }

    #[test]
    fn transfer_is_nearly_as_fast_as_with_the_best_coding() {
        let pod = [1000.0, 380.0, 130.0];
        let node = [4000.0, 1600.0, 700.0];
        let receiver = [1500.0, 1200.0, 600.0];
        let cases = [
            ("0.75 of a core, 10 Gbit/s", pod, receiver, 1250.0, 0),
            ("0.75 of a core, 1 Gbit/s", pod, receiver, 125.0, 1),
            ("0.75 of a core, 0.2 Gbit/s", pod, receiver, 25.0, 2),
            ("many cores, 10 Gbit/s", node, [3000.0; 3], 1250.0, 1),
            ("many cores, 1 Gbit/s", node, receiver, 125.0, 2),
            ("many cores, 25 Gbit/s", node, [3000.0; 3], 3125.0, 0),
            ("slow storage at the target", node, [80.0; 3], 1250.0, 1),
            ("slow storage at the source", [150.0, 150.0, 150.0], receiver, 1250.0, 1),
            ("receiver with 0.2 of a core", node, [400.0, 250.0, 120.0], 1250.0, 0),
        ];
        for (name, sender, receiver, network, wanted) in cases {
            let environment = Environment { sender, receiver, network };
            let (seconds, by_coding) = environment.send(8000);
            let best = environment.rate(environment.best());
            let share = 8000.0 / best / seconds;
            assert!(share > 0.85, "{name}: {share:.2} of the best speed, {by_coding:?}");
            let most = (0..3).max_by_key(|coding| by_coding[*coding]).unwrap();
            assert_eq!(most, wanted, "{name}: {by_coding:?}");
        }
    }

    #[test]
    fn short_transfer_is_compressed_by_lz4() {
        let fast =
            Environment { sender: [4000.0, 500.0, 200.0], receiver: [2000.0; 3], network: 5000.0 };
        assert_eq!(fast.send(64).1, [0, 64, 0]);
    }

    #[test]
    fn what_was_compressed_before_a_change_is_not_measured() {
        let mut choice = CodingChoice::default();
        let sent = Window { content: 64 << 20, elapsed: WINDOW_TIME_MAX, sending: Duration::ZERO };
        choice.record(Coding::Lz4, sent);
        choice.record(Coding::Lz4, sent);
        assert_eq!(choice.current(), Coding::Plain, "the writer waited for compressed data");
        for _ in 0..5 {
            choice.record(Coding::Lz4, sent);
        }
        assert_eq!(choice.current(), Coding::Plain);
        choice.record(Coding::Plain, sent);
        choice.record(Coding::Plain, sent);
        assert_eq!(choice.current(), Coding::Lz4, "nothing was gained");
    }
}
