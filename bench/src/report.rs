//! From runs to tables.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::case::Case;
use crate::contender::Contender;
use crate::goals::{self, Conditions, Goal};
use crate::measure::Cost;
use crate::shell;
use crate::table::{self, line};
use crate::target::Kind;

const MIB: f64 = (1u64 << 20) as f64;

/// One run of one contender.
#[derive(Clone, Debug)]
pub struct Run {
    pub case: Case,
    pub kind: Kind,
    pub contender: Contender,
    /// Which round, from 0.
    pub round: u32,
    /// Its cost, if it succeeded.
    pub cost: Option<Cost>,
    /// `done`, or what went wrong.
    pub outcome: String,
    /// Bytes that the disk takes on the storage.
    pub allocated_bytes: u64,
    /// The most memory its control group was charged with.
    pub group_peak_bytes: Option<u64>,
}

impl Run {
    /// A run that has not happened yet.
    pub fn new(case: Case, kind: Kind, contender: Contender, round: u32) -> Self {
        Self {
            case,
            kind,
            contender,
            round,
            cost: None,
            outcome: String::new(),
            allocated_bytes: 0,
            group_peak_bytes: None,
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (case, kind, round) = (self.case.name(), self.kind.name(), self.round + 1);
        write!(f, "{case} to a {kind}, run {round}, {}: ", self.contender.name(self.case))?;
        match self.cost {
            Some(cost) => write!(
                f,
                "{:.2} s, CPU {:.2} s, {:.0} MiB, wrote {:.0} MiB",
                cost.wall.as_secs_f64(),
                cost.cpu.as_secs_f64(),
                cost.peak_rss_bytes as f64 / MIB,
                cost.written_bytes as f64 / MIB
            ),
            None => f.write_str(&self.outcome),
        }
    }
}

/// Where the figures were taken.
#[derive(Clone, Debug)]
pub struct Facts {
    /// `2026-11-21`.
    pub date: String,
    /// Bytes of the disk.
    pub virtual_size: u64,
    /// Bytes of it that are not holes in the oracle.
    pub data_bytes: u64,
    /// For the head of the report.
    pub lines: Vec<(&'static str, String)>,
}

impl Facts {
    /// Looks around.
    ///
    /// # Errors
    /// When a program that is to be compared is not there.
    pub fn gather(oracle: &Path, cdi: &Path, reference: Option<&Path>) -> Result<Self> {
        let data_bytes = data_bytes(oracle)?;
        let virtual_size = fs::metadata(oracle).context("cannot look at the oracle")?.len();
        let mut lines = machine_facts()?;
        lines.extend([
            ("this program", first_line(&cdi.display().to_string(), "--version")?),
            ("qemu-img", first_line("qemu-img", "--version")?),
            ("nbdcopy", first_line("nbdcopy", "--version")?),
            ("curl", first_line("curl", "--version")?),
            ("igzip", first_line("igzip", "--version")?),
            ("xz", first_line("xz", "--version")?),
            ("zstd", first_line("zstd", "--version")?),
        ]);
        let missing = "not measured: curl, decompressor and qemu-img take its steps instead";
        let upstream = reference.map_or(missing.to_owned(), |_| "measured, a program given".into());
        lines.push(("upstream CDI's importer", upstream));
        let date = shell::output("date", &["--utc", "+%F"])?;
        Ok(Self { date, virtual_size, data_bytes, lines })
    }
}

/// The machine, and what is measured on it.
///
/// # Errors
/// When it does not report them.
pub fn machine_facts() -> Result<Vec<(&'static str, String)>> {
    let load = fs::read_to_string("/proc/loadavg").context("cannot read /proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or_default().to_owned();
    let cpu = shell::output("grep", &["-m1", "model name", "/proc/cpuinfo"])?;
    let cpu = cpu.split_once(": ").map_or(cpu.as_str(), |(_, model)| model).to_owned();
    let root = env!("CARGO_MANIFEST_DIR");
    Ok(vec![
        ("processor", format!("{cpu}, {} cores", shell::output("nproc", &[])?)),
        ("kernel", shell::output("uname", &["-sr"])?),
        ("load average at the start, below 1 on a quiet machine", load),
        ("commit", shell::output("git", &["-C", root, "describe", "--always", "--dirty"])?),
    ])
}

/// Bytes of a raw disk that are no holes.
///
/// # Errors
/// When qemu-img cannot look at it.
pub fn data_bytes(disk: &Path) -> Result<u64> {
    let map = ["map", "-f", "raw", "--output=json", &disk.display().to_string()];
    let extents: Vec<Value> =
        serde_json::from_str(&shell::output("qemu-img", &map)?).context("qemu-img map")?;
    let data = extents.iter().filter(|extent| extent["data"] == true);
    Ok(data.filter_map(|extent| extent["length"].as_u64()).sum())
}

/// The size of a raw disk, and of its data.
///
/// # Errors
/// When it cannot be read.
pub fn disk_fact(disk: &Path) -> Result<(&'static str, String)> {
    let size = fs::metadata(disk).context("cannot look at the disk")?.len();
    Ok(("disk", format!("{} MiB, {} MiB of it data", size >> 20, data_bytes(disk)? >> 20)))
}

/// The version that a program prints, shortened.
///
/// # Errors
/// When it is not there.
pub fn first_line(program: &str, arg: &str) -> Result<String> {
    let text = shell::output(program, &[arg])?;
    Ok(text.lines().next().unwrap_or_default().chars().take(60).collect())
}

/// Medians of one contender's runs on one image and target.
struct Row {
    case: Case,
    kind: Kind,
    contender: Contender,
    wall: f64,
    wall_min: f64,
    wall_max: f64,
    cpu: f64,
    peak_rss_mib: f64,
    written_mib: f64,
    allocated_mib: f64,
    group_peak_mib: Option<f64>,
}

impl Row {
    /// `None` when no run succeeded.
    fn summarize(runs: &[Run], case: Case, kind: Kind, contender: Contender) -> Option<Self> {
        let same = |run: &&Run| run.case == case && run.kind == kind && run.contender == contender;
        let runs: Vec<_> = runs.iter().filter(same).filter(|run| run.cost.is_some()).collect();
        let cost = |figure: fn(&Cost) -> f64| {
            sorted(runs.iter().filter_map(|run| run.cost.as_ref()).map(figure))
        };
        let wall = cost(|cost| cost.wall.as_secs_f64());
        let peaks = sorted(runs.iter().filter_map(|run| run.group_peak_bytes).map(|n| n as f64));
        Some(Self {
            case,
            kind,
            contender,
            wall: median(&wall)?,
            wall_min: *wall.first()?,
            wall_max: *wall.last()?,
            cpu: median(&cost(|cost| cost.cpu.as_secs_f64()))?,
            peak_rss_mib: median(&cost(|cost| cost.peak_rss_bytes as f64))? / MIB,
            written_mib: median(&cost(|cost| cost.written_bytes as f64))? / MIB,
            allocated_mib: median(&sorted(runs.iter().map(|run| run.allocated_bytes as f64)))?
                / MIB,
            group_peak_mib: median(&peaks).map(|bytes| bytes / MIB),
        })
    }
}

/// From least to most.
pub fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The one in the middle of those in order, or between the two there.
pub fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

pub fn markdown(facts: &Facts, runs: &[Run], conditions: Conditions) -> String {
    let mut text = format!("# Imports compared, {}\n\n", facts.date);
    text.push_str(
        "Made by `cargo xtask bench import`. Medians; wall time with least and most. Everything comes from an nginx on \
         loopback unless marked *local file*, all inputs are in the page cache, and each time includes making \
         the disk durable. CPU and bytes written are those of the processes and their children; bytes written include \
         scratch files, and dirty pages count even if they were deleted before they reached the disk. Peak memory is \
         the largest process.\n\n",
    );
    let (size, data) = (facts.virtual_size as f64 / MIB, facts.data_bytes as f64 / MIB);
    line(&mut text, format_args!("* disk: {size:.0} MiB, {data:.0} MiB of it data"));
    table::facts(&mut text, &facts.lines);
    for kind in Kind::ALL {
        let rows: Vec<Row> = Case::ALL
            .into_iter()
            .flat_map(|case| {
                Contender::value_variants().iter().map(move |contender| (case, *contender))
            })
            .filter_map(|(case, contender)| Row::summarize(runs, case, kind, contender))
            .collect();
        if !rows.is_empty() {
            line(&mut text, format_args!("\n## To a {}\n", kind.name()));
            comparison(&mut text, &rows);
        }
    }
    for run in runs.iter().filter(|run| run.cost.is_none()) {
        line(&mut text, format_args!("\n{run}."));
    }
    verdicts(&mut text, facts, runs, conditions);
    text
}

fn comparison(text: &mut String, rows: &[Row]) {
    text.push_str(
        "| Image | Program | Wall s | CPU s | Peak MiB | Written MiB | Disk takes MiB | Wall ÷ ours | CPU ÷ ours |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let ours = rows.iter().find(|r| r.case == row.case && r.contender == Contender::Cdi);
        let ratio = |figure: fn(&Row) -> f64| {
            ours.map_or("–".to_owned(), |ours| format!("{:.2}", figure(row) / figure(ours)))
        };
        let peak = match row.group_peak_mib {
            Some(group) => format!("{:.0} (group {group:.0})", row.peak_rss_mib),
            None => format!("{:.0}", row.peak_rss_mib),
        };
        line(
            text,
            format_args!(
                "| {} | {} | {:.2} ({:.2}–{:.2}) | {:.2} | {peak} | {:.0} | {:.0} | {} | {} |",
                row.case.name(),
                row.contender.name(row.case),
                row.wall,
                row.wall_min,
                row.wall_max,
                row.cpu,
                row.written_mib,
                row.allocated_mib,
                ratio(|row| row.wall),
                ratio(|row| row.cpu),
            ),
        );
    }
}

/// The goals of the first release, and what was reached.
fn verdicts(text: &mut String, facts: &Facts, runs: &[Run], conditions: Conditions) {
    let mut table = String::new();
    for case in Case::ALL {
        for kind in Kind::ALL {
            if let Some(ours) = Row::summarize(runs, case, kind, Contender::Cdi) {
                let row = |contender| Row::summarize(runs, case, kind, contender);
                let reference = row(Contender::Upstream).or_else(|| row(Contender::ScratchChain));
                let goal = goals::goal(case, conditions);
                let tool = goal.tool.and_then(|(contender, _)| row(contender));
                goal_row(&mut table, facts, &goal, &ours, reference.as_ref(), tool.as_ref());
            }
        }
    }
    if table.is_empty() {
        return;
    }
    text.push_str(
        "\n## Against the goals\n\n\
         Times faster than upstream CDI's importer (or the programs that take its steps), and than the best common \
         tool; its share of upstream CDI's CPU time; peak memory; bytes written over the disk's data. Each with its \
         goal; a cross marks one that is missed.\n\n\
         | Image | Target | × upstream | × best tool | CPU share | Peak MiB | Written ÷ data |\n\
         |---|---|---|---|---|---|---|\n",
    );
    text.push_str(&table);
}

fn goal_row(
    table: &mut String,
    facts: &Facts,
    goal: &Goal,
    ours: &Row,
    reference: Option<&Row>,
    tool: Option<&Row>,
) {
    let at_least = |found: Option<f64>, wanted: Option<f64>| match (found, wanted) {
        (Some(found), Some(wanted)) => {
            format!("{}{found:.2} (≥ {wanted:.1})", if found >= wanted { "" } else { "✗ " })
        }
        (Some(found), None) => format!("{found:.2}"),
        (None, _) => "–".to_owned(),
    };
    let at_most = |found: f64, wanted: f64, digits: usize| {
        let mark = if found <= wanted { "" } else { "✗ " };
        format!("{mark}{found:.digits$} (≤ {wanted})")
    };
    let written = ours.written_mib * MIB / facts.data_bytes as f64;
    line(
        table,
        format_args!(
            "| {} | {} | {} | {} | {} | {} | {} |",
            ours.case.name(),
            ours.kind.name(),
            at_least(reference.map(|row| row.wall / ours.wall), goal.reference),
            at_least(tool.map(|row| row.wall / ours.wall), goal.tool.map(|(_, wanted)| wanted)),
            reference.map_or("–".to_owned(), |row| {
                at_most(ours.cpu / row.cpu, goals::CPU_SHARE_MAX, 2)
            }),
            at_most(ours.peak_rss_mib, goal.peak_rss_mib as f64, 0),
            at_most(written, 1.01, 2), // journal and file system tables are the hundredth
        ),
    );
}

/// The raw figures: facts about the machine, then a line for every run.
///
/// # Errors
/// Never in practice: all of it is plain data.
pub fn json_lines(facts: &Facts, runs: &[Run]) -> Result<Vec<String>> {
    let header = json!({
        "date": facts.date,
        "virtualSize": facts.virtual_size,
        "dataBytes": facts.data_bytes,
        "about": table::about(&facts.lines),
    });
    let each = runs.iter().map(|run| {
        json!({
            "image": run.case.name(),
            "target": run.kind.name(),
            "program": run.contender.name(run.case).replace('*', ""),
            "run": run.round + 1,
            "outcome": run.outcome,
            "wallSeconds": run.cost.map(|cost| cost.wall.as_secs_f64()),
            "cpuSeconds": run.cost.map(|cost| cost.cpu.as_secs_f64()),
            "peakRssBytes": run.cost.map(|cost| cost.peak_rss_bytes),
            "writtenBytes": run.cost.map(|cost| cost.written_bytes),
            "allocatedBytes": run.allocated_bytes,
            "groupPeakBytes": run.group_peak_bytes,
        })
    });
    table::to_lines(header, each)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let check = |values: &[f64], expected| assert_eq!(median(values), expected, "{values:?}");
        check(&[], None);
        check(&[1.0], Some(1.0));
        check(&[1.0, 2.0], Some(1.5));
        check(&[1.0, 2.0, 9.0], Some(2.0));
    }
}
