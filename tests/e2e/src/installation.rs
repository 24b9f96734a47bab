//! The system as `cargo xtask cluster install --manifests` leaves it: found, and set up once for all tests.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use api::v1beta1::{CdiConfig, StorageProfile};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::test::{PATIENCE, pause_since};
use crate::{Test, is_ready, run, run_alone};

/// Where the programs run.
pub const NAMESPACE: &str = "cdi";
/// The cluster's registry, which speaks plain HTTP.
pub const REGISTRY: &str = "10.98.0.2:5000";
/// Classes with an unknown driver, so that the tests have to set their StorageProfiles.
const CLASSES: [&str; 2] = ["csi", "csi-wait"];

static SET_UP: OnceCell<()> = OnceCell::const_new();

/// As [`run`], where this project is installed.
///
/// # Panics
/// As [`run`], and when nothing is installed.
pub fn run_installed<F>(name: &str, test: impl FnOnce(Arc<Test>) -> F)
where
    F: Future<Output = Result<()>>,
{
    run(name, async |running| {
        SET_UP.get_or_try_init(|| set_up(&running)).await?;
        test(running).await
    });
}

/// As [`run_alone`], where this project is installed.
///
/// # Panics
/// As [`run_installed`].
pub fn run_installed_alone<F>(name: &str, test: impl FnOnce(Arc<Test>) -> F)
where
    F: Future<Output = Result<()>>,
{
    run_alone(name, async |running| {
        SET_UP.get_or_try_init(|| set_up(&running)).await?;
        test(running).await
    });
}

/// The settings of an administrator: the properties of the storage, and that the registry needs no TLS.
async fn set_up(test: &Test) -> Result<()> {
    let programs = Api::<Deployment>::namespaced(test.client(), NAMESPACE);
    let found = programs.list(&ListParams::default()).await?.items;
    if found.is_empty() {
        bail!("nothing is installed; `cargo xtask cluster install --tests --manifests` does it");
    }
    for program in found {
        test.wait_among(&programs, &program.name_any(), "available", is_available).await?;
    }
    let configs = Api::<CdiConfig>::all(test.client());
    test.wait_among(&configs, "config", "there", |_| true).await?;
    let settings = json!({ "spec": { "insecureRegistries": [REGISTRY] } });
    configs.patch("config", &PatchParams::default(), &Patch::Merge(settings)).await?;
    for class in CLASSES {
        let modes = ["Filesystem", "Block"];
        let sets = modes.map(|mode| json!({"accessModes": ["ReadWriteOnce"], "volumeMode": mode}));
        test.teach(class, json!({ "claimPropertySets": sets })).await?;
    }
    Ok(())
}

fn is_available(program: &Deployment) -> bool {
    let conditions = program.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Available" && condition.status == "True")
}

/// One of the installed programs: `cdi-deployment`, `cdi-apiserver` …
pub struct Program<'a> {
    test: &'a Test,
    name: &'a str,
}

