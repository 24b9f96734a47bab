//! Who says what the newest image is, and who may have it.

use std::sync::Arc;
use std::time::Duration;

use api::names;
use api::v1beta1::DataImportCron;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};

use super::jobs;
use crate::engine::{Engine, Error};
use crate::image_polling::ask::NoAnswer;
use crate::image_polling::polls;
use controller_core::data_import_cron::image_stream::{self, ImageStream, NoImage};
use controller_core::data_import_cron::{Answer, Poller};
use controller_core::plan::{Plan, Write};
use controller_core::{data_import_cron as crons, meta};

/// When to look again at a cron that is polled elsewhere.
const ELSEWHERE: Duration = Duration::from_secs(5);
/// How often a pod is looked at whose image a node pulls.
const PULLING: Duration = Duration::from_secs(3);
/// No node takes longer for one image, or it never will.
const PULL_TIME_MAX: SignedDuration = SignedDuration::from_mins(30);

/// What came of a question.
pub enum Found {
    /// An answer.
    Answer(Answer),
    /// None yet: look again then.
    Later(Duration),
    /// The cron's service account may not clone the PVC, so nothing about it is looked up.
    Denied,
}

/// Asks the source of a cron.
pub async fn poll(
    engine: &Arc<Engine>,
    cron: &Arc<DataImportCron>,
    poller: Poller,
) -> Result<Found, Error> {
    match poller {
        Poller::Registry | Poller::Web => Ok(Found::Later(polls::begin(engine, cron))),
        Poller::Claim if !may_clone(engine, cron).await? => Ok(Found::Denied),
        Poller::Claim => Ok(Found::Answer(claim(engine, cron))),
        Poller::ImageStream => Ok(match engine.polls.try_begin(cron) {
            Err(wait) => Found::Later(wait),
            Ok(()) => Found::Answer(match stream(engine, cron).await {
                Ok(answer) => answer,
                Err(error) => engine.polls.failed(cron, &error),
            }),
        }),
        Poller::NodePull => match pulled(engine, cron).await {
            // No pod may be made, which is no reason to leave everything else undone.
            Err(error) if error.is_final() => Ok(Found::Answer(engine.polls.failed(cron, &error))),
            other => other,
        },
        // Nobody is asked here: a plan says so of neither.
        Poller::Nobody | Poller::Job => Ok(Found::Later(ELSEWHERE)),
    }
}

/// The claim that is cloned: another one of its name is another image.
fn claim(engine: &Engine, cron: &DataImportCron) -> Answer {
    let source = cron.spec.template.spec.source.as_ref();
    let Some(place) = source.and_then(|source| source.pvc.as_ref()) else {
        return engine.polls.failed(cron, &NoAnswer::BrokenOff);
    };
    let own = meta::namespace(&cron.metadata);
    let namespace = if place.namespace.is_empty() { own } else { place.namespace.as_str() };
    let (namespace, name) = (namespace.to_owned(), place.name.clone());
    match engine.api.caches.claims.get(&namespace, &name) {
        Some(claim) => engine.polls.found(cron, &format!("uid:{}", meta::uid(&claim.metadata))),
        None => engine.polls.failed(cron, &NoAnswer::NoClaim { namespace, name }),
    }
}

/// What the tag of an ImageStream means now.
async fn stream(engine: &Engine, cron: &DataImportCron) -> Result<Answer, Error> {
    let source = cron.spec.template.spec.source.as_ref();
    let registry = source.and_then(|source| source.registry.as_ref());
    let text = registry.and_then(|registry| registry.image_stream.as_deref()).unwrap_or_default();
    let (name, _) = image_stream::parts(text);
    let namespace = meta::namespace(&cron.metadata);
    let kind = GroupVersionKind::gvk("image.openshift.io", "v1", "ImageStream");
    let resource = ApiResource::from_gvk_with_plural(&kind, "imagestreams");
    let api: Api<DynamicObject> = Api::namespaced_with(engine.api.client(), namespace, &resource);
    let found = api.get_opt(name).await.map_err(|source| Error::Api {
        action: "read",
        kind: "ImageStream".into(),
        name: format!("{namespace}/{name}"),
        source: Box::new(source),
    })?;
    let missing = || Error::ImageStream(NoImage::NoStream { stream: name.to_owned() });
    let found = found.ok_or_else(missing)?;
    // One of another form names no tag, which is then what is said.
    let stream: ImageStream = serde_json::from_value(found.data).unwrap_or_default();
    let item = image_stream::newest(&stream, text).map_err(Error::ImageStream)?;
    let reference = Some(item.docker_image_reference.clone());
    Ok(match engine.polls.found(cron, &item.image) {
        Answer::Newest { digest, .. } => Answer::Newest { digest, image_stream_ref: reference },
        other => other,
    })
}

/// What a node pulls, by its own registries and credentials. The pod goes before its answer counts, or it would be the
/// answer to the next question too.
async fn pulled(engine: &Engine, cron: &DataImportCron) -> Result<Found, Error> {
    let refused = |because: String| {
        Found::Answer(engine.polls.failed(cron, &NoAnswer::NotPulled { because }))
    };
    let Some(wanted) = jobs::node_pod(engine, cron) else {
        return Ok(refused("the image has no address".into()));
    };
    let (namespace, name) = (meta::namespace(&wanted.metadata), meta::name(&wanted.metadata));
    let Some(pod) = engine.api.get::<Pod>(namespace, name).await? else {
        if let Err(wait) = engine.polls.try_begin(cron) {
            return Ok(Found::Later(wait));
        }
        engine.execute_and_report(Plan::writes([Write::create(wanted)])).await?;
        return Ok(Found::Later(PULLING));
    };
    let is_another =
        meta::controller(&pod.metadata).is_none_or(|owner| owner.uid != meta::uid(&cron.metadata));
    if pod.metadata.deletion_timestamp.is_some() {
        return Ok(Found::Later(PULLING));
    }
    let is_old = is_another || age(&pod, engine.now()) > PULL_TIME_MAX;
    let said = crons::jobs::pulled_digest(&pod);
    if said.is_none() && !is_old {
        return Ok(Found::Later(PULLING));
    }
    engine.execute_and_report(Plan::writes(Write::delete(&pod))).await?;
    Ok(match said {
        Some(Ok(digest)) if !is_old => Found::Answer(engine.polls.found(cron, &digest)),
        // Of a question that nobody remembers.
        Some(Ok(_)) => Found::Later(PULLING),
        Some(Err(because)) => refused(because),
        None if is_another => Found::Later(PULLING),
        None => refused("no node has pulled the image in half an hour".into()),
    })
}

fn age(pod: &Pod, now: Timestamp) -> SignedDuration {
    let created = pod.metadata.creation_timestamp.as_ref();
    created.map_or(SignedDuration::ZERO, |created| now.duration_since(created.0))
}

/// Whether the service account of the cron may read the claim that it clones. Within a namespace there is nothing to
/// protect.
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
    // Either will do, as for a clone that somebody asks for.
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
