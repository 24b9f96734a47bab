//! `bench import`: every image, to every kind of target, by every contender, in turns.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::case::Case;
use crate::common::{Common, Importers, in_turns};
use crate::contender::{Contender, RunPaths};
use crate::disk::{self, Size};
use crate::goals::Conditions;
use crate::limit::{Group, Limits};
use crate::measure::{Outcome, measure};
use crate::registry::Registry;
use crate::report::{self, Facts, Run};
use crate::server::Nginx;
use crate::shell;
use crate::slow_disk::SlowDisk;
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
    /// Slow the loop device down: no program writes faster to it. Only with `--target loop`. Takes root.
    #[arg(long, value_name = "RATE")]
    disk_mib_per_second: Option<u64>,
    /// Give the loop device sectors of so many bytes, which it then takes no less of. Only with `--target loop`.
    #[arg(long, value_name = "4096")]
    sector_bytes: Option<u32>,
    /// Fill the loop device with other data before each run. Only with `--target loop`.
    #[arg(long)]
    old_data: bool,
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
    let is_for_loop =
        options.disk_mib_per_second.is_some() || options.sector_bytes.is_some() || options.old_data;
    if is_for_loop && options.targets != [Kind::Loop] {
        bail!("only a loop device has a speed, sectors and old data: add --target loop");
    }
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
    let mut facts = Facts::gather(
        &bench.oracle(),
        &options.importers.cdi()?,
        options.importers.reference.as_deref(),
    )?;
    facts.lines.extend(options.special_facts(facts.data_bytes));
    let mut runs = Vec::new();
    for case in &options.cases {
        for kind in &options.targets {
            bench.compare(*case, *kind, &facts, &mut runs)?;
        }
    }
    let text = report::markdown(&facts, &runs, options.conditions());
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

impl Options {
    /// What is not the default, for the report. `data_bytes`: of the disk.
    fn special_facts(&self, data_bytes: u64) -> Vec<(&'static str, String)> {
        let limits = self.cgroup.map(|limits| ("limits of all programs", limits.to_string()));
        let rate = self.disk_mib_per_second.map(|rate| {
            let least = (data_bytes >> 20) as f64 / rate as f64;
            let text = format!("{rate} MiB/s at most, so {least:.1} s for the data");
            ("writes to the loop device", text)
        });
        let sectors =
            self.sector_bytes.map(|bytes| ("sectors of the loop device", format!("{bytes} bytes")));
        let before = "other data in every byte, in place of zeroes";
        let old_data = self.old_data.then(|| ("the loop device before each run", before.into()));
        [limits, rate, sectors, old_data].into_iter().flatten().collect()
    }

    fn conditions(&self) -> Conditions {
        match (self.disk_mib_per_second, self.cgroup) {
            (Some(_), _) => Conditions::SlowDisk,
            (None, Some(_)) => Conditions::Pod,
            (None, None) => Conditions::Machine,
        }
    }
}

/// One image and one target.
struct Setting {
    case: Case,
    // Fast again before the device goes.
    slow_disk: Option<SlowDisk>,
    target: Target,
    paths: RunPaths,
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
        if let Some(bytes) = self.options.sector_bytes {
            let device = target.path().display().to_string();
            shell::output("losetup", &["--sector-size", &bytes.to_string(), &device])?;
        }
        let rate = self.options.disk_mib_per_second;
        let slow_disk = rate.map(|rate| SlowDisk::new(target.path(), rate << 20)).transpose()?;
        let paths = RunPaths {
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
        let setting = Setting { case, target, paths, slow_disk };
        in_turns(contenders, self.options.common.runs, |contender, round| {
            let run = self.one(&setting, contender, round)?;
            eprintln!("{run}");
            let succeeded = run.cost.is_some();
            runs.push(run);
            Ok(succeeded)
        })
    }

    fn one(&self, setting: &Setting, contender: Contender, round: u32) -> Result<Run> {
        let Setting { case, target, paths, slow_disk } = setting;
        empty(&paths.scratch)?;
        target.make_fresh()?;
        if self.options.old_data {
            target.fill_with_old_data(paths.virtual_size)?;
        }
        let group = self.options.cgroup.map(|limits| Group::new("run", limits)).transpose()?;
        let mut enter = group.as_ref().map(Group::enter).unwrap_or_default();
        enter.extend(slow_disk.as_ref().map(SlowDisk::enter));
        let limit = Duration::from_secs(self.options.common.limit_seconds);
        let outcome = measure(&mut contender.command(*case, paths, &enter), limit)?;
        let mut run = Run::new(*case, target.kind(), contender, round);
        run.group_peak_bytes = group.as_ref().map(Group::peak_bytes).transpose()?;
        if matches!(outcome, Outcome::Done(_)) {
            run.allocated_bytes = target.allocated_bytes()?;
        }
        let verify = || if round == 0 { target.verify(&self.oracle()) } else { Ok(()) };
        match outcome.verified(limit, verify) {
            Ok(cost) => (run.cost, run.outcome) = (Some(cost), "done".into()),
            Err(cause) => run.outcome = cause,
        }
        empty(&paths.scratch)?;
        Ok(run)
    }
}
