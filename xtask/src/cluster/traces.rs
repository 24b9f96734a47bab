//! Compares the machine before and after a cluster: nothing may be left.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::shell;

/// Resources that a cluster could leave on the machine: for each kind, one line for each resource.
#[derive(PartialEq, Eq)]
pub struct Traces(Vec<(&'static str, BTreeSet<String>)>);

impl Traces {
    /// Reads what there is now.
    ///
    /// # Errors
    /// When a program that lists it fails.
    pub fn read() -> Result<Self> {
        let lines = |command: &mut Command| -> Result<BTreeSet<String>> {
            Ok(shell::output(command)?.lines().map(str::to_owned).collect())
        };
        let mounts = fs::read_to_string("/proc/self/mounts")?.lines().map(str::to_owned).collect();
        let mut settings = BTreeSet::new();
        for name in ["net/ipv4/ip_forward", "vm/overcommit_memory", "kernel/panic"] {
            let value = fs::read_to_string(Path::new("/proc/sys").join(name))?;
            settings.insert(format!("{name}={}", value.trim()));
        }
        Ok(Self(vec![
            ("processes", processes()?),
            ("mounts", mounts),
            ("loop devices", lines(&mut shell::program("losetup", &["--list", "--noheadings"]))?),
            ("network devices", lines(&mut shell::program("ip", &["-brief", "link"]))?),
            ("routes", lines(&mut shell::program("ip", &["route"]))?),
            (
                "network namespaces",
                lines(&mut shell::program("lsns", &["-t", "net", "-n", "-o", "NS"]))?,
            ),
            ("packet rules", lines(&mut shell::program("iptables-save", &[]))?),
            ("kernel settings", settings),
            (
                "changes in the repository",
                lines(&mut shell::program("git", &["status", "--short"]))?,
            ),
        ]))
    }

    /// # Errors
    /// Lists what is there `after` and was not there before.
    pub fn compare(&self, after: &Self) -> Result<()> {
        let mut left = Vec::new();
        for ((what, before), (_, after)) in self.0.iter().zip(&after.0) {
            left.extend(after.difference(before).map(|line| format!("{what}: {line}")));
        }
        if left.is_empty() {
            return Ok(());
        }
        bail!("the cluster left on this machine:\n  {}", left.join("\n  "))
    }
}

/// Programs that only a cluster has.
fn processes() -> Result<BTreeSet<String>> {
    const NAMES: &[&str] = &[
        "cdi-",
        "containerd",
        "containerd-shim",
        "csi-",
        "etcd",
        "kube",
        "loopcsi",
        "resolver",
        "testpod",
    ];
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        // `pid (name) state …`; a process may end at any time.
        let Ok(stat) = fs::read_to_string(path.join("stat")) else { continue };
        let Some((name, rest)) = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(") "))
        else {
            continue;
        };
        // A zombie has ended.
        if NAMES.iter().any(|prefix| name.starts_with(prefix)) && !rest.starts_with('Z') {
            found.insert(format!("{} {name}", path.display()));
        }
    }
    Ok(found)
}
