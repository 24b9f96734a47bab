//! Limits like a pod's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::tool::{require_tool, skip};

/// A control group with limits like a pod's, page cache included. Removed on drop, after its processes have ended.
#[derive(Debug)]
pub struct Cgroup {
    folders: Vec<PathBuf>,
}

impl Cgroup {
    /// A group limited to `memory` bytes and `milli_cpu` thousandths of a CPU. `None` where groups cannot be created (no root,
    /// no control group file system): the test is skipped.
    pub fn new(memory: u64, milli_cpu: u64) -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let name = format!("testkit-{}-{}", std::process::id(), unique());
        let period = 100_000; // microseconds, the kernel's default
        let quota = (milli_cpu * period / 1000).to_string();
        let mut group = Self { folders: Vec::new() };
        let made = if root.join("cgroup.controllers").exists() {
            group.add(
                root.join(&name),
                &[("memory.max", memory.to_string()), ("cpu.max", format!("{quota} {period}"))],
            )
        } else {
            let limit = ("memory.limit_in_bytes", memory.to_string());
            let cpu = [("cpu.cfs_period_us", period.to_string()), ("cpu.cfs_quota_us", quota)];
            group
                .add(root.join("memory").join(&name), &[limit])
                .and_then(|()| group.add(root.join("cpu").join(&name), &cpu))
        };
        if let Err(error) = made {
            skip(&format!("cannot create a control group: {error}"));
            return None;
        }
        Some(group)
    }

    /// The same command, run inside.
    pub fn enclose(&self, command: &Command) -> Option<Command> {
        let mut enclosed = require_tool("sh")?.command(["-c"]);
        let joins = self
            .folders
            .iter()
            .map(|folder| format!("echo $$ > {}/cgroup.procs && ", folder.display()));
        enclosed.arg(joins.collect::<String>() + "exec \"$0\" \"$@\"");
        enclosed.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => enclosed.env(name, value),
                None => enclosed.env_remove(name),
            };
        }
        Some(enclosed)
    }

    /// How often a process inside was killed for lack of memory.
    pub fn out_of_memory_kills(&self) -> u64 {
        let texts = self.folders.iter().flat_map(|folder| {
            ["memory.events", "memory.oom_control"]
                .map(|name| std::fs::read_to_string(folder.join(name)))
        });
        let count = |text: String| {
            text.lines()
                .find_map(|line| line.strip_prefix("oom_kill "))
                .and_then(|count| count.parse().ok())
        };
        texts.flatten().find_map(count).unwrap_or(0)
    }

    fn add(&mut self, folder: PathBuf, settings: &[(&str, String)]) -> std::io::Result<()> {
        std::fs::create_dir(&folder)?;
        self.folders.push(folder.clone());
        settings.iter().try_for_each(|(name, value)| std::fs::write(folder.join(name), value))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for folder in &self.folders {
            // It stays while a process in it still runs; a test cannot change that.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// A number that this process has not used yet.
fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::process::run;

    const LIMIT: Duration = Duration::from_secs(30);

    #[test]
    fn cgroup_limits_its_processes() {
        let Some(group) = Cgroup::new(64 << 20, 500) else { return };
        let Some(sh) = require_tool("sh") else { return };
        let command = sh.command(["-c", "cat /proc/self/cgroup"]);
        let finished = run(&mut group.enclose(&command).unwrap(), LIMIT).expect_success();
        assert!(finished.stdout.contains("testkit-"), "{}", finished.stdout);
        assert_eq!(group.out_of_memory_kills(), 0);
    }
}
