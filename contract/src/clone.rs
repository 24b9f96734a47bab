//! The job of a clone's source pod: what the controller writes into its environment, and how the cloner reads it.

use std::collections::BTreeMap;
use std::fmt;

use crate::go_bool::go_bool;

/// Names of the variables.
pub mod name {
    #![allow(missing_docs)] // documented at the fields of `CloneJob`
    pub use crate::import::name::{
        METRICS_KEY, OWNER_UID, PREALLOCATION, REQUIRE_SANDBOX, TLS_CIPHERS, TLS_MIN_VERSION,
    };

    pub const SOURCE_MODE: &str = "VOLUME_MODE";
    pub const SOURCE_PATH: &str = "MOUNT_POINT";
    pub const TARGET_MODE: &str = "TARGET_VOLUME_MODE";
    pub const TARGET_PATH: &str = "TARGET_MOUNT_POINT";
    pub const UPLOAD_URL: &str = "UPLOAD_URL";
    pub const SERVER_CA: &str = "SERVER_CA_CERT";
    /// Secret: refer to a Secret's key instead of writing a value.
    pub const CLIENT_CERTIFICATE: &str = "CLIENT_CERT";
    /// Secret: refer to a Secret's key instead of writing a value.
    pub const CLIENT_KEY: &str = "CLIENT_KEY";
}

const MODES: &str = "block or filesystem";
/// The longest part of a wrong value that an error shows, in characters.
const SHOWN_MAX: usize = 64;

/// Whether a volume is a block device or a mounted file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeMode {
    /// A block device.
    Block,
    /// A directory.
    Filesystem,
}

impl VolumeMode {
    /// As the environment spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Filesystem => "filesystem",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Block, Self::Filesystem].into_iter().find(|mode| mode.as_str() == text)
    }
}

/// A volume of the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClonedVolume {
    /// What `path` is.
    pub mode: VolumeMode,
    /// The device, or the mount point.
    pub path: String,
}

/// Where a clone is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloneTarget {
    /// To the upload server in the target's pod. Needs a [`ClientIdentity`].
    Server {
        /// `https://<service>.<namespace>.svc:<port>/v1beta1/upload`
        url: String,
        /// The CA that the server's certificate is signed by, PEM.
        ca: String,
    },
    /// To a second volume of the same pod.
    Volume(ClonedVolume),
}

/// One clone, without the secrets: those are a [`ClientIdentity`], and the key of [`name::METRICS_KEY`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneJob {
    /// The volume that is read.
    pub source: ClonedVolume,
    /// Allocate all blocks of the target.
    pub preallocate: bool,
    /// Label of the metrics: UID of the object that shows the progress.
    pub owner_uid: String,
    /// Where the clone is written.
    pub target: CloneTarget,
}

/// The client certificate of a source pod. Its `Debug` shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// PEM.
    pub certificate: String,
    /// PEM.
    pub key: String,
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("(secret)")
    }
}

/// An environment that describes no clone. Holds no value of a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCloneJob {
    /// The variable is absent or empty. The words are those of upstream's start script.
    #[error("{0} missing")]
    Missing(&'static str),
    /// The variable has another value than these.
    #[error("{name} has to be {expected}, not {got:?}")]
    Value {
        /// Name of the variable.
        name: &'static str,
        /// What it may be.
        expected: &'static str,
        /// The beginning of what it is.
        got: String,
    },
}

impl BadCloneJob {
    /// `name` has the value `got` instead of `expected`.
    pub fn value(name: &'static str, expected: &'static str, got: &str) -> Self {
        Self::Value { name, expected, got: got.chars().take(SHOWN_MAX).collect() }
    }

    /// What the process exits with: upstream's start script checked the first two variables itself.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Missing(name::SOURCE_MODE | name::SOURCE_PATH)
            | Self::Value { name: name::SOURCE_MODE, .. } => 1,
            Self::Missing(_) | Self::Value { .. } => 255,
        }
    }
}

fn optional<'a>(variables: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    variables.get(name).map(String::as_str).filter(|text| !text.is_empty())
}

