//! Reads what `cargo test` prints: which programs ran, for how long, and what failed.

use std::time::Duration;

/// The output of one `cargo test`, read line by line as it is written.
#[derive(Debug, Default)]
pub struct TestOutput {
    programs: Vec<TestProgram>,
    /// The failed test whose captured output is being read.
    section: Option<String>,
}

/// One test program: cargo runs one after the other.
#[derive(Debug)]
pub struct TestProgram {
    /// What `--test` takes, or for unit tests the crate.
    pub name: String,
    /// The path of its source as cargo prints it: `unittests src/lib.rs`, `tests/faults.rs`, `it/main.rs`.
    pub source: String,
    pub passed: u32,
    pub ignored: u32,
    /// From its summary. `None` while it runs, and of a program that was killed.
    pub duration: Option<Duration>,
    failed: Vec<FailedTest>,
    /// Tests that run for more than a minute: only of these the program prints that they have begun.
    slow: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailedTest {
    /// The program that holds it.
    pub program: String,
    pub name: String,
    /// What it printed.
    pub output: String,
}

impl FailedTest {
    /// Whether both are runs of one test.
    pub fn is_run_of(&self, other: &Self) -> bool {
        (&self.program, &self.name) == (&other.program, &other.name)
    }
}

impl TestOutput {
    /// Takes one more line.
    pub fn read(&mut self, line: &str) {
        if let Some((source, name)) = started_program(line) {
            self.section = None;
            self.programs.push(TestProgram {
                name,
                source,
                passed: 0,
                ignored: 0,
                duration: None,
                failed: Vec::new(),
                slow: Vec::new(),
            });
            return;
        }
        let Some(program) = self.programs.last_mut() else { return };
        if let Some(name) = slow_test(line) {
            program.slow.push(name.to_owned());
        } else if let Some(name) = ended_test(line) {
            program.slow.retain(|slow| slow != name);
        }
        if let Some(name) = line.strip_prefix("---- ").and_then(|l| l.strip_suffix(" stdout ----"))
        {
            self.section = Some(name.to_owned());
        } else if line == "failures:" {
            self.section = None;
        } else if let Some(section) = &self.section {
            program.failure(section).output += &format!("{line}\n");
        } else if let Some(name) = failed_test(line) {
            program.failure(name);
        } else if let Some(summary) = line.strip_prefix("test result: ") {
            program.summarize(summary);
        }
    }

    /// The programs so far.
    pub fn programs(&self) -> &[TestProgram] {
        &self.programs
    }

    /// All tests that failed.
    pub fn failed(&self) -> Vec<FailedTest> {
        self.programs.iter().flat_map(|program| &program.failed).cloned().collect()
    }

    /// How many tests passed.
    pub fn passed(&self) -> u32 {
        self.programs.iter().map(|program| program.passed).sum()
    }

    /// The tests that have run for more than a minute and not ended, after the name of their program.
    pub fn slow(&self) -> String {
        let Some(program) = self.programs.last() else { return String::new() };
        format!("{}: {}", program.name, program.slow.join(", "))
    }

    /// The name of a program that printed no summary: it crashed, or was killed.
    pub fn unfinished(&self) -> Option<&str> {
        let program = self.programs.iter().find(|program| program.duration.is_none());
        program.map(|program| program.name.as_str())
    }
}

impl TestProgram {
    /// The record of a test that failed: the list and the captured output come apart.
    fn failure(&mut self, name: &str) -> &mut FailedTest {
        let at = self.failed.iter().position(|test| test.name == name).unwrap_or_else(|| {
            let (program, name) = (self.name.clone(), name.to_owned());
            self.failed.push(FailedTest { program, name, output: String::new() });
            self.failed.len() - 1
        });
        &mut self.failed[at]
    }

