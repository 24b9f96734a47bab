//! The report of a run, as in `bench/results`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use e2e::results::list;
use serde_json::{Value, json};

use crate::victim::Operation;

/// All rows as they are kept.
pub fn rows(
    operations: &[Value],
    samples: &[Value],
    floods: &[Value],
    counts: &BTreeMap<&'static str, u64>,
    checks: &[Value],
) -> Vec<Value> {
    let floods = floods.iter().cloned().map(|mut row| {
        row["row"] = "flood".into();
        row
    });
    let counts =
        counts.iter().map(|(what, times)| json!({ "row": "count", "what": what, "times": times }));
    let all = checks.iter().chain(operations).chain(samples).cloned();
    all.chain(floods).chain(counts).collect()
}

fn rows_of_kind<'a>(rows: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> + Clone {
    rows.iter().filter(move |row| row["row"] == kind)
}

/// The report in Markdown.
pub fn text(about: &Value, minutes: u64, rows: &[Value]) -> String {
    let date = about["date"].as_str().unwrap_or_default();
    let mut text = format!("# Three hostile tenants for {minutes} minutes, {date}\n\n");
    let _ = writeln!(
        text,
        "Made by `cargo xtask bench hostile {minutes}`: in the cluster of the tests three tenants, each with the ClusterRole `edit` \
         in a namespace of its own, attack at once by all the methods below, from the API, from six pods without credentials and \
         from outside the cluster, while a fourth tenant imports, uploads, clones and refreshes a golden image. Nothing that it does \
         is tried twice. All of it runs on one machine, so the times show how busy that is.\n"
    );
    list(&mut text, about);
    checks(&mut text, rows);
    victim(&mut text, rows);
    programs(&mut text, rows);
    attacks(&mut text, rows);
    text
}

fn checks(text: &mut String, rows: &[Value]) {
    *text += "\n| Checked | Outcome |\n|---|---|\n";
    for row in rows_of_kind(rows, "check") {
        let outcome = row["error"].as_str().map_or("✓".to_owned(), |error| {
            let error: String = error.chars().take(300).collect();
            format!("✗ {}", error.replace('|', "\\|").replace('\n', " "))
        });
        let _ = writeln!(text, "| {} | {outcome} |", row["check"].as_str().unwrap_or_default());
    }
}

fn victim(text: &mut String, rows: &[Value]) {
    *text += "\n| The victim's | done | failed | least, s | median, s | most, s |\n|---|---|---|---|---|---|\n";
    for operation in Operation::ALL {
        let of_it =
            rows_of_kind(rows, "operation").filter(|row| row["operation"] == operation.name());
        let failed = of_it.clone().filter(|row| !row["error"].is_null()).count();
        let mut seconds: Vec<_> = of_it.filter_map(|row| row["seconds"].as_f64()).collect();
        seconds.sort_by(f64::total_cmp);
        let at = |index: usize| seconds.get(index).copied().unwrap_or(f64::NAN);
        let (last, all) = (seconds.len().saturating_sub(1), seconds.len());
        let _ = writeln!(
            text,
            "| {} | {} | {failed} | {:.1} | {:.1} | {:.1} |",
            operation.name(),
            all - failed,
            at(0),
            at(last / 2),
            at(last),
        );
    }
}

fn programs(text: &mut String, rows: &[Value]) {
    *text += "\n| Pod of | memory at first, MiB | at last | peak | processor time, s | `/healthz` probes | without response in 10 s | slowest, ms |\n";
    *text += "|---|---|---|---|---|---|---|---|\n";
    let mut pods: Vec<_> =
        rows_of_kind(rows, "sample").map(|row| row["pod"].as_str().unwrap_or_default()).collect();
    pods.sort();
    pods.dedup();
    for pod in pods {
        let samples = || rows_of_kind(rows, "sample").filter(|row| row["pod"] == pod);
        let numbers = |key: &'static str| samples().filter_map(move |row| row[key].as_u64());
        let first = |key: &'static str| numbers(key).next().unwrap_or_default();
        let last = |key: &'static str| numbers(key).last().unwrap_or_default();
        let most = |key: &'static str| numbers(key).max().unwrap_or_default();
        let program = samples().next().and_then(|row| row["program"].as_str()).unwrap_or_default();
        let asked = samples().filter(|row| row["healthy"].is_boolean()).count();
        let missed = samples().filter(|row| row["healthy"] == false).count();
        let processor = last("cpu_ms").saturating_sub(first("cpu_ms")) as f64 / 1000.0;
        let (rss, then, peak) = (first("rss_mib"), last("rss_mib"), most("peak_mib"));
        let slowest = most("health_ms");
        let _ = writeln!(
            text,
            "| {program} | {rss} | {then} | {peak} | {processor:.1} | {asked} | {missed} | {slowest} |"
        );
    }
}

fn attacks(text: &mut String, rows: &[Value]) {
    let mut floods = BTreeMap::<String, [u64; 3]>::new();
    for row in rows_of_kind(rows, "flood") {
        let sums = floods.entry(row["attack"].as_str().unwrap_or_default().to_owned()).or_default();
        for (sum, key) in sums.iter_mut().zip(["opened", "refused", "ended"]) {
            *sum += row[key].as_u64().unwrap_or_default();
        }
    }
    *text += "\n| Connections of pods, and from outside | opened | refused | ended by the server |\n|---|---|---|---|\n";
    for (attack, [opened, refused, ended]) in floods {
        let _ = writeln!(text, "| {attack} | {opened} | {refused} | {ended} |");
    }
    *text += "\n| Done by the attackers | times |\n|---|---|\n";
    for row in rows_of_kind(rows, "count") {
        let _ =
            writeln!(text, "| {} | {} |", row["what"].as_str().unwrap_or_default(), row["times"]);
    }
}
