//! The settings of the whole cluster: one CDIConfig, and what it comes to.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::v1beta1::{CdiConfig, CdiConfigSpec, CdiConfigStatus, ImportProxy};
use api::{labels, names};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::platform_proxy;
use crate::engine::queue::Key;
use crate::engine::{Engine, Error};
use controller_core::components::CONFIG as COMPONENT;
use controller_core::config::{self as plan, Certificate, Entrance, Way};
use controller_core::plan::{Plan, Requeue, Write};

/// When to look again at what was not listed yet.
const SOON: Duration = Duration::from_secs(5);
/// The certificate in a Secret of the type `kubernetes.io/tls`.
const TLS_CERTIFICATE: &str = "tls.crt";

/// Brings the settings up to date.
pub async fn reconcile(engine: Arc<Engine>, _key: Key) -> Result<Requeue, Error> {
    let installations = engine.api.caches.installations.list();
    let active = plan::active(&installations).map_err(Error::Installation)?;
    let present = match engine.config() {
        Some(config) => config,
        None => {
            let plan = Plan {
                requeue: Requeue::Now,
                requeue_if_exists: Some(Requeue::OnChange), // the watch reports it
                ..Plan::writes([Write::create(new(&engine))])
            };
            return engine.execute_and_report(plan).await;
        }
    };
    let mut wanted = present.as_ref().clone();
    wanted.spec = plan::authoritative(active, &present);
    let annotations = plan::annotations(&present, &wanted.spec);
    if !annotations.is_empty() {
        wanted.metadata.annotations = Some(annotations.applied_to(&present.metadata));
    }
    // What it does not depend on is written all the same.
    let (way, trouble) = match way(&engine).await {
        Ok(way) => (way, None),
        Err(error) => (Way::NotKnownYet, Some(error)),
    };
    let classes = engine.classes();
    let nothing = CdiConfigStatus::default();
    let status = present.status.as_ref().unwrap_or(&nothing);
    let told = status.import_proxy.clone();
    let (proxy, trouble) = match proxies(&engine, &wanted.spec, told.as_ref()).await {
        Ok(proxy) => (proxy, trouble),
        Err(error) => (told, Some(trouble.unwrap_or(error))),
    };
    wanted.status = Some(plan::status(
        &plan::Facts {
            spec: &wanted.spec,
            present: status,
            classes: &classes,
            way: &way,
            platform_proxy: proxy.as_ref(),
        },
        engine.now(),
    ));
    let is_changed = (&wanted.spec, &wanted.status) != (&present.spec, &present.status);
    let is_changed = is_changed || !annotations.is_empty();
    let mut executed = Plan::writes(is_changed.then(|| Write::replace(wanted.clone())));
    let warnings = [
        plan::unmet(&wanted.spec),
        plan::visible_credentials(&wanted.spec),
        plan::ignored(&wanted),
        plan::ignored_gates(&wanted.spec),
    ];
    let warnings = warnings.into_iter().flatten();
    executed.record(COMPONENT, present.as_ref(), warnings);
    if let Some(installation) = active {
        executed.record(
            COMPONENT,
            installation,
            plan::ignored_installation(installation, &present),
        );
    }
    engine.execute_and_report(executed).await?;
    match (trouble, way) {
        (Some(error), _) => Err(error),
        (None, Way::NotKnownYet) => Ok(Requeue::After(SOON)),
        (None, Way::Closed | Way::Open(_)) => Ok(look_again(&engine, &wanted.spec)),
    }
}

/// Nobody tells of what is in other namespaces.
fn look_again(engine: &Engine, spec: &CdiConfigSpec) -> Requeue {
    let proxy = platform_proxy::in_force(engine, spec);
    if proxy.is_some_and(|proxy| proxy.authority().is_some()) {
        Requeue::After(platform_proxy::LOOK_AGAIN)
    } else if engine.api.caches.proxies.is_settled() {
        Requeue::OnChange
    } else {
        Requeue::After(SOON)
    }
}

/// The proxies of the platform; until it is known whether there are any, those that were told of before.
async fn proxies(
    engine: &Engine,
    spec: &CdiConfigSpec,
    told: Option<&ImportProxy>,
) -> Result<Option<ImportProxy>, Error> {
    if !engine.api.caches.proxies.is_settled() {
        return Ok(told.cloned());
    }
    let authority = told.and_then(|told| told.trusted_ca_proxy.as_deref());
    platform_proxy::reconcile(engine, spec, authority).await
}

/// The settings of an installation that nobody has set any for: claims wait for the pods that they are for.
fn new(engine: &Engine) -> CdiConfig {
    let mut all_labels = engine.settings.installation.labels();
    all_labels.insert(labels::COMPONENT.into(), String::new());
    CdiConfig {
        metadata: ObjectMeta {
            name: Some(names::CDI_CONFIG.into()),
            labels: Some(all_labels),
            annotations: Some(plan::annotations_of_new(&plan::default_spec())),
            owner_references: engine.owner().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: plan::default_spec(),
        status: None,
    }
}

/// How clients outside of the cluster reach the upload proxy: an Ingress with the certificates that it shows, or a Route,
/// which shows those of the cluster.
async fn way(engine: &Engine) -> Result<Way, Error> {
    let namespace = &engine.settings.installation.namespace;
    let caches = &engine.api.caches;
    if let Some((host, secrets)) = plan::ingress_entrance(&caches.ingresses.list()) {
        // Nobody says what one without a Secret shows.
        let Some(name) = secrets.first() else {
            return Ok(Way::Open(Entrance { host, certificates: None }));
        };
        let secret = engine.api.get::<Secret>(namespace, name).await?;
        let bytes = secret.and_then(|secret| secret.data?.remove(TLS_CERTIFICATE));
        let bytes = bytes.ok_or_else(|| Error::NoCertificate { secret: name.clone() })?;
        return Ok(Way::Open(entrance(host, Some(&String::from_utf8_lossy(&bytes.0)))));
    }
    let routes = caches.routes.list();
    let Some(host) = plan::route_entrance(&routes) else {
        return Ok(if caches.routes.is_settled() { Way::Closed } else { Way::NotKnownYet });
    };
    let map = engine.api.get::<ConfigMap>(namespace, names::ROOT_CA_CONFIG_MAP).await?;
    let pem = map.and_then(|map| map.data?.remove(names::ROOT_CA_KEY));
    Ok(Way::Open(entrance(host.to_owned(), pem.as_deref())))
}

fn entrance(host: String, pem: Option<&str>) -> Entrance {
    let read = |pem| auth::Certificate::read_all(pem).iter().filter_map(certificate).collect();
    Entrance { host, certificates: pem.map(read) }
}

fn certificate(read: &auth::Certificate) -> Option<Certificate> {
    let moment = |time: SystemTime| Timestamp::try_from(time).ok();
    Some(Certificate {
        pem: read.pem(),
        subject: read.subject.clone(),
        issuer: read.issuer.clone(),
        names: read.hosts.clone(),
        not_before: moment(read.not_before)?,
        not_after: moment(read.not_after)?,
    })
}
