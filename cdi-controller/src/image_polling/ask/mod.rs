//! Polls a source for its newest image from within the controller: with the same credentials, certificates and proxies
//! as an import, a few at a time, and less often after failures.

mod permits;
mod rate;
mod server;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use api::annotations::cron as key;
use api::v1beta1::{CdiConfig, DataImportCron};
use contract::import::name as variable;
use importer::{
    BasicAuth, CallLimit, DialPolicy, ExtraHeader, FailureKind, HttpOptions, KnownRevision,
    LatestImage, ProxySettings, RetryPolicy, S3Credentials, S3Options, Secret, Warned, newest,
    s3_location,
};
use k8s_openapi::ByteString;

pub use permits::{PollPermit, PollPermits};
pub use rate::PollRate;
pub use server::{look_up, needs_lookup};

use controller_core::data_import_cron::{
    PollRequestError, PollResult, poll_needs, template_source,
};
use controller_core::meta;

/// For a whole poll: name resolution, connections, tokens, responses and retries.
const POLL_TIME_MAX: Duration = Duration::from_secs(120);
/// A request fails if the server sends no data for this time.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// After two failed attempts, the next poll is minutes later.
const ATTEMPTS_MAX: u32 = 2;
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);
/// The maximum length of an error in a condition, in characters.
const ERROR_LEN_MAX: usize = 600;

/// What a poll needs from the cluster.
#[derive(Clone, Default)]
pub struct Access<'a> {
    /// The data of the Secret with the credentials.
    pub secret: Option<&'a BTreeMap<String, ByteString>>,
    /// The data of the ConfigMaps with CA certificates: the source's, and the proxy's.
    pub authorities: Vec<&'a BTreeMap<String, String>>,
    /// The data of the Secrets with headers.
    pub headers: Vec<&'a BTreeMap<String, ByteString>>,
    /// The settings in force.
    pub config: Option<&'a CdiConfig>,
    pub dial_policy: DialPolicy,
}

/// A source, and how to poll it.
#[derive(Clone, Debug)]
pub struct PollRequest {
    location: String,
    /// URL of a file of checksums that decides whether the image is new.
    checksums: Option<String>,
    options: HttpOptions,
}

/// The request that polls the source of this cron.
///
/// # Errors
/// [`PollRequestError`].
pub fn poll_request(
    cron: &DataImportCron,
    access: &Access,
) -> Result<PollRequest, PollRequestError> {
    let source = template_source(cron).ok_or(PollRequestError::NotOurs)?;
    let keys = keys(poll_needs(cron).secret, access)?;
    let auth = keys.clone().map(|(username, password)| BasicAuth { username, password });
    let checksums = meta::annotation(&cron.metadata, key::CHECKSUMS_URL);
    let checksums = checksums.filter(|url| !url.is_empty()).map(str::to_owned);
    let config = access.config;
    let mut options = HttpOptions {
        ca_pem: access.authorities.iter().flat_map(|all| all.values().cloned()).collect(),
        proxy: proxy(config),
        retry: RetryPolicy {
            attempts_max: ATTEMPTS_MAX,
            retry_after_max: RETRY_AFTER_MAX,
            ..RetryPolicy::default()
        },
        stall_timeout: STALL_TIMEOUT,
        dial_policy: access.dial_policy.clone(),
        streams_max: 1,
        ..HttpOptions::default()
    };
    if let Some(registry) = &source.registry {
        let location = registry.url.clone().ok_or(PollRequestError::NotOurs)?;
        options.auth = auth;
        let listed = config.and_then(|config| config.spec.insecure_registries.clone());
        options.insecure_hosts = listed.unwrap_or_default();
        return Ok(PollRequest { location, checksums: None, options });
    }
    if let Some(http) = &source.http {
        options.auth = auth;
        options.insecure_tls = http.insecure_skip_verify == Some(true);
        // Not `extra_headers`: a metadata service, for one, takes such a header for a request of its own machine.
        let secret = access.headers.iter().flat_map(|all| all.values());
        let secret = secret.filter_map(|value| ExtraHeader::parse(text(value)?, true));
        options.headers = secret.collect();
        return Ok(PollRequest { location: http.url.clone(), checksums, options });
    }
    if let Some(s3) = &source.s3 {
        let (location, endpoint) = s3_location(&s3.url)
            .map_err(|error| PollRequestError::Address { because: error.to_string() })?;
        let credentials = match keys {
            None => S3Credentials::Anonymous,
            Some((access_key_id, secret_key)) => {
                S3Credentials::Keys { access_key_id, secret_key, session_token: None }
            }
        };
        options.s3 = S3Options { endpoint, credentials, ..S3Options::default() };
        return Ok(PollRequest { location, checksums, options });
    }
    Err(PollRequestError::NotOurs)
}

fn text(bytes: &ByteString) -> Option<&str> {
    std::str::from_utf8(&bytes.0).ok()
}

