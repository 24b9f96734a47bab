//! One pass over the CDI object that counts: settings, certificates, objects, status.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::v1beta1::Cdi;
use api::{labels, names};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::certificate_manager::lifetimes;
use crate::chains::{API_BUNDLE, InstallationChains};
use crate::desired::{DesiredFacts, OperatorEnvironment, PlatformApi, desired_objects};
use crate::error::Error;
use crate::events::InstallationEvent;
use crate::installer::apply::{ApplyContext, ApplyReport, apply_object, delete_object};
use crate::installer::dump::dump_objects;
use crate::installer::platform::read_platform;
use crate::installer::replace_pods::replace_pods_with_rejected_tokens;
use crate::installer::{Installer, PassOutcome};
use crate::kinds::{self, ObjectId, Scope};
use crate::manifests::PVC_WEBHOOK;
use crate::metadata;
use crate::plan::abrupt_pods::{Routing, route_past_abrupt_pods};
use crate::plan::authority::{claim_config_authority, needs_config};
use crate::plan::completion::{
    CLEANED_KINDS, CompletionFacts, CompletionStep, DEPRECATED_CONFIG_MAP, WriteVerb,
    completion_step, is_deployment_ready, obsolete_objects,
};
use crate::plan::drift::{DriftFacts, OWN_CRD, ObjectStep, object_step};
use crate::plan::lifecycle::{FINALIZER, INSTALLED_VERSION, MARKER, blocks_installation};
use crate::plan::routes::{INJECTED, INJECTED_MESSAGE, with_destination_ca};
use crate::plan::status::{Health, Phase, Versions, reason, set_status};

/// The pods of the programs.
const PROGRAM_SELECTOR: &str = "cdi.kubevirt.io in (cdi-apiserver,cdi-deployment,cdi-uploadproxy)";

/// The objects of an installation, and why some cannot be computed.
pub(super) struct Rendered {
    pub objects: Vec<(ObjectId, Value)>,
    pub errors: Vec<String>,
    pub upload_proxy_ca: Option<String>,
    pub served_apis: BTreeSet<PlatformApi>,
}

impl Installer {
    pub(super) async fn keep(
        &mut self,
        installation: Value,
        marker: &Value,
        now: Timestamp,
    ) -> Result<PassOutcome, Error> {
        let installation = self.claim_settings(installation, now).await?;
        let cdi = match serde_json::from_value::<Cdi>(installation.clone()) {
            Ok(cdi) => cdi,
            Err(error) => {
                let message = format!(
                    "Unable to create all resources: cannot decode the CDI object: {error}"
                );
                let health = Health::not_rendered(message);
                let mut changed = installation.clone();
                set_status(&mut changed, None, &Versions::default(), Some(&health), now);
                self.write_installation(&installation, &changed).await?;
                return Ok(PassOutcome::idle());
            }
        };
        let lifetimes = lifetimes(std::slice::from_ref(&cdi));
        let certificates = self.certificates.reconcile_chains(&lifetimes, system_time(now)).await;
        let adopted = self.adopt_program_objects(&installation).await;
        let mut rendered = self.render(&cdi).await?;
        let namespace = &self.environment.namespace;
        let pods = self.api.list(&kinds::POD, namespace, Some(PROGRAM_SELECTOR)).await?;
        let routing = route_past_abrupt_pods(&mut rendered.objects, &pods);
        self.served_apis = rendered.served_apis.clone();
        let ca_bundle = self.api_server_bundle().await?;
        let version = self.environment.version.clone();
        let mut report =
            ApplyReport { awaited: routing == Routing::InProgress, ..ApplyReport::default() };
        let mut context = ApplyContext {
            api: &self.api,
            events: &mut self.events,
            accepted: &mut self.accepted,
            installation: &installation,
            operator_version: &version,
            ca_bundle,
            now,
        };
        let created = *certificates.as_ref().unwrap_or(&0);
        for (what, outcome) in
            [("certificates", certificates.map(drop)), ("objects of the programs", adopted)]
        {
            if let Err(error) = outcome {
                report.fail(&mut context, WriteVerb::Update, what.to_owned(), &error).await;
            }
        }
        apply_all(&mut context, &mut report, &rendered, namespace).await;
        replace_pods_with_rejected_tokens(&mut context, &mut report, namespace, &pods).await;
        if self.environment.dumps_objects {
            dump_objects(&mut context, &mut report, &rendered.objects, namespace).await;
        }
        let desired: Vec<_> = rendered.objects.iter().map(|(id, _)| id.clone()).collect();
        remove_unwanted(&mut context, &mut report, &desired, &self.environment).await;
        if rendered.served_apis.contains(&PlatformApi::Route)
            && let Some(ca) = &rendered.upload_proxy_ca
        {
            inject_into_routes(&mut context, &mut report, ca, &self.environment.namespace).await;
        }
        let phase = Phase::of_installation(&installation);
        if phase == Some(Phase::Deployed)
            && report.failures.is_empty()
            && self.cleaned_for.as_ref() != Some(&desired)
        {
            let scope = self.environment.deploys_cluster_resources;
            delete_obsolete(
                &mut context,
                &mut report,
                &desired,
                &self.environment.namespace,
                scope,
            )
            .await;
            self.cleaned_for = report.failures.is_empty().then(|| desired.clone());
        }
        self.finish(&installation, marker, &rendered, &desired, report, now)
            .await
            .map(|outcome| PassOutcome { certificates_created: created, ..outcome })
    }

