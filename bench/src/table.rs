//! Transfers by several programs together: medians in a table, and the raw figures.

use std::fmt::{self, Write};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::party::ProcessCost;
use crate::report::{median, sorted};

const MIB: f64 = (1u64 << 20) as f64;
const GIB: f64 = (1u64 << 30) as f64;

/// One run of one contender.
#[derive(Clone, Debug)]
pub struct Run {
    pub case: String,
    pub target: String,
    pub program: String,
    /// Which round, from 0.
    pub round: u32,
    /// Its cost, or its error.
    pub outcome: Result<Cost, String>,
}

#[derive(Clone, Debug)]
pub struct Cost {
    /// Until the client had the response that all of it is durable.
    pub wall: Duration,
    /// Of each program.
    pub shares: Vec<ProcessCost>,
    /// Over loopback, with the headers of all layers.
    pub wire_bytes: u64,
    /// Bytes that the disk takes on the storage.
    pub allocated_bytes: u64,
    /// What rates are counted in: bytes of the image, or of the disk.
    pub basis_bytes: u64,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, target, program, round, outcome } = self;
        write!(f, "{case} to a {target}, run {}, {program}: ", round + 1)?;
        match outcome {
            Err(error) => f.write_str(error),
            Ok(cost) => {
                write!(f, "{:.2} s", cost.wall.as_secs_f64())?;
                for share in &cost.shares {
                    let (cpu, peak) = (share.cpu.as_secs_f64(), share.peak_rss_bytes as f64 / MIB);
                    write!(f, ", {} {cpu:.2} s {peak:.0} MiB", share.name)?;
                }
                Ok(())
            }
        }
    }
}

/// Medians of one contender's runs of one case to one target.
pub struct Row {
    /// As in [`Run`].
    pub case: String,
    /// As in [`Run`].
    pub target: String,
    /// As in [`Run`].
    pub program: String,
    /// Seconds.
    pub wall: f64,
    wall_min: f64,
    wall_max: f64,
    rate_mib: f64,
    /// Of each program: name, seconds of CPU per GiB, MiB of memory at most.
    pub shares: Vec<(&'static str, f64, f64)>,
    /// As in [`Cost`].
    pub wire_bytes: f64,
    allocated_mib: f64,
}

impl Row {
    /// `None` when no run succeeded.
    fn summarize(runs: &[&Run]) -> Option<Self> {
        let costs: Vec<&Cost> = runs.iter().filter_map(|run| run.outcome.as_ref().ok()).collect();
        let (first, cost) = (runs.first()?, costs.first()?);
        let walls = sorted(costs.iter().map(|cost| cost.wall.as_secs_f64()));
        let wall = median(&walls)?;
        let basis = cost.basis_bytes as f64;
        let names = cost.shares.iter().map(|share| share.name);
        let shares = names.map(|name| {
            let all = || costs.iter().flat_map(|c| &c.shares).filter(|share| share.name == name);
            let cpu = median(&sorted(all().map(|share| share.cpu.as_secs_f64())));
            let peak = median(&sorted(all().map(|share| share.peak_rss_bytes as f64)));
            (name, cpu.unwrap_or_default() * GIB / basis, peak.unwrap_or_default() / MIB)
        });
        let wire = median(&sorted(costs.iter().map(|cost| cost.wire_bytes as f64)))?;
        let allocated = median(&sorted(costs.iter().map(|cost| cost.allocated_bytes as f64)))?;
        Some(Self {
            case: first.case.clone(),
            target: first.target.clone(),
            program: first.program.clone(),
            wall,
            wall_min: *walls.first()?,
            wall_max: *walls.last()?,
            rate_mib: basis / MIB / wall,
            shares: shares.collect(),
            wire_bytes: wire,
            allocated_mib: allocated / MIB,
        })
    }

    /// A program's seconds of CPU per GiB, and its memory.
    pub fn share(&self, name: &str) -> Option<(f64, f64)> {
        let found = self.shares.iter().find(|(of, ..)| *of == name);
        found.map(|(_, cpu, peak)| (*cpu, *peak))
    }