/// User and password, or the two keys of a store.
fn keys(
    name: Option<String>,
    access: &Access,
) -> Result<Option<(String, Secret)>, PollRequestError> {
    let Some(name) = name else { return Ok(None) };
    let get = |key: &'static str| {
        let value = access.secret.and_then(|secret| text(secret.get(key)?));
        value.ok_or_else(|| PollRequestError::NoKey { name: name.clone(), key })
    };
    Ok(Some((get("accessKeyId")?.to_owned(), Secret::new(get("secretKey")?))))
}

fn proxy(config: Option<&CdiConfig>) -> ProxySettings {
    let status = config.and_then(|config| config.status.as_ref());
    let proxy = status.and_then(|status| status.import_proxy.clone()).unwrap_or_default();
    ProxySettings::from_variables(|name| match name {
        variable::HTTP_PROXY => proxy.http_proxy.clone(),
        variable::HTTPS_PROXY => proxy.https_proxy.clone(),
        variable::NO_PROXY => proxy.no_proxy.clone(),
        _ => None,
    })
}

impl PollRequest {
    /// A warning about a server whose certificate is not verified is logged only if it is not in `warned` yet.
    #[must_use]
    pub fn warned_of(mut self, warned: &Warned) -> Self {
        self.options.warned = warned.clone();
        self
    }

    /// Blocks until `limit`, and for two minutes at most.
    ///
    /// # Errors
    /// When the latest image cannot be determined.
    pub fn send(
        mut self,
        known: Option<&KnownRevision>,
        limit: CallLimit,
    ) -> Result<LatestImage, importer::Error> {
        self.options.limit = limit.with_deadline(Instant::now() + POLL_TIME_MAX);
        newest(&self.location, self.checksums.as_deref(), &self.options, known)
    }
}

/// Why a poll failed, for the author of the cron. Holds nothing that the server sent: the author may have no access to it.
fn explain(kind: FailureKind, cron: &DataImportCron) -> String {
    let http = template_source(cron).and_then(|source| source.http.as_ref());
    let has_headers = http.is_some_and(|http| http.extra_headers.iter().flatten().next().is_some());
    let hint = match kind {
        FailureKind::Denied => {
            ": the controller polls no loopback, link-local or denied addresses; an administrator can permit one with \
             -poll-allow-cidrs"
        }
        kind if kind.is_about_credentials() && has_headers => {
            ": a poll sends no extraHeaders; put them into a Secret, name it in secretExtraHeaders, and have an \
             administrator annotate it with cdi.kubevirt.io/pollFrom"
        }
        _ => "",
    };
    format!("cannot poll the source: {kind}{hint}")
}

/// The last results of the sources, by the UID of their cron. Without one, the next poll is an unconditional request.
#[derive(Debug, Default)]
pub struct PollResults {
    crons: HashMap<String, Remembered>,
}

#[derive(Debug, Default)]
struct Remembered {
    known: Option<KnownRevision>,
    failures: u32,
}

impl PollResults {
    /// The revision for a conditional request: the source's last one, if the cron still records its digest.
    pub fn known(&self, cron: &DataImportCron) -> Option<KnownRevision> {
        let noted = meta::annotation(&cron.metadata, key::DESIRED_DIGEST)?;
        let known = self.crons.get(meta::uid(&cron.metadata)).and_then(|it| it.known.clone());
        let known = known.filter(|known| known.digest == noted);
        Some(known.unwrap_or_else(|| KnownRevision {
            digest: noted.to_owned(),
            ..KnownRevision::default()
        }))
    }

    /// Records the result of a poll, and converts it for the plan.
    pub fn record(
        &mut self,
        cron: &DataImportCron,
        latest: Result<LatestImage, importer::Error>,
    ) -> PollResult {
        let remembered = self.crons.entry(meta::uid(&cron.metadata).to_owned()).or_default();
        match latest {
            Ok(LatestImage::Unchanged) => {
                remembered.failures = 0;
                PollResult::Unchanged
            }
            Ok(LatestImage::Found(found)) => {
                remembered.failures = 0;
                let digest = found.digest.clone();
                remembered.known = Some(found);
                PollResult::Newest { digest, image_stream_ref: None }
            }
            Err(error) => self.record_failure(cron, explain(error.kind(), cron)),
        }
    }

    /// Records a failed poll. `error` may be shown to the author of the cron: it holds nothing that the server sent.
    pub fn failed(&mut self, cron: &DataImportCron, error: &dyn std::error::Error) -> PollResult {
        let because = runtime::chain(error).chars().take(ERROR_LEN_MAX).collect();
        self.record_failure(cron, because)
    }

    /// How many polls have failed in a row.
    pub fn failures(&self, cron: &DataImportCron) -> u32 {
        self.crons.get(meta::uid(&cron.metadata)).map_or(0, |remembered| remembered.failures)
    }

    fn record_failure(&mut self, cron: &DataImportCron, because: String) -> PollResult {
        let remembered = self.crons.entry(meta::uid(&cron.metadata).to_owned()).or_default();
        remembered.failures = remembered.failures.saturating_add(1);
        PollResult::Failed { failures: remembered.failures, because }
    }

    /// The cron is deleted.
    pub fn forget(&mut self, uid: &str) {
        self.crons.remove(uid);
    }
}

#[cfg(test)]
mod tests;
