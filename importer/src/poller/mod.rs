//! `cdi-source-update-poller`: finds out which image a tag names now, and notes it on a DataImportCron. It runs as a job
//! in the namespace of the installation, for controllers that reach no registry themselves.

mod cluster;

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use api::annotations::cron as key;
use contract::ImportJob;
use contract::import::{Credentials, ProxyVariables, SourceKind, name as variable};
use runtime::Flags;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use self::cluster::Cluster;
use crate::error::Error;
use crate::newest::{KnownRevision, LatestImage, newest};
use crate::pod::access;
use crate::pod::{Paths, ProcessEnvironment};
use crate::web::{CallLimit, Cidr, DialExceptions, DialPolicy, HttpValidators};

pub const FLAGS: [&str; 6] = ["ns", "cron", "url", "certdir", DENY_CIDRS, ALLOW_CIDRS];

/// Networks in which no registry is polled, in addition to those that never are. The controller passes its own flags on.
const DENY_CIDRS: &str = "poll-deny-cidrs";
const ALLOW_CIDRS: &str = "poll-allow-cidrs";
/// For a whole poll. A registry that has not answered by then is requested again by the next job.
const POLL_TIME_MAX: Duration = Duration::from_secs(120);

/// What is to be found out, and where it is noted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PollRequest {
    namespace: String,
    cron: String,
    url: String,
    certificates: String,
    /// The url is a tenant's, and this pod runs in the namespace of the installation.
    dial_policy: DialPolicy,
}

impl PollRequest {
    fn from_flags(flags: &Flags) -> Result<Self, Error> {
        let text = |name: &str| flags.get(name).unwrap_or_default().to_owned();
        let missing =
            |name: &str| Error::Option { what: format!("the argument -{name} is missing") };
        let networks = |name: &str| {
            let refuse = |error| Error::Option { what: format!("the argument -{name}: {error}") };
            Cidr::parse_list(&text(name)).map_err(refuse)
        };
        let exceptions =
            DialExceptions { deny: networks(DENY_CIDRS)?, allow: networks(ALLOW_CIDRS)? };
        let request = Self {
            namespace: text("ns"),
            cron: text("cron"),
            url: text("url"),
            certificates: text("certdir"),
            dial_policy: DialPolicy::Guarded(exceptions),
        };
        for (name, value) in [("ns", &request.namespace), ("cron", &request.cron)] {
            // They become parts of an address.
            if !api::metadata::is_object_name(value) {
                return Err(missing(name));
            }
        }
        if request.url.is_empty() { Err(missing("url")) } else { Ok(request) }
    }

    /// The job of a worker that imports it: credentials, certificates and proxies are the same.
    fn job(&self, variables: &BTreeMap<String, String>) -> ImportJob {
        let text = |name: &str| variables.get(name).cloned().unwrap_or_default();
        let mut job = ImportJob::new(SourceKind::Registry, &self.url);
        job.cert_dir.clone_from(&self.certificates);
        job.insecure_tls = text(variable::INSECURE_TLS) == "true";
        job.proxy = ProxyVariables {
            http: text(variable::HTTP_PROXY),
            https: text(variable::HTTPS_PROXY),
            except: text(variable::NO_PROXY),
        };
        let (access_key, secret_key) = (text(variable::ACCESS_KEY), text(variable::SECRET_KEY));
        if !access_key.is_empty() || !secret_key.is_empty() {
            job.credentials = Some(Credentials { access_key, secret_key });
        }
        job
    }
}