    /// Reads `ok. 28 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.02s`.
    fn summarize(&mut self, summary: &str) {
        let count = |what: &str| {
            let mut parts = summary.split([';', '.']).map(str::trim);
            parts.find_map(|part| part.strip_suffix(what)?.trim().parse::<u32>().ok())
        };
        self.passed += count("passed").unwrap_or_default();
        self.ignored += count("ignored").unwrap_or_default();
        let seconds = summary
            .rsplit_once("finished in ")
            .and_then(|(_, time)| time.trim_end().strip_suffix('s')?.parse::<f64>().ok());
        let duration = Duration::from_secs_f64(seconds.unwrap_or_default());
        self.duration = Some(self.duration.unwrap_or_default() + duration);
    }
}

/// Source and name in `     Running tests/faults.rs (target/debug/deps/faults-a78a130791c89bca)`, or `   Doc-tests api`.
fn started_program(line: &str) -> Option<(String, String)> {
    let line = line.trim_start();
    if let Some(package) = line.strip_prefix("Doc-tests ") {
        return Some(("Doc-tests".to_owned(), package.trim().to_owned()));
    }
    let (source, program) = line.strip_prefix("Running ")?.split_once(" (")?;
    let file = program.strip_suffix(')')?.rsplit('/').next()?;
    let (name, _hash) = file.rsplit_once('-')?;
    Some((source.to_owned(), name.to_owned()))
}

/// The name in `test module::name has been running for over 60 seconds`.
fn slow_test(line: &str) -> Option<&str> {
    Some(line.strip_prefix("test ")?.split_once(" has been running for over ")?.0)
}

/// The name in `test module::name ... ok`, or any other result.
fn ended_test(line: &str) -> Option<&str> {
    Some(line.strip_prefix("test ")?.split_once(" ... ")?.0)
}

/// The name in `test module::name ... FAILED`.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> TestOutput {
        let mut output = TestOutput::default();
        text.lines().for_each(|line| output.read(line));
        output
    }

    const FAILED: &str = "
    Finished `test` profile [unoptimized + debuginfo] target(s) in 0.27s
     Running clones/main.rs (target/debug/deps/clones-9a61d43c82447b00)

running 2 tests
test waits::first ... ok
test waits::second ... FAILED

failures:

---- waits::second stdout ----
SKIPPED test nothing

thread 'waits::second' panicked at tests/e2e/clones/waits.rs:7:5:
disk is not Succeeded

failures:
    waits::second

test result: FAILED. 1 passed; 1 failed; 3 ignored; 0 measured; 0 filtered out; finished in 186.44s

error: test failed, to rerun pass `-p e2e --test clones`
     Running unittests src/lib.rs (target/debug/deps/cdi_controller-a0d297d46a1eb56a)
";

    #[test]
    fn a_failed_test_is_read_with_its_program_and_output() {
        let output = read(FAILED);
        let [failed] = &output.failed()[..] else { panic!("{output:?}") };
        assert_eq!((failed.program.as_str(), failed.name.as_str()), ("clones", "waits::second"));
        assert!(failed.output.contains("\ndisk is not Succeeded\n"), "{}", failed.output);
        assert!(!failed.output.contains("test result"), "{}", failed.output);
    }

    #[test]
    fn a_summary_gives_counts_and_duration() {
        let output = read(FAILED);
        let program = &output.programs()[0];
        assert_eq!((program.passed, program.ignored), (1, 3));
        assert_eq!(program.duration, Some(Duration::from_millis(186_440)));
        assert_eq!((output.passed(), program.source.as_str()), (1, "clones/main.rs"));
    }

    #[test]
    fn tests_that_run_for_long_are_named_until_they_end() {
        let output = read(
            "
     Running it/main.rs (target/debug/deps/it-9a61d43c82447b00)
test a::first has been running for over 60 seconds
test b::second has been running for over 60 seconds
test c::third ... ok
test a::first ... FAILED
",
        );
        assert_eq!(output.slow(), "it: b::second");
    }

    #[test]
    fn a_program_without_a_summary_is_unfinished() {
        assert_eq!(read(FAILED).unfinished(), Some("cdi_controller"));
        assert_eq!(
            read("   Doc-tests api\ntest result: ok. 1 passed; finished in 0.10s").unfinished(),
            None
        );
    }
}
