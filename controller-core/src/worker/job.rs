//! The job of a worker, from the annotations of its PVC.

use api::annotations::{import, request, state};
use contract::ImportJob;
use contract::import::{BadImportJob, name};
use contract::paths;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::Facts;
use crate::{config, meta};

/// Whether the node pulls the image, and a container next to the worker's serves it.
pub(super) fn is_pulled_by_node(claim: &PersistentVolumeClaim) -> bool {
    let is = |key, value| meta::annotation(&claim.metadata, key) == Some(value);
    is(import::SOURCE, "registry") && is(import::REGISTRY_METHOD, "node")
}

/// The job that the PVC's annotations describe. Parsed from the worker's variables, so that both parse it alike.
///
/// # Errors
/// [`BadImportJob`], which the worker would report too, but later.
pub fn job(facts: &Facts) -> Result<ImportJob, BadImportJob> {
    let metadata = &facts.claim.metadata;
    let text = |key: &str| meta::annotation(metadata, key).unwrap_or_default();
    let by_node = is_pulled_by_node(facts.claim);
    let source = match text(import::SOURCE) {
        _ if by_node => "http",
        known @ ("http" | "s3" | "gcs" | "none" | "registry" | "imageio" | "vddk" | "glance") => {
            known
        }
        _ => "http",
    };
    let endpoint = if by_node { paths::NODE_PULL_ENDPOINT } else { text(import::ENDPOINT) };
    let content = match text(request::CONTENT_TYPE) {
        "archive" => "archive",
        _ => "kubevirt",
    };
    let requested = meta::requested(facts.claim).map(|size| size.0.as_str()).unwrap_or_default();
    let status = facts.config.and_then(|config| config.status.as_ref());
    let class = facts.claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    let overhead = if meta::is_block(facts.claim) {
        contract::Overhead::ZERO
    } else {
        config::overhead_of(status, facts.classes, class)
    };
    let is_yes = |key| meta::is_true(metadata, key).to_string();
    let proxy = status.and_then(|status| status.import_proxy.clone()).unwrap_or_default();
    let or_empty = |text: Option<String>| text.unwrap_or_default();
    let if_set = |key: &str, value: &str| {
        if text(key).is_empty() { String::new() } else { value.to_owned() }
    };
    let google = if source == "gcs" {
        if_set(import::SECRET_NAME, &format!("{}/credentials.json", paths::GOOGLE))
    } else {
        String::new()
    };
    let of_node = |value: &str| if by_node { value.to_owned() } else { String::new() };

    let mut variables: meta::Pairs = [
        (name::SOURCE, source.to_owned()),
        (name::ENDPOINT, endpoint.to_owned()),
        (name::CONTENT_TYPE, content.to_owned()),
        (name::IMAGE_SIZE, requested.to_owned()),
        (name::OWNER_UID, owner_uid(facts.claim).to_owned()),
        (name::OVERHEAD, overhead.to_string()),
        (name::INSECURE_TLS, is_insecure(facts).to_string()),
        (name::DISK_ID, text(import::DISK_ID).to_owned()),
        (name::UUID, text(import::UUID).to_owned()),
        (name::PULL_METHOD, of_node("node")),
        (name::READY_FILE, of_node(paths::READY_FILE)),
        (name::DONE_FILE, of_node(paths::DONE_FILE)),
        (name::BACKING_FILE, text(import::BACKING_FILE).to_owned()),
        (name::THUMBPRINT, text(import::VDDK_THUMBPRINT).to_owned()),
        (name::HTTP_PROXY, or_empty(proxy.http_proxy)),
        (name::HTTPS_PROXY, or_empty(proxy.https_proxy)),
        (name::NO_PROXY, or_empty(proxy.no_proxy)),
        (name::CURRENT_CHECKPOINT, text(state::CHECKPOINT_CURRENT).to_owned()),
        (name::PREVIOUS_CHECKPOINT, text(state::CHECKPOINT_PREVIOUS).to_owned()),
        (name::FINAL_CHECKPOINT, is_yes(state::CHECKPOINT_FINAL)),
        (name::PREALLOCATION, is_yes(state::PREALLOCATION_REQUESTED)),
        (
            name::CACHE_MODE,
            if meta::has_annotation(metadata, import::REQUIRES_DIRECT_IO) {
                "TRYNONE".to_owned()
            } else {
                String::new()
            },
        ),
        (name::ARCHITECTURE, text(import::REGISTRY_ARCHITECTURE).to_owned()),
        (name::CHECKSUM, text(import::CHECKSUM).to_owned()),
        (name::GOOGLE_CREDENTIALS, google),
        (name::CERT_DIR, if_set(import::CERT_CONFIG_MAP, paths::CERTS)),
        (name::SOURCE_FORMAT, text(request::SOURCE_FORMAT).to_owned()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    let headers = numbered(metadata, import::EXTRA_HEADERS);
    let headers = headers.into_iter().enumerate();
    variables
        .extend(headers.map(|(n, line)| (format!("{}{n}", name::EXTRA_HEADER), line.to_owned())));
    ImportJob::from_environment(&variables)
}

/// Values of the annotations `prefix.<n>`, in the order of their numbers.
pub(super) fn numbered<'a>(
    metadata: &'a k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    prefix: &str,
) -> Vec<&'a str> {
    let number = |key: &str| key.strip_prefix(prefix)?.strip_prefix('.')?.parse::<u64>().ok();
    let annotations = metadata.annotations.iter().flatten();
    let mut all: Vec<_> =
        annotations.filter_map(|(key, value)| Some((number(key)?, value.as_str()))).collect();
    all.sort_unstable();
    all.into_iter().map(|(_, value)| value).collect()
}

/// UID of the object that shows the progress: the only owner of the PVC, a DataVolume or the target PVC; else the PVC.
pub fn owner_uid(claim: &PersistentVolumeClaim) -> &str {
    match claim.metadata.owner_references.as_deref() {
        Some([owner]) => &owner.uid,
        _ => meta::uid(&claim.metadata),
    }
}

/// Whether the PVC requests no verification of certificates, or the registry is on the cluster's list.
fn is_insecure(facts: &Facts) -> bool {
    let metadata = &facts.claim.metadata;
    let text = |key| meta::annotation(metadata, key).unwrap_or_default();
    match text(import::SOURCE) {
        "registry" => {
            let address = text(import::ENDPOINT).strip_prefix("docker://").unwrap_or_default();
            let host = address.split('/').next().unwrap_or_default();
            let listed = facts.config.and_then(|config| config.spec.insecure_registries.as_ref());
            !host.is_empty() && listed.is_some_and(|listed| listed.iter().any(|one| one == host))
        }
        "s3" | "gcs" | "vddk" | "none" => false,
        _ => meta::is_true(metadata, import::INSECURE_SKIP_VERIFY),
    }
}
