//! What the pod was told.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use contract::job::go_bool;
use contract::job::name::METRICS_KEY;
use runtime::MetricsKey;
use url::Url;

/// Whether a volume is a device or has a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A device.
    Block,
    /// A file system.
    Filesystem,
}

impl Mode {
    fn named(text: &str) -> Option<Self> {
        match text {
            "block" => Some(Self::Block),
            "filesystem" => Some(Self::Filesystem),
            _ => None,
        }
    }
}

/// The order of one clone.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What is read.
    pub source: PathBuf,
    /// What that is.
    pub mode: Mode,
    /// Every byte gets its room.
    pub preallocate: bool,
    /// UID of the object whose progress this is.
    pub owner_uid: String,
    /// By what whoever asks for the progress knows this worker.
    pub metrics_key: Option<MetricsKey>,
    /// Where it goes.
    pub target: Target,
}

/// Where a clone goes.
#[derive(Clone, PartialEq)]
pub enum Target {
    /// To an upload server.
    Server {
        /// The path of the old streams.
        url: Url,
        /// Our certificate and its key, PEM.
        certificate: String,
        /// The key.
        key: String,
        /// Who has signed the server's, PEM.
        authority: String,
    },
    /// To a volume of this pod.
    Volume {
        /// Where it is.
        path: PathBuf,
        /// What it is.
        mode: Mode,
    },
}

/// Without the key.
impl fmt::Debug for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server { url, .. } => {
                formatter.debug_tuple("Server").field(&url.as_str()).finish()
            }
            Self::Volume { path, mode } => {
                formatter.debug_struct("Volume").field("path", path).field("mode", mode).finish()
            }
        }
    }
}

/// An order that cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum BadConfig {
    /// There is no such variable.
    #[error("{0} missing")]
    Missing(&'static str),
    /// Its value means nothing here.
    #[error("{name} has to be {expected}, not {got:?}")]
    Value {
        /// The variable.
        name: &'static str,
        /// What it may be.
        expected: &'static str,
        /// What it is.
        got: String,
    },
}

impl BadConfig {
    /// What the process ends with: the two variables that a script used to look at first had a code of their own.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Missing(VOLUME_MODE | MOUNT_POINT) | Self::Value { name: VOLUME_MODE, .. } => 1,
            Self::Missing(_) | Self::Value { .. } => 255,
        }
    }
}

const VOLUME_MODE: &str = "VOLUME_MODE";
const MOUNT_POINT: &str = "MOUNT_POINT";
const MODES: &str = "block or filesystem";

impl Config {
    /// Reads the environment.
    ///
    /// # Errors
    /// [`BadConfig`]. No value of a secret is in it.
    pub fn from_environment(variables: &BTreeMap<String, String>) -> Result<Self, BadConfig> {
        let optional =
            |name: &str| variables.get(name).map(String::as_str).filter(|text| !text.is_empty());
        let required = |name| optional(name).ok_or(BadConfig::Missing(name));
        let wrong = |name, expected, got: &str| BadConfig::Value {
            name,
            expected,
            got: got.chars().take(64).collect(),
        };
        let mode = |name, text: &str| Mode::named(text).ok_or_else(|| wrong(name, MODES, text));

        let source_mode = mode(VOLUME_MODE, required(VOLUME_MODE)?)?;
        let source = required(MOUNT_POINT)?.into();
        let preallocation = required("PREALLOCATION")?;
        let preallocate = go_bool(preallocation)
            .ok_or_else(|| wrong("PREALLOCATION", "true or false", preallocation))?;
        let owner_uid = required("OWNER_UID")?.to_owned();
        let target = match optional("TARGET_MOUNT_POINT") {
            Some(path) => {
                let name = "TARGET_VOLUME_MODE";
                Target::Volume { path: path.into(), mode: mode(name, required(name)?)? }
            }
            None => {
                let text = required("UPLOAD_URL")?;
                let url: Option<Url> = text.parse().ok();
                let url = url.filter(|url| url.scheme() == "https" && url.has_host());
                Target::Server {
                    url: url.ok_or_else(|| wrong("UPLOAD_URL", "an https address", text))?,
                    certificate: required("CLIENT_CERT")?.to_owned(),
                    key: required("CLIENT_KEY")?.to_owned(),
                    authority: required("SERVER_CA_CERT")?.to_owned(),
                }
            }
        };
        let metrics_key = optional(METRICS_KEY).and_then(|text| text.parse().ok());
        Ok(Self { source, mode: source_mode, preallocate, owner_uid, metrics_key, target })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> BTreeMap<String, String> {
        let all = [
            ("VOLUME_MODE", "block"),
            ("MOUNT_POINT", "/dev/cdi-block-volume"),
            ("PREALLOCATION", "false"),
            ("OWNER_UID", "1-2-3"),
            ("UPLOAD_URL", "https://cdi-upload-disk.vms.svc:8443/v1beta1/upload"),
            ("CLIENT_CERT", "certificate"),
            ("CLIENT_KEY", "secret"),
            ("SERVER_CA_CERT", "authority"),
        ];
        all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn each_variable_is_needed_and_says_so_in_its_own_way() {
        assert!(Config::from_environment(&environment()).is_ok());
        for (name, value, message, code) in [
            ("VOLUME_MODE", "", "VOLUME_MODE missing", 1),
            ("VOLUME_MODE", "tape", "VOLUME_MODE has to be block or filesystem, not \"tape\"", 1),
            ("MOUNT_POINT", "", "MOUNT_POINT missing", 1),
            ("PREALLOCATION", "", "PREALLOCATION missing", 255),
            ("PREALLOCATION", "yes", "PREALLOCATION has to be true or false, not \"yes\"", 255),
            ("OWNER_UID", "", "OWNER_UID missing", 255),
            ("UPLOAD_URL", "", "UPLOAD_URL missing", 255),
            (
                "UPLOAD_URL",
                "http://a/",
                "UPLOAD_URL has to be an https address, not \"http://a/\"",
                255,
            ),
            ("CLIENT_CERT", "", "CLIENT_CERT missing", 255),
            ("CLIENT_KEY", "", "CLIENT_KEY missing", 255),
            ("SERVER_CA_CERT", "", "SERVER_CA_CERT missing", 255),
        ] {
            let mut variables = environment();
            variables.insert(name.into(), value.into());
            let error = Config::from_environment(&variables).unwrap_err();
            assert_eq!((error.to_string().as_str(), error.exit_code()), (message, code));
        }
    }

    #[test]
    fn a_target_in_the_same_pod_needs_no_server() {
        let mut variables = environment();
        for name in ["UPLOAD_URL", "CLIENT_CERT", "CLIENT_KEY", "SERVER_CA_CERT"] {
            variables.remove(name);
        }
        variables.insert("TARGET_MOUNT_POINT".into(), "/data".into());
        assert!(Config::from_environment(&variables).is_err());
        variables.insert("TARGET_VOLUME_MODE".into(), "filesystem".into());
        let config = Config::from_environment(&variables).unwrap();
        assert_eq!(config.target, Target::Volume { path: "/data".into(), mode: Mode::Filesystem });
    }

    #[test]
    fn the_key_is_never_shown() {
        let config = Config::from_environment(&environment()).unwrap();
        assert!(!format!("{config:?}").contains("secret"));
    }
}
