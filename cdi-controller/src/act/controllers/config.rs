//! The settings of the whole cluster: one CDIConfig, and what it comes to.

use std::sync::Arc;

use api::v1beta1::{CdiConfig, CdiConfigStatus};
use api::{labels, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::cluster::Made;
use super::super::queue::{Key, Next};
use super::super::{Context, Error};
use crate::config::{self as plan, Entrance};

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
    let entrance = entrance(&context);
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

/// How clients outside of the cluster reach the upload proxy: an Ingress. Whom they have to trust there is not looked up.
fn entrance(context: &Context) -> Option<Entrance> {
    let ingresses = context.cluster.stores.ingresses.list();
    let (host, _secrets) = plan::ingress_entrance(&ingresses)?;
    Some(Entrance { host, certificates: None })
}
