//! The route of an indexed image that can only be read in order: see `formats::one_pass`.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use contract::Hasher;
use formats::index::Layout;
use formats::one_pass::{Limits, OnePass, OnePassError, Output};
use formats::sniff::Compression;

use super::decompressed::Decompressed;
use super::{Outcome, TransferContext};
use crate::activity_times::Activity;
use crate::buffer::{Buffer, Pool};
use crate::error::Error;
use crate::io_counters::count_copied;
use crate::jobs::{GuestPart, Job};
use crate::pieces::Piece;
use crate::target::is_full;
use crate::wire::Wire;

/// Imports an image with an index out of a stream. `memory` bytes may hold what is parked before the target has to.
///
/// # Errors
/// Of the source, the decoders, the worker pool; [`Error::NeedsScratch`] where one pass is not enough.
pub fn import_one_pass(
    context: &TransferContext<'_>,
    layout: Arc<dyn Layout>,
    compressions: &[Compression],
    hasher: Option<Hasher>,
    memory: usize,
) -> Result<Outcome, Error> {
    let virtual_size = layout.virtual_size();
    // No more than a quarter of the budget for the bytes of a small image, which fill no more of the other buffers either.
    let limits =
        Limits { index_bytes: memory, parked_bytes: memory, whole_image_bytes: 2 * memory };
    let space = context.sink.inner().parking_space(context.available.get());
    let mut writer = OnePassWriter {
        context,
        virtual_size,
        parking_limited_by: &space.limited_by,
        begin: 0,
        plain: vec![],
        compressed: vec![],
        failed: None,
    };
    let one_pass = OnePass::new(layout, limits).map_err(|error| writer.explain(error))?;
    let mut one_pass = one_pass.with_space_behind(&space.range);
    if !context.sink.inner().starts_zeroed() {
        // What is zero is known only at the end, and parking requires a target that is zero where nothing is parked.
        let zeroed = context.sink.inner().zero_at(0, virtual_size);
        zeroed.map_err(|error| context.sink.failed("write zeroes to", error))?;
    }
    let mut wire = Wire::new(context.open_stream(), &context.progress, hasher)?;
    {
        let mut decompressed = Decompressed::new(context, compressions, &mut wire)?;
        let mut zeroes = None;
        while let Some(piece) = decompressed.next_piece().map_err(|error| context.explain(error))? {
            let (buffer, mut left) = match piece {
                Piece::Data(buffer, range) => {
                    writer.begin = range.start;
                    (Arc::new(buffer), range.len() as u64)
                }
                Piece::Zeroes(len) => {
                    writer.begin = 0;
                    let buffer = zeroes.get_or_insert_with(|| zero_buffer(context));
                    (Arc::clone(buffer), len)
                }
            };
            while left > 0 {
                let rest = &buffer[writer.begin..];
                let len = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let supplied = one_pass.supply(&rest[..len], &mut writer);
                writer.check(supplied)?;
                writer.submit(&buffer)?;
                left -= len as u64;
            }
        }
    }
    let finished = one_pass.finish(&mut writer);
    writer.check(finished)?;
    context.workers.drain()?;
    let digest = wire.finish().map_err(|error| context.explain(error))?;
    let written = context.progress.snapshot().guest;
    context.progress.add_zero(virtual_size.saturating_sub(written));
    Ok(Outcome { virtual_size, digest, resumed: 0 })
}

/// The content of runs of zeroes, which come without a buffer.
fn zero_buffer(context: &TransferContext<'_>) -> Arc<Buffer> {
    let mut buffer = Pool::new(context.pool.buffer_len(), 1).take();
    buffer.fill(0);
    Arc::new(buffer)
}

/// Collects the parts of the current chunk, and does reads and writes of parked bytes at once.
struct OnePassWriter<'a> {
    context: &'a TransferContext<'a>,
    virtual_size: u64,
    /// Why no more can be parked.
    parking_limited_by: &'a str,
    /// Where the supplied bytes begin in their buffer.
    begin: usize,
    plain: Vec<GuestPart>,
    compressed: Vec<GuestPart>,
    /// The worker pool's failure, passing through the decoder's `io::Error`.
    failed: Option<Error>,
}

