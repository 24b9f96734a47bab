//! Executes plans: the only code that writes to the cluster for the controllers.
//!
//! Each response goes into the cache, so the next reconcile sees it. A controller that is killed between two writes
//! converges, as each write is safe to repeat.

use std::borrow::Cow;

use api::annotations::import;
use api::v1beta1::{
    Cdi, CdiConfig, DataImportCron, DataSource, DataVolume, ObjectTransfer, StorageProfile,
    VolumeCloneSource, VolumeImportSource, VolumeUploadSource,
};
use auth::token::Resource;
use controller_core::bound::ObservedEvent;
use controller_core::meta;
use controller_core::object::{Object, ObjectKind, ObjectRef, Writable};
use controller_core::openshift::Proxy;
use controller_core::plan::{ObjectEvent, Plan, Presence, Requeue, StatusPatch, Write};
use controller_core::refusal::{OnRefused, PvcNote, RefusalReport};
use controller_core::snapshot::VolumeSnapshot;
use controller_core::volume::PersistentVolume;
use controller_core::{bound, plan};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::engine::api_client::{CreateOutcome, Kind};
use crate::engine::{Engine, Error, image_proof};

/// What a write came to.
#[derive(Debug)]
pub enum Outcome {
    Created(Object),
    /// There was an object of this name already.
    Existed,
    Changed(Object),
    Deleted,
}

type WriteFuture<'a> = BoxFuture<'a, Result<Outcome, Error>>;

/// A plan whose writes are done. Only [`Engine::execute`] makes one, so that neither status nor events come first.
#[derive(Debug)]
#[must_use = "status and events are written by `Engine::report`"]
pub struct Applied {
    status: Option<StatusPatch>,
    events: Vec<ObjectEvent>,
    requeue: Requeue,
}

/// `$body` with `$K` as the type of the kind.
macro_rules! with_kind {
    ($kind:expr, $K:ident => $body:expr) => {
        with_kind!(@ $kind, $K => $body; Cdi CdiConfig ConfigMap CronJob DataImportCron DataSource
            DataVolume Job ObjectTransfer PersistentVolume PersistentVolumeClaim Pod Proxy Secret
            Service StorageProfile VolumeCloneSource VolumeImportSource VolumeSnapshot
            VolumeUploadSource)
    };
    (@ $kind:expr, $K:ident => $body:expr; $($name:ident)*) => {
        match $kind { $(ObjectKind::$name => { type $K = $name; $body })* }
    };
}

/// The same for an object: `$it` is the object in its type.
macro_rules! with_object {
    ($object:expr, $it:ident => $body:expr) => {
        with_object!(@ $object, $it => $body; Cdi CdiConfig ConfigMap CronJob DataImportCron
            DataSource DataVolume Job ObjectTransfer PersistentVolume PersistentVolumeClaim Pod
            Proxy Secret Service StorageProfile VolumeCloneSource VolumeImportSource VolumeSnapshot
            VolumeUploadSource)
    };
    (@ $object:expr, $it:ident => $body:expr; $($name:ident)*) => {
        match $object { $(Object::$name($it) => $body),* }
    };
}

/// An object as an earlier write of the same plan left it, and its finalizers.
fn changed_by(outcomes: &[Outcome], target: &ObjectRef) -> Option<(ObjectRef, Vec<String>)> {
    outcomes.iter().rev().find_map(|outcome| {
        let (Outcome::Created(object) | Outcome::Changed(object)) = outcome else { return None };
        let reference = object.reference();
        let is_target = reference.kind == target.kind && reference.key == target.key;
        let finalizers = with_object!(object, it => it.metadata.finalizers.clone());
        (is_target && reference.uid == target.uid)
            .then(|| (reference, finalizers.unwrap_or_default()))
    })
}

/// An object of this kind and name that an earlier write of the same plan has created.
fn created_by(outcomes: &[Outcome], target: &ObjectRef) -> Option<(ObjectRef, ObjectMeta)> {
    outcomes.iter().rev().find_map(|outcome| {
        let Outcome::Created(object) = outcome else { return None };
        let reference = object.reference();
        let is_target = reference.kind == target.kind && reference.key == target.key;
        is_target.then(|| (reference, with_object!(object, it => it.metadata.clone())))
    })
}

fn finalizers_patch(presence: Presence, name: &str, finalizers: &[String]) -> Value {
    json!({ "metadata": { "finalizers": presence.apply(name, finalizers) } })
}

