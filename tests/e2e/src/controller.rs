//! The controllers of this workspace at work on the cluster: as a process of this machine, with the administrator's rights,
//! and importers in pods.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

use crate::Test;

/// The image of importers, made of the program that this test run has built.
pub const IMPORTER: &str = "cdi.test/importer:1";
/// Where the controllers would be installed.
const NAMESPACE: &str = "cdi";
/// To say goodbye, and be gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// One at a time: two of them would do each other's work.
static ONE: Mutex<()> = Mutex::const_new(());

/// The controllers, until this is dropped.
pub struct Controller {
    process: Child,
    folder: TempDir,
    test: String,
    _one: MutexGuard<'static, ()>,
}

impl Controller {
    /// Defines the kinds, loads the importer's image, and starts the program.
    ///
    /// # Errors
    /// When one of these fails.
    pub async fn start(test: &Test) -> Result<Self> {
        let one = ONE.lock().await;
        define(test).await?;
        let namespaces = Api::<Namespace>::all(test.client());
        let namespace = serde_json::from_value(json!({ "metadata": { "name": NAMESPACE } }))?;
        unless_there(namespaces.create(&PostParams::default(), &namespace).await)?;
        cluster::load_program(test.state(), testkit::cdi_importer(), IMPORTER)?;
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let log = File::create(folder.path().join("log")).context("cannot make a log")?;
        let process = Command::new(testkit::cdi_controller())
            .arg("-v=3")
            .arg(format!("-kubeconfig={}", test.state().kubeconfig().display()))
            .arg(format!("-namespace={NAMESPACE}"))
            .arg(format!("-ready-file={}", folder.path().join("ready").display()))
            .arg("-metrics-port=0")
            .env("IMPORTER_IMAGE", IMPORTER)
            .env("PULL_POLICY", "IfNotPresent")
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .context("cannot start cdi-controller")?;
        Ok(Self { process, folder, test: test.namespace().to_owned(), _one: one })
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        // Asked to, it gives its lease up, so that the next one need not wait.
        let pid = self.process.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE && matches!(self.process.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        // Only a test that fails is read.
        eprintln!("log of cdi-controller in {}:\n{}", self.test, self.log());
    }
}

/// The kinds of this project.
async fn define(test: &Test) -> Result<()> {
    let all = Api::<CustomResourceDefinition>::all(test.client());
    for crd in api::v1beta1::crds() {
        unless_there(all.create(&PostParams::default(), &crd).await)?;
    }
    for crd in api::v1beta1::crds() {
        let name = crd.metadata.name.context("a CRD has a name")?;
        test.wait_among(&all, &name, "established", |crd: &CustomResourceDefinition| {
            let conditions =
                crd.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let mut conditions = conditions.into_iter();
            conditions.any(|c| c.type_ == "Established" && c.status == "True")
        })
        .await?;
    }
    Ok(())
}

fn unless_there<K>(made: kube::Result<K>) -> Result<()> {
    match made {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
        Err(error) => bail!(error),
    }
}
