//! The figures of a run, as rows and as text.

use std::collections::BTreeMap;
use std::fmt::Write;

use e2e::results;
use serde_json::{Value, json};

use crate::disturbances::Counts;
use crate::rounds::Round;

/// A line about a round, printed at its end.
pub fn line(number: usize, round: &Round) -> String {
    let Round { filled, refused, duration, disturbances } = round;
    let seconds = duration.as_secs();
    format!(
        "round {number}: {filled} filled, {refused} refused, {seconds} s, {disturbances} disturbances"
    )
}

pub fn rows(
    all: &[Round],
    counts: &Counts,
    before: &BTreeMap<String, u64>,
    after: &BTreeMap<String, u64>,
) -> Vec<Value> {
    let rounds = all.iter().map(|round| {
        json!({
            "row": "round", "filled": round.filled, "refused": round.refused,
            "seconds": round.duration.as_secs(), "disturbances": round.disturbances,
        })
    });
    let names = counts
        .done
        .keys()
        .chain(counts.failed.keys().filter(|name| !counts.done.contains_key(*name)));
    let disturbances = names.map(|name| {
        let of = |counts: &BTreeMap<String, usize>| counts.get(name).copied().unwrap_or(0);
        json!({
            "row": "disturbance", "what": name, "done": of(&counts.done), "failed": of(&counts.failed),
        })
    });
    let memory = after.iter().map(|(name, mib)| {
        json!({ "row": "memory", "program": name, "before_mib": before.get(name), "after_mib": mib })
    });
    rounds.chain(disturbances).chain(memory).collect()
}

pub fn text(about: &Value, minutes: u64, seed: u64, rows: &[Value]) -> String {
    let mut text = format!(
        "# Disturbed DataVolumes, {}\n\nMade by `cargo xtask soak chaos {minutes}` with the seed {seed}: a hundred DataVolumes \
         of every source are created at once, several classes and modes among them, while one disturbance follows another. When all \
         have succeeded, or are refused as their image is too large, the bytes are compared, all are deleted, and nothing is left; then \
         the next round begins.\n\n",
        about["date"].as_str().unwrap_or_default()
    );
    results::list(&mut text, about);
    let of = |kind: &'static str| rows.iter().filter(move |row| row["row"] == kind);
    text += "\n| Round | Filled | Refused | All had ended after, s | Disturbances |\n|---|---|---|---|---|\n";
    for (index, row) in of("round").enumerate() {
        let _ = write!(text, "| {} | {} | {} ", index + 1, row["filled"], row["refused"]);
        let _ = writeln!(text, "| {} | {} |", row["seconds"], row["disturbances"]);
    }
    text += "\n| Disturbance | Times | Not possible |\n|---|---|---|\n";
    for row in of("disturbance") {
        let what = row["what"].as_str().unwrap_or_default();
        let _ = writeln!(text, "| {what} | {} | {} |", row["done"], row["failed"]);
    }
    text += "\n| Program | Memory before, MiB | After |\n|---|---|---|\n";
    for row in of("memory") {
        let program = row["program"].as_str().unwrap_or_default();
        let _ = writeln!(text, "| {program} | {} | {} |", row["before_mib"], row["after_mib"]);
    }
    text
}
