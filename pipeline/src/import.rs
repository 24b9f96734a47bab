//! One import from end to end: probe, plan, transfer, finish, report.

use std::sync::Arc;
use std::time::Instant;

use contract::ByteCount;

use crate::error::Error;
use crate::finish::{DiskSize, conclude, largest_size, strip_footer};
use crate::options::{Options, Report, Target};
use crate::ova::Member;
use crate::plan::{ImportPlan, TargetFacts, plan_delta, plan_import};
use crate::probe::{ProbedImage, probe};
use crate::progress::{Progress, ProgressPhase};
use crate::routes::Outcome;
use crate::source::Source;
use crate::sparse_space;
use crate::timed_source::TimedSource;
use crate::transfer::transfer;
use crate::{finish, resume, scratch_retry};

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
    let started = Instant::now();
    let source = &TimedSource::new(source, progress);
    let backing = options.delta.as_ref().and_then(|delta| delta.backing.as_deref());
    let mut image = probe(source, backing, options.format)?;
    let import = Import { source, target, options, progress };
    match image.ova.take() {
        Some(_) if options.delta.is_some() => {
            Err(Error::Unsupported { what: "a delta in an OVA".to_owned() })
        }
        Some(head) => {
            let member = Member::find(source, image.stream.take(), &head)?;
            import.import_member(&member)
        }
        None => import.import_image(image, started),
    }
}

/// What an import works with.
#[derive(Clone, Copy)]
pub struct Import<'a> {
    pub source: &'a dyn Source,
    pub target: &'a Target,
    pub options: &'a Options,
    pub progress: &'a Arc<Progress>,
}

/// Largest sparse disk (64 TiB) whose size is known only at the end of its stream.
const SPARSE_SIZE_MAX: ByteCount = ByteCount::mebibytes(64 << 20);

impl Import<'_> {
    pub fn import_image(self, mut image: ProbedImage, started: Instant) -> Result<Report, Error> {
        let available = self.available_space()?;
        let plan = self.plan(&image, available.limit)?;
        if available.is_sparse
            && let Some(size) = plan.virtual_size
        {
            self.warn_if_larger(&image, ByteCount::new(size), available.free)?;
        }
        if let Some(length) = self.source.facts().length {
            self.progress.set_read_total(length);
        }
        if let Some(size) = plan.virtual_size {
            self.progress.set_guest_total(size);
        }
        self.progress.enter(ProgressPhase::Transferring);
        let planned = PlannedImport { import: self, plan: &plan, available: available.limit };
        let (outcome, scratch_bytes) = match planned.attempt(&mut image) {
            Err(Error::NeedsScratch { because }) => {
                scratch_retry::import_through_scratch(&planned, &image, because)?
            }
            result => (result?, 0),
        };
        self.progress.enter(ProgressPhase::Done);
        let counted = self.progress.snapshot();
        Ok(Report {
            format: image.facts.format.to_string(),
            compression: image.facts.compressions.iter().map(ToString::to_string).collect(),
            route: plan.route.name().to_owned(),
            virtual_size: outcome.virtual_size,
            bytes_read: counted.read,
            bytes_written: counted.written,
            zero_bytes: counted.zero,
            scratch_bytes,
            resumed_at: outcome.resumed,
            digest: outcome.digest.map(|digest| digest.to_string()),
            seconds: started.elapsed().as_secs_f64(),
            time: self.progress.time_spent(),
        })
    }

    fn available_space(&self) -> Result<AvailableSpace, Error> {
        let free = largest_size(self.target)?;
        let Some(_) = &self.options.delta else {
            let is_sparse = finish::has_free_holes(self.target, self.options.file_space);
            let sparse_limit = self.target.available.unwrap_or(SPARSE_SIZE_MAX);
            let limit = if is_sparse { sparse_limit } else { free };
            return Ok(AvailableSpace { free, limit, is_sparse });
        };
        // The next stage may use the space that the disk of the stage before occupies.
        let occupied = ByteCount::new(crate::target::length_of_stage(&self.target.path));
        Ok(AvailableSpace { free, limit: free.max(occupied), is_sparse: false })
    }

    fn plan(&self, image: &ProbedImage, available: ByteCount) -> Result<ImportPlan, Error> {
        let in_order = self.options.hasher().is_some();
        let target = TargetFacts { available };
        let plan = plan_import(&image.facts, self.source.facts(), target, in_order)?;
        match &self.options.delta {
            Some(_) => plan_delta(plan, image.facts.format),
            None => Ok(plan),
        }
    }

    fn warn_if_larger(
        &self,
        image: &ProbedImage,
        size: ByteCount,
        free: ByteCount,
    ) -> Result<(), Error> {
        if size > free {
            let data = sparse_space::data_bytes(self.source, image)?;
            let warning = sparse_space::warning(&self.target.path, size, data, free);
            warning.into_iter().for_each(|warning| self.progress.warn(warning));
        }
        Ok(())
    }
}

struct AvailableSpace {
    free: ByteCount,
    /// The largest virtual size that is accepted.
    limit: ByteCount,
    /// Only the data of the disk has to fit.
    is_sparse: bool,
}

/// An import whose route is decided.
pub struct PlannedImport<'a> {
    pub import: Import<'a>,
    pub plan: &'a ImportPlan,
    /// The largest virtual size that fits.
    pub available: ByteCount,
}

impl PlannedImport<'_> {
    /// Takes the planned route. Continues from the journal if it can.
    fn attempt(&self, image: &mut ProbedImage) -> Result<Outcome, Error> {
        let resume::OpenedTarget { disk, completion } = resume::open_target(self)?;
        let stream = image.stream.take();
        let route = &self.plan.route;
        let result = transfer(&self.import, self.available, &disk, completion, route, stream);
        let result = match image.facts.layout {
            None if self.may_have_footer() => {
                result.and_then(|outcome| strip_footer(&self.import, &disk, outcome))
            }
            _ => result,
        };
        conclude(self, disk, result)
    }

    /// The end of a guest's disk may look like anything, and of a delta only parts have come.
    fn may_have_footer(&self) -> bool {
        let Import { source, options, .. } = self.import;
        !source.is_disk()
            && options.format == crate::SourceFormat::Detect
            && options.delta.is_none()
    }

    pub fn disk_size(&self) -> DiskSize {
        DiskSize::new(self.plan.virtual_size, self.available)
    }
}
