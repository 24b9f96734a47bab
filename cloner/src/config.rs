//! The configuration of one process: its [`CloneJob`], with the secrets and the parsed URL.

use std::collections::BTreeMap;
use std::fmt;

use contract::CloneJob;
use contract::clone::{BadCloneJob, ClientIdentity, CloneTarget, ClonedVolume, name};
use runtime::MetricsTls;
use url::Url;

/// One clone.
#[derive(Clone, Debug, PartialEq)]
pub struct ClonerConfig {
    pub source: ClonedVolume,
    /// Allocate all blocks of the target.
    pub preallocate: bool,
    /// UID of the object that shows the progress.
    pub owner_uid: String,
    pub metrics_tls: MetricsTls,
    pub target: ClonerTarget,
}

/// Where the clone is written.
#[derive(Clone, PartialEq)]
pub enum ClonerTarget {
    Server {
        /// Of the snappy streams; `https`, with a host.
        url: Url,
        identity: ClientIdentity,
        /// The CA that the server's certificate is signed by, PEM.
        ca: String,
    },
    /// A second volume of this pod.
    Volume(ClonedVolume),
}

/// Shows no secret.
impl fmt::Debug for ClonerTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server { url, .. } => {
                formatter.debug_tuple("Server").field(&url.as_str()).finish()
            }
            Self::Volume(volume) => formatter.debug_tuple("Volume").field(volume).finish(),
        }
    }
}

impl ClonerConfig {
    /// # Errors
    /// [`BadCloneJob`]. It holds no value of a secret.
    pub fn from_environment(variables: &BTreeMap<String, String>) -> Result<Self, BadCloneJob> {
        let CloneJob { source, preallocate, owner_uid, target } =
            CloneJob::from_environment(variables)?;
        let target = match target {
            CloneTarget::Volume(volume) => ClonerTarget::Volume(volume),
            CloneTarget::Server { url, ca } => {
                let identity = ClientIdentity::from_environment(variables)?;
                ClonerTarget::Server { url: parse_url(&url)?, identity, ca }
            }
        };
        let metrics_tls = MetricsTls::from_environment(variables);
        Ok(Self { source, preallocate, owner_uid, metrics_tls, target })
    }
}

fn parse_url(text: &str) -> Result<Url, BadCloneJob> {
    let url: Option<Url> = text.parse().ok();
    url.filter(|url| url.scheme() == "https" && url.has_host())
        .ok_or_else(|| BadCloneJob::value(name::UPLOAD_URL, "an https address", text))
}

#[cfg(test)]
mod tests {
    use contract::clone::VolumeMode;

    use super::*;

    fn environment() -> BTreeMap<String, String> {
        let all = [
            (name::SOURCE_MODE, "block"),
            (name::SOURCE_PATH, "/dev/cdi-block-volume"),
            (name::PREALLOCATION, "false"),
            (name::OWNER_UID, "1-2-3"),
            (name::UPLOAD_URL, "https://cdi-upload-disk.vms.svc:8443/v1beta1/upload"),
            (name::CLIENT_CERTIFICATE, "certificate"),
            (name::CLIENT_KEY, "secret"),
            (name::SERVER_CA, "ca"),
        ];
        all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn server_target_needs_its_url_and_secrets() {
        let config = ClonerConfig::from_environment(&environment()).unwrap();
        assert!(matches!(config.target, ClonerTarget::Server { .. }));
        for (name, value, message) in [
            (name::CLIENT_CERTIFICATE, "", "CLIENT_CERT missing"),
            (name::CLIENT_KEY, "", "CLIENT_KEY missing"),
            (
                name::UPLOAD_URL,
                "http://a/",
                "UPLOAD_URL has to be an https address, not \"http://a/\"",
            ),
        ] {
            let mut variables = environment();
            variables.insert(name.into(), value.into());
            let error = ClonerConfig::from_environment(&variables).unwrap_err();
            assert_eq!((error.to_string().as_str(), error.exit_code()), (message, 255));
        }
    }

    #[test]
    fn volume_target_needs_no_secrets() {
        let mut variables = environment();
        for name in [name::UPLOAD_URL, name::CLIENT_CERTIFICATE, name::CLIENT_KEY, name::SERVER_CA]
        {
            variables.remove(name);
        }
        variables.insert(name::TARGET_PATH.into(), "/data".into());
        variables.insert(name::TARGET_MODE.into(), "filesystem".into());
        let config = ClonerConfig::from_environment(&variables).unwrap();
        let target = ClonedVolume { mode: VolumeMode::Filesystem, path: "/data".into() };
        assert_eq!(config.target, ClonerTarget::Volume(target));
    }

    #[test]
    fn metrics_follow_the_tls_profile_of_the_environment() {
        let mut variables = environment();
        variables.insert(name::TLS_MIN_VERSION.into(), "VersionTLS13".into());
        let config = ClonerConfig::from_environment(&variables).unwrap();
        assert_eq!(config.metrics_tls, MetricsTls::from_environment(&variables));
        assert_ne!(config.metrics_tls, MetricsTls::default());
    }

    #[test]
    fn debug_shows_no_secret() {
        let config = ClonerConfig::from_environment(&environment()).unwrap();
        assert!(!format!("{config:?}").contains("secret\""));
        assert!(!format!("{config:?}").contains("certificate"));
    }
}
