//! A process measured from outside.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Where the controllers tell what they have done.
pub const PORT: u16 = 18_443;
const READS: &str = "cdi_controller_reads_total ";
const WRITES: &str = "cdi_controller_writes_total ";
/// Linux counts time on a processor in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// Looks at one process.
pub struct Meter(u32);

/// What it has used so far.
pub struct Reading {
    /// Reads of what it does not watch.
    pub reads: u64,
    /// Writes to the API server, events not counted.
    pub writes: u64,
    /// Time and memory.
    pub usage: Usage,
}

/// What a process has used so far.
pub struct Usage {
    /// On all processors.
    pub cpu: Duration,
    /// Resident.
    pub rss_mib: u64,
    /// The most that was ever resident.
    pub peak_mib: u64,
}

impl Meter {
    /// Of the process with this id.
    pub const fn of(pid: u32) -> Self {
        Self(pid)
    }

    /// What it has used so far.
    pub fn read(&self) -> Result<Reading> {
        let usage = Usage::of(self.0)?;
        let page = page()?;
        let (reads, writes) = (counter(&page, READS)?, counter(&page, WRITES)?);
        Ok(Reading { reads, writes, usage })
    }
}

impl Usage {
    /// Of the process with this id.
    pub fn of(pid: u32) -> Result<Self> {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
        let stat = read("stat").context("the controller is gone")?;
        // Behind its name, which may hold anything: the 12th and 13th field are its time as user and as system.
        let (_, fields) = stat.rsplit_once(')').context("a process has a name")?;
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: u32 = ticks.map(|field| field.parse::<u32>().unwrap_or(0)).sum();
        let status = read("status").context("the controller is gone")?;
        let mib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
            Ok::<_, anyhow::Error>(kib.context("a process has a size")? >> 10)
        };
        Ok(Self { cpu: TICK * ticks, rss_mib: mib("VmRSS:")?, peak_mib: mib("VmHWM:")? })
    }
}

/// The page of metrics, which is there a moment after the process.
fn page() -> Result<String> {
    let url = format!("https://127.0.0.1:{PORT}/metrics");
    let mut curl = Command::new("curl");
    curl.args([
        "--silent",
        "--insecure",
        "--retry",
        "20",
        "--retry-connrefused",
        "--retry-delay",
        "1",
    ]);
    let output = curl.arg(url).output().context("cannot start curl")?;
    ensure!(output.status.success(), "the controller does not answer");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn counter(page: &str, name: &str) -> Result<u64> {
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    line.with_context(|| format!("it has no {name}"))?.parse().context("which is a number")
}