    /// The finalizer, the operator's version and the authority of `spec.config`.
    async fn claim_settings(&self, installation: Value, now: Timestamp) -> Result<Value, Error> {
        let mut changed = installation.clone();
        metadata::add_finalizer(&mut changed, FINALIZER);
        let configs = if needs_config(&changed) {
            self.api.list(&kinds::CDI_CONFIG, "", None).await?
        } else {
            Vec::new()
        };
        claim_config_authority(&mut changed, &configs);
        let versions = Versions::started(&self.environment.version);
        set_status(&mut changed, None, &versions, None, now);
        self.write_installation(&installation, &changed).await
    }

    pub(super) async fn render(&self, cdi: &Cdi) -> Result<Rendered, Error> {
        let platform = read_platform(&self.api, &self.environment.namespace, cdi).await?;
        let desired = desired_objects(&DesiredFacts {
            cdi,
            environment: &self.environment,
            platform: &platform,
        });
        let mut errors: Vec<_> = desired.errors.iter().map(|error| runtime::chain(error)).collect();
        let mut objects = Vec::new();
        for object in desired.objects {
            match ObjectId::of_object(&object) {
                Some(id) => objects.push((id, object)),
                None => errors.push(format!(
                    "{} {} is of a kind that the operator does not write",
                    object["kind"],
                    metadata::name(&object)
                )),
            }
        }
        Ok(Rendered {
            objects,
            errors,
            served_apis: platform.apis,
            upload_proxy_ca: platform.upload_proxy_ca,
        })
    }

    /// The CA bundle of the webhooks, in base64.
    pub(super) async fn api_server_bundle(&self) -> Result<Option<String>, Error> {
        let id = ObjectId::new(&kinds::CONFIG_MAP, &self.environment.namespace, API_BUNDLE);
        let bundle = self.api.get(&id).await?;
        let text = bundle.as_ref().and_then(|bundle| bundle["data"][names::CA_BUNDLE_KEY].as_str());
        let encoded = text.map(|text| json!(ByteString(text.as_bytes().to_vec())));
        Ok(encoded.and_then(|encoded| encoded.as_str().map(str::to_owned)))
    }

