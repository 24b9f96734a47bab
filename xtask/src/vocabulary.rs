//! Words that are being replaced do not spread. `xtask/vocabulary.txt` holds them, what to write instead, and how often each
//! still occurs in each folder; the counts may only shrink.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::shell;

/// What a file of counts begins with.
const HEADER: &str = "\
# Words that are being replaced | what to write instead | how often they still occur, by folder.
# `cargo xtask lint` refuses a larger count. `cargo xtask vocabulary` writes the counts of the tree; it refuses a larger sum.
# Words are found inside identifiers too; `type X` and `fn x` are definitions of that name. To add a word, leave out its counts.
";
/// The count of a word that is replaced everywhere, in contrast to a word without counts.
const NOWHERE: &str = "nowhere";
/// Not read: history, and the tests of this file.
const IGNORED: &[&str] = &["CHANGELOG.md", "xtask/src/vocabulary.rs"];

/// How often something occurs, by the top folder of the repository.
type Counts = BTreeMap<String, usize>;

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// A word, words in sequence, `type NAME` or `fn NAME`.
    word: String,
    instead: String,
    /// `None` for a word that was just added.
    counts: Option<Counts>,
}

/// Compares the tree with the file.
///
/// # Errors
/// Lists the words that occur more often than the file allows.
pub fn check() -> Result<()> {
    let entries = read()?;
    let tree = Tree::read(&entries)?;
    let (mut faults, mut fewer) = (Vec::new(), 0);
    for entry in &entries {
        let counts = tree.counts(&entry.word);
        let allowed = entry.counts.clone().unwrap_or_default();
        for (folder, count) in &counts {
            let allowed = allowed.get(folder).copied().unwrap_or_default();
            if *count > allowed {
                let Entry { word, instead, .. } = entry;
                faults.push(format!(
                    "{folder}: {word:?} {count} times, not {allowed}: write {instead}"
                ));
            }
        }
        fewer += sum(&allowed).saturating_sub(sum(&counts));
    }
    if fewer > 0 {
        eprintln!("{fewer} uses fewer than recorded: `cargo xtask vocabulary` records that");
    }
    if faults.is_empty() {
        return Ok(());
    }
    bail!(
        "words that are being replaced (if they only moved between folders, run `cargo xtask vocabulary`):\n  {}",
        faults.join("\n  ")
    )
}

/// Writes the counts of the tree to the file.
///
/// # Errors
/// Lists the words that occur more often than before.
pub fn write() -> Result<()> {
    let mut entries = read()?;
    let tree = Tree::read(&entries)?;
    let mut faults = Vec::new();
    for entry in &mut entries {
        let counts = tree.counts(&entry.word);
        if let Some(before) = &entry.counts
            && sum(&counts) > sum(before)
        {
            faults.push(format!("{:?}: {} times, not {}", entry.word, sum(&counts), sum(before)));
        }
        entry.counts = Some(counts);
    }
    if !faults.is_empty() {
        bail!("more uses of words that are being replaced:\n  {}", faults.join("\n  "));
    }
    let all: usize = entries.iter().filter_map(|entry| entry.counts.as_ref()).map(sum).sum();
    let path = path();
    fs::write(&path, text(&entries)).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{all} uses of {} words", entries.len());
    Ok(())
}

fn sum(counts: &Counts) -> usize {
    counts.values().sum()
}

fn path() -> PathBuf {
    shell::root().join("xtask/vocabulary.txt")
}

fn read() -> Result<Vec<Entry>> {
    let path = path();
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .map(|line| {
            parse(line).with_context(|| format!("xtask/vocabulary.txt: not an entry: {line}"))
        })
        .collect()
}

/// `WORD | INSTEAD | FOLDER COUNT, FOLDER COUNT`
fn parse(line: &str) -> Option<Entry> {
    let mut fields = line.split('|').map(str::trim);
    let (word, instead) = (fields.next()?.to_owned(), fields.next()?.to_owned());
    let counts = match fields.next() {
        None | Some("") => None,
        Some(NOWHERE) => Some(Counts::new()),
        Some(counts) => Some(counts.split(',').map(parse_count).collect::<Option<_>>()?),
    };
    (!word.is_empty() && fields.next().is_none()).then_some(Entry { word, instead, counts })
}

