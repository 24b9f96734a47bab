//! The closing lines of a test run: how long each layer took, what was skipped, and which tests are flaky.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::output::{FailedTest, TestOutput};
use crate::{cluster, shell};

/// Names the file to which `testkit` appends a line for each skipped test: its name, a tab, the reason.
const SKIPPED_VARIABLE: &str = "CDI_SKIPPED_TESTS";

/// What a run has done so far.
#[derive(Default)]
pub struct Report {
    layers: Vec<Layer>,
    skipped: Vec<Skipped>,
    flaky: Vec<FlakyTest>,
    /// The lines of other processes' reports that name flaky and skipped tests.
    lines_of_others: Vec<String>,
}

struct Layer {
    name: String,
    duration: Duration,
    /// How many tests passed, where the layer has any.
    passed: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Skipped {
    reason: String,
    test: String,
}

/// A test of the cluster that failed and then passed.
pub struct FlakyTest {
    test: FailedTest,
    /// The file with what it printed when it failed.
    file: PathBuf,
}

impl Report {
    /// An empty report. Commands of [`note_skipped`] add what they skip.
    ///
    /// # Errors
    /// When the list of an earlier run cannot be removed.
    pub fn new() -> Result<Self> {
        let file = skipped_file();
        if file.exists() {
            fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        }
        Ok(Self::default())
    }

    /// Runs a part and notes how long it took, also when it fails.
    ///
    /// # Errors
    /// Of the part.
    pub fn time<T>(&mut self, layer: &str, part: impl FnOnce() -> Result<T>) -> Result<T> {
        let begin = Instant::now();
        let outcome = part();
        self.add_layer(layer, begin.elapsed(), None);
        outcome
    }

    fn add_layer(&mut self, name: &str, duration: Duration, passed: Option<u32>) {
        self.layers.push(Layer { name: name.to_owned(), duration, passed });
    }

    /// Notes a layer of tests.
    pub fn add_tests(&mut self, layer: &str, duration: Duration, output: &TestOutput) {
        self.add_layer(layer, duration, Some(output.passed()));
    }

    /// Notes the tests of another process that has printed a report, and how long this one has waited for it.
    pub fn add_report_of_another(&mut self, layer: &str, waited: Duration, log: &str) {
        let mut output = TestOutput::default();
        log.lines().for_each(|line| output.read(line));
        self.add_tests(layer, waited, &output);
        self.lines_of_others.extend(lines_about_tests(log).map(str::to_owned));
    }

    /// Notes the tests of the workspace, unit tests and those of whole programs apart.
    pub fn add_workspace_tests(&mut self, output: &TestOutput) {
        let mut layers = BTreeMap::<&str, (Duration, u32)>::new();
        for program in output.programs() {
            let layer = layers.entry(layer_of(&program.source)).or_default();
            layer.0 += program.duration.unwrap_or_default();
            layer.1 += program.passed;
        }
        for (name, (duration, passed)) in layers {
            self.add_layer(name, duration, Some(passed));
        }
    }

    /// Notes something that is left out as a whole.
    pub fn skip(&mut self, what: &str, reason: &str) {
        self.skipped.push(Skipped { reason: reason.to_owned(), test: what.to_owned() });
    }

    /// Notes a test that passed at the second attempt.
    pub fn add_flaky(&mut self, test: FlakyTest) {
        self.flaky.push(test);
    }

    /// Prints the closing lines.
    pub fn print(&self) {
        shell::headline("durations");
        let mut sum = Duration::ZERO;
        for Layer { name, duration, passed } in &self.layers {
            sum += *duration;
            let passed = passed.map(|passed| format!("{passed} passed")).unwrap_or_default();
            eprintln!("  {name:<44} {:>6}  {passed}", minutes(*duration));
        }
        eprintln!("  {:<44} {:>6}", "sum", minutes(sum));
        let mut skipped = self.skipped.clone();
        // Without the file no test was skipped.
        skipped.extend(parse_skipped(&fs::read_to_string(skipped_file()).unwrap_or_default()));
        eprint!("{}", skipped_lines(skipped));
        for FlakyTest { test, file } in &self.flaky {
            let (program, name) = (&test.program, &test.name);
            let output = file.display();
            eprintln!("FLAKY {program} {name}: failed, then passed; its first output: {output}");
        }
        for line in &self.lines_of_others {
            eprintln!("{line}");
        }
        if !self.flaky.is_empty() {
            eprintln!("Find the cause of each flaky test and write it to docs/flaky.md.");
        }
    }
}

/// Which layer a test program belongs to, by the path of its source.
fn layer_of(source: &str) -> &'static str {
    match source {
        _ if source.starts_with("unittests") => "unit tests",
        "Doc-tests" => "unit tests",
        "it/main.rs" => "tests of whole programs (tests/it)",
        _ => "tests of one crate",
    }
}

