//! How an error is told: a sentence on what and where, then why, step by step.

use std::error::Error;
use std::fmt::Write;

/// The error and its causes, one a line, each cause once. Control characters, which may come from a server, are escaped.
pub fn tell(error: &(dyn Error + 'static)) -> String {
    let mut text = format!("error: {}\n", line(error));
    let mut before = line(error);
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_line = line(cause);
        // Some libraries repeat their cause in their own text.
        if !before.ends_with(&cause_line) {
            let _ = writeln!(text, "  because: {cause_line}"); // a String takes all that is written
        }
        before = cause_line;
        next = cause.source();
    }
    text
}

fn line(error: &dyn Error) -> String {
    let text = error.to_string();
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        source: Option<Box<Layer>>,
    }

    fn layers(texts: &[&'static str]) -> Layer {
        let (text, rest) = texts.split_first().unwrap();
        let source = (!rest.is_empty()).then(|| Box::new(layers(rest)));
        Layer { text, source }
    }

    #[test]
    fn causes_follow_the_sentence_one_a_line() {
        let error = layers(&[
            "cannot import https://host/a to disk.img",
            "cannot read https://host/a",
            "connection refused",
        ]);
        assert_eq!(
            tell(&error),
            "error: cannot import https://host/a to disk.img\n  \
             because: cannot read https://host/a\n  \
             because: connection refused\n"
        );
    }

    #[test]
    fn a_cause_that_was_told_is_not_repeated() {
        let error = layers(&["no room: disk full", "disk full", "disk full", "os error 28"]);
        assert_eq!(tell(&error), "error: no room: disk full\n  because: os error 28\n");
    }

    #[test]
    fn a_server_cannot_write_to_the_terminal() {
        let error = layers(&["bad\x1b[2J\nheader", "\r\x07x"]);
        assert_eq!(tell(&error), "error: bad\\u{1b}[2J header\n  because: \\u{7}x\n");
    }
}