/// Polls the registry, and records on the cron the time of the poll, and the digest if it has changed.
///
/// # Errors
/// When an argument is missing, or the registry or the cluster does not respond as it should. Nothing is recorded then.
pub fn run_poller(flags: &Flags, environment: &ProcessEnvironment) -> Result<(), Error> {
    let ProcessEnvironment { paths, variables } = environment;
    let request = PollRequest::from_flags(flags)?;
    let cluster = Cluster::of_pod(paths, variables)?;
    let path = format!(
        "/apis/cdi.kubevirt.io/v1beta1/namespaces/{}/dataimportcrons/{}",
        request.namespace, request.cron
    );
    let cron = cluster.get(&path)?;
    let noted = cron.pointer("/metadata/annotations").and_then(|all| all.get(key::DESIRED_DIGEST));
    let known = noted.and_then(Value::as_str).map(|digest| KnownRevision {
        digest: digest.to_owned(),
        marks: HttpValidators::default(),
    });
    let found = poll_once(&request, paths, variables, known.as_ref())?;
    let mut annotations = Map::new();
    annotations.insert(key::LAST_TIME.to_owned(), now().into());
    match found {
        LatestImage::Unchanged => tracing::info!("{} is the image that it was", request.url),
        LatestImage::Found(found) => {
            tracing::info!("{} is {} now", request.url, found.digest);
            annotations.insert(key::DESIRED_DIGEST.to_owned(), found.digest.into());
        }
    }
    cluster.merge(&path, &json!({ "metadata": { "annotations": annotations } }))
}

fn poll_once(
    request: &PollRequest,
    paths: &Paths,
    variables: &BTreeMap<String, String>,
    known: Option<&KnownRevision>,
) -> Result<LatestImage, Error> {
    let mut options = access::http_options(&request.job(variables), paths)?;
    options.dial_policy.clone_from(&request.dial_policy);
    options.limit = CallLimit::until(Instant::now() + POLL_TIME_MAX);
    newest(&request.url, None, &options, known)
}

/// RFC 3339, to the second.
fn now() -> String {
    let now = OffsetDateTime::from(SystemTime::now());
    let (year, month, day) = now.to_calendar_date();
    let (hour, minute, second) = now.to_hms();
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(arguments: &[&str]) -> Result<PollRequest, String> {
        let arguments = arguments.iter().map(|text| (*text).to_owned());
        PollRequest::from_flags(&Flags::parse(arguments, &FLAGS)).map_err(|error| error.to_string())
    }

    #[test]
    fn incomplete_poll_request_is_refused() {
        let whole = ["-ns", "images", "-cron", "fedora", "-url", "docker://quay.io/fedora"];
        let found = request(&whole).unwrap();
        assert_eq!((found.namespace.as_str(), found.certificates.as_str()), ("images", ""));
        let mut with_certificates = whole.to_vec();
        with_certificates.extend(["-certdir", "/certs"]);
        assert_eq!(request(&with_certificates).unwrap().certificates, "/certs");
        for missing in 0..3 {
            let mut part = whole.to_vec();
            part.drain(missing * 2..missing * 2 + 2);
            assert!(request(&part).unwrap_err().ends_with("is missing"), "{part:?}");
        }
        with_certificates.extend(["-poll-deny-cidrs=10.96.0.0/12", "-poll-allow-cidrs=127.0.0.1"]);
        let policy = request(&with_certificates).unwrap().dial_policy;
        for (address, is_allowed) in [
            ("10.96.0.1", false),
            ("169.254.169.254", false),
            ("127.0.0.1", true),
            ("10.0.0.1", true),
        ] {
            assert_eq!(policy.check(address.parse().unwrap()).is_ok(), is_allowed, "{address}");
        }
        with_certificates.push("-poll-deny-cidrs=10.96.0.0/33");
        assert!(
            request(&with_certificates).unwrap_err().contains("is not an IP address or a network")
        );
        let mut odd = whole;
        odd[1] = "../secrets";
        assert!(request(&odd).is_err());
    }

    #[test]
    fn a_poll_uses_the_settings_of_an_import() {
        let request =
            request(&["-ns=a", "-cron=b", "-url=docker://r/i", "-certdir=/certs"]).unwrap();
        let variables = [
            (variable::ACCESS_KEY, "anna"),
            (variable::SECRET_KEY, "hush"),
            (variable::INSECURE_TLS, "true"),
            (variable::HTTPS_PROXY, "http://proxy:1"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let job = request.job(&variables);
        assert!(job.insecure_tls && job.credentials.is_some());
        assert_eq!((job.cert_dir.as_str(), job.proxy.https.as_str()), ("/certs", "http://proxy:1"));
        assert!(request.job(&BTreeMap::new()).credentials.is_none());
    }

    #[test]
    fn times_are_written_as_everywhere_in_a_cluster() {
        let text = now();
        assert_eq!((text.len(), &text[10..11], &text[19..]), (20, "T", "Z"), "{text}");
    }
}