/// Tests in an additional cluster may run at the same time as others, so they have a file of their own.
fn skipped_file() -> PathBuf {
    let name = match cluster::additional() {
        Some(cluster) => format!("skipped-tests-{}.txt", cluster.to_string_lossy()),
        None => "skipped-tests.txt".to_owned(),
    };
    shell::root().join("target").join(name)
}

/// Of a printed report: which tests are flaky and which were skipped, with the reasons.
fn lines_about_tests(report: &str) -> impl Iterator<Item = &str> {
    let mut is_reason = false;
    report.lines().filter(move |line| {
        is_reason = line.starts_with("SKIPPED ") && line.ends_with(':')
            || (is_reason && line.starts_with("  "));
        is_reason || line.starts_with("FLAKY ")
    })
}

/// Has a command's tests note what they skip.
pub fn note_skipped(command: &mut std::process::Command) -> &mut std::process::Command {
    command.env(SKIPPED_VARIABLE, skipped_file())
}

fn parse_skipped(text: &str) -> Vec<Skipped> {
    let skipped = text.lines().filter_map(|line| line.split_once('\t'));
    skipped.map(|(test, reason)| Skipped { reason: reason.into(), test: test.into() }).collect()
}

/// Count and reasons, a line for each reason; nothing, when nothing was skipped.
fn skipped_lines(mut skipped: Vec<Skipped>) -> String {
    skipped.sort();
    skipped.dedup();
    if skipped.is_empty() {
        return String::new();
    }
    let mut lines = format!("SKIPPED {} tests:\n", skipped.len());
    for of_reason in skipped.chunk_by(|a, b| a.reason == b.reason) {
        let tests: Vec<_> = of_reason.iter().map(|skipped| skipped.test.as_str()).collect();
        lines += &format!("  {}: {} ({})\n", of_reason[0].reason, tests.len(), tests.join(", "));
    }
    lines
}

fn minutes(duration: Duration) -> String {
    format!("{}:{:02}", duration.as_secs() / 60, duration.as_secs() % 60)
}

impl FlakyTest {
    /// Writes the output of the failure to a file: `target/flaky/PROGRAM.TEST.txt`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(test: FailedTest) -> Result<Self> {
        let folder = shell::root().join("target/flaky");
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let name = format!("{}.{}.txt", test.program, test.name.replace("::", "."));
        let file = folder.join(name);
        fs::write(&file, &test.output)
            .with_context(|| format!("cannot write {}", file.display()))?;
        Ok(Self { test, file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_tests_are_counted_once_for_each_reason() {
        let text = "a::first\tno qemu-img\nb\tnot root\na::first\tno qemu-img\nc\tnot root\n";
        let expected = "SKIPPED 3 tests:\n  no qemu-img: 1 (a::first)\n  not root: 2 (b, c)\n";
        assert_eq!(skipped_lines(parse_skipped(text)), expected);
        assert_eq!(skipped_lines(Vec::new()), "");
    }

    #[test]
    fn flaky_and_skipped_tests_are_read_from_a_report() {
        let report = "=== durations\n  sum  0:03\nSKIPPED 1 tests:\n  not root: 1 (a)\nFLAKY b: 1\nFind\n  x\n";
        let lines: Vec<_> = lines_about_tests(report).collect();
        assert_eq!(lines, ["SKIPPED 1 tests:", "  not root: 1 (a)", "FLAKY b: 1"]);
    }

    #[test]
    fn source_path_determines_the_test_layer() {
        assert_eq!(layer_of("unittests src/bin/cdi-importer.rs"), "unit tests");
        assert_eq!(layer_of("it/main.rs"), "tests of whole programs (tests/it)");
        assert_eq!(layer_of("tests/it/main.rs"), "tests of one crate");
    }

    #[test]
    fn durations_are_minutes_and_seconds() {
        assert_eq!(minutes(Duration::from_secs(645)), "10:45");
        assert_eq!(minutes(Duration::from_millis(3_999)), "0:03");
    }
}
