//! `bench many`: several imports at once on one machine, as on a node where many virtual machines are created.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::case::Case;
use crate::common::{Importers, Results, in_turns};
use crate::contender::{Contender, RunPaths};
use crate::disk::{self, Size};
use crate::measure::{Cost, Outcome, measure};
use crate::report::{data_bytes, disk_fact, first_line, machine_facts, median, sorted};
use crate::server::Nginx;
use crate::shell;
use crate::table::{self, line};
use crate::target::{Kind, Target};
use crate::work::WorkFolder;

const MIB: f64 = (1u64 << 20) as f64;

/// What to compare.
#[derive(clap::Args)]
pub struct Options {
    /// How many at once.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16, 64])]
    counts: Vec<usize>,
    /// Which image of the small disk.
    #[arg(long, value_enum, default_value_t = Case::Qcow2Zlib)]
    case: Case,
    /// How often everything is run; the table shows medians.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    #[command(flatten)]
    importers: Importers,
    /// Runs that take longer are ended.
    #[arg(long, default_value_t = 240)]
    limit_seconds: u64,
    #[command(flatten)]
    results: Results,
}

/// One start of `count` imports at once.
struct Run {
    count: usize,
    contender: Contender,
    /// Which round, from 0.
    round: u32,
    /// From the start of the first to the end of the last; `None` if one failed.
    wall: Option<Duration>,
    /// Of the imports, in the order of their starts.
    costs: Vec<Cost>,
}

impl Run {
    fn wall_seconds(&self) -> Option<f64> {
        self.wall.map(|wall| wall.as_secs_f64())
    }

    fn cpu_seconds(&self) -> f64 {
        self.costs.iter().map(|cost| cost.cpu.as_secs_f64()).sum()
    }

    /// The sum of all peaks: at least what they took together at any time.
    fn peak_rss_bytes(&self) -> u64 {
        self.costs.iter().map(|cost| cost.peak_rss_bytes).sum()
    }

    /// The time of the quickest import over that of the slowest: 1 is fair.
    fn fairness(&self) -> Option<f64> {
        let walls = sorted(self.costs.iter().map(|cost| cost.wall.as_secs_f64()));
        Some(walls.first()? / walls.last()?)
    }
}

/// Runs the benchmark, prints its table, and keeps it with the raw figures.
///
/// # Errors
/// When an input cannot be created, or this project's program fails or makes a wrong disk.
pub fn run(options: &Options) -> Result<()> {
    if matches!(options.case, Case::S3 | Case::Registry) {
        bail!("only images from a web server are measured here");
    }
    let folder = disk::folder(Size::Small, &options.results.cache)?;
    options.case.prepare(&folder)?;
    let work = WorkFolder::new(&options.results.cache)?;
    let server = Nginx::start(&folder, work.path())?;
    let cdi = options.importers.cdi()?;
    let oracle = folder.join(Case::Raw.file());
    let facts = facts(&oracle, &cdi)?;
    let mut runs = Vec::new();
    let bench = Bench { options, oracle: &oracle, work: work.path(), server: &server, cdi };
    for count in &options.counts {
        in_turns(bench.contenders(), options.runs, |contender, round| {
            let run = bench.at_once(*count, contender, round)?;
            eprintln!("{}", describe(&run, options.case));
            if run.wall.is_none() && run.contender == Contender::Cdi {
                bail!("one of {count} imports failed");
            }
            runs.push(run);
            Ok(true)
        })?;
    }
    let date = shell::output("date", &["--utc", "+%F"])?;
    let text = markdown(&date, &facts, options.case, &runs, data_bytes(&oracle)?);
    println!("{text}");
    if !options.results.dev {
        let lines = json_lines(&date, &facts, options.case, &runs)?;
        options.results.keep(&date, "many", &text, &lines)?;
    }
    Ok(())
}

struct Bench<'a> {
    options: &'a Options,
    oracle: &'a Path,
    work: &'a Path,
    server: &'a Nginx,
    cdi: PathBuf,
}

impl Bench<'_> {
    fn contenders(&self) -> Vec<Contender> {
        let upstream = self.options.importers.upstream();
        let mut all = vec![Contender::Cdi, upstream, Contender::TwoStep, Contender::Stream];
        all.retain(|contender| contender.can(self.options.case));
        all
    }

    /// Starts them all, each to a file of its own in a directory of its own.
    fn at_once(&self, count: usize, contender: Contender, round: u32) -> Result<Run> {
        let size = fs::metadata(self.oracle).context("cannot look at the oracle")?.len();
        let mut targets = Vec::new();
        for number in 0..count {
            let folder = self.work.join("data").join(number.to_string());
            for name in ["data", "scratch", "root"] {
                let path = folder.join(name);
                fs::create_dir_all(&path)
                    .with_context(|| format!("cannot make {}", path.display()))?;
            }
            targets.push((Target::new(Kind::File, &folder.join("data"), size)?, folder));
        }
        shell::output("sync", &["--file-system", &self.work.display().to_string()])?;
        let limit = Duration::from_secs(self.options.limit_seconds);
        let case = self.options.case;
        let began = Instant::now();
        let outcomes: Vec<Result<Outcome>> = thread::scope(|scope| {
            let threads: Vec<_> = targets
                .iter()
                .map(|(target, folder)| {
                    let paths = self.paths(target, folder, size);
                    scope.spawn(move || measure(&mut contender.command(case, &paths, ""), limit))
                })
                .collect();
            let ended = threads.into_iter().map(|thread| match thread.join() {
                Ok(outcome) => outcome,
                Err(_) => bail!("a thread that measures panicked"),
            });
            ended.collect()
        });
        let wall = began.elapsed();
        let mut costs = Vec::new();
        for outcome in outcomes {
            if let Outcome::Done(cost) = outcome? {
                costs.push(cost);
            }
        }
        let all = costs.len() == count;
        if all && round == 0 {
            for (target, _) in &targets {
                target.verify(self.oracle)?;
            }
        }
        let folders: Vec<_> = targets.into_iter().map(|(_, folder)| folder).collect();
        for folder in folders {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        Ok(Run { count, contender, round, wall: all.then_some(wall), costs })
    }

    fn paths(&self, target: &Target, folder: &Path, size: u64) -> RunPaths {
        RunPaths {
            url: self.server.url(self.options.case.file()),
            store: self.server.store(),
            registry: String::new(),
            file: self.oracle.with_file_name(self.options.case.file()),
            target: target.path().to_owned(),
            kind: target.kind(),
            scratch: folder.join("scratch"),
            root: folder.join("root"),
            virtual_size: size,
            cdi: self.cdi.clone(),
            reference: self.options.importers.reference.clone(),
        }
    }
}

