//! Arguments as programs written in Go read them, because that is how pods are started.

use std::collections::BTreeMap;

/// The flags of klog that need no value.
const SWITCHES: [&str; 6] = [
    "add_dir_header",
    "alsologtostderr",
    "logtostderr",
    "one_output",
    "skip_headers",
    "skip_log_headers",
];

/// The flags of klog that have one, and Kubernetes' own for the form of its logs.
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

/// Kubernetes' programs have it too: `text` or `json`.
const LOGGING_FORMAT: &str = "logging-format";

/// What a process was started with: `-x=1`, `-x 1` and `--x=1` are the same. Nothing is refused: a flag that is unknown
/// here may be one of tomorrow's controllers, and a pod that does not start helps nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    values: BTreeMap<String, String>,
    ignored: Vec<String>,
}

impl Flags {
    /// Reads `arguments`, the program's name left out. `own` names the flags with a value that this program has besides
    /// those of its logs.
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

    /// The last value of a flag.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// How much the logs are to tell: 0 to 10, as far as anybody goes.
    pub fn verbosity(&self) -> u8 {
        self.get("v").and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Whether each line of the logs is to be a JSON object.
    pub fn logs_are_json(&self) -> bool {
        self.get(LOGGING_FORMAT) == Some("json")
    }

    /// What was not understood, to be logged.
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
    fn a_flag_is_the_same_in_each_of_its_spellings() {
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
    fn every_flag_of_klog_is_taken_and_nothing_is_refused() {
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
