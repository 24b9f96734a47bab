//! Command-line flags in the syntax of Go's `flag` package, which existing Deployments use.

use std::collections::BTreeMap;

/// klog's boolean flags.
const SWITCHES: [&str; 6] = [
    "add_dir_header",
    "alsologtostderr",
    "logtostderr",
    "one_output",
    "skip_headers",
    "skip_log_headers",
];

/// klog's flags with a value, and the flag of Kubernetes for the log format.
const VALUES: [&str; 8] = [
    "log_backtrace_at",
    "log_dir",
    "log_file",
    "log_file_max_size",
    LOGGING_FORMAT,
    "stderrthreshold",
    "v",
    "vmodule",
];

/// `text` or `json`.
const LOGGING_FORMAT: &str = "logging-format";

/// The flags of a process: `-x=1`, `-x 1` and `--x=1` are the same. Unknown flags are kept in [`Flags::ignored`] and not
/// refused, as a newer controller may pass flags that this version does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    values: BTreeMap<String, String>,
    ignored: Vec<String>,
}

impl Flags {
    /// Parses `arguments` (without the program's name). `own` lists the program's own flags, all of which take a value.
    pub fn parse(arguments: impl IntoIterator<Item = String>, own: &[&str]) -> Self {
        let mut flags = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            if argument == "--" {
                flags.ignored.extend(arguments);
                break;
            }
            let stripped = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'));
            let Some(text) = stripped.filter(|text| !text.is_empty()) else {
                flags.ignored.push(argument);
                continue;
            };
            let (name, value) = match text.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (text, None),
            };
            if own.contains(&name) || VALUES.contains(&name) {
                let value = value.or_else(|| arguments.next()).unwrap_or_default();
                flags.values.insert(name.to_owned(), value);
            } else if SWITCHES.contains(&name) {
                flags.values.insert(name.to_owned(), value.unwrap_or_else(|| "true".into()));
            } else {
                flags.ignored.push(argument);
            }
        }
        flags
    }

    /// The last value wins.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// `-v`, usually 0 to 10. Default: 0.
    pub fn verbosity(&self) -> u8 {
        self.get("v").and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Whether `-logging-format=json` is set.
    pub fn logs_are_json(&self) -> bool {
        self.get(LOGGING_FORMAT) == Some("json")
    }

    /// Unknown arguments, for the log.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Flags {
        Flags::parse(line.split_whitespace().map(str::to_owned), &["image-path"])
    }

    #[test]
    fn flag_spellings_are_equivalent() {
        for line in ["-v=3", "--v=3", "-v 3", "--v 3", "-alsologtostderr -v=3", "-v=1 -v=3"] {
            assert_eq!(parse(line).verbosity(), 3, "{line}");
        }
        for line in ["", "-v", "-v=much", "-vmodule=a=3"] {
            assert_eq!(parse(line).verbosity(), 0, "{line}");
        }
        for line in ["-image-path /a", "-image-path=/a", "--image-path=/a"] {
            assert_eq!(parse(line).get("image-path"), Some("/a"), "{line}");
        }
    }

    #[test]
    fn klog_flags_are_accepted_and_unknown_ones_ignored() {
        let line = "-alsologtostderr -logtostderr=false -stderrthreshold 2 -vmodule a=1 -log_dir /x -log_file y \
                    -skip_headers -one_output=true -log_backtrace_at f:1 -log_file_max_size 1 -add_dir_header \
                    -skip_log_headers -v=1 --logging-format=json";
        let flags = parse(line);
        assert!(flags.ignored().is_empty(), "{flags:?}");
        assert_eq!(flags.verbosity(), 1);
        assert!(flags.logs_are_json() && !parse("-logging-format text").logs_are_json());
        let flags = parse("-tomorrow=1 word - -v=2 -- -v=3");
        assert_eq!(flags.ignored(), ["-tomorrow=1", "word", "-", "-v=3"]);
        assert_eq!(flags.verbosity(), 2);
    }
}