fn required<'a>(
    variables: &'a BTreeMap<String, String>,
    name: &'static str,
) -> Result<&'a str, BadCloneJob> {
    optional(variables, name).ok_or(BadCloneJob::Missing(name))
}

impl CloneJob {
    /// Reads a cloner's environment. A target in the same pod takes precedence over an upload server.
    ///
    /// # Errors
    /// [`BadCloneJob`] for the first variable that is missing or wrong. None has a default.
    pub fn from_environment(variables: &BTreeMap<String, String>) -> Result<Self, BadCloneJob> {
        let mode = |name| {
            let text = required(variables, name)?;
            VolumeMode::parse(text).ok_or_else(|| BadCloneJob::value(name, MODES, text))
        };
        let source = ClonedVolume {
            mode: mode(name::SOURCE_MODE)?,
            path: required(variables, name::SOURCE_PATH)?.to_owned(),
        };
        let preallocation = required(variables, name::PREALLOCATION)?;
        let preallocate = go_bool(preallocation).ok_or_else(|| {
            BadCloneJob::value(name::PREALLOCATION, "true or false", preallocation)
        })?;
        let owner_uid = required(variables, name::OWNER_UID)?.to_owned();
        let target = match optional(variables, name::TARGET_PATH) {
            Some(path) => CloneTarget::Volume(ClonedVolume {
                mode: mode(name::TARGET_MODE)?,
                path: path.to_owned(),
            }),
            None => CloneTarget::Server {
                url: required(variables, name::UPLOAD_URL)?.to_owned(),
                ca: required(variables, name::SERVER_CA)?.to_owned(),
            },
        };
        Ok(Self { source, preallocate, owner_uid, target })
    }

