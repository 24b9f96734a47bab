//! The sources of a DataImportCron: which component polls them for newer images, and the names of imports.

use api::names;
use api::v1beta1::{DataImportCron, DataVolumeSource, ImportStatus};

use super::schedule::Schedule;

/// Characters of a digest in a name.
const DIGEST_PART: usize = 12;
/// Characters of the hash of a storage class in a name.
const CLASS_PART: usize = 6;
/// Every import's name begins with at most this many bytes of its DataSource's name.
pub(super) const STEM_LEN_MAX: usize = 63;
/// Prefixes of digests: the hash of an image in a registry or of a file's bytes, the UID of a PVC, and the hash of the
/// entity tag or the date that a web server or an object store reports for a file.
const KINDS: [&str; 4] = ["sha256:", "uid:", "etag:", "date:"];

/// The component that polls for the newest image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poller {
    /// No component polls: users set the digest by hand.
    None,
    /// A CronJob in the namespace of the installation.
    Job,
    /// The controller requests it from the registry.
    Registry,
    /// The controller requests it from the web server or object store.
    Web,
    /// A pod in the namespace of the cron, whose image its node pulls.
    NodePull,
    /// The controller reads the ImageStream in the namespace of the cron.
    ImageStream,
    /// The controller reads the PVC.
    Claim,
}

/// Where registries are polled from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PollFrom {
    /// The controller itself, without pods.
    #[default]
    Controller,
    /// CronJobs, for installations whose controller cannot connect to registries.
    Jobs,
}

/// The poller of this cron. An invalid schedule counts as none.
pub fn poller(cron: &DataImportCron, from: PollFrom) -> Poller {
    if Schedule::cached(&cron.spec.schedule).is_err() {
        return Poller::None;
    }
    let Some(source) = template_source(cron) else { return Poller::None };
    if let Some(registry) = &source.registry {
        let by_node = registry.pull_method.as_deref() == Some("node");
        return match (&registry.url, &registry.image_stream) {
            (Some(_), _) if by_node => Poller::NodePull,
            (Some(_), _) if from == PollFrom::Jobs => Poller::Job,
            (Some(_), _) => Poller::Registry,
            (None, Some(_)) => Poller::ImageStream,
            (None, None) => Poller::None,
        };
    }
    if source.pvc.is_some() {
        Poller::Claim
    } else if source.http.is_some() || source.s3.is_some() {
        Poller::Web
    } else {
        Poller::None
    }
}

pub fn template_source(cron: &DataImportCron) -> Option<&DataVolumeSource> {
    cron.spec.template.spec.source.as_ref()
}

/// A digest without a known prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{digest:?} is no digest: it has to be sha256: and hexadecimal digits, or uid: and the UID of a claim"
)]
pub struct BadDigest {
    digest: String,
}

/// The name of an import of this digest. `class` is given if the usual name belongs to an import on another class.
///
/// # Errors
/// [`BadDigest`].
pub fn import_name(
    cron: &DataImportCron,
    digest: &str,
    class: Option<&str>,
) -> Result<String, BadDigest> {
    let refuse = || BadDigest { digest: digest.chars().take(80).collect() };
    let rest = KINDS.iter().find_map(|kind| digest.strip_prefix(kind)).ok_or_else(refuse)?;
    let part = rest.get(..DIGEST_PART).ok_or_else(refuse)?;
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_name = part.bytes().all(|byte| legal(byte) || byte == b'-')
        && part.bytes().last().is_some_and(legal);
    if !is_name {
        return Err(refuse());
    }
    let suffix = match class {
        None => part.to_owned(),
        Some(class) => format!("{part}-{:06x}", super::schedule::hash(class) & 0xff_ffff),
    };
    Ok(names::object_name(&cron.spec.managed_data_source, &suffix))
}

/// Whether the import in the status has the name that an import of its digest has, on any class. Users may write the
/// status, and the cron must not label or delete other objects of the namespace.
pub(super) fn is_import_of(cron: &DataImportCron, named: &ImportStatus) -> bool {
    let Ok(usual) = import_name(cron, &named.digest, None) else { return false };
    let name = named.data_volume_name.as_str();
    if name == usual {
        return true;
    }
    // On another class: the same digits, and six of the class.
    let Some((rest, class)) = name.rsplit_once('-') else { return false };
    let is_class = class.len() == CLASS_PART && class.bytes().all(|byte| byte.is_ascii_hexdigit());
    let digits = usual.get(usual.len().saturating_sub(DIGEST_PART)..).unwrap_or_default();
    let stem = &cron.spec.managed_data_source;
    let stem = stem.get(..STEM_LEN_MAX).unwrap_or(stem);
    is_class && (rest == usual || rest.ends_with(&format!("-{digits}")) && rest.starts_with(stem))
}

