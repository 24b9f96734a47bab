//! `bench import`: every image, to every kind of target, by every contender, in turns.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::case::Case;
use crate::common::{Common, Importers, in_turns};
use crate::contender::{Contender, RunPaths};
use crate::disk::{self, Size};
use crate::limit::{Group, Limits};
use crate::measure::{Outcome, measure};
use crate::registry::Registry;
use crate::report::{self, Facts, Run};
use crate::server::Nginx;
use crate::target::{Kind, Target};
use crate::work::{self, WorkFolder, empty};

/// What to compare.
#[derive(clap::Args)]
pub struct Options {
    /// Only these images.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Case::ALL)]
    cases: Vec<Case>,
    /// Only these programs.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Contender::ON_LOOPBACK)]
    contenders: Vec<Contender>,
    /// Only these targets.
    #[arg(long = "target", value_enum, value_delimiter = ',', default_values_t = [Kind::File, Kind::Loop])]
    targets: Vec<Kind>,
    /// Run all contenders within these limits, as in a pod: CORES,MEMORY.
    #[arg(long, value_name = "0.75,600M")]
    cgroup: Option<Limits>,
    #[command(flatten)]
    importers: Importers,
    #[command(flatten)]
    common: Common,
}

/// Runs the benchmark, prints its tables, and keeps them with the raw figures.
///
/// # Errors
/// When the environment cannot be created, or this project's program fails or makes a wrong disk.
pub fn run(options: &Options) -> Result<()> {
    let cache = &options.common.cache;
    let folder = disk::folder(options.common.size, cache)?;
    for case in &options.cases {
        case.prepare(&folder)?;
    }
    let work = WorkFolder::new(cache)?;
    let server = Nginx::start(&folder, work.path())?;
    let registry = if options.cases.contains(&Case::Registry) {
        Some(Registry::start(&folder.join(Case::Registry.file()), work.path())?)
    } else {
        None
    };
    let registry = registry.as_ref();
    let bench = Bench { options, folder: &folder, work: work.path(), server: &server, registry };
    let facts = Facts::gather(
        &bench.oracle(),
        &options.importers.cdi()?,
        options.importers.reference.as_deref(),
        options.cgroup,
    )?;
    let mut runs = Vec::new();
    for case in &options.cases {
        for kind in &options.targets {
            bench.compare(*case, *kind, &facts, &mut runs)?;
        }
    }
    let limits = options.cgroup.is_some();
    let text = report::markdown(&facts, &runs, limits);
    println!("{text}");
    if options.common.size == Size::Real {
        let lines = report::json_lines(&facts, &runs)?;
        work::keep(&facts.date, "import", &options.common.label, &text, &lines)?;
    }
    match runs.iter().find(|run| run.contender == Contender::Cdi && run.cost.is_none()) {
        Some(run) => bail!("cdi import did not manage {}: {}", run.case.name(), run.outcome),
        None => Ok(()),
    }
}

struct Bench<'a> {
    options: &'a Options,
    folder: &'a Path,
    work: &'a Path,
    server: &'a Nginx,
    registry: Option<&'a Registry>,
}

impl Bench<'_> {
    fn oracle(&self) -> PathBuf {
        self.folder.join(Case::Raw.file())
    }

    /// One image and one target: all contenders in each round, and each round begins with another.
    fn compare(&self, case: Case, kind: Kind, facts: &Facts, runs: &mut Vec<Run>) -> Result<()> {
        let upstream = self.options.importers.upstream();
        let contenders = self
            .options
            .contenders
            .iter()
            .copied()
            .filter(|contender| contender.can(case))
            .filter(|contender| match contender {
                Contender::Upstream | Contender::ScratchChain => *contender == upstream,
                _ => true,
            })
            .collect();
        let data = self.work.join("data");
        let target = Target::new(kind, &data, facts.virtual_size)?;
        let place = RunPaths {
            url: self.server.url(case.file()),
            store: self.server.store(),
            registry: self.registry.map(Registry::host).unwrap_or_default(),
            file: self.folder.join(case.file()),
            target: target.path().to_owned(),
            kind,
            scratch: self.work.join("scratch"),
            root: self.work.join("root"),
            virtual_size: facts.virtual_size,
            cdi: self.options.importers.cdi()?,
            reference: self.options.importers.reference.clone(),
        };
        in_turns(contenders, self.options.common.runs, |contender, round| {
            let run = self.one(case, contender, &target, &place, round)?;
            eprintln!("{run}");
            let succeeded = run.cost.is_some();
            runs.push(run);
            Ok(succeeded)
        })
    }

    fn one(
        &self,
        case: Case,
        contender: Contender,
        target: &Target,
        place: &RunPaths,
        round: u32,
    ) -> Result<Run> {
        empty(&place.scratch)?;
        target.make_fresh()?;
        let group = self.options.cgroup.map(|limits| Group::new("run", limits)).transpose()?;
        let enter = group.as_ref().map(Group::enter).unwrap_or_default();
        let limit = Duration::from_secs(self.options.common.limit_seconds);
        let outcome = measure(&mut contender.command(case, place, &enter), limit)?;
        let mut run = Run::new(case, target.kind(), contender, round);
        run.group_peak_bytes = group.as_ref().map(Group::peak_bytes).transpose()?;
        if matches!(outcome, Outcome::Done(_)) {
            run.allocated_bytes = target.allocated_bytes()?;
        }
        let verify = || if round == 0 { target.verify(&self.oracle()) } else { Ok(()) };
        match outcome.verified(limit, verify) {
            Ok(cost) => (run.cost, run.outcome) = (Some(cost), "done".into()),
            Err(cause) => run.outcome = cause,
        }
        empty(&place.scratch)?;
        Ok(run)
    }
}
