//! The effective settings of the whole cluster.

mod certificate;
mod history;
pub mod platform_proxy;
mod proxy;
mod tls;

use std::collections::BTreeMap;

use api::annotations::request;
use api::names;
use api::v1beta1::{
    Cdi, CdiConfig, CdiConfigSpec, CdiConfigStatus, FilesystemOverhead, ImportProxy, StorageProfile,
};
use contract::Overhead;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::api::networking::v1::{Ingress, IngressBackend};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

pub use certificate::{Certificate, trusted};
pub use history::{
    annotations, annotations_of_new, default_spec, ignored, ignored_gates, ignored_installation,
    in_force,
};
pub use proxy::{visible_credentials, with_credentials};
pub use tls::{floor, unmet};

use crate::openshift::Route;
use crate::{classes, meta};

/// What the settings depend on.
pub struct Facts<'a> {
    /// The settings of the CDIConfig.
    pub spec: &'a CdiConfigSpec,
    /// The status of the CDIConfig.
    pub present: &'a CdiConfigStatus,
    /// All storage classes.
    pub classes: &'a [StorageClass],
    /// How clients outside of the cluster reach the upload proxy.
    pub endpoint: &'a ProxyEndpoint,
    /// The proxies that the platform is configured with.
    pub platform_proxy: Option<&'a ImportProxy>,
}

/// How clients outside of the cluster reach the upload proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyEndpoint {
    /// Not all objects have been read yet: the URL of the present status stays.
    NotKnownYet,
    /// There is no Ingress and no Route.
    Closed,
    /// By an Ingress or a Route.
    Open(OpenEndpoint),
}

/// An Ingress or a Route to the upload proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenEndpoint {
    /// Its host.
    pub host: String,
    /// Certificates of the endpoint or of their CA; `None` where no object names any.
    pub certificates: Option<Vec<Certificate>>,
}

/// Why no CDI object is authoritative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are {working} CDI objects in use, and there has to be one")]
pub struct SeveralInstallations {
    /// How many are not in phase Error.
    pub working: usize,
}

/// The authoritative CDI object: the only one, or the only one without an error.
///
/// # Errors
/// [`SeveralInstallations`], where that is none or several.
pub fn active(installations: &[Cdi]) -> Result<Option<&Cdi>, SeveralInstallations> {
    if let [] | [_] = installations {
        return Ok(installations.first());
    }
    let broken = |cdi: &&Cdi| {
        cdi.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Error")
    };
    let working: Vec<_> = installations.iter().filter(|cdi| !broken(cdi)).collect();
    match working.as_slice() {
        [only] => Ok(Some(only)),
        several => Err(SeveralInstallations { working: several.len() }),
    }
}

/// Which object's settings are effective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CdiConfigSource {
    /// Those of the CDI object: it claims authority, or no user has edited the CDIConfig.
    Installation,
    /// Those of the CDIConfig, and the CDI object has none.
    CdiConfig,
    /// Those of the CDIConfig, although the CDI object has some.
    Ignored,
}

fn config_source(installation: Option<&Cdi>, present: &CdiConfig) -> CdiConfigSource {
    match installation {
        Some(cdi) if claims_authority(cdi) => CdiConfigSource::Installation,
        Some(cdi) if cdi.spec.config.is_some() && history::is_unedited(present) => {
            CdiConfigSource::Installation
        }
        Some(cdi) if cdi.spec.config.is_some() => CdiConfigSource::Ignored,
        _ => CdiConfigSource::CdiConfig,
    }
}

/// What CDIConfig's spec has to be: that of the CDI object if it claims authority or no user has edited the CDIConfig,
/// else the present one. Credentials of proxies stay in the CDI object, which only administrators may read.
pub fn authoritative(installation: Option<&Cdi>, present: &CdiConfig) -> CdiConfigSpec {
    match (config_source(installation, present), installation) {
        (CdiConfigSource::Installation, Some(cdi)) => {
            let mut spec = cdi.spec.config.clone().unwrap_or_default();
            spec.import_proxy = spec.import_proxy.as_ref().map(proxy::without_credentials);
            spec
        }
        _ => present.spec.clone(),
    }
}

/// Whether the settings of an installation replace the CDIConfig's.
fn claims_authority(installation: &Cdi) -> bool {
    meta::has_annotation(&installation.metadata, request::CONFIG_AUTHORITY)
}

/// Whether a feature gate is enabled.
pub fn has_gate(spec: &CdiConfigSpec, gate: &str) -> bool {
    spec.feature_gates.iter().flatten().any(|name| name == gate)
}

/// Whether PVCs that wait for their first consumer are left to wait.
pub fn honors_waiting(spec: &CdiConfigSpec) -> bool {
    has_gate(spec, names::GATE_HONOR_WAIT_FOR_FIRST_CONSUMER)
}

/// What CDIConfig's status has to be.
pub fn status(facts: &Facts, now: Timestamp) -> CdiConfigStatus {
    let Facts { spec, present, classes, endpoint, platform_proxy } = facts;
    let (upload_proxy_url, upload_proxy_ca) = match (&spec.upload_proxy_url_override, endpoint) {
        (Some(url), _) => (Some(url.clone()), present.upload_proxy_ca.clone()),
        (None, ProxyEndpoint::NotKnownYet) => {
            (present.upload_proxy_url.clone(), present.upload_proxy_ca.clone())
        }
        (None, ProxyEndpoint::Open(OpenEndpoint { host, certificates })) => {
            let ca = certificates.as_ref().and_then(|all| trusted(all, host, now));
            (Some(host.clone()), ca)
        }
        (None, ProxyEndpoint::Closed) => (None, None),
    };
    let scratch = spec.scratch_space_storage_class.as_deref();
    let scratch = scratch.filter(|name| classes::named(classes, name).is_some());
    CdiConfigStatus {
        upload_proxy_url,
        upload_proxy_ca,
        import_proxy: Some(shown_proxy(spec.import_proxy.as_ref().or(*platform_proxy))),
        scratch_space_storage_class: Some(scratch.unwrap_or_default().to_owned()),
        default_pod_resource_requirements: Some(resources(spec.pod_resource_requirements.as_ref())),
        filesystem_overhead: Some(overhead(spec.filesystem_overhead.as_ref(), classes)),
        preallocation: Some(spec.preallocation.unwrap_or(false)),
        image_pull_secrets: spec.image_pull_secrets.clone(),
    }
}

