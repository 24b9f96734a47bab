//! `bench scaling`: what more cores bring, and which thread is busy all the time where they bring no more.
//!
//! The target is a file in memory, so that no disk is measured. Images are local files in the page cache; one row has TLS.

mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use auth::CertificateAuthority;
use serde_json::Value;

use crate::case::Case;
use crate::common::{self, Common, in_turns};
use crate::disk;
use crate::measure::{Cost, Outcome, measure};
use crate::report::{data_bytes, disk_fact, machine_facts};
use crate::server::Nginx;
use crate::shell;
use crate::work::{self, Mounted, WorkFolder};

/// What to measure.
#[derive(clap::Args)]
pub struct Options {
    /// How many cores: powers of two up to all of them, if not given.
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
    /// Only these images.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Case::LOCAL)]
    cases: Vec<Case>,
    /// This project's program, if not the one that was built with the benchmark.
    #[arg(long, value_name = "PROGRAM")]
    cdi: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// An image, and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Input {
    case: Case,
    /// From a web server over TLS in place of a local file.
    tls: bool,
}

impl Input {
    fn name(self) -> String {
        if self.tls { format!("{} over TLS", self.case.name()) } else { self.case.name().into() }
    }
}

/// One import.
struct Run {
    input: Input,
    cores: usize,
    /// Which round, from 0.
    round: u32,
    cost: Cost,
    /// The program's own report.
    report: Value,
}

impl Run {
    /// Seconds of all threads together.
    fn seconds(&self, activity: &str) -> f64 {
        self.report["time"][activity].as_f64().unwrap_or(f64::NAN)
    }

    fn bytes(&self, field: &str) -> f64 {
        self.report[field].as_f64().unwrap_or(f64::NAN)
    }
}

/// Runs the benchmark, prints its tables, and keeps them with the raw figures.
///
/// # Errors
/// When the environment cannot be created, or an import fails or makes a wrong disk.
pub fn run(options: &Options) -> Result<()> {
    let settings = &options.common;
    let folder = disk::folder(settings.size, &settings.cache)?;
    for case in &options.cases {
        case.prepare(&folder)?;
    }
    let work = WorkFolder::new(&settings.cache)?;
    let memory = Mounted::new(work.path(), |path| {
        shell::output("mount", &["-t", "tmpfs", "-o", "size=8g", "bench", path]).map(drop)
    })?;
    let (server, trusted) = tls_server(&folder, &work)?;
    let cdi = common::cdi(options.cdi.as_deref())?;
    let oracle = folder.join(Case::Raw.file());
    let mut facts = vec![disk_fact(&oracle)?];
    facts.extend(machine_facts()?);
    let data = data_bytes(&oracle)?;
    let bench = Bench { cdi, folder: &folder, server, trusted, work: &work, memory, oracle };
    let local = options.cases.iter().map(|case| Input { case: *case, tls: false });
    let inputs: Vec<_> = local.chain([Input { case: Case::Raw, tls: true }]).collect();
    let cores = if options.cores.is_empty() { powers_of_two() } else { options.cores.clone() };
    let mut runs = Vec::new();
    for input in &inputs {
        in_turns(cores.clone(), settings.runs, |cores, round| {
            let limit = Duration::from_secs(settings.limit_seconds);
            let run = bench.import(*input, cores, round, limit)?;
            eprintln!(
                "{}, {cores} cores, run {}: {:.2} s",
                input.name(),
                round + 1,
                run.cost.wall.as_secs_f64()
            );
            runs.push(run);
            Ok(true)
        })?;
    }
    let locks = bench.lock_waits(&inputs)?;
    let date = shell::output("date", &["--utc", "+%F"])?;
    let text = report::markdown(&date, &facts, &runs, &locks, data);
    println!("{text}");
    if settings.size == disk::Size::Real {
        let lines = report::json_lines(&date, &facts, &runs, &locks)?;
        work::keep(&date, "scaling", &settings.label, &text, &lines)?;
    }
    Ok(())
}

/// 1, 2, 4, … up to the cores of this machine.
fn powers_of_two() -> Vec<usize> {
    let all = thread::available_parallelism().map_or(1, usize::from);
    std::iter::successors(Some(1), |cores| Some(2 * cores)).take_while(|c| *c <= all).collect()
}

