//! Relative links in Markdown documents lead somewhere.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::shell;

/// Follows every relative link of every document that git knows.
///
/// # Errors
/// Lists the links that lead nowhere.
pub fn check() -> Result<()> {
    let list = ["ls-files", "--cached", "--others", "--exclude-standard", "*.md"];
    let documents = shell::output(&mut shell::program("git", &list))?;
    let mut broken = Vec::new();
    for document in documents.lines().map(|line| shell::root().join(line)) {
        let text = fs::read_to_string(&document)
            .with_context(|| format!("cannot read {}", document.display()))?;
        broken.extend(
            targets(&text)
                .into_iter()
                .filter(|target| !leads_somewhere(&document, target))
                .map(|target| format!("{} -> {target}", document.display())),
        );
    }
    if broken.is_empty() {
        return Ok(());
    }
    bail!("links that lead nowhere:\n  {}", broken.join("\n  "))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_code() {
        let text = "see [a](a.md#part), [b](https://host/b) and [c](c/)\n```\n[d](d.md)\n```\n";
        assert_eq!(targets(text), ["a.md#part", "c/"]);
    }
}