impl Engine {
    /// Executes the writes of a plan, in order. The first failure ends them, and is reported as the plan requests.
    ///
    /// # Errors
    /// The failure.
    pub(crate) async fn execute(&self, plan: Plan) -> Result<Applied, Error> {
        let Plan { writes, status, events, requeue, requeue_if_exists, on_refused } = plan;
        let mut outcomes = Vec::with_capacity(writes.len());
        for write in &writes {
            match self.write(write, &outcomes).await {
                Ok(outcome) => outcomes.push(outcome),
                Err(error) => {
                    if let OnRefused::Report(report) = &on_refused
                        && report.kind == write.kind()
                    {
                        self.report_failure(report, &error).await?;
                    }
                    return Err(error);
                }
            }
        }
        let events = events_after(events, &writes, &outcomes);
        let existed = outcomes.iter().any(|outcome| matches!(outcome, Outcome::Existed));
        match requeue_if_exists.filter(|_| existed) {
            Some(requeue) => Ok(Applied { status: None, events: Vec::new(), requeue }),
            None => Ok(Applied { status, events, requeue }),
        }
    }

    /// Writes the status of an executed plan, then records its events.
    ///
    /// # Errors
    /// Where the status cannot be written: then no event is recorded.
    pub(crate) async fn report(&self, applied: Applied) -> Result<Requeue, Error> {
        if let Some(patch) = &applied.status {
            with_kind!(patch.target.kind, K => self.patch_status::<K>(patch)).await?;
        }
        for ObjectEvent { component, about, event } in &applied.events {
            self.recorder.record(component, about, event).await;
        }
        Ok(applied.requeue)
    }

    /// [`Engine::execute`], then [`Engine::report`].
    ///
    /// # Errors
    /// As those.
    pub(crate) async fn execute_and_report(&self, plan: Plan) -> Result<Requeue, Error> {
        let applied = self.execute(plan).await?;
        self.report(applied).await
    }