/// An nginx with the images, and the file of the authority that signed its certificate.
fn tls_server(folder: &Path, work: &WorkFolder) -> Result<(Nginx, PathBuf)> {
    let (day, now) = (Duration::from_secs(24 * 60 * 60), SystemTime::now());
    let kept = CertificateAuthority::create("bench", day, now)?;
    let identity =
        CertificateAuthority::from_identity(&kept)?.server(&["localhost".to_owned()], day, now)?;
    let trusted = work.file("authority.pem", &kept.certificate)?;
    let certificate = work.file("server.crt", &identity.certificate)?;
    let key = work.file("server.key", &identity.key)?;
    Ok((Nginx::start_tls(&certificate, &key, folder, work.path())?, trusted))
}

struct Bench<'a> {
    cdi: PathBuf,
    folder: &'a Path,
    server: Nginx,
    trusted: PathBuf,
    work: &'a WorkFolder,
    /// For the disk.
    memory: Mounted,
    oracle: PathBuf,
}

impl Bench<'_> {
    fn import(&self, input: Input, cores: usize, round: u32, limit: Duration) -> Result<Run> {
        let enter = format!("exec taskset --cpu-list 0-{}", cores - 1);
        let what = || format!("{} on {cores} cores", input.name());
        let Outcome::Done(cost) = measure(&mut self.command(input, &enter), limit)? else {
            bail!("{} failed or took too long", what());
        };
        if round == 0 {
            let same = ["--silent", &self.oracle.display().to_string(), &self.disk()];
            shell::output("cmp", &same).with_context(|| format!("{}: a wrong disk", what()))?;
        }
        let report = fs::read_to_string(self.report()).context("cannot read the report")?;
        let report = serde_json::from_str(&report).context("the report is no JSON")?;
        Ok(Run { input, cores, round, cost, report })
    }

    fn disk(&self) -> String {
        self.memory.path().join("disk.img").display().to_string()
    }

    fn report(&self) -> PathBuf {
        self.work.path().join("report.json")
    }

    /// `enter`: shell words that start the program.
    fn command(&self, input: Input, enter: &str) -> Command {
        let file = input.case.file();
        let source = if input.tls {
            self.server.url(file)
        } else {
            self.folder.join(file).display().to_string()
        };
        let script = format!(
            r#"rm -f "$TARGET"; {enter} "$CDI" import "$SOURCE" --to "$TARGET" --ca "$CA" --json > "$REPORT""#
        );
        let mut command = Command::new("bash");
        command.args(["-c", &script]).env("CDI", &self.cdi).env("SOURCE", source);
        command.env("TARGET", self.disk()).env("CA", &self.trusted);
        command.env("REPORT", self.report());
        command
    }

    /// For each input, how often a thread waited for a lock or a queue or woke another, in one more import on all cores
    /// that is not timed: `strace` makes it slow. Nothing where there is no `strace`.
    fn lock_waits(&self, inputs: &[Input]) -> Result<Vec<(Input, u64)>> {
        if shell::output("strace", &["-V"]).is_err() {
            eprintln!("no strace: calls of locks and queues are not counted");
            return Ok(Vec::new());
        }
        let counts = self.work.path().join("futex");
        let enter = format!("exec strace -f -qq -c -e trace=futex -o '{}'", counts.display());
        let mut waits = Vec::new();
        for input in inputs {
            let limit = Duration::from_secs(600);
            let Outcome::Done(_) = measure(&mut self.command(*input, &enter), limit)? else {
                bail!("{} failed under strace", input.name());
            };
            let text = fs::read_to_string(&counts).context("cannot read the counts")?;
            waits.push((*input, futex_calls(&text)));
        }
        Ok(waits)
    }
}

/// Reads the table that `strace -c` writes. 0 where it has no such call.
fn futex_calls(table: &str) -> u64 {
    let line = table.lines().find(|line| line.split_whitespace().last() == Some("futex"));
    line.and_then(|line| line.split_whitespace().nth(3)).map_or(0, |n| n.parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_from_the_table_of_strace() {
        let table = "% time     seconds  usecs/call     calls    errors syscall\n\
                     ------ ----------- ----------- --------- --------- ----------------\n\
                     100.00    2.340000          20     11700       300 futex\n\
                     ------ ----------- ----------- --------- --------- ----------------\n\
                     100.00    2.340000          20     11700       300 total\n";
        assert_eq!(futex_calls(table), 11_700);
        assert_eq!(futex_calls(""), 0);
    }
}