impl OnePassWriter<'_> {
    fn check(&mut self, result: Result<(), OnePassError>) -> Result<(), Error> {
        match (result, self.failed.take()) {
            (_, Some(error)) => Err(error),
            (Ok(()), None) => Ok(()),
            (Err(error), None) => Err(self.explain(error)),
        }
    }

    fn explain(&self, error: OnePassError) -> Error {
        match error {
            OnePassError::NeedsRandomAccess { because } => Error::NeedsScratch { because },
            OnePassError::ParkingFull => self.parking_full(self.parking_limited_by),
            OnePassError::Image(source) => {
                Error::Decode { name: self.context.source.facts().name.clone(), source }
            }
            OnePassError::Output(source) => self.context.sink.failed("write to", source),
        }
    }

    fn parking_full(&self, limit: &str) -> Error {
        let because = format!(
            "more clusters precede their tables than memory and disk can hold, and {limit}"
        );
        Error::NeedsScratch { because }
    }

    /// `range` is of the supplied bytes.
    fn part_of_buffer(&self, range: Range<usize>, at: u64) -> GuestPart {
        GuestPart { range: self.begin + range.start..self.begin + range.end, at }
    }

    fn submit(&mut self, buffer: &Arc<Buffer>) -> Result<(), Error> {
        /// Stored bytes per job: small enough that all threads share the clusters of one buffer.
        const JOB_BYTES: usize = 128 << 10;
        let plain = std::mem::take(&mut self.plain);
        if !plain.is_empty() {
            self.context.workers.submit(Job::Scan { buffer: Arc::clone(buffer), parts: plain })?;
        }
        let mut clusters = vec![];
        let mut bytes = 0;
        for placed in self.compressed.drain(..) {
            bytes += placed.range.len();
            clusters.push(placed);
            if bytes >= JOB_BYTES {
                bytes = 0;
                let clusters = std::mem::take(&mut clusters);
                let buffer = Arc::clone(buffer);
                self.context.workers.submit(Job::Clusters { buffer, clusters, guard: None })?;
            }
        }
        if clusters.is_empty() {
            return Ok(());
        }
        let buffer = Arc::clone(buffer);
        self.context.workers.submit(Job::Clusters { buffer, clusters, guard: None })
    }

    fn owned(&mut self, bytes: Vec<u8>, at: u64, compressed: bool) -> io::Result<()> {
        count_copied(bytes.len());
        let job = Job::Owned { bytes, at, compressed, guard: None };
        self.context.workers.submit(job).map_err(|error| {
            self.failed = Some(error);
            io::Error::other("a worker failed")
        })
    }
}

