//! The termination message of a worker, which the controller reads from the pod's status.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// In bytes. The kubelet truncates longer messages, which breaks JSON.
pub const MESSAGE_LEN_MAX: usize = 4096;

/// The message of a worker that exits with code 0. The order of the fields is that of upstream's workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExitMessage {
    /// The importer needs scratch space: start it again with some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch_space_required: Option<bool>,
    /// All blocks of the disk are allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preallocation_applied: Option<bool>,
    /// The upload server exited because its certificates expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_passed: Option<bool>,
    /// Of a VDDK import.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vddk_info: Option<VddkInfo>,
    /// Labels for the PVC.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// A text for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Virtual size in bytes of a disk in a file. Absent for devices, which may be larger than their disk, and for
    /// archives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_size: Option<u64>,
}

/// Facts about a VDDK transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VddkInfo {
    /// Version of the library.
    pub version: String,
    /// The ESX host.
    pub host: String,
}

/// KubeVirt derives a virtual machine's instance type from these labels: kept before all others.
const FIRST: &str = "instancetype.kubevirt.io/";

impl ExitMessage {
    /// One JSON object of at most [`MESSAGE_LEN_MAX`] bytes. Labels that do not fit, or that Kubernetes would reject,
    /// are left out: either would fail a complete import.
    pub fn to_json(&self) -> String {
        let mut message = Self { labels: BTreeMap::new(), ..self.clone() };
        let mut json = write(&message);
        if json.len() > MESSAGE_LEN_MAX {
            // Without labels, only the text can be too long.
            let limit = MESSAGE_LEN_MAX / 8; // as JSON each byte is six at most
            message.message = message.message.map(|text| cut(&text, limit).to_owned());
            json = write(&message);
        }
        let legal = |(key, value): &(&String, &String)| is_label_key(key) && is_label_value(value);
        let mut labels: Vec<_> = self.labels.iter().filter(legal).collect();
        labels.sort_by_key(|(key, _)| !key.starts_with(FIRST));
        for (key, value) in labels {
            message.labels.insert(key.clone(), value.clone());
            let with_label = write(&message);
            if with_label.len() > MESSAGE_LEN_MAX {
                message.labels.remove(key);
            } else {
                json = with_label;
            }
        }
        json
    }

    /// `None` for text that is not such an object.
    pub fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

fn write(message: &ExitMessage) -> String {
    // Cannot fail: there are only strings, booleans and numbers.
    serde_json::to_string(message).unwrap_or_default()
}

/// A termination message in plain text: one line, of at most [`MESSAGE_LEN_MAX`] bytes. (Upstream's workers write
/// nothing for lines over 64 KiB.)
pub fn termination_text(text: &str) -> String {
    let line = text.replace(['\r', '\n'], " ");
    cut(&line, MESSAGE_LEN_MAX).to_owned()
}

/// At most `len` bytes, cut at a character border.
fn cut(text: &str, len: usize) -> &str {
    &text[..text.floor_char_boundary(len)]
}

/// Whether Kubernetes accepts `key` as a label key: `prefix/name`, or `name`. It rejects objects with any other.
pub fn is_label_key(key: &str) -> bool {
    let is_prefix = |prefix: &str| {
        prefix.len() <= 253
            && prefix.split('.').all(|part| {
                is_word(part, |c| c.is_ascii_lowercase() || c.is_ascii_digit(), "-")
                    && part.len() <= 63
            })
    };
    match key.split_once('/') {
        Some((prefix, name)) => is_prefix(prefix) && is_label_name(name),
        None => is_label_name(key),
    }
}

/// Whether Kubernetes accepts `value` as a label value.
pub fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_label_name(value)
}

fn is_label_name(name: &str) -> bool {
    name.len() <= 63 && is_word(name, |c| c.is_ascii_alphanumeric(), "-_.")
}

/// Not empty, with `outside` characters at both ends and also `inside` ones in between.
fn is_word(text: &str, outside: impl Fn(char) -> bool, inside: &str) -> bool {
    text.chars().all(|c| outside(c) || inside.contains(c))
        && text.starts_with(&outside)
        && text.ends_with(&outside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[test]
    fn fields_have_the_order_of_upstream() {
        let message = ExitMessage {
            scratch_space_required: Some(false),
            preallocation_applied: Some(true),
            deadline_passed: Some(false),
            vddk_info: Some(VddkInfo { version: "8.0.0".into(), host: "esx".into() }),
            labels: labels(&[("a", "b")]),
            message: Some("Import Complete".into()),
            virtual_size: Some(1 << 30),
        };
        let expected = concat!(
            r#"{"scratchSpaceRequired":false,"preallocationApplied":true,"deadlinePassed":false,"#,
            r#""vddkInfo":{"Version":"8.0.0","Host":"esx"},"labels":{"a":"b"},"message":"Import Complete","#,
            r#""virtualSize":1073741824}"#
        );
        assert_eq!(message.to_json(), expected);
        assert_eq!(ExitMessage::from_json(expected), Some(message));
        assert_eq!(ExitMessage::default().to_json(), "{}");
        assert_eq!(ExitMessage::from_json("Unable to process data: x"), None);
    }

    #[test]
    fn message_fits_the_limit_of_the_kubelet() {
        let mut message = ExitMessage { message: Some("done".into()), ..ExitMessage::default() };
        for n in 0..200 {
            message.labels.insert(format!("a.example/n{n:03}"), "v".repeat(63));
        }
        message.labels.insert("instancetype.kubevirt.io/default-instancetype".into(), "u1".into());
        let json = message.to_json();
        assert!(json.len() <= MESSAGE_LEN_MAX && json.len() > MESSAGE_LEN_MAX - 100);
        let read = ExitMessage::from_json(&json).unwrap();
        assert_eq!(read.message.as_deref(), Some("done"));
        assert!(read.labels.contains_key("instancetype.kubevirt.io/default-instancetype"));

        let long = ExitMessage { message: Some("\u{1}".repeat(9000)), ..ExitMessage::default() };
        assert!(long.to_json().len() <= MESSAGE_LEN_MAX);
        assert!(ExitMessage::from_json(&long.to_json()).is_some());
    }

    #[test]
    fn invalid_labels_are_left_out() {
        let long = "x".repeat(64);
        for (key, value, kept) in [
            ("kubevirt.io/test", "v", true),
            ("test", "", true),
            ("a.b/C_d.e-f", "1.2_3-x", true),
            ("", "v", false),
            ("a/b/c", "v", false),
            ("A.b/c", "v", false),
            ("-a/b", "v", false),
            ("a..b/c", "v", false),
            ("a/-b", "v", false),
            ("a", "with blank", false),
            ("a", "-v", false),
            ("a", &long, false),
            (&long, "v", false),
        ] {
            let message = ExitMessage { labels: labels(&[(key, value)]), ..ExitMessage::default() };
            assert_eq!(message.to_json() != "{}", kept, "{key}={value}");
        }
    }

    #[test]
    fn text_is_one_line_of_limited_length() {
        assert_eq!(termination_text("a\nb\r\nc"), "a b  c");
        assert_eq!(termination_text(&"ä".repeat(100_000)).len(), MESSAGE_LEN_MAX);
        assert_eq!(termination_text(&format!("a{}", "ä".repeat(9000))).len(), MESSAGE_LEN_MAX - 1);
    }
}
