//! One import from end to end: look, decide, stream, make durable.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use contract::{ByteCount, Checksum};
use formats::decompress::{Limits, readers};
use formats::sniff::{TAIL_BYTES, foreign_by_tail};
use formats::vhd;

use crate::buffer::Pool;
use crate::crew::Crew;
use crate::error::Error;
use crate::jobs::{Clusters, Worker};
use crate::journal::{self, Identity, Journal};
use crate::ledger::Ledger;
use crate::look::{Look, look};
use crate::memory::{cores, share};
use crate::options::{FileSpace, Options, Report, SourceFormat, Target};
use crate::outlet::Outlet;
use crate::ova::Member;
use crate::plan::{ImportPlan, Route, TargetFacts, plan_delta, plan_import};
use crate::progress::{Progress, Stage};
use crate::routes::scratch::Scratch;
use crate::routes::{self, Flow, Outcome, indexed, one_pass, parts, raw, stream};
use crate::sink::Sink;
use crate::source::Source;
use crate::space;
use crate::target::{Disk, DiskOptions};
use crate::wire::Wire;

/// Fills `target` with the disk that `source` holds, and returns once it is complete and durable.
///
/// # Errors
/// See [`Error`]. Nothing that looks like a finished disk is left behind: a file has no name yet, a device has no
/// first block.
pub fn import(
    source: &dyn Source,
    target: &Target,
    options: &Options,
    progress: &Arc<Progress>,
) -> Result<Report, Error> {
    let began = Instant::now();
    let backing = options.delta.as_ref().and_then(|delta| delta.backing.as_deref());
    let mut image = look(source, backing, options.format)?;
    if let Some(head) = image.ova.take() {
        if options.delta.is_some() {
            let what = "a delta in an OVA".to_owned();
            return Err(Error::Unsupported { what });
        }
        let member = Member::find(source, image.stream.take(), &head)?;
        return import_member(source, &member, target, options, progress);
    }
    import_image(source, image, target, options, progress, began)
}

/// As [`import`], for the disk `member` of the archive `source`.
fn import_member(
    source: &dyn Source,
    member: &Member<'_>,
    target: &Target,
    options: &Options,
    progress: &Arc<Progress>,
) -> Result<Report, Error> {
    let began = Instant::now();
    let mut digest = None;
    if let Some(hasher) = options.hasher() {
        // The checksum is of the whole archive, most of which need not be read otherwise.
        if !source.facts().ranges {
            let what = "the checksum of an OVA that cannot be read twice (save it in a file first)";
            return Err(Error::Unsupported { what: what.into() });
        }
        let wire = Wire::new(source.open(0, None), progress, Some(hasher))?;
        let found = wire.finish().map_err(|e| crate::wire::explain(e, &source.facts().name))?;
        check_digest(options, found.as_ref())?;
        digest = found.map(|digest| digest.to_string());
    }
    let options =
        Options { checksum: None, checksum_later: None, digest: false, ..options.clone() };
    let image = look(member, None, SourceFormat::Detect)?;
    if image.ova.is_some() {
        let what = "an OVA in an OVA".to_owned();
        return Err(Error::Unsupported { what });
    }
    let report = import_image(member, image, target, &options, progress, began)?;
    Ok(Report { digest, format: format!("{} in ova", report.format), ..report })
}