fn facts(oracle: &Path, cdi: &Path) -> Result<Vec<(&'static str, String)>> {
    let mut lines = vec![disk_fact(oracle)?];
    lines.extend(machine_facts()?);
    lines.extend([
        ("this program", first_line(&cdi.display().to_string(), "--version")?),
        ("curl", first_line("curl", "--version")?),
        ("qemu-img", first_line("qemu-img", "--version")?),
    ]);
    Ok(lines)
}

fn describe(run: &Run, case: Case) -> String {
    let (name, round) = (run.contender.name(case), run.round + 1);
    let outcome = match run.wall_seconds() {
        Some(wall) => format!("{wall:.2} s, CPU {:.2} s", run.cpu_seconds()),
        None => format!("{} of {} succeeded", run.costs.len(), run.count),
    };
    format!("{} at once, run {round}, {name}: {outcome}", run.count)
}

fn markdown(
    date: &str,
    facts: &[(&'static str, String)],
    case: Case,
    runs: &[Run],
    data: u64,
) -> String {
    let mut text = format!("# Many imports at once, {date}\n\n");
    text.push_str(
        "Made by `cargo xtask bench many`. All start at the same time, from an nginx on loopback, each to a file of its own \
         that is durable at the end. Medians; wall time until the last one ends, with least and most. *Data*: bytes of all disks that are no \
         zeroes, over that time. *Quickest ÷ slowest*: 1 is fair. Peak memory: the sum of the largest resident sets of all.\n\n",
    );
    line(&mut text, format_args!("* image: {}", case.name()));
    table::facts(&mut text, facts);
    text.push_str(
        "\n| At once | Program | Wall s | Data MiB/s | CPU s each | Quickest ÷ slowest | Peak MiB together | Wall ÷ ours |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for first in runs.iter().filter(|run| run.round == 0) {
        let of = |contender| {
            let same = move |run: &&Run| run.count == first.count && run.contender == contender;
            runs.iter().filter(same).filter(|run| run.wall.is_some())
        };
        let wall = |contender| sorted(of(contender).filter_map(Run::wall_seconds));
        let own = wall(first.contender);
        let (Some(middle), Some(least), Some(most)) = (median(&own), own.first(), own.last())
        else {
            continue;
        };
        let figure = |figure: &dyn Fn(&Run) -> Option<f64>| {
            median(&sorted(of(first.contender).filter_map(figure))).unwrap_or(f64::NAN)
        };
        let ours = median(&wall(Contender::Cdi));
        let ratio = ours.map_or("–".into(), |ours| format!("{:.2}", middle / ours));
        line(
            &mut text,
            format_args!(
                "| {} | {} | {middle:.2} ({least:.2}–{most:.2}) | {:.0} | {:.2} | {:.2} | {:.0} | {ratio} |",
                first.count,
                first.contender.name(case),
                data as f64 / MIB * first.count as f64 / middle,
                figure(&|run| Some(run.cpu_seconds() / run.count as f64)),
                figure(&Run::fairness),
                figure(&|run| Some(run.peak_rss_bytes() as f64 / MIB)),
            ),
        );
    }
    for run in runs.iter().filter(|run| run.wall.is_none()) {
        line(&mut text, format_args!("\n{}.", describe(run, case)));
    }
    text
}

fn json_lines(
    date: &str,
    facts: &[(&'static str, String)],
    case: Case,
    runs: &[Run],
) -> Result<Vec<String>> {
    let header = json!({ "date": date, "image": case.name(), "about": table::about(facts) });
    let each = runs.iter().map(|run| {
        json!({
            "atOnce": run.count,
            "program": run.contender.name(case).replace('*', ""),
            "run": run.round + 1,
            "succeeded": run.costs.len(),
            "wallSeconds": run.wall_seconds(),
            "wallSecondsEach": run.costs.iter().map(|cost| cost.wall.as_secs_f64()).collect::<Vec<_>>(),
            "cpuSeconds": run.cpu_seconds(),
            "peakRssBytes": run.peak_rss_bytes(),
        })
    });
    table::to_lines(header, each)
}
