//! The report of the measurements, as in `bench/results`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use e2e::results::list;
use serde_json::Value;

use crate::single::{CASES, Case};

/// Figures and their goals. Where there is none, the figure is for comparison with earlier ones.
const ROWS: [(&str, &str, Option<Limit>); 15] = [
    ("created within, s", "/at_once/seconds_to_make", None),
    ("all have succeeded after, s", "/at_once/seconds_to_all_succeeded", None),
    ("API writes each, events not counted", "/at_once/writes_each", Some(Limit::AtMost(15.0))),
    ("event writes each", "/at_once/events_each", Some(Limit::AtMost(6.0))),
    ("CPU time of the controllers each, ms", "/at_once/cpu_ms_each", Some(Limit::Below(25.0))),
    ("their memory after it, MiB", "/at_once/rss_mib", None),
    ("API writes in a minute while nothing happens", "/idle/writes", None),
    ("CPU time in that minute, ms", "/idle/cpu_ms", None),
    ("memory then, MiB", "/idle/rss_mib", Some(Limit::AtMost(100.0))),
    ("the most memory at any time, MiB", "/idle/peak_mib", None),
    (
        "a controller restarted then: CPU time until it is idle, ms",
        "/restarted/cpu_ms_to_begin",
        None,
    ),
    ("its API writes until then", "/restarted/writes_to_begin", None),
    ("its CPU time in a minute after that, ms", "/restarted/cpu_ms", None),
    ("its memory then, MiB", "/restarted/rss_mib", Some(Limit::AtMost(100.0))),
    ("its most memory at any time, MiB", "/restarted/peak_mib", None),
];

/// Figures of a run in a whole cluster, and the goal for ours over upstream CDI's.
const OF_BLANK: [(&str, &str, Option<f64>); 7] = [
    ("created within, s", "seconds_to_make", None),
    ("**all have succeeded after, s**", "seconds_to_all_succeeded", Some(0.5)),
    ("API writes each, events not counted", "writes_each", None),
    ("event writes each", "events_each", None),
    ("reads each", "reads_each", None),
    ("CPU time of the controllers each, ms", "cpu_ms_each", None),
    ("their memory after it, MiB", "rss_mib", None),
];

/// Resident memory of our programs together.
const IDLE_MAX_MIB: f64 = 45.0;
/// Heading, figure, and of whose programs.
const IDLE_COLUMNS: [(&str, &str, &str); 6] = [
    ("ours, MiB", "rss_mib", "ours"),
    ("of it in no file", "anonymous_mib", "ours"),
    ("upstream's, MiB", "rss_mib", "reference"),
    ("of it in no file", "anonymous_mib", "reference"),
    ("ours, CPU ms", "cpu_ms", "ours"),
    ("upstream's, CPU ms", "cpu_ms", "reference"),
];