fn import_image(
    source: &dyn Source,
    mut image: Look,
    target: &Target,
    options: &Options,
    progress: &Arc<Progress>,
    began: Instant,
) -> Result<Report, Error> {
    let free = offered(target)?;
    let is_sparse = options.delta.is_none() && has_free_holes(target, options.file_space);
    let mut available = if is_sparse { target.available.unwrap_or(SPARSE_SIZE_MAX) } else { free };
    if options.delta.is_some() {
        // What the disk of the stage before occupies is room for the one after.
        let there = crate::target::length_of_stage(&target.path);
        available = available.max(ByteCount::new(there));
    }
    let in_order = options.hasher().is_some();
    let facts = TargetFacts { available };
    let mut plan = plan_import(&image.facts, source.facts(), facts, in_order)?;
    if options.delta.is_some() {
        plan = plan_delta(plan, image.facts.format)?;
    }
    if is_sparse && let Some(size) = plan.virtual_size.filter(|size| *size > free.get()) {
        let data = space::data_bytes(source, &image)?;
        if let Some(warning) = space::warning(&target.path, ByteCount::new(size), data, free) {
            progress.warn(warning);
        }
    }
    let import = Import { source, target, options, progress, plan, available };
    if let Some(length) = source.facts().length {
        progress.set_read_total(length);
    }
    if let Some(size) = import.plan.virtual_size {
        progress.set_guest_total(size);
    }
    progress.enter(Stage::Transferring);
    let (outcome, scratch_bytes) = match import.attempt(&mut image) {
        Err(Error::NeedsScratch { because }) => import.with_scratch(&image, because)?,
        result => (result?, 0),
    };
    progress.enter(Stage::Done);
    let counted = progress.snapshot();
    Ok(Report {
        format: image.facts.format.to_string(),
        compression: image.facts.compressions.iter().map(ToString::to_string).collect(),
        route: import.plan.route.name().to_owned(),
        virtual_size: outcome.virtual_size,
        bytes_read: counted.read,
        bytes_written: counted.written,
        zero_bytes: counted.zero,
        scratch_bytes,
        resumed_at: outcome.resumed,
        digest: outcome.digest.map(|digest| digest.to_string()),
        seconds: began.elapsed().as_secs_f64(),
    })
}

/// Largest sparse disk (64 TiB) whose size is known only at the end of its stream.
const SPARSE_SIZE_MAX: ByteCount = ByteCount::mebibytes(64 << 20);
/// A file length (1 GiB) that every file system supports.
const FILE_LENGTH_MIN: u64 = 1 << 30;

const _: () = assert!(TAIL_BYTES == vhd::FOOTER_LEN, "one read of the end serves both checks");

/// [`blank`] writes zeroes in chunks of this size and counts each as progress.
const BLANK_CHUNK: u64 = 64 << 20;

/// Creates an empty disk of `size` bytes, or as long as the target wants it if that is more. A device then reads as zeroes
/// from its first to its last byte. A killed call leaves no disk, and the next call starts again from the first byte.
///
/// # Errors
/// As for [`import`].
pub fn blank(
    size: ByteCount,
    target: &Target,
    file_space: FileSpace,
    progress: &Arc<Progress>,
) -> Result<Report, Error> {
    let began = Instant::now();
    let offered = match has_free_holes(target, file_space) {
        true => target.available.unwrap_or(size),
        false => offered(target)?,
    };
    if size > offered {
        return Err(Error::TooLarge { needed: size, offered });
    }
    progress.set_guest_total(size.get());
    progress.enter(Stage::Transferring);
    let disk = open(target, Some(size.get()), offered, false)?;
    if disk.starts_zeroed() {
        progress.add_zero(size.get());
    } else {
        for from in (0..size.get()).step_by(BLANK_CHUNK as usize) {
            let len = BLANK_CHUNK.min(size.get() - from);
            disk.zero_at(from, len)
                .map_err(|source| failed("write zeroes to", &target.path, source))?;
            progress.add_written(len);
        }
    }
    progress.enter(Stage::Finishing);
    finish(disk, target, size.get())?;
    progress.enter(Stage::Done);
    Ok(Report {
        format: "raw".into(),
        route: "blank".into(),
        virtual_size: size.get(),
        zero_bytes: size.get(),
        seconds: began.elapsed().as_secs_f64(),
        ..Report::default()
    })
}

/// Whether the disk will be a sparse file of which only the data has to fit.
fn has_free_holes(target: &Target, file_space: FileSpace) -> bool {
    let is_device = std::fs::metadata(&target.path).is_ok_and(|f| f.file_type().is_block_device());
    file_space == FileSpace::Data && !target.preallocate && !is_device
}

/// The largest disk that fits.
fn offered(target: &Target) -> Result<ByteCount, Error> {
    let there = crate::target::available(&target.path)
        .map_err(|source| failed("see how much room there is for", &target.path, source))?;
    let there = ByteCount::new(there);
    Ok(target.available.map_or(there, |limit| limit.min(there)))
}