/// All four fields are set, empty where there is no proxy. Every user may read them, so credentials are left out.
fn shown_proxy(proxy: Option<&ImportProxy>) -> ImportProxy {
    let proxy = proxy.map(proxy::without_credentials).unwrap_or_default();
    let or_empty = |text: Option<String>| Some(text.unwrap_or_default());
    ImportProxy {
        http_proxy: or_empty(proxy.http_proxy),
        https_proxy: or_empty(proxy.https_proxy),
        no_proxy: or_empty(proxy.no_proxy),
        trusted_ca_proxy: or_empty(proxy.trusted_ca_proxy),
    }
}

/// CPU and memory of a worker, each of the four as configured or its default: a quota admits no pod without them.
fn resources(set: Option<&ResourceRequirements>) -> ResourceRequirements {
    let merged = |set: Option<&BTreeMap<String, Quantity>>, defaults: [(&str, &str); 2]| {
        let value = |(name, default): (&str, &str)| {
            let value = set.and_then(|set| set.get(name)).cloned();
            (name.to_owned(), value.unwrap_or_else(|| Quantity(default.to_owned())))
        };
        Some(defaults.into_iter().map(value).collect())
    };
    let limits = set.and_then(|set| set.limits.as_ref());
    let requests = set.and_then(|set| set.requests.as_ref());
    ResourceRequirements {
        limits: merged(limits, [("cpu", "750m"), ("memory", "600M")]),
        requests: merged(requests, [("cpu", "100m"), ("memory", "60M")]),
        claims: None,
    }
}

/// The overhead of every class, for clients that look one up. A value that cannot be parsed counts as unset.
fn overhead(set: Option<&FilesystemOverhead>, classes: &[StorageClass]) -> FilesystemOverhead {
    let legal = |text: &&String| text.parse::<Overhead>().is_ok();
    let global = set.and_then(|set| set.global.as_ref()).filter(legal);
    let global = global.cloned().unwrap_or_else(|| Overhead::default().to_string());
    let of_class = |class: &StorageClass| {
        let name = meta::name(&class.metadata);
        let own = set.and_then(|set| set.storage_class.as_ref()?.get(name)).filter(legal);
        (name.to_owned(), own.unwrap_or(&global).clone())
    };
    let storage_class = classes.iter().map(of_class).collect();
    FilesystemOverhead { global: Some(global), storage_class: Some(storage_class) }
}

/// The overhead of a file system on a PVC of this class. `None` as the name is the default class.
pub fn overhead_of(
    status: Option<&CdiConfigStatus>,
    classes: &[StorageClass],
    class_name: Option<&str>,
) -> Overhead {
    let Some(overhead) = status.and_then(|status| status.filesystem_overhead.as_ref()) else {
        return Overhead::ZERO;
    };
    if class_name == Some("") {
        return Overhead::ZERO;
    }
    let named = class_name.and_then(|name| classes::named(classes, name));
    let class = named.or_else(|| classes::default(classes));
    let own = class.and_then(|class| {
        overhead.storage_class.as_ref()?.get(meta::name(&class.metadata)).map(String::as_str)
    });
    let text = own.or(overhead.global.as_deref());
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The smallest PVC that the storage provisions, where its profile has one.
pub fn minimum_size(profile: Option<&StorageProfile>) -> Option<contract::ByteCount> {
    let text = meta::annotation(&profile?.metadata, request::MINIMUM_CLAIM_SIZE)?;
    text.parse::<contract::Quantity>().ok()?.bytes()
}

/// Host of an Ingress to the upload proxy, and the Secrets of its certificates.
pub fn ingress_endpoint(ingresses: &[Ingress]) -> Option<(String, Vec<String>)> {
    ingresses.iter().find_map(|ingress| {
        let spec = ingress.spec.as_ref()?;
        let host = host_of(ingress)?;
        let secrets = spec.tls.iter().flatten().filter_map(|tls| tls.secret_name.clone());
        Some((host, secrets.collect()))
    })
}

/// Host of a Route to the upload proxy.
pub fn route_endpoint(routes: &[Route]) -> Option<&str> {
    routes.iter().find_map(|route| route.host_of(names::UPLOAD_PROXY_SERVICE))
}

fn host_of(ingress: &Ingress) -> Option<String> {
    let spec = ingress.spec.as_ref()?;
    let is_ours = |backend: &IngressBackend| {
        backend.service.as_ref().is_some_and(|service| service.name == names::UPLOAD_PROXY_SERVICE)
    };
    let rules = spec.rules.as_deref().unwrap_or_default();
    if spec.default_backend.as_ref().is_some_and(is_ours) {
        return rules.first()?.host.clone().filter(|host| !host.is_empty());
    }
    let leads_here = |rule: &&k8s_openapi::api::networking::v1::IngressRule| {
        let paths = rule.http.iter().flat_map(|http| &http.paths);
        paths.into_iter().any(|path| is_ours(&path.backend))
            && rule.host.as_ref().is_some_and(|host| !host.is_empty())
    };
    rules.iter().find(leads_here)?.host.clone()
}

#[cfg(test)]
mod tests;
