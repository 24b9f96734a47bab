//! From runs to a table.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use crate::case::Case;
use crate::contender::Contender;
use crate::measure::Cost;
use crate::network::scenario::Scenario;
use crate::report::{disk_fact, first_line, machine_facts, median, sorted};
use crate::shell;
use crate::table::{self, line};

const MIB: f64 = (1u64 << 20) as f64;

/// One run of one contender.
#[derive(Clone, Debug)]
pub struct Run {
    pub scenario: &'static Scenario,
    pub case: Case,
    pub contender: Contender,
    /// Which round, from 0.
    pub round: u32,
    /// Bytes of the image, all of which cross the link at least once.
    pub image_bytes: u64,
    /// Its cost, if it succeeded.
    pub cost: Option<Cost>,
    /// `done`, or what went wrong.
    pub outcome: String,
}

impl Run {
    /// A run that has not happened yet.
    pub fn new(
        scenario: &'static Scenario,
        case: Case,
        contender: Contender,
        round: u32,
        image_bytes: u64,
    ) -> Self {
        Self { scenario, case, contender, round, image_bytes, cost: None, outcome: String::new() }
    }

    fn is_of(&self, other: &Self) -> bool {
        self.scenario == other.scenario && self.case == other.case
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, round) = (self.contender.name(self.case), self.round + 1);
        write!(f, "{}, {}, run {round}, {name}: ", self.scenario.name, self.case.name())?;
        match self.cost {
            Some(cost) => write!(
                f,
                "{:.2} s, CPU {:.2} s, {:.0} MiB",
                cost.wall.as_secs_f64(),
                cost.cpu.as_secs_f64(),
                cost.peak_rss_bytes as f64 / MIB,
            ),
            None => f.write_str(&self.outcome),
        }
    }
}

/// Where the figures were taken.
pub struct Facts {
    /// `2026-11-21`.
    pub date: String,
    lines: Vec<(&'static str, String)>,
}

impl Facts {
    /// # Errors
    /// When a program that is to be compared is not there.
    pub fn gather(oracle: &Path, cdi: &Path) -> Result<Self> {
        let congestion = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
        let mut lines = vec![disk_fact(oracle)?];
        lines.extend(machine_facts()?);
        lines.extend([
            ("TCP", congestion.context("cannot read the congestion control")?.trim().to_owned()),
            ("this program", first_line(&cdi.display().to_string(), "--version")?),
            ("curl", first_line("curl", "--version")?),
            ("aria2c", first_line("aria2c", "--version")?),
            ("qemu-img", first_line("qemu-img", "--version")?),
        ]);
        Ok(Self { date: shell::output("date", &["--utc", "+%F"])?, lines })
    }
}

pub fn markdown(facts: &Facts, runs: &[Run]) -> String {
    let mut text = format!("# Imports over slow and lossy networks, {}\n\n", facts.date);
    text.push_str(
        "Made by `cargo xtask bench network`. An nginx in another network namespace, behind a link that a program simulates \
         with two TUN devices (packets of 1500 bytes, a queue of 20 ms, latency in both directions together, losses at random in both), \
         to a file that is durable at the end. Medians; wall time with least and most. *Of the line*: the bytes of the image over what the \
         link could carry in that time.\n\n",
    );
    table::facts(&mut text, &facts.lines);
    text.push_str(
        "\n| Network | Image | Program | Wall s | Of the line | CPU s | Peak MiB | Wall ÷ ours |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for first in runs.iter().filter(|run| run.round == 0) {
        if let Some(row) = Row::summarize(runs, first, first.contender) {
            let ours = Row::summarize(runs, first, Contender::Cdi);
            let ratio = ours.map_or("–".into(), |ours| format!("{:.2}", row.wall / ours.wall));
            let share = first.image_bytes as f64 / first.scenario.line_rate() / row.wall * 100.0;
            line(
                &mut text,
                format_args!(
                    "| {} | {} | {} | {:.2} ({:.2}–{:.2}) | {share:.0} % | {:.2} | {:.0} | {ratio} |",
                    first.scenario.name,
                    first.case.name(),
                    first.contender.name(first.case),
                    row.wall,
                    row.least,
                    row.most,
                    row.cpu,
                    row.peak_mib,
                ),
            );
        }
    }
    for run in runs.iter().filter(|run| run.cost.is_none()) {
        line(&mut text, format_args!("\n{run}."));
    }
    text
}

/// Medians of one contender's runs on one image over one network.
struct Row {
    wall: f64,
    least: f64,
    most: f64,
    cpu: f64,
    peak_mib: f64,
}

impl Row {
    /// `None` when no run succeeded.
    fn summarize(runs: &[Run], like: &Run, contender: Contender) -> Option<Self> {
        let costs: Vec<Cost> = runs
            .iter()
            .filter(|run| run.is_of(like) && run.contender == contender)
            .filter_map(|run| run.cost)
            .collect();
        let figures = |figure: fn(&Cost) -> f64| sorted(costs.iter().map(figure));
        let wall = figures(|cost| cost.wall.as_secs_f64());
        Some(Self {
            wall: median(&wall)?,
            least: *wall.first()?,
            most: *wall.last()?,
            cpu: median(&figures(|cost| cost.cpu.as_secs_f64()))?,
            peak_mib: median(&figures(|cost| cost.peak_rss_bytes as f64 / MIB))?,
        })
    }
}

/// The raw figures: facts about the machine, then a line for every run.
///
/// # Errors
/// Never in practice: all of it is plain data.
pub fn json_lines(facts: &Facts, runs: &[Run]) -> Result<Vec<String>> {
    let header = json!({ "date": facts.date, "about": table::about(&facts.lines) });
    let each = runs.iter().map(|run| {
        json!({
            "network": run.scenario.name,
            "image": run.case.name(),
            "imageBytes": run.image_bytes,
            "program": run.contender.name(run.case).replace('*', ""),
            "run": run.round + 1,
            "outcome": run.outcome,
            "wallSeconds": run.cost.map(|cost| cost.wall.as_secs_f64()),
            "cpuSeconds": run.cost.map(|cost| cost.cpu.as_secs_f64()),
            "peakRssBytes": run.cost.map(|cost| cost.peak_rss_bytes),
        })
    });
    table::to_lines(header, each)
}