/// An import that was decided on.
struct Import<'a> {
    source: &'a dyn Source,
    target: &'a Target,
    options: &'a Options,
    progress: &'a Arc<Progress>,
    plan: ImportPlan,
    available: ByteCount,
}

impl Import<'_> {
    /// Takes the planned route.
    fn attempt(&self, image: &mut Look) -> Result<Outcome, Error> {
        let (disk, ledger) = self.open()?;
        let stream = image.stream.take();
        let result = self.transfer(self.source, stream, &disk, ledger, self.plan.route, image);
        let result = match image.index {
            None if self.may_have_footer() => {
                result.and_then(|outcome| self.without_footer(&disk, outcome))
            }
            _ => result,
        };
        self.conclude(disk, result)
    }

    /// Not what is known to be a guest's disk, whose end may look like anything, nor a disk of which only parts came.
    fn may_have_footer(&self) -> bool {
        !self.source.is_disk()
            && self.options.format == SourceFormat::Detect
            && self.options.delta.is_none()
    }

    /// Checks the end of an apparently raw disk after the transfer: removes the footer of a fixed VHD, and refuses a dmg
    /// image, whose only signature is there.
    fn without_footer(&self, disk: &Disk, outcome: Outcome) -> Result<Outcome, Error> {
        let footer_at = outcome.virtual_size.saturating_sub(vhd::FOOTER_LEN as u64);
        if footer_at == 0 {
            return Ok(outcome);
        }
        let mut last = [0; vhd::FOOTER_LEN];
        let path = &self.target.path;
        disk.read_at(footer_at, &mut last).map_err(|e| failed("read back from", path, e))?;
        if let Some(foreign) = foreign_by_tail(&last) {
            let (name, source) =
                (self.source.facts().name.clone(), formats::Error::Foreign(foreign));
            return Err(Error::Decode { name, source });
        }
        let Some(virtual_size) = vhd::fixed_size(&last, outcome.virtual_size) else {
            return Ok(outcome);
        };
        disk.zero_at(footer_at, last.len() as u64)
            .map_err(|e| failed("write zeroes to", path, e))?;
        Ok(Outcome { virtual_size, ..outcome })
    }

    /// The image came in an order that one pass cannot put right: goes through a file, or reads it twice.
    fn with_scratch(&self, image: &Look, because: String) -> Result<(Outcome, u64), Error> {
        let name = &self.source.facts().name;
        let explain = |error| crate::wire::explain(error, name);
        if !self.source.can_reopen() {
            let because =
                format!("{because}; {name} can be read only once, so save it in a file first");
            return Err(Error::NeedsScratch { because });
        }
        let (digest, scratch) = match &self.options.scratch {
            // All that one pass was wanted for was the hash: hash first, then read what is needed by ranges.
            _ if image.facts.compressions.is_empty() && self.source.facts().ranges => {
                let stream = self.source.open(0, None);
                let wire = Wire::new(stream, self.progress, self.options.hasher())?;
                (wire.finish().map_err(explain)?, None)
            }
            Some(folder) => {
                let stream = self.source.open(0, None);
                let mut wire = Wire::new(stream, self.progress, self.options.hasher())?;
                let scratch = {
                    let wire = Box::new(&mut wire);
                    let mut reader = readers(&image.facts.compressions, wire, Limits::default());
                    Scratch::fill(folder, name, &mut reader, explain)?
                };
                (wire.finish().map_err(explain)?, Some(scratch))
            }
            None => return Err(Error::NeedsScratch { because }),
        };
        check_digest(self.options, digest.as_ref())?;
        let source: &dyn Source = scratch.as_ref().map_or(self.source, |scratch| scratch);
        self.progress.start_over();
        // Now that any part of it can be had, more of it may be known.
        let image = look(source, None, SourceFormat::Detect)?;
        let disk = open(self.target, self.plan.virtual_size, self.available, false)?;
        let ledger = Arc::new(Ledger::forgetful());
        let result = self.transfer(source, None, &disk, ledger, Route::Ranges, &image);
        let result = result.map(|outcome| Outcome { digest, ..outcome });
        let scratch_bytes = scratch.as_ref().map_or(0, Scratch::len);
        Ok((self.conclude(disk, result)?, scratch_bytes))
    }

    /// The half-written disk of an earlier process with what it had done, or a new one.
    fn open(&self) -> Result<(Arc<Disk>, Arc<Ledger>), Error> {
        let journal = self.journal_path();
        if let Some(delta) = &self.options.delta {
            if let Some(path) = &journal {
                journal::remove(path).map_err(|e| failed("remove the journal", path, e))?;
            }
            let size = final_size(self.target, self.plan.virtual_size.unwrap_or(0));
            let disk =
                Disk::reopen(&self.target.path, size, self.target.preallocate, &delta.stage)?;
            return Ok((Arc::new(disk), Arc::new(Ledger::forgetful())));
        }
        let (Some(path), Some(validator), true) =
            (&journal, &self.source.facts().validator, self.plan.resumable)
        else {
            if let Some(path) = &journal {
                journal::remove(path).map_err(|e| failed("remove the journal", path, e))?;
            }
            let disk = open(self.target, self.plan.virtual_size, self.available, false)?;
            return Ok((disk, Arc::new(Ledger::forgetful())));
        };
        // A forced raw format cuts the same bytes into other units than a detected one.
        let format = match self.options.format {
            SourceFormat::Detect => "",
            SourceFormat::Raw => " as raw",
        };
        let identity = |disk: &Disk| Identity {
            source: self.source.facts().name.clone(),
            validator: validator.clone(),
            length: self.source.facts().length.unwrap_or(0),
            layout: format!("{} {}{format}", self.plan.route.name(), routes::SEGMENT),
            virtual_size: self.plan.virtual_size.unwrap_or(0),
            target: disk.partial_identity(),
        };
        let mut done = None;
        let mut disk = None;
        if self.options.resume && path.exists() {
            let earlier = open(self.target, self.plan.virtual_size, self.available, true)?;
            done = Journal::new(path.clone(), identity(&earlier)).load();
            disk = done.is_some().then_some(earlier);
        }
        let disk = match disk {
            Some(disk) => disk,
            None => {
                journal::remove(path).map_err(|e| failed("remove the journal", path, e))?;
                open(self.target, self.plan.virtual_size, self.available, false)?
            }
        };
        let journal = Journal::new(path.clone(), identity(&disk));
        let outlet = Outlet::new(disk.clone(), &self.target.path, self.progress);
        let every = self.options.checkpoint_every;
        let ledger = Ledger::new(journal, outlet, every, done.unwrap_or_default());
        Ok((disk, Arc::new(ledger)))
    }

    fn journal_path(&self) -> Option<PathBuf> {
        let beside = || crate::target::journal_beside(&self.target.path);
        self.options.journal.clone().or_else(beside)
    }

    /// Starts a crew and lets the route feed it.
    fn transfer(
        &self,
        source: &dyn Source,
        stream: Option<Box<dyn crate::source::ByteStream>>,
        disk: &Arc<Disk>,
        ledger: Arc<Ledger>,
        route: Route,
        image: &Look,
    ) -> Result<Outcome, Error> {
        let memory = share(self.options.memory, cores(), source.facts().streams_max);
        let outlet = Outlet::new(disk.clone(), &self.target.path, self.progress);
        let clusters = image.index.as_ref().filter(|layout| layout.has_compressed());
        let clusters = clusters.map(|layout| Clusters {
            codec: layout.codec(),
            size: layout.cluster_size() as usize,
            virtual_size: layout.virtual_size(),
        });
        let pool = Pool::new(memory.buffer_len, memory.buffers);
        let make = || {
            let mut worker = Worker::new(outlet.clone(), &pool, &source.facts().name, clusters);
            move |job| worker.work(job)
        };
        let crew = Crew::start("crew", memory.crew, memory.crew, make)?;
        let flow = Flow {
            source,
            stream: Mutex::new(stream),
            outlet: outlet.clone(),
            crew,
            pool: Arc::clone(&pool),
            progress: Arc::clone(self.progress),
            ledger,
            available: self.available,
            held_back: disk.held_back(),
        };
        let hasher = || self.options.hasher();
        let compressions = &image.facts.compressions;
        let delta = self.options.delta.is_some();
        match (route, &image.index) {
            (Route::Ranges, Some(layout)) => indexed::import(&flow, &**layout, delta),
            (Route::Ranges, None) => {
                raw::by_ranges(&flow, source.facts().length.unwrap_or(0), delta)
            }
            (Route::Stream, _) if compressions.is_empty() => stream::raw(&flow, hasher()),
            (Route::Stream, _) => stream::compressed(&flow, compressions, hasher()),
            (Route::Parts, _) => match compressions.as_slice() {
                [only] => parts::raw(&flow, *only, hasher(), memory.parts),
                _ => stream::compressed(&flow, compressions, hasher()),
            },
            (Route::OnePass, Some(layout)) => {
                let layout = Arc::clone(layout);
                one_pass::import(&flow, layout, compressions, hasher(), memory.parked)
            }
            (Route::OnePass, None) => {
                Err(Error::Unsupported { what: "one pass over this format".into() })
            }
        }
    }

    /// Makes a good disk durable and gives it its name; takes a bad one away unless it can be continued.
    fn conclude(&self, disk: Arc<Disk>, result: Result<Outcome, Error>) -> Result<Outcome, Error> {
        let result = result.and_then(|outcome| {
            check_digest(self.options, outcome.digest.as_ref())?;
            Ok(outcome)
        });
        match result {
            Ok(outcome) => {
                self.progress.enter(Stage::Finishing);
                finish(disk, self.target, outcome.virtual_size)?;
                if let Some(path) = self.journal_path() {
                    journal::remove(&path).map_err(|e| failed("remove the journal", &path, e))?;
                }
                Ok(outcome)
            }
            Err(error) => {
                if !(self.plan.resumable && error.is_worth_another_try()) {
                    if let Some(path) = self.journal_path() {
                        let _ = journal::remove(&path); // the first error says more
                    }
                    if let Some(disk) = Arc::into_inner(disk) {
                        let _ = disk.abandon();
                    }
                }
                Err(error)
            }
        }
    }
}

