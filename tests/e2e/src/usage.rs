//! What a process has used so far, as Linux counts it.

use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Linux counts time on a processor in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// What a process has used so far.
pub struct Usage {
    /// On all processors.
    pub cpu: Duration,
    /// Resident, pages of files included.
    pub rss_mib: u64,
    /// Resident, and of no file: heap and stacks. The kernel cannot share or drop these pages.
    pub anonymous_mib: u64,
    /// The most that was ever resident.
    pub peak_mib: u64,
}

impl Usage {
    /// The usage of the process with this id.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn read(pid: u32) -> Result<Self> {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
        let stat = read("stat").with_context(|| format!("process {pid} is gone"))?;
        // Behind its name, which may hold anything: the 12th and 13th field are its time as user and as system.
        let (_, fields) = stat.rsplit_once(')').context("a process has a name")?;
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: u32 = ticks.map(|field| field.parse::<u32>().unwrap_or(0)).sum();
        let status = read("status").with_context(|| format!("process {pid} is gone"))?;
        let mib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
            Ok::<_, anyhow::Error>(kib.context("a process has a size")? >> 10)
        };
        Ok(Self {
            cpu: TICK * ticks,
            rss_mib: mib("VmRSS:")?,
            anonymous_mib: mib("RssAnon:")?,
            peak_mib: mib("VmHWM:")?,
        })
    }

    /// The usage of a pod's one process.
    ///
    /// # Errors
    /// When the pod has none, or several.
    pub fn of_pod(uid: &str) -> Result<Self> {
        let pids = cluster::processes_of_pod(uid)?;
        let [pid] = pids.as_slice() else {
            bail!("the pod {uid} has {} processes, not one", pids.len())
        };
        Self::read((*pid).try_into()?)
    }
}
