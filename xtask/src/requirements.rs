//! The tables of `docs/compatibility.md`: every requirement is there, and names tests that exist.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::{rust_source, shell};

const DOCUMENT: &str = "docs/compatibility.md";
const STATES: [&str; 4] = ["done", "differs", "part", "not begun"];
/// In bytes. A requirement is a sentence, not a name.
const TEXT_MIN: usize = 15;

/// Checks the document against the sources.
///
/// # Errors
/// Lists each malformed row, each requirement that is missing and each test that does not exist.
pub fn check() -> Result<()> {
    let path = shell::root().join(DOCUMENT);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {DOCUMENT}"))?;
    let faults = faults(&text, |file, test| {
        let source = fs::read_to_string(shell::root().join(file));
        source.is_ok_and(|source| rust_source::has_test(&source, test))
    });
    if faults.is_empty() {
        return Ok(());
    }
    bail!("{DOCUMENT}:\n  {}", faults.join("\n  "))
}

/// Sections are headed `## TITLE (R-GROUP-1 to R-GROUP-N)`, and their rows are `| id | requirement | state | how far | tests |`.
fn faults(text: &str, is_test: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut faults = Vec::new();
    let mut section: Option<Section> = None;
    for line in text.lines() {
        if line.starts_with("## ") {
            faults.extend(section.take().and_then(|section| section.missing()));
            section = Section::from_heading(line);
        } else if line.starts_with("| R-") {
            faults.extend(row_faults(line, &is_test));
            let id = cells(line)[0];
            match &mut section {
                Some(section) if id == section.next_id() => section.rows += 1,
                Some(section) => {
                    faults.push(format!("{id}: {} is expected here", section.next_id()))
                }
                None => faults.push(format!("{id}: its heading names no range of requirements")),
            }
        }
    }
    faults.extend(section.and_then(|section| section.missing()));
    faults
}

/// The requirements that a heading announces.
struct Section<'a> {
    /// `R-GROUP-`.
    prefix: &'a str,
    /// The number of the last one.
    last: usize,
    /// The rows read so far.
    rows: usize,
}

impl<'a> Section<'a> {
    fn from_heading(line: &'a str) -> Option<Self> {
        let (first, last) = line.strip_suffix(')')?.rsplit_once('(')?.1.split_once(" to ")?;
        let prefix = first.strip_suffix('1').filter(|prefix| prefix.starts_with("R-"))?;
        Some(Self { prefix, last: last.strip_prefix(prefix)?.parse().ok()?, rows: 0 })
    }

    fn next_id(&self) -> String {
        format!("{}{}", self.prefix, self.rows + 1)
    }

    fn missing(&self) -> Option<String> {
        let Self { prefix, last, rows } = self;
        (rows != last).then(|| format!("{prefix}1 to {prefix}{last}: {rows} rows"))
    }
}

fn row_faults(row: &str, is_test: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let cells = cells(row);
    let [id, requirement, state, how_far, tests] = cells[..] else {
        return vec![format!("{}: {} cells instead of 5", cells[0], cells.len())];
    };
    let mut faults = Vec::new();
    let mut fault = |text: &str| faults.push(format!("{id}: {text}"));
    if requirement.len() < TEXT_MIN {
        fault("no requirement");
    }
    if !STATES.contains(&state) {
        fault("unknown state");
    }
    if state == "differs" && how_far.is_empty() {
        fault("\"differs\" without the difference");
    }
    if matches!(state, "part" | "not begun") != how_far.contains("Missing: ") {
        fault(
            "\"part\" and \"not begun\", and only they, have a sentence that begins with \"Missing:\"",
        );
    }
    let tests: Vec<&str> =
        tests.split(';').map(str::trim).filter(|test| !test.is_empty()).collect();
    if tests.is_empty() && matches!(state, "done" | "differs") {
        fault("no test");
    }
    for test in tests {
        let quoted = test.strip_prefix('`').and_then(|test| test.strip_suffix('`'));
        match quoted.and_then(|test| test.split_once("::")) {
            Some((file, name)) if is_test(file, name) => {}
            _ => fault(&format!("there is no test {test}")),
        }
    }
    faults
}

fn cells(row: &str) -> Vec<&str> {
    row.trim().trim_start_matches('|').trim_end_matches('|').split(" |").map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADING: &str = "## Title (R-A-1 to R-A-1)\n";

    fn faults_of(text: &str) -> Vec<String> {
        faults(text, |file, name| (file, name) == ("a.rs", "works"))
    }

    #[test]
    fn row_without_fault_passes() {
        for row in [
            "| R-A-1 | a text that is long enough | done | | `a.rs::works` |",
            "| R-A-1 | a text that is long enough | part | One half. Missing: the other | `a.rs::works`; `a.rs::works` |",
            "| R-A-1 | a text that is long enough | not begun | Missing: all of it | |",
        ] {
            assert_eq!(faults_of(&format!("{HEADING}{row}")), [""; 0], "{row}");
        }
    }

    #[test]
    fn each_fault_of_a_row_is_listed_once() {
        for (row, fault) in [
            ("| R-A-1 | short | done | | `a.rs::works` |", "no requirement"),
            ("| R-A-1 | a text that is long enough | done | | |", "no test"),
            (
                "| R-A-1 | a text that is long enough | done | | `a.rs::gone` |",
                "there is no test `a.rs::gone`",
            ),
            (
                "| R-A-1 | a text that is long enough | done | | a.rs::works |",
                "there is no test a.rs::works",
            ),
            ("| R-A-1 | a text that is long enough | part | one half | |", "\"Missing:\""),
            (
                "| R-A-1 | a text that is long enough | done | Missing: half | `a.rs::works` |",
                "\"Missing:\"",
            ),
            (
                "| R-A-1 | a text that is long enough | differs | | `a.rs::works` |",
                "without the difference",
            ),
            ("| R-A-1 | a text that is long enough | nearly | | `a.rs::works` |", "unknown state"),
            (
                "| R-A-1 | a text that is long enough | done | `a.rs::works` |",
                "4 cells instead of 5",
            ),
        ] {
            let found = faults_of(&format!("{HEADING}{row}"));
            assert!(matches!(&found[..], [one] if one.contains(fault)), "{row}: {found:?}");
        }
    }

    #[test]
    fn requirements_are_those_of_the_heading_in_order() {
        let row =
            |id: &str| format!("| {id} | a text that is long enough | done | | `a.rs::works` |\n");
        let heading = "## Title (R-A-1 to R-A-2)\n";
        let all = format!("{heading}{}{}## Other\n", row("R-A-1"), row("R-A-2"));
        assert_eq!(faults_of(&all), [""; 0]);
        for (text, fault) in [
            (format!("{heading}{}", row("R-A-1")), "R-A-1 to R-A-2: 1 rows"),
            (format!("{heading}{}{}", row("R-A-1"), row("R-A-1")), "R-A-1: R-A-2 is expected here"),
            (
                format!("{heading}{}{}{}", row("R-A-1"), row("R-A-2"), row("R-A-3")),
                "R-A-1 to R-A-2: 3 rows",
            ),
            (format!("{heading}{}{}", row("R-B-1"), row("R-A-1")), "R-B-1: R-A-1 is expected here"),
            (format!("## Title (R-A)\n{}", row("R-A-1")), "R-A-1: its heading names no range"),
        ] {
            let found = faults_of(&text);
            assert!(found.iter().any(|one| one.starts_with(fault)), "{text}: {found:?}");
        }
    }
}
