//! Formats an error and its causes for the terminal.

use std::error::Error;

/// The error and its causes, one per line, for stderr.
pub fn format_error(error: &(dyn Error + 'static)) -> String {
    format_lines(&lines(error))
}

/// [`format_error`] for stored [`lines`].
pub fn format_lines(lines: &[String]) -> String {
    let heads = std::iter::once("error").chain(std::iter::repeat("  because"));
    heads.zip(lines).map(|(head, line)| format!("{head}: {line}\n")).collect()
}

/// The error's message, then each cause once. Control characters, which may come from a server, are escaped.
pub fn lines(error: &(dyn Error + 'static)) -> Vec<String> {
    let mut lines: Vec<String> =
        anyhow::Chain::new(error).map(|error| one_line(&error.to_string())).collect();
    // Some libraries repeat the cause in their own message.
    lines.dedup_by(|cause, before| before.ends_with(cause.as_str()));
    lines
}

fn one_line(text: &str) -> String {
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
    fn causes_follow_the_error_one_per_line() {
        let error = layers(&[
            "cannot import https://host/a to disk.img",
            "cannot read https://host/a",
            "connection refused",
        ]);
        assert_eq!(
            format_error(&error),
            "error: cannot import https://host/a to disk.img\n  \
             because: cannot read https://host/a\n  \
             because: connection refused\n"
        );
    }

    #[test]
    fn repeated_cause_is_printed_once() {
        let error = layers(&["no space: disk full", "disk full", "disk full", "os error 28"]);
        assert_eq!(format_error(&error), "error: no space: disk full\n  because: os error 28\n");
    }

    #[test]
    fn control_characters_are_escaped() {
        let error = layers(&["bad\x1b[2J\nheader", "\r\x07x"]);
        assert_eq!(format_error(&error), "error: bad\\u{1b}[2J header\n  because: \\u{7}x\n");
    }
}
