//! The walk through the code in `docs/ARCHITECTURE.md`: its functions are in the files that it names, and they are few.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::{rust_source, shell};

const DOCUMENT: &str = "docs/ARCHITECTURE.md";
const HEADING: &str = "### One DataVolume, from watch to status";
const ABBREVIATIONS: [(&str, &str); 2] =
    [("C/", "cdi-controller/src/"), ("K/", "controller-core/src/")];
/// A newcomer reads so many functions at most, to follow a DataVolume.
const FUNCTIONS_MAX: usize = 24;

/// Checks the document against the sources.
///
/// # Errors
/// Lists each file and function that does not exist. Also if there are too many functions, or none.
pub fn check() -> Result<()> {
    let path = shell::root().join(DOCUMENT);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {DOCUMENT}"))?;
    let faults = faults(&text, |file| fs::read_to_string(shell::root().join(file)).ok());
    if faults.is_empty() {
        return Ok(());
    }
    bail!("{DOCUMENT}, {HEADING:?}:\n  {}", faults.join("\n  "))
}

/// The rows of the section are `| step | functions | files |`, names in backticks. `source` returns the text of a file.
fn faults(text: &str, source: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let section = text.lines().skip_while(|line| *line != HEADING).skip(1);
    let rows =
        section.take_while(|line| !line.starts_with('#')).filter(|line| line.starts_with("| "));
    let mut faults = Vec::new();
    let mut named = BTreeSet::new();
    for row in rows.skip(1) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [step, functions, files] = cells[..] else {
            faults.push(format!("{row}: not three cells"));
            continue;
        };
        let files: Vec<String> = quoted(files).map(whole_path).collect();
        let texts: Vec<Option<String>> = files.iter().map(|file| source(file)).collect();
        let missing = files.iter().zip(&texts).filter(|(_, text)| text.is_none());
        faults.extend(missing.map(|(file, _)| format!("{step}: no file {file}")));
        let sources: Vec<(&str, &str)> = files
            .iter()
            .zip(&texts)
            .filter_map(|(file, text)| Some((file.as_str(), text.as_deref()?)))
            .collect();
        for function in quoted(functions) {
            named.insert(function);
            if !sources.iter().any(|(file, text)| is_in(function, file, text)) {
                faults.push(format!("{step}: no function {function} in {}", files.join(", ")));
            }
        }
        let is_used = |(file, text): &(&str, &str)| quoted(functions).any(|f| is_in(f, file, text));
        let unused = sources.iter().filter(|source| !is_used(source));
        faults.extend(unused.map(|(file, _)| format!("{step}: no function of {file}")));
    }
    if named.is_empty() || named.len() > FUNCTIONS_MAX {
        faults.push(format!("{} functions, instead of 1 to {FUNCTIONS_MAX}", named.len()));
    }
    faults
}

/// `function`, `module::function` or `Type::function`.
fn is_in(function: &str, file: &str, source: &str) -> bool {
    let Some((qualifier, name)) = function.rsplit_once("::") else {
        return rust_source::has_function(source, function);
    };
    let is_qualified = if qualifier.starts_with(|c: char| c.is_ascii_uppercase()) {
        rust_source::has_methods_of(source, qualifier)
    } else {
        file.trim_end_matches(".rs").split('/').any(|module| module == qualifier)
    };
    is_qualified && rust_source::has_function(source, name)
}

fn whole_path(file: &str) -> String {
    let long =
        ABBREVIATIONS.iter().find_map(|(short, long)| Some((long, file.strip_prefix(short)?)));
    long.map_or_else(|| file.to_owned(), |(directory, rest)| format!("{directory}{rest}"))
}

/// The code spans of a cell.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(rows: &str) -> Vec<String> {
        let text = format!(
            "# A\n{HEADING}\n\n| Step | Functions | File |\n|---|---|---|\n{rows}\n## B\n| x |\n"
        );
        faults(&text, |file| {
            let files = [
                ("cdi-controller/src/wake/mod.rs", "pub fn volume(x: u8) {}"),
                ("controller-core/src/plan.rs", "impl Plan {\n    fn new() {}\n}\nfn rebind() {}"),
            ];
            files.iter().find(|(name, _)| *name == file).map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn functions_of_the_named_files_pass() {
        for rows in [
            "| 1. a | `volume` | `C/wake/mod.rs` |",
            "| 1. a | `wake::volume`; `Plan::new`, `rebind` | `C/wake/mod.rs`, `K/plan.rs` |\n| 2. b | `rebind` | `K/plan.rs` |",
        ] {
            assert_eq!(faults_of(rows), [""; 0], "{rows}");
        }
    }

    #[test]
    fn names_without_a_function_are_listed() {
        for (rows, fault) in [
            ("", "0 functions, instead of 1 to 24"),
            (
                "| 1. a | `volume` | `C/gone.rs`, `C/wake/mod.rs` |",
                "1. a: no file cdi-controller/src/gone.rs",
            ),
            (
                "| 1. a | `gone` , `volume` | `C/wake/mod.rs` |",
                "1. a: no function gone in cdi-controller/src/wake/mod.rs",
            ),
            (
                "| 1. a | `queue::volume`, `volume` | `C/wake/mod.rs` |",
                "1. a: no function queue::volume in",
            ),
            (
                "| 1. a | `Queue::rebind`, `rebind` | `K/plan.rs` |",
                "1. a: no function Queue::rebind in",
            ),
            (
                "| 1. a | `volume` | `C/wake/mod.rs`, `K/plan.rs` |",
                "1. a: no function of controller-core/src/plan.rs",
            ),
        ] {
            let found = faults_of(rows);
            assert!(matches!(&found[..], [one] if one.starts_with(fault)), "{rows}: {found:?}");
        }
    }

    #[test]
    fn too_long_a_walk_is_refused() {
        let names: Vec<String> = (0..=FUNCTIONS_MAX).map(|n| format!("`f{n}`")).collect();
        let rows = format!("| 1. a | {} | `K/plan.rs` |", names.join(", "));
        let many = format!("{} functions", FUNCTIONS_MAX + 1);
        assert!(faults_of(&rows).iter().any(|fault| fault.starts_with(&many)));
    }
}
