//! Options of requests to web servers.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::call_limit::CallLimit;
use super::dial_policy::DialPolicy;
use super::proxy::ProxySettings;
use super::retry::RetryPolicy;
use crate::gcs::GcsOptions;
use crate::receive_limit::ReceiveLimit;
use crate::registry::RegistryOptions;
use crate::s3::S3Options;
use crate::secret::Secret;

/// Options of requests to a web server. By default without a proxy and without credentials.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Sent to the address given, and not to another host that it redirects to.
    pub auth: Option<BasicAuth>,
    /// Sent to the address given, and not to another host that it redirects to. A `User-Agent` replaces ours.
    pub headers: Vec<ExtraHeader>,
    /// Files of PEM certificates of trusted CAs, in addition to the system's. A bad certificate is skipped.
    pub ca_files: Vec<PathBuf>,
    pub ca_pem: Vec<String>,
    /// Accept any certificate of any server. An attacker on the network can then replace the image.
    pub insecure_tls: bool,
    /// The same for these servers only, written `host` or `host:port`. A registry among them may also be without TLS.
    pub insecure_hosts: Vec<String>,
    /// Which servers a warning was logged for. Shared by the options of a caller that polls.
    pub warned: Warned,
    /// Proxies. [`ProxySettings::from_environment`] reads the usual variables.
    pub proxy: ProxySettings,
    pub retry: RetryPolicy,
    /// A connection that brings no byte for so long is replaced. Grows while there is no progress.
    pub stall_timeout: Duration,
    /// When calls that do not read an image end at the latest. The default: by `retry` and `stall_timeout`.
    pub limit: CallLimit,
    /// Addresses that may be connected to. The proxy's own always may.
    pub dial_policy: DialPolicy,
    /// The most connections at a time.
    pub streams_max: usize,
    /// Memory for bytes that were received and not consumed yet. An import sets it to its share of the budget.
    pub receive_limit: ReceiveLimit,
    pub registry: RegistryOptions,
    /// For `s3://` addresses, whose store is a web server too.
    pub s3: S3Options,
    /// For `gs://` addresses.
    pub gcs: GcsOptions,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            auth: None,
            headers: Vec::new(),
            ca_files: Vec::new(),
            ca_pem: Vec::new(),
            insecure_tls: false,
            insecure_hosts: Vec::new(),
            warned: Warned::default(),
            proxy: ProxySettings::default(),
            retry: RetryPolicy::default(),
            stall_timeout: Duration::from_secs(60),
            limit: CallLimit::default(),
            dial_policy: DialPolicy::default(),
            streams_max: 8,
            receive_limit: ReceiveLimit::default(),
            registry: RegistryOptions::default(),
            s3: S3Options::default(),
            gcs: GcsOptions::default(),
        }
    }
}

/// The servers for which the warning about unverified certificates was logged. Once is enough.
#[derive(Clone, Debug, Default)]
pub struct Warned(Arc<Mutex<HashSet<String>>>);

/// Limits the memory; warnings for further servers are repeated.
const WARNED_MAX: usize = 1024;

impl Warned {
    /// Records the server. True the first time.
    pub(crate) fn is_first_warning(&self, server: &str) -> bool {
        let mut message = self.0.lock();
        !message.contains(server)
            && (message.len() >= WARNED_MAX || message.insert(server.to_owned()))
    }
}

/// User and password of HTTP's basic scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicAuth {
    /// May be empty.
    pub username: String,
    /// May be empty.
    pub password: Secret,
}

/// A header to send with each request.
#[derive(Clone, PartialEq, Eq)]
pub struct ExtraHeader {
    /// As in `Name: value`.
    pub name: String,
    /// Without line ends.
    pub value: String,
    /// Never show the value.
    pub secret: bool,
}

impl ExtraHeader {
    /// From a line `Name: value`, surrounding blanks and line ends trimmed. `None` without a colon or a name.
    pub fn parse(line: &str, secret: bool) -> Option<Self> {
        let (name, value) = line.split_once(':')?;
        let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
        (!name.is_empty()).then_some(Self { name, value, secret })
    }
}

impl fmt::Debug for ExtraHeader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, secret } = self;
        let shown = if *secret { "(secret)" } else { value };
        write!(formatter, "{name}: {shown}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_line_is_split_at_its_first_colon_and_trimmed() {
        let header = |name: &str, value: &str| {
            Some(ExtraHeader { name: name.into(), value: value.into(), secret: false })
        };
        let table = [
            ("X-Token: abc", header("X-Token", "abc")),
            ("X-Url:http://host:1/\n", header("X-Url", "http://host:1/")),
            ("X-Empty:", header("X-Empty", "")),
            ("no colon", None),
            (": value", None),
        ];
        for (line, expected) in table {
            assert_eq!(ExtraHeader::parse(line, false), expected, "{line:?}");
        }
    }

    #[test]
    fn clones_of_options_warn_once_for_each_server() {
        let warned = Warned::default();
        let options = || HttpOptions { warned: warned.clone(), ..HttpOptions::default() };
        assert!(options().warned.is_first_warning("a:5000"));
        assert!(
            !options().warned.is_first_warning("a:5000")
                && options().warned.is_first_warning("b:5000")
        );
        assert!(
            HttpOptions::default().warned.is_first_warning("a:5000"),
            "other options warn by themselves"
        );
    }

    #[test]
    fn options_can_be_shown_without_their_secrets() {
        let options = HttpOptions {
            auth: Some(BasicAuth { username: "user".into(), password: Secret::new("hush") }),
            headers: vec![ExtraHeader {
                name: "X-Token".into(),
                value: "hush".into(),
                secret: true,
            }],
            ..HttpOptions::default()
        };
        let shown = format!("{options:?}");
        assert!(shown.contains("X-Token") && !shown.contains("hush"), "{shown}");
    }
}
