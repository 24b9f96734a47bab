//! Whether the service account of a cron may clone the PVC that it polls.

use api::names;
use api::v1beta1::DataImportCron;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};

use crate::engine::{Engine, Error};
use controller_core::meta;

/// Within a namespace there is nothing to protect.
pub async fn may_clone(engine: &Engine, cron: &DataImportCron) -> Result<bool, Error> {
    let source = cron.spec.template.spec.source.as_ref();
    let Some(place) = source.and_then(|source| source.pvc.as_ref()) else { return Ok(false) };
    let namespace = meta::namespace(&cron.metadata);
    if place.namespace.is_empty() || place.namespace == namespace {
        return Ok(true);
    }
    let account = cron.spec.service_account_name.as_deref().unwrap_or("default");
    let may_create = |group: &str, resource: &str, subresource: Option<&str>| ResourceAttributes {
        namespace: Some(place.namespace.clone()),
        verb: Some("create".into()),
        group: Some(group.into()),
        resource: Some(resource.into()),
        subresource: subresource.map(str::to_owned),
        name: Some(place.name.clone()),
        ..ResourceAttributes::default()
    };
    // One of them suffices, as for a clone that a user requests.
    for resource in
        [may_create(names::GROUP, "datavolumes", Some("source")), may_create("", "pods", None)]
    {
        let spec = SubjectAccessReviewSpec {
            user: Some(names::service_account_user(namespace, account)),
            groups: Some(names::service_account_groups(namespace).into()),
            resource_attributes: Some(resource),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let api: Api<SubjectAccessReview> = Api::all(engine.api.client());
        let answered = api.create(&PostParams::default(), &review).await;
        let answered = answered.map_err(|source| Error::Api {
            action: "ask for",
            kind: "rights of".into(),
            name: format!("{namespace}/{account}"),
            source: Box::new(source),
        })?;
        if answered.status.is_some_and(|status| status.allowed) {
            return Ok(true);
        }
    }
    Ok(false)
}
