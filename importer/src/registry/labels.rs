//! Labels that a container image requests through its environment.

use std::collections::BTreeMap;

use contract::termination::{is_label_key, is_label_value};

const MARKER: &str = "KUBEVIRT_IO_";
/// All labels together have to fit into the exit message, which is cut at 4096 bytes.
const TOTAL_LEN_MAX: usize = 2048;

/// The labels that entries `KEY=VALUE` of an environment define: `A_B_KUBEVIRT_IO_X_Y=v` is `a.b.kubevirt.io/x-y: v`.
/// What Kubernetes would not take is left out, for it would refuse the whole object.
pub fn labels<'a>(environment: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let mut total = 0;
    for entry in environment {
        let Some((key, value)) = entry.split_once('=').and_then(|(key, value)| {
            Some((name(key)?, value)).filter(|(_, value)| is_label_value(value))
        }) else {
            continue;
        };
        total += key.len() + value.len();
        if total > TOTAL_LEN_MAX {
            tracing::warn!("the image requests more labels than can be passed on");
            break;
        }
        labels.insert(key, value.to_owned());
    }
    labels
}

fn name(key: &str) -> Option<String> {
    let (before, after) = key.split_once(MARKER)?;
    let prefix = format!("{before}KUBEVIRT_IO").replace('_', ".").to_ascii_lowercase();
    let name = after.replace('_', "-").to_ascii_lowercase();
    let key = format!("{prefix}/{name}");
    is_label_key(&key).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_with_the_marker_become_labels() {
        let table = [
            ("A_B_KUBEVIRT_IO_X_Y=v", Some(("a.b.kubevirt.io/x-y", "v"))),
            ("KUBEVIRT_IO_TEST=testing", Some(("kubevirt.io/test", "testing"))),
            (
                "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small",
                Some(("instancetype.kubevirt.io/default-instancetype", "u1.small")),
            ),
            ("KUBEVIRT_IO_TEST=", Some(("kubevirt.io/test", ""))),
            ("KUBEVIRT_IO_TEST", None),
            ("PATH=/bin", None),
            ("KUBEVIRT_IO_=v", None),
            ("_KUBEVIRT_IO_X=v", None),
            ("KUBEVIRT_IO_X=not a label", None),
            ("KUBEVIRT_IO_X=-v", None),
            ("a b_KUBEVIRT_IO_X=v", None),
        ];
        for (entry, expected) in table {
            let found = labels([entry]);
            let found = found.iter().next().map(|(key, value)| (key.as_str(), value.as_str()));
            assert_eq!(found, expected, "{entry}");
        }
        let long = format!("KUBEVIRT_IO_X={}", "v".repeat(64));
        assert!(labels([long.as_str()]).is_empty());
    }

    #[test]
    fn labels_always_fit_into_the_exit_message() {
        let many: Vec<_> = (0..1000).map(|n| format!("KUBEVIRT_IO_X{n}={n}")).collect();
        let found = labels(many.iter().map(String::as_str));
        assert!(found.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() <= 2048);
    }
}
