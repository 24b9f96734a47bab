//! Reads and writes the variables of an importer's container.

use std::collections::BTreeMap;

use super::{Checkpoints, ContentType, Credentials, ImportJob, ProxyVariables, SourceKind};
use crate::byte_count::ByteCount;
use crate::checksum::{BadChecksum, Checksum};
use crate::go_bool::go_bool;
use crate::overhead::Overhead;
use crate::quantity::{BadQuantity, Quantity};

/// Names of the variables.
pub mod name {
    #![allow(missing_docs)] // documented at the fields of `ImportJob`
    pub const SOURCE: &str = "IMPORTER_SOURCE";
    pub const ENDPOINT: &str = "IMPORTER_ENDPOINT";
    pub const CONTENT_TYPE: &str = "IMPORTER_CONTENTTYPE";
    pub const IMAGE_SIZE: &str = "IMPORTER_IMAGE_SIZE";
    pub const OWNER_UID: &str = "OWNER_UID";
    pub const OVERHEAD: &str = "FILESYSTEM_OVERHEAD";
    pub const INSECURE_TLS: &str = "INSECURE_TLS";
    pub const DISK_ID: &str = "IMPORTER_DISK_ID";
    pub const UUID: &str = "IMPORTER_UUID";
    pub const PULL_METHOD: &str = "IMPORTER_PULL_METHOD";
    pub const READY_FILE: &str = "IMPORTER_READY_FILE";
    pub const DONE_FILE: &str = "IMPORTER_DONE_FILE";
    pub const BACKING_FILE: &str = "IMPORTER_BACKING_FILE";
    pub const THUMBPRINT: &str = "IMPORTER_THUMBPRINT";
    pub const HTTP_PROXY: &str = "http_proxy";
    pub const HTTPS_PROXY: &str = "https_proxy";
    pub const NO_PROXY: &str = "no_proxy";
    pub const CURRENT_CHECKPOINT: &str = "IMPORTER_CURRENT_CHECKPOINT";
    pub const PREVIOUS_CHECKPOINT: &str = "IMPORTER_PREVIOUS_CHECKPOINT";
    pub const FINAL_CHECKPOINT: &str = "IMPORTER_FINAL_CHECKPOINT";
    pub const PREALLOCATION: &str = "PREALLOCATION";
    pub const CACHE_MODE: &str = "CACHE_MODE";
    pub const ARCHITECTURE: &str = "IMPORTER_REGISTRY_IMAGE_ARCHITECTURE";
    pub const CHECKSUM: &str = "IMPORTER_CHECKSUM";
    pub const ACCESS_KEY: &str = "IMPORTER_ACCESS_KEY_ID";
    pub const SECRET_KEY: &str = "IMPORTER_SECRET_KEY";
    pub const GOOGLE_CREDENTIALS: &str = "GOOGLE_APPLICATION_CREDENTIALS";
    pub const CERT_DIR: &str = "IMPORTER_CERT_DIR";
    pub const PROXY_CERT_DIR: &str = "IMPORTER_PROXY_CERT_DIR";
    /// Prefix; a number follows.
    pub const EXTRA_HEADER: &str = "IMPORTER_EXTRA_HEADER_";
    /// `raw`, or unset to detect the format by content.
    pub const SOURCE_FORMAT: &str = "IMPORTER_SOURCE_FORMAT";
    /// Shared key by which the controller authenticates to the worker's metrics endpoint. For all workers. Secret.
    pub const METRICS_KEY: &str = "METRICS_KEY";
    /// `VersionTLS10` … `VersionTLS13`: the minimum of the worker's servers, metrics included. For all workers with servers;
    /// absent or empty: the minimum of the TLS library.
    pub const TLS_MIN_VERSION: &str = "TLS_MIN_VERSION";
    /// OpenSSL names, separated by commas: the TLS 1.2 suites of these servers. Absent or empty: all of the TLS library.
    pub const TLS_CIPHERS: &str = "TLS_CIPHERS";
    /// `true`: the worker fails if the kernel does not enforce its whole sandbox. For all workers.
    pub const REQUIRE_SANDBOX: &str = "REQUIRE_SANDBOX";
}

const NODE: &str = "node";
const TRY_NONE: &str = "TRYNONE";
const RAW: &str = "raw";

/// Any of these gives the pod an AWS identity.
const AWS_IDENTITY: [&str; 4] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
];
/// So does any of these, which name files.
const AWS_FILES: [&str; 4] = [
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
];