impl Output for OnePassWriter<'_> {
    fn plain(&mut self, range: Range<usize>, guest: u64) -> io::Result<()> {
        self.plain.push(self.part_of_buffer(range, guest));
        Ok(())
    }

    fn compressed(&mut self, range: Range<usize>, guest: u64) -> io::Result<()> {
        self.compressed.push(self.part_of_buffer(range, guest));
        Ok(())
    }

    fn plain_owned(&mut self, bytes: Vec<u8>, guest: u64) -> io::Result<()> {
        self.owned(bytes, guest, false)
    }

    fn compressed_owned(&mut self, bytes: Vec<u8>, guest: u64) -> io::Result<()> {
        self.owned(bytes, guest, true)
    }

    fn store(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let sink = &self.context.sink;
        let parked = sink.times().measure(Activity::WriteWait, || sink.inner().park_at(at, bytes));
        parked.inspect_err(|error| {
            let has_no_space = is_full(error) || error.kind() == io::ErrorKind::FileTooLarge;
            // The disk itself does fit. What was free behind it when the import began has been used by others.
            if has_no_space && at + bytes.len() as u64 > self.virtual_size {
                self.failed = Some(self.parking_full(&format!("behind the disk there is {error}")));
            }
        })
    }

    fn load(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let sink = &self.context.sink;
        sink.times().measure(Activity::WriteWait, || sink.inner().read_parked_at(at, buffer))
    }

    fn clear(&mut self, at: u64, len: u64) -> io::Result<()> {
        let sink = &self.context.sink;
        sink.times().measure(Activity::WriteWait, || sink.inner().clear_parked_at(at, len))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use contract::ByteCount;
    use formats::image::{KnownBytes, Opened, open};
    use formats::sniff::ImageFormat;
    use parking_lot::Mutex;
    use testkit::{Qcow2Options, QemuImg, SparseDisk, arguments};

    use super::*;
    use crate::completion::CompletionTracker;
    use crate::counting_sink::CountingSink;
    use crate::jobs::Worker;
    use crate::progress::Progress;
    use crate::sink::Sink;
    use crate::source::{ByteStream, Source, SourceError, SourceFacts};
    use crate::testing::{FailingSink, GARBAGE, MemorySink};
    use crate::worker_pool::WorkerPool;

    const SIZE: usize = 192 << 10;
    const BEHIND: usize = 512 << 10;

    struct ReadOnce(SourceFacts, Mutex<Option<Bytes>>);

    impl Source for ReadOnce {
        fn facts(&self) -> &SourceFacts {
            &self.0
        }

        fn open(&self, _: u64, _: Option<u64>) -> Box<dyn ByteStream> {
            Box::new(Once(self.1.lock().take()))
        }
    }

    struct Once(Option<Bytes>);

    impl ByteStream for Once {
        fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
            Ok(self.0.take())
        }
    }

    /// A full disk of three clusters, and two snapshots of it with other content.
    fn snapshots(qemu: &QemuImg) -> (Vec<u8>, Vec<u8>) {
        let image = qemu.qcow2(&SparseDisk::new(SIZE as u64), &Qcow2Options::default());
        for (byte, snapshot) in [(1, "one"), (2, "two")] {
            qemu.qemu_io(image.path(), &[&format!("write -P {byte} 0 192k")]);
            qemu.run(arguments!["snapshot", "-c", snapshot, image.path()]);
        }
        qemu.qemu_io(image.path(), &["write -P 3 0 192k"]);
        (image.bytes(), qemu.to_raw(image.path(), "qcow2"))
    }

    /// Imports with too little memory to park a cluster.
    fn import_to(image: &[u8], sink: Arc<dyn Sink>) -> Result<Outcome, Error> {
        let known = KnownBytes::new(image[..64 << 10].to_vec(), None);
        let Ok(Opened::Layout(layout)) = open(ImageFormat::Qcow2, &known) else { panic!("header") };
        let facts = SourceFacts { name: "memory".into(), ..SourceFacts::default() };
        let source = ReadOnce(facts, Mutex::new(Some(image.to_vec().into())));
        let progress = Arc::new(Progress::default());
        let sink = CountingSink::new(sink, "disk".as_ref(), &progress);
        let pool = Pool::new(64 << 10, 4);
        let work = || {
            let mut worker = Worker::new(sink.clone(), &pool, "memory", None);
            move |job| worker.work(job)
        };
        let context = TransferContext {
            source: &source,
            stream: Mutex::new(None),
            workers: WorkerPool::start("worker", 2, 2, work)?,
            sink: sink.clone(),
            pool: Arc::clone(&pool),
            progress,
            completion: Arc::new(CompletionTracker::untracked()),
            gzip_threads: 1,
            available: ByteCount::new(SIZE as u64),
            held_back: 0,
        };
        import_one_pass(&context, layout, &[], None, 20_000)
    }

    #[test]
    fn any_write_that_fails_fails_the_import_and_no_parked_byte_survives_a_success() {
        let Some(qemu) = QemuImg::require() else { return };
        let (image, expected) = snapshots(&qemu);
        for new in [MemorySink::zeroed, MemorySink::garbage] {
            let sink = || FailingSink::new(new(SIZE).with_parking_space(BEHIND));
            let whole = Arc::new(sink());
            import_to(&image, Arc::clone(&whole) as _).unwrap();
            let bytes = whole.inner().bytes();
            assert!(bytes[..SIZE] == expected);
            assert!(bytes[SIZE..].iter().all(|byte| [0, GARBAGE].contains(byte)), "parked bytes");
            let (mut target_failed, mut needs_scratch) = (0, 0);
            for write in 0..whole.writes() {
                match import_to(&image, Arc::new(sink().fail_write(write))).map(|_| write) {
                    Err(Error::Target { .. }) => target_failed += 1,
                    Err(Error::NeedsScratch { because }) => {
                        let text = "behind the disk there is no space left on device";
                        assert!(because.ends_with(text), "{because}");
                        needs_scratch += 1;
                    }
                    other => panic!("write {write}: {other:?}"),
                }
            }
            assert!(target_failed > 0 && needs_scratch > 0, "{target_failed}, {needs_scratch}");
        }
    }
}
