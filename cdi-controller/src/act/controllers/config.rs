//! The settings of the whole cluster: one CDIConfig, and what it comes to.

use std::sync::Arc;
use std::time::SystemTime;

use api::v1beta1::{CdiConfig, CdiConfigStatus};
use api::{labels, names};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::cluster::Made;
use super::super::queue::{Key, Next};
use super::super::{Context, Error};
use crate::config::{self as plan, Certificate, Entrance};

/// The certificate in a Secret of the type `kubernetes.io/tls`.
const TLS_CERTIFICATE: &str = "tls.crt";

/// Brings the settings up to date.
pub async fn reconcile(context: Arc<Context>, _key: Key) -> Result<Next, Error> {
    let installations = context.cluster.stores.installations.list();
    let active = plan::active(&installations).map_err(Error::Installation)?;
    let present = match context.config() {
        Some(config) => config,
        None => match context.cluster.create(&new(&context)).await? {
            Made::New(config) => Arc::new(config),
            Made::Present => return Ok(Next::Wait),
        },
    };
    let mut wanted = present.as_ref().clone();
    wanted.spec = plan::authoritative(active, &present.spec);
    let entrance = entrance(&context).await?;
    let classes = context.classes();
    let nothing = CdiConfigStatus::default();
    wanted.status = Some(plan::status(
        &plan::Facts {
            spec: &wanted.spec,
            present: present.status.as_ref().unwrap_or(&nothing),
            classes: &classes,
            entrance: entrance.as_ref(),
            platform_proxy: None,
        },
        context.now(),
    ));
    if (&wanted.spec, &wanted.status) != (&present.spec, &present.status) {
        context.cluster.replace(&wanted).await?;
    }
    Ok(Next::Wait)
}

fn new(context: &Context) -> CdiConfig {
    let mut all_labels = context.settings.installation.labels();
    all_labels.insert(labels::COMPONENT.into(), String::new());
    CdiConfig {
        metadata: ObjectMeta {
            name: Some(names::CDI_CONFIG.into()),
            labels: Some(all_labels),
            owner_references: context.owner().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Default::default(),
        status: None,
    }
}

/// How clients outside of the cluster reach the upload proxy: an Ingress, and the certificates that they meet there.
async fn entrance(context: &Context) -> Result<Option<Entrance>, Error> {
    let namespace = &context.settings.installation.namespace;
    let ingresses = context.cluster.stores.ingresses.list();
    let Some((host, secrets)) = plan::ingress_entrance(&ingresses) else { return Ok(None) };
    let pem = match secrets.first() {
        Some(name) => {
            let secret = context.cluster.get::<Secret>(namespace, name).await?;
            let bytes = secret.and_then(|secret| secret.data?.remove(TLS_CERTIFICATE));
            bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned())
        }
        // One without certificates of its own shows those of the cluster.
        None => {
            let map =
                context.cluster.get::<ConfigMap>(namespace, names::ROOT_CA_CONFIG_MAP).await?;
            map.and_then(|map| map.data?.remove(names::ROOT_CA_KEY))
        }
    };
    let certificates = pem.map(|pem| {
        auth::Certificate::read_all(&pem).iter().filter_map(certificate).collect::<Vec<_>>()
    });
    Ok(Some(Entrance { host, certificates }))
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