/// A variable of an importer that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadImportJob {
    /// Controllers always set it.
    #[error("PREALLOCATION has to be true or false, not {got:?}")]
    Preallocation {
        /// What it is.
        got: String,
    },
    /// The size that the PVC requests cannot be parsed.
    #[error("IMPORTER_IMAGE_SIZE cannot be used")]
    ImageSize {
        /// Why.
        #[source]
        source: BadQuantity,
    },
    /// The size that the PVC requests is negative.
    #[error("IMPORTER_IMAGE_SIZE cannot be used: it is less than zero")]
    NegativeImageSize,
    /// The expected checksum cannot be parsed. Users know this text.
    #[error("invalid checksum")]
    Checksum {
        /// The source: the termination message names it.
        kind: SourceKind,
        /// Why.
        #[source]
        source: BadChecksum,
    },
}

impl ImportJob {
    /// Reads an importer's environment. An absent variable counts as empty.
    ///
    /// # Errors
    /// See [`BadImportJob`]. Existing importers accept any overhead and any boolean except the preallocation: what
    /// cannot be parsed counts as 0 and as false.
    pub fn from_environment(variables: &BTreeMap<String, String>) -> Result<Self, BadImportJob> {
        let get = |name: &str| variables.get(name).map(String::as_str).unwrap_or_default();
        let text = |name: &str| get(name).to_owned();
        let is_true = |name: &str| go_bool(get(name)).unwrap_or(false);
        let preallocation = go_bool(get(name::PREALLOCATION))
            .ok_or_else(|| BadImportJob::Preallocation { got: text(name::PREALLOCATION) })?;
        let source = SourceKind::from_name(get(name::SOURCE));
        Ok(Self {
            endpoint: text(name::ENDPOINT),
            content: match get(name::CONTENT_TYPE) {
                "kubevirt" => ContentType::Kubevirt,
                "archive" => ContentType::Archive,
                _ => ContentType::Other,
            },
            image_size: image_size(get(name::IMAGE_SIZE))?,
            owner_uid: text(name::OWNER_UID),
            overhead: get(name::OVERHEAD).parse().unwrap_or(Overhead::ZERO),
            insecure_tls: is_true(name::INSECURE_TLS),
            disk_id: text(name::DISK_ID),
            uuid: text(name::UUID),
            backing_file: text(name::BACKING_FILE),
            thumbprint: text(name::THUMBPRINT),
            node_pull: get(name::PULL_METHOD) == NODE,
            ready_file: text(name::READY_FILE),
            done_file: text(name::DONE_FILE),
            proxy: ProxyVariables {
                http: text(name::HTTP_PROXY),
                https: text(name::HTTPS_PROXY),
                except: text(name::NO_PROXY),
            },
            checkpoints: Checkpoints {
                current: text(name::CURRENT_CHECKPOINT),
                previous: text(name::PREVIOUS_CHECKPOINT),
                last: is_true(name::FINAL_CHECKPOINT),
            },
            preallocation,
            direct_io: get(name::CACHE_MODE) == TRY_NONE,
            architecture: text(name::ARCHITECTURE),
            checksum: checksum(get(name::CHECKSUM), &source)?,
            credentials: credentials(get(name::ACCESS_KEY), get(name::SECRET_KEY)),
            google_credentials: text(name::GOOGLE_CREDENTIALS),
            aws_files: aws_files(variables),
            cert_dir: text(name::CERT_DIR),
            extra_headers: extra_headers(variables),
            raw: get(name::SOURCE_FORMAT) == RAW,
            source,
        })
    }