    /// An object of the desired set that garbage collection is about to delete.
    pub(super) async fn find_orphan(
        &self,
        installation: &Value,
    ) -> Result<Option<ObjectId>, Error> {
        let Ok(cdi) = serde_json::from_value::<Cdi>(installation.clone()) else { return Ok(None) };
        let rendered = self.render(&cdi).await?;
        let uid = metadata::uid(installation);
        for (id, _) in rendered.objects.into_iter().filter(|(id, _)| id.name != OWN_CRD) {
            let found = self.api.get(&id).await?;
            if found.is_some_and(|found| blocks_installation(&found, uid)) {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Certificates, keys and settings that the programs write: they get the labels of the installation, and go with it.
    pub(super) async fn adopt_program_objects(&self, installation: &Value) -> Result<(), Error> {
        let namespace = &self.environment.namespace;
        let chains = InstallationChains::new(namespace);
        let secrets = chains.secrets().into_iter().chain([names::SIGNING_KEY_SECRET]);
        let secrets = secrets.map(|name| ObjectId::new(&kinds::SECRET, namespace, name));
        let configs = chains.bundles().into_iter().chain([MARKER, names::PLATFORM_CA_CONFIG_MAP]);
        let configs = configs.map(|name| ObjectId::new(&kinds::CONFIG_MAP, namespace, name));
        let mut labels = json!({
            labels::APP_COMPONENT: "storage", labels::MANAGED_BY: labels::component::OPERATOR,
        });
        for label in [labels::PART_OF, labels::VERSION] {
            if let Some(value) = metadata::label(installation, label) {
                labels[label] = value.into();
            }
        }
        let owner = metadata::installation_reference(installation);
        for id in secrets.chain(configs) {
            let Some(current) = self.api.get(&id).await? else { continue };
            let desired = json!({ "metadata": { "labels": labels } });
            let step = object_step(&DriftFacts {
                id: &id,
                desired: &desired,
                current: Some(&current),
                owner: &owner,
                operator_version: &self.environment.version,
                ca_bundle: None,
                accepted: None,
            });
            if let ObjectStep::Replace(adopted) = step {
                self.api.replace(&id, &adopted).await?;
            }
        }
        Ok(())
    }

    /// Completes an installation or upgrade, and writes the status.
    async fn finish(
        &mut self,
        installation: &Value,
        marker: &Value,
        rendered: &Rendered,
        desired: &[ObjectId],
        mut report: ApplyReport,
        now: Timestamp,
    ) -> Result<PassOutcome, Error> {
        let phase = Phase::of_installation(installation);
        let version = self.environment.version.clone();
        let not_ready = not_ready(desired, &report);
        let step = |report: &ApplyReport| {
            completion_step(&CompletionFacts {
                phase,
                operator_version: &version,
                not_rendered: &rendered.errors,
                failures: &report.failures,
                not_ready: &not_ready,
                awaited: report.awaited,
            })
        };
        let mut decided = step(&report);
        if decided == CompletionStep::Complete {
            let mut context = ApplyContext {
                api: &self.api,
                events: &mut self.events,
                accepted: &mut self.accepted,
                installation,
                operator_version: &version,
                ca_bundle: None,
                now,
            };
            let scope = self.environment.deploys_cluster_resources;
            delete_obsolete(&mut context, &mut report, desired, &self.environment.namespace, scope)
                .await;
            decided = step(&report);
        }
        let mut changed = installation.clone();
        match decided {
            CompletionStep::Report(health) => {
                set_status(&mut changed, None, &Versions::default(), health.as_ref(), now);
                self.write_installation(installation, &changed).await?;
            }
            CompletionStep::Complete => {
                self.cleaned_for = Some(desired.to_vec());
                self.record_version(marker).await?;
                let (versions, health) = (Versions::completed(&version), Health::deployed());
                let phase = Some(Phase::Deployed);
                set_status(&mut changed, phase, &versions, Some(&health), now);
                self.write_installation(installation, &changed).await?;
                tracing::info!("version {version} is deployed");
                let message = health.available.message;
                let event = InstallationEvent::normal(reason::DEPLOY_COMPLETED, message);
                self.events.record(&self.api, installation, event, now).await;
            }
        }
        if let Some(first) = report.failures.first() {
            let count = report.failures.len();
            return Err(Error::NotApplied { count, first: first.message() });
        }
        let outcome = if report.awaited { PassOutcome::awaiting() } else { PassOutcome::idle() };
        Ok(PassOutcome { tls_minimum: self.certificates.tls_minimum().await, ..outcome })
    }

    /// Before the status: a CDI object that reports this version was installed by this operator.
    async fn record_version(&self, marker: &Value) -> Result<(), Error> {
        // It may have been adopted in this pass.
        let found = self.api.get(&self.marker_id()).await?;
        let mut marker = found.unwrap_or_else(|| marker.clone());
        let version = &self.environment.version;
        if metadata::annotation(&marker, INSTALLED_VERSION) != Some(version) {
            metadata::set_annotation(&mut marker, INSTALLED_VERSION, version);
            self.api.replace(&self.marker_id(), &marker).await?;
        }
        Ok(())
    }
}

async fn apply_all(
    context: &mut ApplyContext<'_>,
    report: &mut ApplyReport,
    rendered: &Rendered,
    namespace: &str,
) {
    let controller = ObjectId::new(&kinds::DEPLOYMENT, namespace, labels::component::DEPLOYMENT);
    let installation = metadata::installation_reference(context.installation);
    for (id, desired) in &rendered.objects {
        let mut owner = installation.clone();
        if id.kind == &kinds::ROUTE {
            // It serves uploads, which need the controller; and it is deleted with it.
            match report.observed.get(&controller) {
                Some(found) if is_deployment_ready(found) => {
                    let kind = &kinds::DEPLOYMENT;
                    owner = metadata::controller_reference(&kind.api_version(), kind.kind, found);
                }
                _ => continue,
            }
        }
        apply_object(context, report, id, desired, &owner).await;
    }
}

fn not_ready(desired: &[ObjectId], report: &ApplyReport) -> Vec<String> {
    let deployments = desired.iter().filter(|id| id.kind == &kinds::DEPLOYMENT);
    let missing =
        deployments.filter(|id| !report.observed.get(*id).is_some_and(is_deployment_ready));
    missing.map(|id| id.name.clone()).collect()
}

/// Objects that a setting removes, and that upgrades from old versions have left.
async fn remove_unwanted(
    context: &mut ApplyContext<'_>,
    report: &mut ApplyReport,
    desired: &[ObjectId],
    environment: &OperatorEnvironment,
) {
    let mut unwanted =
        vec![ObjectId::new(&kinds::CONFIG_MAP, &environment.namespace, DEPRECATED_CONFIG_MAP)];
    let webhook = ObjectId::new(&kinds::MUTATING_WEBHOOKS, "", PVC_WEBHOOK);
    if environment.deploys_cluster_resources && !desired.contains(&webhook) {
        unwanted.push(webhook);
    }
    for id in unwanted {
        match context.api.get(&id).await {
            Ok(Some(found)) if !metadata::is_terminating(&found) => {
                delete_object(context, report, &id, metadata::uid(&found)).await;
            }
            Ok(_) => {}
            Err(error) => report.fail(context, WriteVerb::Delete, id.to_string(), &error).await,
        }
    }
}

/// Deletes what earlier versions or settings have installed and nothing desires any more.
async fn delete_obsolete(
    context: &mut ApplyContext<'_>,
    report: &mut ApplyReport,
    desired: &[ObjectId],
    namespace: &str,
    includes_cluster_scope: bool,
) {
    for kind in CLEANED_KINDS {
        let namespace = match kind.scope {
            Scope::Cluster if !includes_cluster_scope => continue,
            Scope::Cluster => "",
            Scope::Namespaced => namespace,
        };
        let observed = match context.api.list(kind, namespace, Some(metadata::CREATE_VERSION)).await
        {
            Ok(observed) => observed,
            Err(error) => {
                report.fail(context, WriteVerb::Delete, kind.plural.to_owned(), &error).await;
                continue;
            }
        };
        let uid = metadata::uid(context.installation).to_owned();
        for (id, object) in obsolete_objects(kind, &observed, &uid, desired) {
            delete_object(context, report, &id, metadata::uid(object)).await;
        }
    }
}

async fn inject_into_routes(
    context: &mut ApplyContext<'_>,
    report: &mut ApplyReport,
    ca: &str,
    namespace: &str,
) {
    let routes = match context.api.list(&kinds::ROUTE, namespace, None).await {
        Ok(routes) => routes,
        Err(error) => {
            return report.fail(context, WriteVerb::Update, "routes".to_owned(), &error).await;
        }
    };
    for route in routes {
        let Some(mut changed) = with_destination_ca(&route, ca) else { continue };
        let id = ObjectId::new(&kinds::ROUTE, namespace, metadata::name(&route));
        changed["apiVersion"] = kinds::ROUTE.api_version().into();
        changed["kind"] = kinds::ROUTE.kind.into();
        match context.api.replace(&id, &changed).await {
            Ok(written) => {
                let event = InstallationEvent::normal(INJECTED, INJECTED_MESSAGE);
                context.events.record(context.api, &written, event, context.now).await;
            }
            Err(error) => report.fail(context, WriteVerb::Update, id.to_string(), &error).await,
        }
    }
}

fn system_time(now: Timestamp) -> SystemTime {
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    UNIX_EPOCH + Duration::from_secs(seconds)
}
