//! `bench upload`: an image is sent by TLS through the proxy to the server next to the volume, as programs in pods of
//! their own, and each contender's time ends when the disk is durable.

mod cluster;
mod link;
mod party;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::case::Case;
use crate::common::{Common, ProgramFolders, in_turns};
use crate::disk::{self, Size};
use crate::party::logs;
use crate::report::{self, first_line};
use crate::table::{self, Cost, Row, Run, at_least, at_most, line, rows};
use crate::target::{Kind, Target};
use crate::work::{self, WorkFolder, empty};

pub use cluster::{Cluster, PORT};
use link::Link;
pub use party::wait_for_response;
use party::{Contender, Programs, Setup};

/// What to compare.
#[derive(clap::Args)]
pub struct Options {
    /// Only these images.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Case::Raw, Case::Qcow2, Case::RawGz])]
    cases: Vec<Case>,
    /// Only these programs.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Contender::ALL)]
    contenders: Vec<Contender>,
    /// Only these targets.
    #[arg(long = "target", value_enum, value_delimiter = ',', default_values_t = [Kind::File, Kind::Loop])]
    targets: Vec<Kind>,
    #[command(flatten)]
    programs: ProgramFolders,
    #[command(flatten)]
    common: Common,
}

/// Runs the benchmark, prints its tables, and keeps them with the raw figures.
///
/// # Errors
/// When the environment cannot be created, or this project's programs fail or make a wrong disk.
pub fn run(options: &Options) -> Result<()> {
    let folder = disk::folder(options.common.size, &options.common.cache)?;
    for case in &options.cases {
        case.prepare(&folder)?;
    }
    let oracle = folder.join(Case::Raw.file());
    let programs =
        Programs { ours: options.programs.ours()?, reference: options.programs.upstream() };
    let work = WorkFolder::new(&options.common.cache)?;
    let (cluster, link) = (Cluster::start(&work)?, Link::make()?);
    let (folder, work) = (&*folder, &work);
    let bench = Bench { options, folder, work, cluster: &cluster, link: &link, programs };
    let size = std::fs::metadata(&oracle).context("cannot look at the disk")?.len();
    let mut about = report::machine_facts()?;
    about.extend([
        ("curl", first_line("curl", "--version")?),
        report::disk_fact(&oracle)?,
        (
            "upstream CDI's proxy and server",
            match &bench.programs.reference {
                Some(_) => "measured, programs given".into(),
                None => "not measured: not at hand".into(),
            },
        ),
    ]);
    let mut runs = Vec::new();
    for kind in &options.targets {
        for case in &options.cases {
            bench.compare(*case, *kind, size, &oracle, &mut runs)?;
        }
    }
    let date = crate::shell::output("date", &["--utc", "+%F"])?;
    let text = markdown(&date, &about, &runs);
    println!("{text}");
    if options.common.size == Size::Real {
        let header = json!({ "date": date, "about": table::about(&about) });
        let lines = table::json_lines(&header, &runs)?;
        work::keep(&date, "upload", &options.common.label, &text, &lines)?;
    }
    let failed = |run: &&Run| run.program == Contender::Cdi.name() && run.outcome.is_err();
    match runs.iter().find(failed) {
        Some(run) => bail!("{run}"),
        None => Ok(()),
    }
}

struct Bench<'a> {
    options: &'a Options,
    folder: &'a Path,
    work: &'a WorkFolder,
    cluster: &'a Cluster,
    link: &'a Link,
    programs: Programs,
}

