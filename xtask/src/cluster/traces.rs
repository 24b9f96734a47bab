//! Compares the machine before and after a cluster: nothing may be left.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::shell;

/// Kinds of resources that every cluster has, so that they cannot be compared while another one is up. The last `down` of all
/// restores the kernel settings.
const OF_EVERY_CLUSTER: &[&str] =
    &["processes", "loop devices", "network namespaces", "kernel settings"];

/// Resources that a cluster could leave on the machine: for each kind, one line for each resource.
#[derive(PartialEq, Eq)]
pub struct Traces {
    resources: Vec<(&'static str, BTreeSet<String>)>,
    is_alone: bool,
}

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
        let resources = vec![
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
        ];
        Ok(Self { resources, is_alone: !another_is_up()? })
    }

    /// # Errors
    /// Lists what is there `after` and was not there before.
    pub fn compare(&self, after: &Self) -> Result<()> {
        let mut left = Vec::new();
        let are_alone = self.is_alone && after.is_alone;
        for ((what, before), (_, after)) in self.resources.iter().zip(&after.resources) {
            if !are_alone && OF_EVERY_CLUSTER.contains(what) {
                eprintln!("xtask: {what} are not compared, as there is another cluster");
                continue;
            }
            left.extend(after.difference(before).map(|line| format!("{what}: {line}")));
        }
        if left.is_empty() {
            return Ok(());
        }
        bail!("the cluster left on this machine:\n  {}", left.join("\n  "))
    }
}

/// Whether there is a cluster. Read before `up` and after `down`, so it is another one.
fn another_is_up() -> Result<bool> {
    for entry in fs::read_dir("/proc")? {
        let words = fs::read(entry?.path().join("cmdline")).unwrap_or_default();
        if words.split(|byte| *byte == 0).any(|word| word == b"first-process") {
            return Ok(true);
        }
    }
    Ok(false)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn traces(resources: &[(&'static str, &str)], is_alone: bool) -> Traces {
        let resources = resources.iter().map(|(kind, line)| (*kind, [line.to_string()].into()));
        Traces { resources: resources.collect(), is_alone }
    }

    #[test]
    fn what_every_cluster_has_is_not_compared_while_another_is_up() {
        let compare = |kind: &'static str, is_alone| {
            let before = traces(&[(kind, "0")], true);
            before.compare(&traces(&[(kind, "1")], is_alone)).map_err(|error| error.to_string())
        };
        for kind in ["processes", "loop devices", "network namespaces", "kernel settings"] {
            assert_eq!(compare(kind, false), Ok(()), "{kind}");
            let left = format!("the cluster left on this machine:\n  {kind}: 1");
            assert_eq!(compare(kind, true), Err(left), "{kind}");
        }
        for kind in ["mounts", "routes", "packet rules", "changes in the repository"] {
            assert!(compare(kind, false).is_err(), "{kind}");
        }
    }
}
