//! Shares of the one memory budget of an import.
//!
//! Separate limits instead of one pool of buffers: no stage can use up the memory that the next one needs to continue.
//!
//! | share | for |
//! |---|---|
//! | half | buffers between the source and the target: decoding and writing |
//! | a quarter | receiving: what a source has read from the network and nothing has consumed yet |
//! | an eighth | clusters that are parked in one pass |
//! | an eighth | their index |
//!
//! Routes that park nothing leave the last two shares to the source. An image of at most a quarter of the budget may be
//! parked as a whole: it fills no more of the first two shares than its own length either. Outside the budget: the history of xz and zstd, and
//! what is decoded in parallel of a compressed stream ([`MemoryShares::parts`]).

use contract::ByteCount;

use crate::parallel_gzip::CHUNK_MEMORY;
use crate::plan::Route;

/// Buffers and threads of one import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryShares {
    /// Bytes of each buffer between source and target: one write.
    pub buffer_len: usize,
    /// Number of those buffers.
    pub buffers: usize,
    /// Threads that decode and write. More than cores, since writes block.
    pub workers: usize,
    /// Bytes of receive buffers, all streams of a source together.
    receive: usize,
    /// Bytes of parked clusters, and again of their index.
    pub parked: usize,
    /// Bytes of stored parts of a compressed stream and of their decoders.
    pub parts: usize,
    /// Threads that decode one gzip stream, out of `parts`.
    pub gzip_threads: usize,
}

impl MemoryShares {
    /// Bytes that a source may hold on `route`.
    pub fn receive_for(&self, route: &Route) -> usize {
        match route {
            Route::OnePass { .. } => self.receive,
            Route::Ranges { .. } | Route::Stream { .. } | Route::Parts { .. } => {
                self.receive + 2 * self.parked
            }
        }
    }
}

/// The least budget that works; a smaller one is raised to it.
pub const MEMORY_MIN: ByteCount = ByteCount::mebibytes(4);

/// Shares `budget` out for a machine of `cores` and a source read by up to `readers` streams.
pub fn share_memory(budget: ByteCount, cores: usize, readers: usize) -> MemoryShares {
    const BUFFER_MIN: usize = 64 << 10;
    const BUFFER_MAX: usize = 1 << 20;
    const WORKERS_MAX: usize = 16;
    // Threads that wait for the disk while the others decode.
    const WRITING: usize = 4;
    // The usual blocks of `xz -T` are 24 MiB before compression: with less, no two would be decoded at a time.
    const PARTS_MIN: usize = 48 << 20;
    let budget = usize::try_from(budget.max(MEMORY_MIN).get()).unwrap_or(usize::MAX);
    let buffer_len = (budget / 32).next_power_of_two().clamp(BUFFER_MIN, BUFFER_MAX);
    let workers = (cores + WRITING).min(WORKERS_MAX);
    // A reader holds at most two, a worker one: with fewer they could wait for each other.
    let needed = (2 * readers.max(2)).max(workers + 2);
    let buffers = (budget / 2 / buffer_len).max(needed);
    let (receive, parked) = (budget / 4, budget / 8);
    let parts = budget.max(PARTS_MIN);
    let gzip_threads = cores.min(parts / CHUNK_MEMORY);
    MemoryShares { buffer_len, buffers, workers, receive, parked, parts, gzip_threads }
}

/// The cores this process may use: affinity and the quota of its control group count.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_budget_is_shared_out_completely() {
        let memory = share_memory(ByteCount::mebibytes(32), 2, 8);
        let expected = MemoryShares {
            buffer_len: 1 << 20,
            buffers: 16,
            workers: 6,
            receive: 8 << 20,
            parked: 4 << 20,
            parts: 48 << 20,
            gzip_threads: 2,
        };
        assert_eq!(memory, expected);
        let buffers = memory.buffers * memory.buffer_len;
        assert_eq!(buffers + memory.receive + 2 * memory.parked, 32 << 20);
    }

    #[test]
    fn routes_that_park_nothing_leave_those_shares_to_the_source() {
        let memory = share_memory(ByteCount::mebibytes(32), 2, 8);
        assert_eq!(memory.receive_for(&Route::Stream { compressions: vec![] }), 16 << 20);
        assert_eq!(memory.receive_for(&Route::Ranges { layout: None }), 16 << 20);
    }

    #[test]
    fn there_are_buffers_for_all_readers_and_workers() {
        for budget in [0, 1, 4, 5, 7, 16, 31, 32, 33, 100, 1 << 20] {
            for (cores, readers) in [(1, 1), (1, 8), (2, 2), (64, 16)] {
                let memory = share_memory(ByteCount::mebibytes(budget), cores, readers);
                assert!(
                    memory.buffers >= 2 * readers && memory.buffers > memory.workers,
                    "{memory:?}"
                );
                assert_eq!(memory.buffer_len % crate::sink::ALIGNMENT, 0);
            }
        }
    }
}