impl Bench<'_> {
    /// One image and one target: all contenders in each round, and each round begins with another.
    fn compare(
        &self,
        case: Case,
        kind: Kind,
        size: u64,
        oracle: &Path,
        runs: &mut Vec<Run>,
    ) -> Result<()> {
        let target = Target::new(kind, &self.work.path().join("data"), size)?;
        let may = |contender: &Contender| contender.can(case, kind, &self.programs);
        let contenders = self.options.contenders.iter().copied().filter(may).collect();
        in_turns(contenders, self.options.common.runs, |contender, round| {
            let file = self.folder.join(case.file());
            let outcome = self.one(contender, &file, &target, size).and_then(|cost| {
                // nginx keeps the image as it is.
                let is_nginx = matches!(contender, Contender::Nginx | Contender::NginxPair);
                if round == 0 && !is_nginx {
                    target.verify(oracle)?;
                }
                Ok(cost)
            });
            let run = Run {
                case: case.name().into(),
                target: kind.name().into(),
                program: contender.name().into(),
                round,
                outcome: outcome.map_err(|error| format!("{error:#}")),
            };
            eprintln!("{run}");
            runs.push(run);
            Ok(true)
        })
    }

    fn one(&self, contender: Contender, file: &Path, target: &Target, size: u64) -> Result<Cost> {
        empty(&self.work.path().join("scratch"))?;
        target.make_fresh()?;
        let limit = Duration::from_secs(self.options.common.limit_seconds);
        let place = Setup {
            file,
            target: target.path(),
            kind: target.kind(),
            size,
            work: self.work,
            cluster: self.cluster,
            link: self.link,
            programs: &self.programs,
        };
        let parties = contender.receive(&place)?;
        let (sent_before, begin) = (self.link.bytes()?, Instant::now());
        let client = contender.send(&place)?.ended(limit)?;
        let (wall, sent) = (begin.elapsed(), self.link.bytes()? - sent_before);
        if !client.success {
            bail!("failed: {}", logs(self.work.path()));
        }
        let mut shares = vec![client];
        for party in parties {
            shares.push(party.stop()?);
        }
        Ok(Cost {
            wall,
            shares,
            wire_bytes: sent,
            allocated_bytes: target.allocated_bytes()?,
            basis_bytes: std::fs::metadata(file).context("cannot look at the image")?.len(),
        })
    }
}

fn markdown(date: &str, about: &[(&str, String)], runs: &[Run]) -> String {
    let mut text = format!("# Uploads compared, {date}\n\n");
    text.push_str(
        "Made by `cargo xtask bench upload`. Medians; wall time with least and most. An image in the page cache is sent by \
         curl over TLS on this machine, and the time ends when the disk is durable. In between are proxy and server, each in \
         the environment of its pod; the cluster of the proxy is a stand-in with a single PVC. nginx takes the \
         same bytes by `PUT` into a file, and stores them as they are; it has no device to write to. `cdi upload` leaves \
         the holes of the file out and compresses the rest. Wire: all that went over either hop. CPU and \
         memory are those of each program and its children.\n\n",
    );
    table::facts(&mut text, about);
    text.push('\n');
    let rows = rows(runs);
    text.push_str(&table::markdown(&rows, runs, Contender::Cdi.name(), "the image"));
    text.push_str(
        "\n## Against the goals\n\n\
         Throughput against nginx's into a file (for the raw disk), and against that of one nginx before another, wall \
         time of upstream CDI's pair over ours, the proxy's CPU seconds per GiB, and the larger memory of proxy and \
         server. A cross marks what is missed.\n\n\
         | Target | What | × nginx | × nginx before nginx | × upstream | Proxy CPU s per GiB | Peak MiB |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for ours in rows.iter().filter(|row| row.program == Contender::Cdi.name()) {
        let of = |contender: Contender, target: &str| {
            let same = |row: &&Row| {
                row.program == contender.name() && row.case == ours.case && row.target == target
            };
            rows.iter().find(same).map(|row| row.wall / ours.wall)
        };
        let is_raw = ours.case == Case::Raw.name();
        let nginx = of(Contender::Nginx, Kind::File.name());
        let nginx = if is_raw {
            at_least(nginx, 0.9)
        } else {
            nginx.map_or("–".into(), |ratio| format!("{ratio:.2}"))
        };
        let nginx_pair = of(Contender::NginxPair, Kind::File.name());
        let reference = of(Contender::Upstream, &ours.target);
        line(
            &mut text,
            format_args!(
                "| {} | {} | {nginx} | {} | {} | {} | {} |",
                ours.target,
                ours.case,
                nginx_pair.map_or("–".into(), |ratio| format!("{ratio:.2}")),
                at_least(reference, if is_raw { 2.0 } else { 3.0 }),
                at_most(ours.share("proxy").map(|(cpu, _)| cpu), 0.7),
                at_most(Some(ours.peak_mib(&["proxy", "server"])), 128.0),
            ),
        );
    }
    text
}