/// The URL of exactly this image: without the tag, with the digest.
pub fn url_of(url: &str, digest: &str) -> String {
    let (name, _) = url.split_once('@').unwrap_or((url, ""));
    // A colon before the last slash belongs to the scheme or to a port.
    let last = name.rfind('/').map_or(0, |slash| slash + 1);
    let end = name[last..].find(':').map_or(name.len(), |colon| last + colon);
    format!("{}@{digest}", &name[..end])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cron(schedule: &str, source: Value) -> DataImportCron {
        serde_json::from_value(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron", "metadata": { "name": "cron" },
            "spec": {
                "schedule": schedule, "managedDataSource": "fedora", "template": { "spec": { "source": source } },
            },
        }))
        .unwrap()
    }

    #[test]
    fn poller_by_schedule_and_source_table() {
        let url = json!({ "registry": { "url": "docker://r/i" } });
        let by_node = json!({ "registry": { "url": "docker://r/i", "pullMethod": "node" } });
        let by_pod = json!({ "registry": { "url": "docker://r/i", "pullMethod": "pod" } });
        let stream = json!({ "registry": { "imageStream": "s", "pullMethod": "node" } });
        let claim = json!({ "pvc": { "namespace": "a", "name": "b" } });
        for (schedule, source, controller, jobs) in [
            ("0 0 * * *", &url, Poller::Registry, Poller::Job),
            ("55 8/12 * * *", &by_pod, Poller::Registry, Poller::Job),
            ("0 0 * * *", &by_node, Poller::NodePull, Poller::NodePull),
            ("0 0 * * *", &stream, Poller::ImageStream, Poller::ImageStream),
            ("0 0 * * *", &claim, Poller::Claim, Poller::Claim),
            ("0 0 * * *", &json!({ "http": { "url": "http://h/a" } }), Poller::Web, Poller::Web),
            ("0 0 * * *", &json!({ "s3": { "url": "http://h/b/a" } }), Poller::Web, Poller::Web),
            ("0 0 * * *", &json!({ "blank": {} }), Poller::None, Poller::None),
            ("0 0 * * *", &json!(null), Poller::None, Poller::None),
            ("", &url, Poller::None, Poller::None),
            ("", &claim, Poller::None, Poller::None),
            ("never", &url, Poller::None, Poller::None),
        ] {
            let cron = cron(schedule, source.clone());
            assert_eq!(poller(&cron, PollFrom::Controller), controller, "{source}");
            assert_eq!(poller(&cron, PollFrom::Jobs), jobs, "{source}");
        }
    }

    #[test]
    fn an_import_is_named_after_its_digest() {
        let cron = cron("", json!(null));
        let name = |digest: &str| import_name(&cron, digest, None).ok();
        let hex = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        for (digest, expected) in [
            (format!("sha256:{hex}"), Some("fedora-9f86d081884c")),
            ("sha256:0123456789ab".into(), Some("fedora-0123456789ab")),
            ("uid:0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f".into(), Some("fedora-0a1b2c3d-0a1")),
            (format!("etag:{hex}"), Some("fedora-9f86d081884c")),
            ("sha256:0123456789a".into(), None),
            ("sha512:0123456789abcdef".into(), None),
            ("sha256:0123456789AB".into(), None),
            ("sha256:../../../etc".into(), None),
            ("sha256:é23456789abcd".into(), None),
            ("uid:0123456789a-".into(), None),
            ("0123456789abcdef".into(), None),
            (String::new(), None),
        ] {
            assert_eq!(name(&digest).as_deref(), expected, "{digest}");
        }
        let usual = name(&format!("sha256:{hex}"));
        let [a, b] =
            ["a", "b"].map(|class| import_name(&cron, &format!("sha256:{hex}"), Some(class)).ok());
        assert!(a != b && a != usual && a.is_some_and(|a| a.starts_with("fedora-9f86d081884c-")));
    }

    #[test]
    fn a_long_name_still_fits() {
        let mut cron = cron("", json!(null));
        cron.spec.managed_data_source = "x".repeat(300);
        let name = import_name(&cron, "sha256:0123456789ab", Some("class")).unwrap();
        assert!(name.len() <= names::LENGTH_MAX && name.contains("-0123456789ab-"), "{name}");
    }

    #[test]
    fn url_of_an_image_has_the_digest_and_no_tag() {
        for (url, expected) in [
            ("docker://quay.io/a/b:latest", "docker://quay.io/a/b@sha256:12"),
            ("docker://quay.io/a/b", "docker://quay.io/a/b@sha256:12"),
            ("docker://host:5000/a:v1", "docker://host:5000/a@sha256:12"),
            ("docker://host:5000/a", "docker://host:5000/a@sha256:12"),
            ("docker://host/a:v1@sha256:00", "docker://host/a@sha256:12"),
            ("docker://host/a@sha256:00", "docker://host/a@sha256:12"),
            ("docker://debian:12", "docker://debian@sha256:12"),
        ] {
            assert_eq!(url_of(url, "sha256:12"), expected);
        }
    }

    #[test]
    fn only_names_of_imports_of_the_digest_are_accepted_from_the_status() {
        let cron = |managed: &str| -> DataImportCron {
            serde_json::from_value(json!({
                "apiVersion": "v", "kind": "DataImportCron", "metadata": {},
                "spec": { "schedule": "", "managedDataSource": managed, "template": { "spec": {} } },
            }))
            .unwrap()
        };
        let digest = "sha256:0123456789abcdef";
        for managed in ["fedora", &"long-".repeat(50)] {
            let cron = cron(managed);
            let is_import = |name: &str, digest: &str| {
                let named = ImportStatus { data_volume_name: name.into(), digest: digest.into() };
                is_import_of(&cron, &named)
            };
            let usual = import_name(&cron, digest, None).unwrap();
            let on_class = import_name(&cron, digest, Some("fast")).unwrap();
            assert!(is_import(&usual, digest) && is_import(&on_class, digest), "{managed}");
            for name in ["victim", "", "0123456789ab", "x-0123456789ab-aaaaaa", managed] {
                assert!(!is_import(name, digest), "{managed}: {name}");
            }
            assert!(!is_import(&usual, "sha256:ffffffffffffffff"), "{managed}");
            assert!(!is_import(&on_class, "sha256:ffffffffffffffff"), "{managed}");
            assert!(!is_import(&usual, "nonsense"), "{managed}");
        }
    }
}
