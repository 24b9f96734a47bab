//! Figures as they are kept in `bench/results`.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// The machine and the commit that were measured.
///
/// # Errors
/// When a file of the machine cannot be read, or a program cannot be started.
pub fn about() -> Result<Value> {
    let read = |file: &str| std::fs::read_to_string(file).with_context(|| format!("no {file}"));
    let processors = read("/proc/cpuinfo")?;
    let models = processors.lines().filter_map(|line| line.strip_prefix("model name"));
    let model = models.clone().next().unwrap_or_default().trim_start_matches(['\t', ':', ' ']);
    Ok(json!({
        "date": output_of("date", &["--utc", "+%F"])?,
        "commit": output_of("git", &["describe", "--always", "--dirty"])?,
        "processor": format!("{model}, {} cores", models.count()),
        "kernel": format!("Linux {}", read("/proc/sys/kernel/osrelease")?.trim()),
        "load average at the start, below 1 on a quiet machine":
            read("/proc/loadavg")?.split_whitespace().next(),
    }))
}

fn output_of(program: &str, words: &[&str]) -> Result<String> {
    let output = Command::new(program).args(words).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Appends the values of [`about`], except the date, as a list.
pub fn list(text: &mut String, about: &Value) {
    for (key, value) in about.as_object().into_iter().flatten().filter(|(key, _)| *key != "date") {
        let _ = writeln!(text, "* {key}: {}", value.as_str().unwrap_or_default());
    }
}

/// Writes both formats to a directory; their names begin with the date.
///
/// # Errors
/// When they cannot be written.
pub fn keep(folder: &Path, what: &str, about: &Value, rows: &[Value], text: &str) -> Result<()> {
    let name = format!("{}-{what}", about["date"].as_str().unwrap_or_default());
    let write = |end: &str, text: &str| {
        let path = folder.join(format!("{name}.{end}"));
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    let mut lines = format!("{}\n", json!({ "about": about }));
    rows.iter().for_each(|row| lines += &format!("{row}\n"));
    write("jsonl", &lines)?;
    write("md", text)
}
