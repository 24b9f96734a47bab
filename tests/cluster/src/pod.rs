//! Pods as this machine sees them: processes in a control group.

use anyhow::{Context, Result};

use crate::node::CONTROL_GROUP;

/// The processes in a pod's control group, without the pause process.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn processes_of_pod(pod_uid: &str) -> Result<Vec<i32>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").context("cannot read /proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<i32>() else { continue };
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
        // A process may end between the two.
        let (Ok(groups), Ok(words)) = (read("cgroup"), read("cmdline")) else { continue };
        let ours = groups.contains(CONTROL_GROUP) && groups.contains(pod_uid);
        if ours && !words.trim_end_matches('\0').ends_with("testpod") {
            found.push(pid);
        }
    }
    Ok(found)
}