fn parse_count(text: &str) -> Option<(String, usize)> {
    let (folder, count) = text.trim().split_once(' ')?;
    Some((folder.to_owned(), count.parse().ok()?))
}

fn text(entries: &[Entry]) -> String {
    let mut text = HEADER.to_owned();
    for Entry { word, instead, counts } in entries {
        let counts: Vec<_> =
            counts.iter().flatten().map(|(folder, count)| format!("{folder} {count}")).collect();
        let counts = if counts.is_empty() { NOWHERE.to_owned() } else { counts.join(", ") };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{word} | {instead} | {counts}");
    }
    text
}

/// The uses of all words in the tree.
#[derive(Default)]
struct Tree(BTreeMap<String, Counts>);

impl Tree {
    fn read(entries: &[Entry]) -> Result<Self> {
        let words: BTreeSet<_> = entries.iter().map(|entry| entry.word.as_str()).collect();
        let list = ["ls-files", "--cached", "--others", "--exclude-standard", "*.rs", "*.md"];
        let mut tree = Self::default();
        for file in shell::output(&mut shell::program("git", &list))?.lines() {
            let path = shell::root().join(file);
            // A file that was deleted and is not committed yet is listed still.
            if IGNORED.contains(&file) || !path.is_file() {
                continue;
            }
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            let folder = file.split_once('/').map_or(".", |(folder, _)| folder);
            for word in uses(&text, &words) {
                let counts = tree.0.entry(word.to_owned()).or_default();
                *counts.entry(folder.to_owned()).or_default() += 1;
            }
        }
        Ok(tree)
    }

    fn counts(&self, word: &str) -> Counts {
        self.0.get(word).cloned().unwrap_or_default()
    }
}

/// The words of the list that occur in a text, each as often as it does.
fn uses<'a>(text: &str, list: &BTreeSet<&'a str>) -> Vec<&'a str> {
    let mut found = Vec::new();
    let mut add = |candidate: &str| found.extend(list.get(candidate));
    let words = words(text);
    for at in 0..words.len() {
        if words[at] == "fn" {
            continue; // a definition: below
        }
        // No entry has more words.
        for length in 1..=3.min(words.len() - at) {
            add(&words[at..at + length].join(" "));
        }
    }
    let identifiers = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    let identifiers: Vec<_> = identifiers.filter(|word| !word.is_empty()).collect();
    for pair in identifiers.windows(2) {
        match pair[0] {
            "struct" | "enum" | "trait" | "type" => add(&format!("type {}", pair[1])),
            "fn" => add(&format!("fn {}", pair[1])),
            _ => {}
        }
    }
    found
}

/// The words of a text in lower case, those inside identifiers apart: `PodFate`, `is_told`.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in text.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && before.is_lowercase()) {
            words.push(String::new());
        }
        if c.is_alphanumeric() {
            words.last_mut().expect("there is a last word").extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_inside_identifiers_are_words() {
        assert_eq!(
            words("PodFate::is_told(x) // I've said"),
            ["pod", "fate", "is", "told", "x", "i", "ve", "said"]
        );
    }

    #[test]
    fn uses_are_words_phrases_and_definitions() {
        let list = BTreeSet::from(["told", "hand on", "type Place", "fn of"]);
        let text =
            "pub struct Place; fn of(told: Told) { hand_on() } // Placed: hands on; the\n// old";
        assert_eq!(uses(text, &list), ["told", "told", "hand on", "type Place", "fn of"]);
    }

    #[test]
    fn entry_is_written_as_it_was_parsed() {
        for line in ["told | value | api 3, cli 1", "hand on | forward | nowhere"] {
            let entry = parse(line).unwrap();
            assert_eq!(text(&[entry]), format!("{HEADER}{line}\n"));
        }
        assert_eq!(parse("told | value").unwrap().counts, None);
        assert!(parse("told").is_none() && parse("told | value | api").is_none());
    }
}