    /// Boxed by kind: a future with the responses of all kinds in it would fill the stack.
    fn write<'a>(&'a self, write: &'a Write, outcomes: &'a [Outcome]) -> WriteFuture<'a> {
        match write {
            Write::Create(object) => with_object!(object, it => self.create(it.as_ref())),
            Write::Replace(object) => with_object!(object, it => self.replace(it.as_ref())),
            Write::Patch { target, merge, guarded } => {
                with_kind!(target.kind, K => self.patch::<K>(target, Cow::Borrowed(merge), *guarded))
            }
            Write::Sign { target, annotation, statement } => {
                match image_proof::sign(self, statement) {
                    Some(token) => {
                        let merge =
                            json!({ "metadata": { "annotations": { *annotation: token } } });
                        let merge = Cow::Owned(merge);
                        with_kind!(target.kind, K => self.patch::<K>(target, merge, false))
                    }
                    None => async { Ok(Outcome::Existed) }.boxed(),
                }
            }
            Write::SignCreated { target, image } => {
                let created = created_by(outcomes, target);
                let signed = created.and_then(|(reference, metadata)| {
                    let statement = image.statement(Resource::snapshots(), &metadata)?;
                    Some((reference, image_proof::sign(self, &statement)?))
                });
                let Some((reference, token)) = signed else {
                    return async { Ok(Outcome::Existed) }.boxed();
                };
                let merge =
                    json!({ "metadata": { "annotations": { import::GOLDEN_IMAGE_PROOF: token } } });
                let target: Cow<ObjectRef> = Cow::Owned(reference);
                with_kind!(target.kind, K => self.patch_changed::<K>(target, merge, false))
            }
            Write::SetFinalizer { target, name, presence, present } => {
                let changed = changed_by(outcomes, target);
                let merge = match &changed {
                    Some((_, finalizers)) => finalizers_patch(*presence, name, finalizers),
                    None => finalizers_patch(*presence, name, present),
                };
                let target = match changed {
                    Some((reference, _)) => Cow::Owned(reference),
                    None => Cow::Borrowed(target),
                };
                let patched =
                    with_kind!(target.kind, K => self.patch_changed::<K>(target, merge, true));
                // The object's end ends its finalizers.
                let is_removal = *presence == Presence::Absent;
                let without_object = move |outcome: Result<Outcome, Error>| match outcome {
                    Err(error) if is_removal && error.is_gone() => Ok(Outcome::Deleted),
                    outcome => outcome,
                };
                patched.map(without_object).boxed()
            }
            Write::Delete(target) => with_kind!(target.kind, K => self.delete::<K>(target)),
        }
    }

    fn create<'a, K: Kind + Writable>(&'a self, object: &'a K) -> WriteFuture<'a> {
        Box::pin(async move {
            Ok(match self.api.create(object).await? {
                CreateOutcome::Created(created) => Outcome::Created(created.into_object()),
                CreateOutcome::AlreadyExists => Outcome::Existed,
            })
        })
    }

    fn replace<'a, K: Kind + Writable>(&'a self, object: &'a K) -> WriteFuture<'a> {
        Box::pin(async move { Ok(Outcome::Changed(self.api.replace(object).await?.into_object())) })
    }

    fn patch<'a, K: Kind + Writable>(
        &'a self,
        target: &'a ObjectRef,
        merge: Cow<'a, Value>,
        guarded: bool,
    ) -> WriteFuture<'a> {
        Box::pin(async move {
            let changed = self.api.patch_ref::<K>(target, &merge, guarded).await?;
            Ok(Outcome::Changed(changed.into_object()))
        })
    }

    /// Patches an object as the earlier writes of its plan have left it.
    fn patch_changed<'a, K: Kind + Writable>(
        &'a self,
        target: Cow<'a, ObjectRef>,
        merge: Value,
        guarded: bool,
    ) -> WriteFuture<'a> {
        Box::pin(async move {
            let changed = self.api.patch_ref::<K>(&target, &merge, guarded).await?;
            Ok(Outcome::Changed(changed.into_object()))
        })
    }

    fn patch_status<'a, K: Kind + Writable>(&'a self, patch: &'a StatusPatch) -> WriteFuture<'a> {
        Box::pin(async move {
            let StatusPatch { target, status } = patch;
            let changed = self.api.patch_status_ref::<K>(target, status).await?;
            Ok(Outcome::Changed(changed.into_object()))
        })
    }

    fn delete<'a, K: Kind + Writable>(&'a self, target: &'a ObjectRef) -> WriteFuture<'a> {
        Box::pin(async move { self.api.delete_ref::<K>(target).await.map(|()| Outcome::Deleted) })
    }

    /// Reports a failure to users: in annotations of the PVC, then by events.
    ///
    /// # Errors
    /// Where the PVC cannot be annotated.
    pub(crate) async fn report_failure(
        &self,
        report: &RefusalReport,
        error: &Error,
    ) -> Result<(), Error> {
        let Some(event) = report.event(&error.to_write_failure()) else { return Ok(()) };
        if let Some((key, note)) = &report.note {
            let claims = &self.api.caches.claims;
            if *note == PvcNote::NotBound {
                let seen = ObservedEvent { event: event.clone(), at: Some(self.now()) };
                self.pvc_warnings.record(key.clone(), seen);
            }
            if let Some(claim) = claims.get(&key.namespace, &key.name) {
                let changes = match note {
                    PvcNote::NotBound => self.bound_annotations(&claim),
                    PvcNote::CopyNotRunning | PvcNote::WorkerFailed => {
                        note.annotations(&claim, &event)
                    }
                };
                if let Some(merge) = plan::metadata_patch(&meta::Pairs::new(), &changes) {
                    let target = ObjectRef::for_object(claim.as_ref());
                    self.api.patch_ref::<PersistentVolumeClaim>(&target, &merge, false).await?;
                }
            }
        }
        for audience in &report.audience {
            let message = format!("{}{}", audience.prefix, event.message);
            let event = controller_core::event::Event { message, ..event.clone() };
            self.recorder.record(audience.component, &audience.about, &event).await;
        }
        Ok(())
    }

    /// The annotations that report why a PVC is not bound.
    pub(crate) fn bound_annotations(&self, claim: &PersistentVolumeClaim) -> meta::Changes {
        let (namespace, name) = (meta::namespace(&claim.metadata), meta::name(&claim.metadata));
        self.annotations_with(claim, &self.pvc_warnings.for_pvc(namespace, name))
    }

    /// The same, with these warnings about the PVC.
    pub(crate) fn annotations_with(
        &self,
        claim: &PersistentVolumeClaim,
        warnings: &[ObservedEvent],
    ) -> meta::Changes {
        let prime = api::names::prime_pvc(meta::uid(&claim.metadata));
        let prime = self.api.caches.claims.get(meta::namespace(&claim.metadata), &prime);
        bound::annotations(claim, prime.as_deref(), warnings)
    }
}

/// Events about an object that the plan created get its UID, which the plan did not know. Those about one that had existed are
/// dropped: they are about its creation.
fn events_after(
    events: Vec<ObjectEvent>,
    writes: &[Write],
    outcomes: &[Outcome],
) -> Vec<ObjectEvent> {
    let outcome_of = |about: &ObjectRef| {
        let is_it =
            |write: &Write| matches!(write, Write::Create(object) if object.reference() == *about);
        let at = writes.iter().position(is_it).filter(|_| about.uid.is_none())?;
        outcomes.get(at)
    };
    let complete = |event: ObjectEvent| match outcome_of(&event.about) {
        Some(Outcome::Created(object)) => Some(ObjectEvent { about: object.reference(), ..event }),
        Some(Outcome::Existed) => None,
        Some(Outcome::Changed(_) | Outcome::Deleted) | None => Some(event),
    };
    events.into_iter().filter_map(complete).collect()
}
