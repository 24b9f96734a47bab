//! What was measured, as it is kept in `bench/results`.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Figures and their goals. Where there is none, the figure is for comparison with earlier ones.
const ROWS: [(&str, &str, Option<Limit>); 10] = [
    ("made within, s", "/at_once/seconds_to_make", None),
    ("all have succeeded after, s", "/at_once/seconds_to_all_succeeded", None),
    ("API writes each, events not counted", "/at_once/writes_each", Some(Limit::AtMost(15.0))),
    ("event writes each", "/at_once/events_each", Some(Limit::AtMost(6.0))),
    ("CPU time of the controllers each, ms", "/at_once/cpu_ms_each", Some(Limit::Below(25.0))),
    ("their memory after it, MiB", "/at_once/rss_mib", None),
    ("API writes in a minute while nothing happens", "/idle/writes", None),
    ("CPU time in that minute, ms", "/idle/cpu_ms", None),
    ("memory then, MiB", "/idle/rss_mib", Some(Limit::Below(150.0))),
    ("the most memory at any time, MiB", "/idle/peak_mib", None),
];

#[derive(Clone, Copy)]
enum Limit {
    AtMost(f64),
    Below(f64),
}

impl Limit {
    fn is_kept(self, figure: f64) -> bool {
        match self {
            Self::AtMost(limit) => figure <= limit,
            Self::Below(limit) => figure < limit,
        }
    }
}

/// On what it was measured.
pub fn about() -> Result<Value> {
    let read = |file: &str| std::fs::read_to_string(file).with_context(|| format!("no {file}"));
    let processors = read("/proc/cpuinfo")?;
    let models = processors.lines().filter_map(|line| line.strip_prefix("model name"));
    let model = models.clone().next().unwrap_or_default().trim_start_matches(['\t', ':', ' ']);
    Ok(json!({
        "date": said("date", &["--utc", "+%F"])?,
        "commit": said("git", &["describe", "--always", "--dirty"])?,
        "processor": format!("{model}, {} cores", models.count()),
        "kernel": format!("Linux {}", read("/proc/sys/kernel/osrelease")?.trim()),
        "load average at the start, below 1 on a quiet machine":
            read("/proc/loadavg")?.split_whitespace().next(),
    }))
}

fn said(program: &str, words: &[&str]) -> Result<String> {
    let output = Command::new(program).args(words).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// For people.
pub fn text(about: &Value, figures: &Value) -> String {
    let word = |key: &str| about[key].as_str().unwrap_or_default().to_owned();
    let (volumes, idle) = (&figures["at_once"]["volumes"], &figures["idle"]["volumes"]);
    let mut text = format!("# What DataVolumes cost the control plane, {}\n\n", word("date"));
    let _ = writeln!(
        text,
        "Made by `cargo xtask bench control-plane {volumes} {idle}`: {volumes} blank DataVolumes are made at once, then as many \
         more as make {idle}, and then nothing happens for a minute. API server, scheduler and controller manager are \
         real and on the same machine; node and storage are played, and a worker takes 0.4 s. A cross marks a goal that is \
         missed.\n"
    );
    for (key, value) in about.as_object().into_iter().flatten().filter(|(key, _)| *key != "date") {
        let _ = writeln!(text, "* {key}: {}", value.as_str().unwrap_or_default());
    }
    text += "\n| What | Measured | Goal |\n|---|---|---|\n";
    for (what, place, limit) in ROWS {
        let figure = figures.pointer(place).and_then(Value::as_f64).unwrap_or(f64::NAN);
        let goal = match limit {
            Some(Limit::AtMost(limit)) => format!("≤ {limit}"),
            Some(Limit::Below(limit)) => format!("< {limit}"),
            None => String::new(),
        };
        let cross = if limit.is_some_and(|limit| !limit.is_kept(figure)) { "✗ " } else { "" };
        let _ = writeln!(text, "| {what} | {cross}{figure:.1} | {goal} |");
    }
    text
}

/// Keeps both forms in a folder, under the day.
pub fn keep(folder: &Path, about: &Value, figures: &Value) -> Result<()> {
    let name = format!("{}-control-plane", about["date"].as_str().unwrap_or_default());
    let write = |end: &str, text: String| {
        let path = folder.join(format!("{name}.{end}"));
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write("jsonl", format!("{}\n{}\n", json!({ "about": about }), figures))?;
    write("md", text(about, figures))
}