fn check_digest(options: &Options, digest: Option<&Checksum>) -> Result<(), Error> {
    let Some(calculated) = digest else { return Ok(()) };
    match options.expected(*calculated) {
        Some(expected) if expected != *calculated => Err(Error::Checksum {
            expected: expected.to_string(),
            calculated: calculated.to_string(),
        }),
        _ => Ok(()),
    }
}

/// What is given to a disk whose size only its end tells: it may become as long as there is room.
fn open(
    target: &Target,
    virtual_size: Option<u64>,
    available: ByteCount,
    resume: bool,
) -> Result<Arc<Disk>, Error> {
    let known = virtual_size.map(|size| final_size(target, size));
    let mut size = known.unwrap_or(available.get());
    loop {
        let preallocate = target.preallocate && known.is_some();
        match Disk::open(&target.path, &DiskOptions { size, preallocate, resume }) {
            // Longer than this file system allows a file to be.
            Err(error) if known.is_none() && is_too_long(&error) && size > FILE_LENGTH_MIN => {
                size /= 2;
            }
            result => return result.map(Arc::new),
        }
    }
}

fn is_too_long(error: &Error) -> bool {
    matches!(error, Error::Target { source, .. } if source.kind() == io::ErrorKind::FileTooLarge)
}

fn finish(disk: Arc<Disk>, target: &Target, virtual_size: u64) -> Result<(), Error> {
    let mut disk = Arc::into_inner(disk).ok_or(Error::Panicked)?;
    if disk.was_there() {
        return disk.finish();
    }
    disk.end_at(final_size(target, virtual_size), target.preallocate)?;
    if !disk.starts_zeroed() && virtual_size < disk.size() {
        disk.zero_at(virtual_size, disk.size() - virtual_size)
            .map_err(|source| failed("write zeroes to", &target.path, source))?;
    }
    disk.finish()
}

/// A disk is never shrunk, and a file is as long as its volume wants it.
fn final_size(target: &Target, virtual_size: u64) -> u64 {
    virtual_size.max(target.grow_to.map_or(0, ByteCount::get))
}

fn failed(what: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::Target { what, path: path.to_owned(), source }
}
