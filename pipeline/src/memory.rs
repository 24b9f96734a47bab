//! How one budget is shared out.

use contract::ByteCount;

/// Buffers and threads of one import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes of each buffer: one write.
    pub buffer_len: usize,
    /// Buffers on their way between the source and the sink.
    pub buffers: usize,
    /// Threads that decode and write. More than cores, since a write waits.
    pub crew: usize,
    /// What parked clusters and their map may take, each.
    pub parked: usize,
    /// What stored parts of a compressed stream and their decoders may take.
    pub parts: usize,
}

/// The least budget that works; a smaller one is raised to it.
pub const MEMORY_MIN: ByteCount = ByteCount::mebibytes(4);

/// Shares `budget` out for a machine of `cores` and a source read by up to `readers` streams: half for buffers in
/// flight, an eighth each for parked clusters and for the map of clusters to come; the source and the decoders have the
/// rest.
pub fn share(budget: ByteCount, cores: usize, readers: usize) -> Memory {
    const BUFFER_MIN: usize = 64 << 10;
    const BUFFER_MAX: usize = 1 << 20;
    const CREW_MAX: usize = 16;
    // Threads that a disk keeps waiting while the others decode.
    const WRITING: usize = 4;
    // The usual blocks of `xz -T` are 24 MiB before compression: with less there would be no two at a time.
    const PARTS_MIN: usize = 48 << 20;
    let budget = usize::try_from(budget.max(MEMORY_MIN).get()).unwrap_or(usize::MAX);
    let buffer_len = (budget / 32).next_power_of_two().clamp(BUFFER_MIN, BUFFER_MAX);
    let crew = (cores + WRITING).min(CREW_MAX);
    // A reader holds two at most, a member of the crew one: with fewer they could wait for each other.
    let needed = (2 * readers.max(2)).max(crew + 2);
    let buffers = (budget / 2 / buffer_len).max(needed);
    Memory { buffer_len, buffers, crew, parked: budget / 8, parts: budget.max(PARTS_MIN) }
}

/// The cores this process may use: affinity and the quota of its control group count.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_budget_is_kept() {
        let memory = share(ByteCount::mebibytes(32), 2, 8);
        assert_eq!(
            memory,
            Memory { buffer_len: 1 << 20, buffers: 16, crew: 6, parked: 4 << 20, parts: 48 << 20 }
        );
    }

    #[test]
    fn nobody_waits_for_ever_and_buffers_are_aligned() {
        for budget in [0, 1, 4, 5, 7, 16, 31, 32, 33, 100, 1 << 20] {
            for (cores, readers) in [(1, 1), (1, 8), (2, 2), (64, 16)] {
                let memory = share(ByteCount::mebibytes(budget), cores, readers);
                assert!(
                    memory.buffers >= 2 * readers && memory.buffers > memory.crew,
                    "{memory:?}"
                );
                assert_eq!(memory.buffer_len % crate::sink::ALIGNMENT, 0);
            }
        }
    }
}