/// Figures of clones by one way.
const OF_CLONES: [(&str, &str); 7] = [
    ("all have succeeded after, s", "seconds_to_all_succeeded"),
    ("at work at once, at most", "most_at_work"),
    ("API writes each, events not counted", "writes_each"),
    ("event writes each", "events_each"),
    ("reads each", "reads_each"),
    ("CPU time of the controllers each, ms", "cpu_ms_each"),
    ("their memory after it, MiB", "rss_mib"),
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

/// The report in Markdown.
pub fn of_one_program(about: &Value, figures: &Value) -> String {
    let word = |key: &str| about[key].as_str().unwrap_or_default().to_owned();
    let volumes = &figures["at_once"]["volumes"];
    let idle = figures["volumes"].as_u64();
    let mut text = format!("# What DataVolumes cost the control plane, {}\n\n", word("date"));
    let _ = write!(
        text,
        "Made by `cargo xtask bench control-plane {volumes} {}`: {volumes} blank DataVolumes are made at once",
        idle.unwrap_or_default()
    );
    if let Some(idle) = idle {
        let _ = write!(
            text,
            ", then as many more as make {idle}, and then nothing happens for a minute. Then the controller is killed, and \
             another begins"
        );
    }
    text += ". API server, scheduler and controller manager are real and on the same machine; node and storage are played, \
             and a worker takes 0.4 s. A cross marks a goal that is missed.\n\n";
    list(&mut text, about);
    text += "\n| What | Measured | Goal |\n|---|---|---|\n";
    let is_measured = |place: &str| idle.is_some() || place.starts_with("/at_once/");
    for (what, place, limit) in ROWS.into_iter().filter(|(_, place, _)| is_measured(place)) {
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

/// The same of clones, by each way.
pub fn of_clones(about: &Value, number: usize, figures: &Value) -> String {
    let date = about["date"].as_str().unwrap_or_default();
    let mut text = format!("# {number} clones of one image at once, {date}\n\n");
    let _ = writeln!(
        text,
        "Made by `cargo xtask bench control-plane clones {number}`: {number} DataVolumes that clone one claim are made at \
         once, by each way in turn. API server, scheduler and controller manager are real and on the same machine; node, \
         storage and snapshots are played, and a worker takes 0.4 s. A table is only made if all have succeeded, none was \
         given up for a copy, no more were at work than are allowed, and nothing is left of what was made for them.\n"
    );
    list(&mut text, about);
    let ways: Vec<_> = figures.as_object().into_iter().flatten().collect();
    table_header(&mut text, "What", ways.iter().map(|(way, _)| way.as_str()));
    for (what, key) in OF_CLONES {
        let _ = write!(text, "| {what} |");
        for (_, figures) in &ways {
            let _ = write!(text, " {:.1} |", figures[key].as_f64().unwrap_or(f64::NAN));
        }
        text += "\n";
    }
    text
}

/// The same of runs by both controllers in turns.
pub fn of_blank(about: &Value, figures: &[Value]) -> String {
    let volumes = &figures.first().map_or(Value::Null, |figure| figure["volumes"].clone());
    let date = about["date"].as_str().unwrap_or_default();
    let mut text = format!("# {volumes} blank DataVolumes at once, {date}\n\n");
    let runs = figures.len() / 2;
    let _ = writeln!(
        text,
        "Made by `cargo xtask bench control-plane blank {volumes}`: {volumes} blank DataVolumes of 64 MiB are created at once, \
         half of them in files and half on devices, in the cluster of the tests, where everything is real; by our controllers \
         and by upstream CDI's in turns, {runs} runs each. Upstream's controllers and importer are built from the pinned \
         module and run in the same pods with the same ServiceAccount; the admission webhooks are ours in both cases. Medians, \
         with minimum and maximum. Requests are the API server's own counts of all clients: controllers, kubelet, \
         scheduler, storage; leases are not counted.\n"
    );
    list(&mut text, about);
    text += "\n| What | ours | upstream's | ours ÷ upstream's | Goal |\n|---|---|---|---|---|\n";
    for (what, key, goal) in OF_BLANK {
        let of = |whose: &str| {
            let of_them = figures.iter().filter(|figure| figure["by"] == whose);
            Spread::from_figures(of_them.filter_map(|figure| figure[key].as_f64()).collect())
        };
        let (ours, theirs) = (of("ours"), of("reference"));
        let ratio = ours.median / theirs.median;
        let cross = if goal.is_some_and(|goal| ratio > goal) { "✗ " } else { "" };
        let goal = goal.map(|goal| format!("≤ {goal}")).unwrap_or_default();
        let (ours, theirs) = (ours.text(), theirs.text());
        let _ = writeln!(text, "| {what} | {ours} | {theirs} | {cross}{ratio:.2} | {goal} |");
    }
    text
}

/// The seconds of single DataVolumes, by both in turns.
pub fn of_single(about: &Value, figures: &[Value]) -> String {
    let date = about["date"].as_str().unwrap_or_default();
    let of_first = |figure: &&Value| figure["by"] == "ours" && figure["case"] == CASES[0].what;
    let runs = figures.iter().filter(of_first).count();
    let mut text = format!("# One DataVolume at a time, {date}\n\n");
    let _ = writeln!(
        text,
        "Made by `cargo xtask bench control-plane single`: seconds from the creation of a DataVolume of 256 MiB, a third of it data, \
         until it has succeeded, in the cluster of the tests, where everything is real; by our controllers and workers and by \
         upstream CDI's in turns, {runs} runs each. Upstream's are built from the pinned module; its controllers run in a copy of \
         our Deployment, with our keys, by which they cannot issue the certificates of upload servers: copies and uploads are not \
         compared. The admission webhooks are ours in both cases. Medians, with minimum and maximum. A cross marks a goal \
         that is missed.\n"
    );
    list(&mut text, about);
    text += "\n| What | ours, s | upstream's, s | upstream's ÷ ours | Goal, s |\n|---|---|---|---|---|\n";
    for case in &CASES {
        let Case { what, goal, .. } = case;
        let of = |whose: &str| {
            let of_them =
                figures.iter().filter(|figure| figure["by"] == whose && figure["case"] == *what);
            Spread::from_figures(of_them.filter_map(|figure| figure["seconds"].as_f64()).collect())
        };
        let (ours, theirs) = (of("ours"), of("reference"));
        let ratio = theirs.median / ours.median;
        let cross = if ours.median > *goal { "✗ " } else { "" };
        let ours = ours.text();
        let compared = if case.is_compared() {
            format!("{} | {ratio:.1}", theirs.text())
        } else {
            "– | –".into()
        };
        let _ = writeln!(text, "| {what} | {cross}{ours} | {compared} | ≤ {goal} |");
    }
    text
}

/// The usage of the programs of both installations at rest.
pub fn of_idle(about: &Value, figures: &[Value]) -> String {
    let date = about["date"].as_str().unwrap_or_default();
    let mut text = format!("# The control plane at rest, {date}\n\n");
    text += "Made by `cargo xtask bench control-plane idle`: upstream CDI is installed by its operator, built from the pinned module, \
             and then taken over by ours, in the cluster of the tests, where everything is real. Each is measured once, two minutes \
             after it is available: the resident memory of each program, files that it shares included, and its CPU time in the last \
             minute. There are no DataVolumes. A cross marks a goal that is missed.\n\n";
    list(&mut text, about);
    table_header(&mut text, "Program", IDLE_COLUMNS.iter().map(|(heading, ..)| *heading));
    let sums = |is_included: &dyn Fn(&str) -> bool| {
        IDLE_COLUMNS.map(|(_, key, whose)| {
            let is_of_them = |figure: &&Value| {
                figure["by"] == whose && figure["program"].as_str().is_some_and(is_included)
            };
            figures.iter().filter(is_of_them).filter_map(|figure| figure[key].as_f64()).sum::<f64>()
        })
    };
    let mut row = |name: &str, sums: [f64; IDLE_COLUMNS.len()]| {
        let figures: Vec<_> = sums.iter().map(|sum| format!("{sum:.0}")).collect();
        let _ = writeln!(text, "| {name} | {} |", figures.join(" | "));
    };
    let programs: BTreeSet<_> =
        figures.iter().filter_map(|figure| figure["program"].as_str()).collect();
    for program in programs {
        row(program, sums(&|other| other == program));
    }
    let all = sums(&|_| true);
    let cross = if all[0] > IDLE_MAX_MIB { "✗ " } else { "" };
    row(&format!("{cross}**all, goal for ours ≤ {IDLE_MAX_MIB} MiB**"), all);
    text
}

fn table_header<'a>(text: &mut String, first: &'a str, others: impl Iterator<Item = &'a str>) {
    let headings: Vec<_> = std::iter::once(first).chain(others).collect();
    let _ = writeln!(text, "\n| {} |\n|{}", headings.join(" | "), "---|".repeat(headings.len()));
}

/// The result of several runs.
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn from_figures(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let at = |index: usize| figures.get(index).copied().unwrap_or(f64::NAN);
        let last = figures.len().saturating_sub(1);
        let median = f64::midpoint(at(last / 2), at(last.div_ceil(2)));
        Self { median, least: at(0), most: at(last) }
    }

    fn text(&self) -> String {
        let Self { median, least, most } = self;
        format!("{median:.1} ({least:.1}–{most:.1})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        for (figures, expected) in [
            (vec![3.0], "3.0 (3.0–3.0)"),
            (vec![4.0, 1.0], "2.5 (1.0–4.0)"),
            (vec![9.0, 1.0, 2.0], "2.0 (1.0–9.0)"),
        ] {
            assert_eq!(Spread::from_figures(figures).text(), expected);
        }
    }
}