impl<'a> Program<'a> {
    /// By the name of its Deployment.
    pub fn named(test: &'a Test, name: &'a str) -> Self {
        Self { test, name }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.test.client(), NAMESPACE)
    }

    /// Its pod, once it is ready.
    ///
    /// # Errors
    /// When there is none.
    pub async fn pod(&self) -> Result<Pod> {
        let which = ListParams::default().labels(&format!("cdi.kubevirt.io={}", self.name));
        let begin = Instant::now();
        let name = loop {
            let pods = self.pods().list(&which).await?.items;
            let mut staying = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
            match staying.next() {
                Some(pod) => break pod.name_any(),
                None if begin.elapsed() > PATIENCE => bail!("{} has no pod", self.name),
                None => tokio::time::sleep(pause_since(begin)).await, // one that was lost has a successor soon
            }
        };
        self.test.wait_among(&self.pods(), &name, "ready", is_ready).await
    }

    /// Kills its processes, as a crash would.
    ///
    /// # Errors
    /// When it has none.
    pub async fn crash(&self) -> Result<()> {
        let pod = self.pod().await?;
        self.test.chaos().kill_in_pod(&pod.uid().context("a pod has a uid")?)
    }

    /// Deletes its pod without a grace period, as if its node were lost. The Deployment creates another one.
    ///
    /// # Errors
    /// When it has none.
    pub async fn lose(&self) -> Result<()> {
        let pod = self.pod().await?;
        let now = DeleteParams::default().grace_period(0);
        self.pods().delete(&pod.name_any(), &now).await?;
        Ok(())
    }

    /// Its arguments.
    ///
    /// # Errors
    /// When it is not installed.
    pub async fn words(&self) -> Result<Vec<String>> {
        let all = Api::<Deployment>::namespaced(self.test.client(), NAMESPACE);
        let spec = all.get(self.name).await?.spec.context("a Deployment has a spec")?;
        let containers = spec.template.spec.context("and its pods have one")?.containers;
        Ok(containers.into_iter().next().and_then(|container| container.args).unwrap_or_default())
    }

    /// Restarts it with these arguments, and waits until that is its only pod.
    ///
    /// # Errors
    /// When the pod does not become ready, or another one remains.
    pub async fn start_with(&self, words: &[String]) -> Result<()> {
        let all = Api::<Deployment>::namespaced(self.test.client(), NAMESPACE);
        // A list of arguments is replaced as a whole; of containers there is one, named as its Deployment.
        let patch = json!({ "spec": { "template": { "spec": { "containers": [
            { "name": self.name, "args": words },
        ] } } } });
        all.patch(self.name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
        let which = ListParams::default().labels(&format!("cdi.kubevirt.io={}", self.name));
        let begin = Instant::now();
        loop {
            let pods = self.pods().list(&which).await?.items;
            if let [pod] = pods.as_slice()
                && is_ready(pod)
                && arguments(pod) == words
            {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                bail!(
                    "{} has {} pods, of which none is ready with {words:?}",
                    self.name,
                    pods.len()
                );
            }
            tokio::time::sleep(pause_since(begin)).await;
        }
    }

    /// What it has logged.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn log(&self) -> Result<String> {
        let pod = self.pod().await?;
        Ok(self.pods().logs(&pod.name_any(), &Default::default()).await?)
    }
}

fn arguments(pod: &Pod) -> &[String] {
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    container.and_then(|container| container.args.as_deref()).unwrap_or_default()
}

impl Test {
    /// Sets the spec of the StorageProfile of a class, and waits until its status has the same values.
    ///
    /// # Errors
    /// When there is no such profile, or its status does not change.
    pub async fn teach(&self, class: &str, spec: Value) -> Result<()> {
        let profiles = Api::<StorageProfile>::all(self.client());
        self.wait_among(&profiles, class, "there", |_| true).await?;
        let patch = json!({ "spec": spec });
        let desired =
            profiles.patch(class, &PatchParams::default(), &Patch::Merge(patch)).await?.spec;
        let is_taken = |profile: &StorageProfile| {
            profile.status.as_ref().is_some_and(|status| {
                (desired.claim_property_sets.is_none()
                    || status.claim_property_sets == desired.claim_property_sets)
                    && (desired.data_import_cron_source_format.is_none()
                        || status.data_import_cron_source_format
                            == desired.data_import_cron_source_format)
            })
        };
        self.wait_among(&profiles, class, "taken over", is_taken).await.map(|_| ())
    }

    /// The address of a service of the installation.
    ///
    /// # Errors
    /// When there is no such service.
    pub async fn service_address(&self, name: &str) -> Result<IpAddr> {
        let services = Api::<Service>::namespaced(self.client(), NAMESPACE);
        let service = services.get(name).await?;
        let address = service.spec.and_then(|spec| spec.cluster_ip);
        address.context("a service has an address")?.parse().context("which is one")
    }
}