    /// The variables of this job, in the order in which pods list them. The [`ClientIdentity`] is not among them: a pod
    /// spec refers to the keys of a Secret for [`name::CLIENT_CERTIFICATE`] and [`name::CLIENT_KEY`].
    pub fn to_environment(&self) -> Vec<(String, String)> {
        let Self { source, preallocate, owner_uid, target } = self;
        let always = [
            (name::OWNER_UID, owner_uid.clone()),
            (name::PREALLOCATION, preallocate.to_string()),
            (name::SOURCE_MODE, source.mode.as_str().to_owned()),
            (name::SOURCE_PATH, source.path.clone()),
        ];
        let of_target = match target {
            CloneTarget::Server { url, ca } => {
                [(name::SERVER_CA, ca.clone()), (name::UPLOAD_URL, url.clone())]
            }
            CloneTarget::Volume(ClonedVolume { mode, path }) => {
                [(name::TARGET_MODE, mode.as_str().to_owned()), (name::TARGET_PATH, path.clone())]
            }
        };
        always.into_iter().chain(of_target).map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

impl ClientIdentity {
    /// Reads the secrets of a cloner whose target is an upload server.
    ///
    /// # Errors
    /// [`BadCloneJob::Missing`].
    pub fn from_environment(variables: &BTreeMap<String, String>) -> Result<Self, BadCloneJob> {
        Ok(Self {
            certificate: required(variables, name::CLIENT_CERTIFICATE)?.to_owned(),
            key: required(variables, name::CLIENT_KEY)?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Literals instead of constants: pods of earlier versions hold these names.
    fn environment() -> BTreeMap<String, String> {
        let all = [
            ("VOLUME_MODE", "block"),
            ("MOUNT_POINT", "/dev/cdi-block-volume"),
            ("PREALLOCATION", "false"),
            ("OWNER_UID", "1-2-3"),
            ("UPLOAD_URL", "https://cdi-upload-disk.vms.svc:8443/v1beta1/upload"),
            ("CLIENT_CERT", "certificate"),
            ("CLIENT_KEY", "secret"),
            ("SERVER_CA_CERT", "ca"),
        ];
        all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn missing_or_wrong_variable_has_its_message_and_exit_code() {
        assert!(CloneJob::from_environment(&environment()).is_ok());
        for (name, value, message, code) in [
            ("VOLUME_MODE", "", "VOLUME_MODE missing", 1),
            ("VOLUME_MODE", "tape", "VOLUME_MODE has to be block or filesystem, not \"tape\"", 1),
            ("MOUNT_POINT", "", "MOUNT_POINT missing", 1),
            ("PREALLOCATION", "", "PREALLOCATION missing", 255),
            ("PREALLOCATION", "yes", "PREALLOCATION has to be true or false, not \"yes\"", 255),
            ("OWNER_UID", "", "OWNER_UID missing", 255),
            ("UPLOAD_URL", "", "UPLOAD_URL missing", 255),
            ("SERVER_CA_CERT", "", "SERVER_CA_CERT missing", 255),
        ] {
            let mut variables = environment();
            variables.insert(name.into(), value.into());
            let error = CloneJob::from_environment(&variables).unwrap_err();
            assert_eq!((error.to_string().as_str(), error.exit_code()), (message, code));
        }
    }

    #[test]
    fn each_missing_secret_is_named() {
        for name in ["CLIENT_CERT", "CLIENT_KEY"] {
            let mut variables = environment();
            variables.remove(name);
            let error = ClientIdentity::from_environment(&variables).unwrap_err();
            assert_eq!((error.to_string(), error.exit_code()), (format!("{name} missing"), 255));
        }
    }

    #[test]
    fn target_in_the_same_pod_needs_no_server() {
        let mut variables = environment();
        for name in ["UPLOAD_URL", "CLIENT_CERT", "CLIENT_KEY", "SERVER_CA_CERT"] {
            variables.remove(name);
        }
        variables.insert("TARGET_MOUNT_POINT".into(), "/data".into());
        let error = CloneJob::from_environment(&variables).unwrap_err();
        assert_eq!(error, BadCloneJob::Missing("TARGET_VOLUME_MODE"));
        variables.insert("TARGET_VOLUME_MODE".into(), "filesystem".into());
        let job = CloneJob::from_environment(&variables).unwrap();
        let target = ClonedVolume { mode: VolumeMode::Filesystem, path: "/data".into() };
        assert_eq!(job.target, CloneTarget::Volume(target));
    }

    #[test]
    fn secrets_are_neither_shown_nor_written() {
        let identity = ClientIdentity::from_environment(&environment()).unwrap();
        assert!(!format!("{identity:?}").contains("secret\""));
        assert_eq!(format!("{identity:?}"), "(secret)");
        let job = CloneJob::from_environment(&environment()).unwrap();
        for (name, value) in job.to_environment() {
            assert!(!["CLIENT_CERT", "CLIENT_KEY"].contains(&name.as_str()), "{name}");
            assert!(value != "secret" && value != "certificate", "{name}");
        }
    }

    #[test]
    fn environment_lists_the_names_that_pods_have() {
        let job = CloneJob::from_environment(&environment()).unwrap();
        let names: Vec<_> = job.to_environment().into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            [
                "OWNER_UID",
                "PREALLOCATION",
                "VOLUME_MODE",
                "MOUNT_POINT",
                "SERVER_CA_CERT",
                "UPLOAD_URL"
            ]
        );
    }

    fn text() -> impl Strategy<Value = String> {
        "[ -~]{1,30}"
    }

    fn volumes() -> impl Strategy<Value = ClonedVolume> {
        let mode = prop_oneof![Just(VolumeMode::Block), Just(VolumeMode::Filesystem)];
        (mode, text()).prop_map(|(mode, path)| ClonedVolume { mode, path })
    }

    fn targets() -> impl Strategy<Value = CloneTarget> {
        prop_oneof![
            (text(), text()).prop_map(|(url, ca)| CloneTarget::Server { url, ca }),
            volumes().prop_map(CloneTarget::Volume),
        ]
    }

    prop_compose! {
        fn jobs()(
            (source, target) in (volumes(), targets()),
            preallocate in any::<bool>(),
            owner_uid in text(),
        ) -> CloneJob {
            CloneJob { source, preallocate, owner_uid, target }
        }
    }

    proptest! {
        #[test]
        fn every_job_survives_its_environment(job in jobs()) {
            let variables = job.to_environment().into_iter().collect();
            prop_assert_eq!(CloneJob::from_environment(&variables), Ok(job));
        }
    }
}
