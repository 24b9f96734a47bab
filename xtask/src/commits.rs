//! Titles of new commits are short and state what was finished.

use anyhow::{Result, bail};

use crate::shell;

/// Titles count from the commit after this one.
const BASE: &str = "975a56a15d23eec6a9a7e3e5c0213a83e15efb72";
/// When that commit was made: all that is known in a shallow clone, which lacks it.
const BASE_TIME: &str = "2026-11-23T16:05:35Z";
const LENGTH_MAX: usize = 72;

/// Checks the titles of all commits after [`BASE`], merges aside.
///
/// # Errors
/// Lists the titles that break a rule.
pub fn check() -> Result<()> {
    if shell::output(&mut shell::program("git", &["rev-parse", "--git-dir"])).is_err() {
        eprintln!("this is no git repository: no titles to check");
        return Ok(());
    }
    let is_ancestor = ["merge-base", "--is-ancestor", BASE, "HEAD"];
    let has_base = shell::output(&mut shell::program("git", &is_ancestor)).is_ok();
    let range = if has_base { format!("{BASE}..HEAD") } else { "HEAD".to_owned() };
    let mut log = shell::program("git", &["log", "--no-merges", "--format=%h%x09%s", &range]);
    if !has_base {
        log.arg(format!("--since={BASE_TIME}"));
    }
    let mut faults = Vec::new();
    for line in shell::output(&mut log)?.lines() {
        let (commit, title) = line.split_once('\t').unwrap_or((line, ""));
        if let Some(fault) = fault(title) {
            faults.push(format!("{commit} {title}: {fault}"));
        }
    }
    if faults.is_empty() {
        return Ok(());
    }
    bail!("reword these commits (git rebase --interactive):\n  {}", faults.join("\n  "))
}

/// What is wrong with a title.
fn fault(title: &str) -> Option<String> {
    let length = title.chars().count();
    if length > LENGTH_MAX {
        return Some(format!("{length} characters, at most {LENGTH_MAX} are allowed"));
    }
    let lower = title.to_lowercase();
    let is_unfinished = lower.split(|c: char| !c.is_alphanumeric()).any(|word| word == "wip")
        || lower.contains("not compiled")
        || lower.starts_with("fixup!")
        || lower.starts_with("squash!");
    is_unfinished.then(|| "squash unfinished work before landing".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_decision_table() {
        let check = |title: &str, is_good| assert_eq!(fault(title).is_none(), is_good, "{title}");
        check("xtask: build all images by one cargo build", true);
        check("pipeline: swipe nothing", true);
        check(&format!("api: {}", "x".repeat(67)), true);
        check(&format!("api: {}", "x".repeat(68)), false);
        check(&format!("api: {}", "\u{e9}".repeat(67)), true);
        check("wip", false);
        check("controller: conditions (WIP)", false);
        check("controller: plans, not compiled yet", false);
        check("fixup! controller: plans", false);
    }
}