    /// The variables of this job, in the order in which pods list them. Credentials are not among them: a pod spec
    /// refers to the keys of a Secret for [`name::ACCESS_KEY`] and [`name::SECRET_KEY`].
    pub fn to_environment(&self) -> Vec<(String, String)> {
        let Self {
            source,
            endpoint,
            content,
            image_size,
            owner_uid,
            overhead,
            insecure_tls,
            disk_id,
            uuid,
            backing_file,
            thumbprint,
            node_pull,
            ready_file,
            done_file,
            proxy,
            checkpoints,
            preallocation,
            direct_io,
            architecture,
            checksum,
            credentials: _,
            google_credentials,
            aws_files: _,
            cert_dir,
            extra_headers,
            raw,
        } = self;
        let content = match content {
            ContentType::Kubevirt => "kubevirt",
            ContentType::Archive => "archive",
            ContentType::Other => "",
        };
        let always = [
            (name::SOURCE, source.name().to_owned()),
            (name::ENDPOINT, endpoint.clone()),
            (name::CONTENT_TYPE, content.to_owned()),
            (name::IMAGE_SIZE, image_size.map(|size| size.to_string()).unwrap_or_default()),
            (name::OWNER_UID, owner_uid.clone()),
            (name::OVERHEAD, overhead.to_string()),
            (name::INSECURE_TLS, insecure_tls.to_string()),
            (name::DISK_ID, disk_id.clone()),
            (name::UUID, uuid.clone()),
            (name::PULL_METHOD, if *node_pull { NODE.to_owned() } else { String::new() }),
            (name::READY_FILE, ready_file.clone()),
            (name::DONE_FILE, done_file.clone()),
            (name::BACKING_FILE, backing_file.clone()),
            (name::THUMBPRINT, thumbprint.clone()),
            (name::HTTP_PROXY, proxy.http.clone()),
            (name::HTTPS_PROXY, proxy.https.clone()),
            (name::NO_PROXY, proxy.except.clone()),
            (name::CURRENT_CHECKPOINT, checkpoints.current.clone()),
            (name::PREVIOUS_CHECKPOINT, checkpoints.previous.clone()),
            (name::FINAL_CHECKPOINT, checkpoints.last.to_string()),
            (name::PREALLOCATION, preallocation.to_string()),
            (name::CACHE_MODE, if *direct_io { TRY_NONE.to_owned() } else { String::new() }),
            (name::ARCHITECTURE, architecture.clone()),
            (name::CHECKSUM, checksum.map(|checksum| checksum.to_string()).unwrap_or_default()),
        ];
        let optional = [
            (name::GOOGLE_CREDENTIALS, google_credentials.clone()),
            (name::CERT_DIR, cert_dir.clone()),
            (name::SOURCE_FORMAT, if *raw { RAW.to_owned() } else { String::new() }),
        ];
        let optional = optional.into_iter().filter(|(_, value)| !value.is_empty());
        let headers = (0..).zip(extra_headers);
        always
            .into_iter()
            .chain(optional)
            .map(|(name, value)| (name.to_owned(), value))
            .chain(headers.map(|(n, line)| (format!("{}{n}", name::EXTRA_HEADER), line.clone())))
            .collect()
    }
}

fn image_size(text: &str) -> Result<Option<ByteCount>, BadImportJob> {
    if text.is_empty() {
        return Ok(None);
    }
    let quantity: Quantity = text.parse().map_err(|source| BadImportJob::ImageSize { source })?;
    quantity.bytes().map(Some).ok_or(BadImportJob::NegativeImageSize)
}

/// An empty disk has no bytes that could be verified.
fn checksum(text: &str, kind: &SourceKind) -> Result<Option<Checksum>, BadImportJob> {
    if text.is_empty() || matches!(kind, SourceKind::Blank | SourceKind::Unknown(_)) {
        return Ok(None);
    }
    let parsed = text.parse();
    parsed.map(Some).map_err(|source| BadImportJob::Checksum { kind: kind.clone(), source })
}

/// One without the other counts as none.
fn credentials(access_key: &str, secret_key: &str) -> Option<Credentials> {
    (!access_key.is_empty() && !secret_key.is_empty()).then(|| Credentials {
        access_key: access_key.to_owned(),
        secret_key: secret_key.to_owned(),
    })
}

/// See [`ImportJob::aws_files`].
fn aws_files(variables: &BTreeMap<String, String>) -> Option<Vec<String>> {
    let given = |name: &&str| variables.get(*name).filter(|value| !value.is_empty()).cloned();
    let files: Vec<_> = AWS_FILES.iter().filter_map(given).collect();
    let has_identity = !files.is_empty() || AWS_IDENTITY.iter().any(|name| given(name).is_some());
    has_identity.then_some(files)
}

/// Sorted by number: a map would put 10 before 2.
fn extra_headers(variables: &BTreeMap<String, String>) -> Vec<String> {
    let mut numbered: Vec<_> = variables
        .iter()
        .filter_map(|(name, line)| {
            let number = name.strip_prefix(name::EXTRA_HEADER)?;
            Some((number.parse::<u64>().unwrap_or(u64::MAX), line.clone()))
        })
        .collect();
    numbered.sort_by_key(|(number, _)| *number);
    numbered.into_iter().map(|(_, line)| line).collect()
}

#[cfg(test)]
#[path = "environment_tests.rs"]
mod tests;
