//! `bench network`: imports from a web server in another network namespace, through a simulated link.

mod pipe;
mod report;
pub mod scenario;
pub mod tunnel;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::case::{Case, Compression};
use crate::common::{Common, Importers, in_turns};
use crate::contender::{Contender, RunPaths};
use crate::disk::{self, Size};
use crate::measure::measure;
use crate::network::report::{Facts, Run};
use crate::network::scenario::Scenario;
use crate::network::tunnel::{Namespace, SERVER, Tunnel};
use crate::server::Nginx;
use crate::target::{Kind, Target};
use crate::work::{self, WorkFolder, empty};

const PORT: u16 = 8080;

/// What to compare.
#[derive(clap::Args)]
pub struct Options {
    /// Only these images.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Case::Qcow2Zlib, Case::RawGz])]
    cases: Vec<Case>,
    /// Only networks whose names contain this.
    #[arg(long, default_value = "")]
    only: String,
    #[command(flatten)]
    importers: Importers,
    #[command(flatten)]
    common: Common,
}

/// Runs the benchmark, prints its table, and keeps it with the raw figures.
///
/// # Errors
/// When the link or an input cannot be created, or this project's program fails or makes a wrong disk.
pub fn run(options: &Options) -> Result<()> {
    if options.cases.iter().any(|case| matches!(case, Case::S3 | Case::Registry)) {
        bail!("only images from a web server are measured here");
    }
    let cache = &options.common.cache;
    let folder = disk::folder(options.common.size, cache)?;
    for case in &options.cases {
        case.prepare(&folder)?;
    }
    let work = WorkFolder::new(cache)?;
    let namespace = Namespace::new()?;
    let facts = Facts::gather(&folder.join(Case::Raw.file()), &options.importers.cdi()?)?;
    let bench = Bench { options, folder: &folder, work: work.path(), namespace: &namespace };
    let mut runs = Vec::new();
    for scenario in scenario::ALL.iter().filter(|scenario| scenario.name.contains(&options.only)) {
        bench.compare(scenario, &mut runs)?;
    }
    if runs.is_empty() {
        let names: Vec<_> = scenario::ALL.iter().map(|scenario| scenario.name).collect();
        bail!("nothing was run; the networks are: {}", names.join("; "));
    }
    let text = report::markdown(&facts, &runs);
    println!("{text}");
    if options.common.size == Size::Real {
        let lines = report::json_lines(&facts, &runs)?;
        work::keep(&facts.date, "network", &options.common.label, &text, &lines)?;
    }
    match runs.iter().find(|run| run.contender == Contender::Cdi && run.cost.is_none()) {
        Some(run) => bail!("cdi import did not succeed: {run}"),
        None => Ok(()),
    }
}

struct Bench<'a> {
    options: &'a Options,
    folder: &'a Path,
    work: &'a Path,
    namespace: &'a Namespace,
}

impl Bench<'_> {
    /// One network: all contenders in each round, and each round begins with another.
    fn compare(&self, scenario: &'static Scenario, runs: &mut Vec<Run>) -> Result<()> {
        let _link = Tunnel::new(scenario.link, self.namespace)?;
        let limit = scenario.bytes_per_second_of_connection;
        let limit = limit.map(|rate| format!("limit_rate {rate};")).unwrap_or_default();
        let address: SocketAddr =
            format!("{SERVER}:{PORT}").parse().context("the server's address")?;
        let server =
            Nginx::start_in(&self.namespace.path(), address, &limit, self.folder, self.work)?;
        let oracle = self.folder.join(Case::Raw.file());
        let size = fs::metadata(&oracle).context("cannot look at the oracle")?.len();
        let target = Target::new(Kind::File, &self.work.join("data"), size)?;
        for case in &self.options.cases {
            let image = self.folder.join(case.file());
            let image_bytes = fs::metadata(&image).context("cannot look at the image")?.len();
            let paths = RunPaths {
                url: server.url(case.file()),
                store: server.store(),
                registry: String::new(),
                file: image,
                target: target.path().to_owned(),
                kind: target.kind(),
                scratch: self.work.join("scratch"),
                root: self.work.join("root"),
                virtual_size: size,
                cdi: self.options.importers.cdi()?,
                reference: self.options.importers.reference.clone(),
            };
            in_turns(self.contenders(*case), self.options.common.runs, |contender, round| {
                let mut run = Run::new(scenario, *case, contender, round, image_bytes);
                self.one(&mut run, &paths, &target, &oracle)?;
                eprintln!("{run}");
                let succeeded = run.cost.is_some();
                runs.push(run);
                Ok(succeeded)
            })?;
        }
        Ok(())
    }

    fn contenders(&self, case: Case) -> Vec<Contender> {
        let curl = match (case.format(), case.compression()) {
            ("qcow2", _) => Contender::TwoStep,
            _ => Contender::Stream,
        };
        let mut all =
            vec![Contender::Cdi, self.options.importers.upstream(), curl, Contender::Aria2];
        if case.compression() == Compression::None {
            all.push(Contender::QemuHttp);
        }
        all.retain(|contender| contender.can(case));
        all
    }

    fn one(&self, run: &mut Run, paths: &RunPaths, target: &Target, oracle: &Path) -> Result<()> {
        empty(&paths.scratch)?;
        target.make_fresh()?;
        let limit = Duration::from_secs(self.options.common.limit_seconds);
        let outcome = measure(&mut run.contender.command(run.case, paths, ""), limit)?;
        let verify = || if run.round == 0 { target.verify(oracle) } else { Ok(()) };
        match outcome.verified(limit, verify) {
            Ok(cost) => (run.cost, run.outcome) = (Some(cost), "done".into()),
            Err(cause) => run.outcome = cause,
        }
        empty(&paths.scratch)
    }
}
