//! Relative links in Markdown documents lead somewhere, and files of the repository that they name exist.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::shell;

/// Kept reports describe the tree of their day.
const KEPT: &str = "bench/results/";
/// A name that ends so, and begins with a directory of the repository, is one of its files.
const SUFFIXES: [&str; 6] = [".rs", ".md", ".yaml", ".py", ".sh", ".toml"];

/// Follows every relative link, and looks for every file named in backticks, of every document that git knows.
///
/// # Errors
/// Lists the links that lead nowhere and the files that do not exist.
pub fn check() -> Result<()> {
    let list = ["ls-files", "--cached", "--others", "--exclude-standard", "*.md"];
    let documents = shell::output(&mut shell::program("git", &list))?;
    let mut broken = Vec::new();
    for document in documents.lines() {
        let is_kept = document.starts_with(KEPT);
        let document = shell::root().join(document);
        let text = fs::read_to_string(&document)
            .with_context(|| format!("cannot read {}", document.display()))?;
        broken.extend(
            targets(&text)
                .into_iter()
                .filter(|target| !leads_somewhere(&document, target))
                .map(|target| format!("{} -> {target}", document.display())),
        );
        if !is_kept {
            let missing = named_files(&text).filter(|file| !shell::root().join(file).exists());
            broken.extend(missing.map(|file| format!("{}: {file}", document.display())));
        }
    }
    if broken.is_empty() {
        return Ok(());
    }
    bail!("links and names that lead nowhere:\n  {}", broken.join("\n  "))
}

fn leads_somewhere(document: &Path, target: &str) -> bool {
    let folder = document.parent().map(PathBuf::from).unwrap_or_default();
    let path = target.split('#').next().unwrap_or_default();
    path.is_empty() || folder.join(path).exists()
}

/// What follows `](`, up to `)`, outside code; addresses of other sites left out.
fn targets(text: &str) -> Vec<&str> {
    let mut in_code = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        let after_each_bracket = line.split("](").skip(1);
        found.extend(
            after_each_bracket.filter_map(|rest| rest.split_once(')').map(|(link, _)| link)),
        );
    }
    found.retain(|link| !link.contains("://") && !link.starts_with("mailto:"));
    found
}

/// The paths in code spans that begin with a directory of the repository, without `::FUNCTION` behind them.
fn named_files(text: &str) -> impl Iterator<Item = &str> {
    let spans = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    spans.map(|span| span.split("::").next().unwrap_or_default()).filter(|path| {
        let is_path = path.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
        let is_file = is_path && SUFFIXES.iter().any(|suffix| path.ends_with(suffix));
        let directory = path.split_once('/').map(|(directory, _)| directory);
        is_file
            && directory.is_some_and(|name| !name.is_empty() && shell::root().join(name).is_dir())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_repository_are_found_in_code_spans() {
        let text = "`xtask/src/gone.rs::f`, `docs/a.md`, `C/a.rs`, `/docs/a.md`, `docs/*.md`, `docs/x`\nxtask/b.rs `a.rs`";
        assert_eq!(named_files(text).collect::<Vec<_>>(), ["xtask/src/gone.rs", "docs/a.md"]);
    }

    #[test]
    fn links_are_found_outside_code() {
        let text = "see [a](a.md#part), [b](https://host/b) and [c](c/)\n```\n[d](d.md)\n```\n";
        assert_eq!(targets(text), ["a.md#part", "c/"]);
    }
}
