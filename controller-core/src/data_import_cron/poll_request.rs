//! What a poll of a source requests, and with which Secrets.

use api::annotations::cron as key;
use api::v1beta1::DataImportCron;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::source::template_source;
use crate::meta;

/// The objects that a poll of a source needs from the namespace of the installation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PollNeeds {
    /// The Secret with user and password, or access keys.
    pub secret: Option<String>,
    /// The ConfigMap with CA certificates.
    pub authorities: Option<String>,
    /// Secrets with HTTP headers.
    pub headers: Vec<String>,
}

/// Which Secrets of the installation polls send to servers that the author of a cron chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PollSecrets {
    /// Those whose annotation lists the cron's namespace.
    #[default]
    Listed,
    /// Those, and to registries also those without the annotation, as upstream CDI does.
    Registries,
}

/// Why a source cannot be polled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PollRequestError {
    /// It is not polled by requests of the controller.
    #[error("the source is neither a registry, a web server nor an object store")]
    NotOurs,
    #[error("the Secret {name} has no key {key} in the namespace of the installation")]
    NoKey { name: String, key: &'static str },
    /// The Secret does not exist, or its annotation does not list the namespace. One message for both, so that an
    /// author without access does not learn which.
    #[error(
        "the Secret {name} is not in the namespace of the installation, or is not for crons of this namespace: an \
         administrator has to add {namespace} to its annotation {}",
        key::POLL_FROM
    )]
    NotGranted {
        name: String,
        /// Of the cron.
        namespace: String,
    },
    #[error("there is no ConfigMap {name} in the namespace of the installation")]
    NoAuthorities { name: String },
    /// Its URL is invalid.
    #[error("{because}")]
    Address {
        /// Holds no secret.
        because: String,
    },
}

pub fn poll_needs(cron: &DataImportCron) -> PollNeeds {
    let some = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let Some(source) = template_source(cron) else { return PollNeeds::default() };
    if let Some(registry) = &source.registry {
        let (secret, authorities) = (some(&registry.secret_ref), some(&registry.cert_config_map));
        PollNeeds { secret, authorities, headers: Vec::new() }
    } else if let Some(http) = &source.http {
        let (secret, authorities) = (some(&http.secret_ref), some(&http.cert_config_map));
        let headers = http.secret_extra_headers.clone().unwrap_or_default();
        PollNeeds { secret, authorities, headers }
    } else if let Some(s3) = &source.s3 {
        let (secret, authorities) = (some(&s3.secret_ref), some(&s3.cert_config_map));
        PollNeeds { secret, authorities, headers: Vec::new() }
    } else {
        PollNeeds::default()
    }
}

/// Whether a poll of this cron may send the Secret `name` of the installation. The cron's author chooses the server and
/// may have no access to the Secret, so the Secret has to list the cron's namespace. A cron in the installation's own
/// namespace needs no entry: its imports use the same Secret. `found` is the Secret's metadata, if the Secret exists.
///
/// # Errors
/// [`PollRequestError::NotGranted`].
pub fn verify_poll_secret(
    name: &str,
    found: Option<&ObjectMeta>,
    cron: &DataImportCron,
    installation: &str,
    secrets: PollSecrets,
) -> Result<(), PollRequestError> {
    let namespace = meta::namespace(&cron.metadata);
    let lists =
        |text: &str| text.split(',').map(str::trim).any(|one| one == "*" || one == namespace);
    let is_registry = template_source(cron).is_some_and(|source| source.registry.is_some());
    let is_granted = match found.and_then(|found| meta::annotation(found, key::POLL_FROM)) {
        _ if namespace == installation => true,
        Some(text) => lists(text),
        None => is_registry && secrets == PollSecrets::Registries,
    };
    let refused =
        || PollRequestError::NotGranted { name: name.to_owned(), namespace: namespace.to_owned() };
    is_granted.then_some(()).ok_or_else(refused)
}

/// The host that a poll of this cron connects to first, in lower case and without its port: the limit is per machine,
/// however many ports it listens on.
pub fn polled_host(cron: &DataImportCron) -> String {
    let source = template_source(cron);
    let of_registry = source.and_then(|source| source.registry.as_ref()?.url.as_deref());
    let of_web = || source.and_then(|source| source.http.as_ref()).map(|http| http.url.as_str());
    let of_store = || source.and_then(|source| source.s3.as_ref()).map(|s3| s3.url.as_str());
    // With a list of hashes, only the list is requested.
    let of_list =
        || meta::annotation(&cron.metadata, key::CHECKSUMS_URL).filter(|url| !url.is_empty());
    let place = of_registry.or_else(of_list).or_else(of_web).or_else(of_store).unwrap_or_default();
    let rest = place.split_once("://").map_or(place, |(_, rest)| rest);
    let host = rest.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    // `docker://debian` names no host: it is Docker Hub's.
    let has_host = bare.len() < host.len() || bare.contains('.') || bare == "localhost";
    let is_short = of_registry.is_some() && (!has_host || !rest.contains('/'));
    if is_short { "docker.io".into() } else { bare.trim_end_matches('.').to_ascii_lowercase() }
}