    /// The most memory of any one of these.
    pub fn peak_mib(&self, names: &[&str]) -> f64 {
        let peaks = names.iter().filter_map(|name| self.share(name)).map(|(_, peak)| peak);
        peaks.fold(0.0, f64::max)
    }
}

/// A row for each contender, in the order of their first runs.
pub fn rows(runs: &[Run]) -> Vec<Row> {
    let key = |run: &Run| (run.case.clone(), run.target.clone(), run.program.clone());
    let mut keys = Vec::new();
    for run in runs {
        if !keys.contains(&key(run)) {
            keys.push(key(run));
        }
    }
    let of =
        |wanted| Row::summarize(&runs.iter().filter(|run| key(run) == wanted).collect::<Vec<_>>());
    let mut rows: Vec<Row> = keys.into_iter().filter_map(of).collect();
    // Another one is first in each round.
    rows.sort_by(|a, b| (&a.target, &a.case).cmp(&(&b.target, &b.case)));
    rows
}

/// The table, and what went wrong. `ours` is the program that the others are compared with.
pub fn markdown(rows: &[Row], runs: &[Run], ours: &str, basis: &str) -> String {
    let mut text = format!(
        "| Target | What | Program | Wall s | MiB/s of {basis} | CPU s per GiB | Peak MiB | Wire MiB | Disk takes MiB | Wall ÷ ours |\n\
         |---|---|---|---|---|---|---|---|---|---|\n"
    );
    for row in rows {
        let same = |other: &&Row| {
            (&other.case, &other.target, other.program.as_str()) == (&row.case, &row.target, ours)
        };
        let ratio = rows.iter().find(same).map(|ours| row.wall / ours.wall);
        let ratio = ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
        let each = |figure: fn(&(&str, f64, f64)) -> String| {
            let all = row.shares.iter().map(|share| format!("{} {}", share.0, figure(share)));
            all.collect::<Vec<_>>().join(", ")
        };
        line(
            &mut text,
            format_args!(
                "| {} | {} | {} | {:.2} ({:.2}–{:.2}) | {:.0} | {} | {} | {:.0} | {:.0} | {ratio} |",
                row.target,
                row.case,
                if row.program == ours { format!("**{ours}**") } else { row.program.clone() },
                row.wall,
                row.wall_min,
                row.wall_max,
                row.rate_mib,
                each(|(_, cpu, _)| format!("{cpu:.2}")),
                each(|(_, _, peak)| format!("{peak:.0}")),
                row.wire_bytes / MIB,
                row.allocated_mib,
            ),
        );
    }
    for run in runs.iter().filter(|run| run.outcome.is_err()) {
        line(&mut text, format_args!("\n{run}."));
    }
    text
}

/// `2.31 (≥ 2.0)`, with a cross where it is missed.
pub fn at_least(found: Option<f64>, wanted: f64) -> String {
    let mark = |found| if found >= wanted { "" } else { "✗ " };
    found.map_or("–".to_owned(), |found| format!("{}{found:.2} (≥ {wanted:.1})", mark(found)))
}

/// The same for values that have to stay below.
pub fn at_most(found: Option<f64>, wanted: f64) -> String {
    let mark = |found| if found <= wanted { "" } else { "✗ " };
    found.map_or("–".to_owned(), |found| format!("{}{found:.2} (≤ {wanted})", mark(found)))
}

/// Facts about the machine, then a line for every run.
///
/// # Errors
/// Never in practice: all of it is plain data.
pub fn json_lines(about: &Value, runs: &[Run]) -> Result<Vec<String>> {
    let each = runs.iter().map(|run| {
        let cost = run.outcome.as_ref().ok();
        let share = |share: &ProcessCost| {
            json!({
                "program": share.name,
                "cpuSeconds": share.cpu.as_secs_f64(),
                "peakRssBytes": share.peak_rss_bytes,
            })
        };
        json!({
            "what": run.case,
            "target": run.target,
            "program": run.program,
            "run": run.round + 1,
            "outcome": run.outcome.as_ref().err().map_or("done", String::as_str),
            "wallSeconds": cost.map(|cost| cost.wall.as_secs_f64()),
            "shares": cost.map(|cost| cost.shares.iter().map(share).collect::<Vec<_>>()),
            "wireBytes": cost.map(|cost| cost.wire_bytes),
            "allocatedBytes": cost.map(|cost| cost.allocated_bytes),
            "basisBytes": cost.map(|cost| cost.basis_bytes),
        })
    });
    to_lines(about.clone(), each)
}

/// The facts about the machine and the programs.
pub fn about<'a>(facts: impl IntoIterator<Item = &'a (&'static str, String)>) -> Value {
    facts.into_iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
}

/// A line for the facts, then one for each run.
///
/// # Errors
/// Never in practice: all of it is plain data.
pub fn to_lines(header: Value, runs: impl Iterator<Item = Value>) -> Result<Vec<String>> {
    let text = |value: Value| serde_json::to_string(&value).context("cannot write JSON");
    std::iter::once(header).chain(runs).map(text).collect()
}

/// A list of facts, a line for each.
pub fn facts(text: &mut String, facts: &[(&str, String)]) {
    for (name, value) in facts {
        line(text, format_args!("* {name}: {value}"));
    }
}

pub fn line(text: &mut String, arguments: fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{arguments}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(program: &str, round: u32, seconds: u64) -> Run {
        let share = ProcessCost {
            name: "server",
            success: true,
            cpu: Duration::from_secs(seconds),
            peak_rss_bytes: 32 << 20,
        };
        let cost = Cost {
            wall: Duration::from_secs(seconds),
            shares: vec![share],
            wire_bytes: 1 << 20,
            allocated_bytes: 0,
            basis_bytes: 2 << 30,
        };
        let (case, target) = ("raw".to_owned(), "file".to_owned());
        Run { case, target, program: program.into(), round, outcome: Ok(cost) }
    }

    #[test]
    fn rows_have_medians_and_are_compared_with_ours() {
        let mut runs = vec![run("a", 0, 4), run("b", 0, 8), run("b", 1, 6), run("a", 1, 2)];
        runs.push(Run { outcome: Err("failed".into()), ..run("b", 2, 0) });
        let rows = rows(&runs);
        assert_eq!((rows.len(), rows[0].wall, rows[1].wall), (2, 3.0, 7.0));
        assert_eq!(rows[1].share("server"), Some((3.5, 32.0)));
        let text = markdown(&rows, &runs, "a", "the image");
        assert!(text.contains("| **a** | 3.00 (2.00–4.00) | 683 | server 1.50 |"), "{text}");
        assert!(text.contains("| 2.33 |") && text.contains("run 3, b: failed."), "{text}");
        assert_eq!(
            (at_least(Some(1.0), 2.0), at_most(None, 1.0)),
            ("✗ 1.00 (≥ 2.0)".into(), "–".into())
        );
        assert_eq!(json_lines(&json!({}), &runs).unwrap().len(), 6);
    }
}
