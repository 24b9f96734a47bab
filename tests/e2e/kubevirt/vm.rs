//! A VirtualMachine of a test, and what its guest prints.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use cluster::guest::{self, DiskSeen};
use e2e::{PATIENCE, PAUSE, Test, machine_devices};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, LogParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::MIB;

/// KubeVirt's group and version of its main kinds.
const GROUP: &str = "kubevirt.io";
/// The container that prints the serial console of the guest.
const CONSOLE: &str = "guest-console-log";

/// A VirtualMachine with these DataVolumes as its disks, which boots from the first. Of the templates KubeVirt creates DataVolumes.
pub fn manifest(name: &str, disks: &[&str], templates: &[Value]) -> Value {
    let volume = |disk: &&str| json!({ "name": disk, "dataVolume": { "name": disk } });
    let template =
        |object: &Value| json!({ "metadata": object["metadata"], "spec": object["spec"] });
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": { "name": name },
        "spec": {
            "runStrategy": "Always",
            "dataVolumeTemplates": templates.iter().map(template).collect::<Vec<_>>(),
            "template": { "spec": {
                "terminationGracePeriodSeconds": 0,
                "domain": {
                    "memory": { "guest": "128Mi" },
                    "devices": machine_devices(disks),
                },
                "volumes": disks.iter().map(volume).collect::<Vec<_>>(),
            } },
        },
    })
}

/// The same with a network interface, as most machines have. Without one libvirt 9 finds no PCI slot for a disk that is attached later.
pub fn with_network(mut manifest: Value) -> Value {
    let spec = &mut manifest["spec"]["template"]["spec"];
    spec["domain"]["devices"]["interfaces"] = json!([{ "name": "default", "masquerade": {} }]);
    spec["networks"] = json!([{ "name": "default", "pod": {} }]);
    manifest
}

/// A VirtualMachine in the namespace of a test.
pub struct Vm<'a> {
    test: &'a Test,
    name: String,
}

impl<'a> Vm<'a> {
    /// Creates it.
    pub async fn create(test: &'a Test, manifest: Value) -> Result<Self> {
        let vm = test.apply(manifest).await.context("cannot create a VirtualMachine")?;
        Ok(Self { test, name: vm.name_any() })
    }

    /// One that exists.
    pub fn named(test: &'a Test, name: &str) -> Self {
        Self { test, name: name.to_owned() }
    }

    pub fn all(test: &Test) -> Api<DynamicObject> {
        test.all_of(GROUP, "v1", "VirtualMachine")
    }

    fn instances(&self) -> Api<DynamicObject> {
        self.test.all_of(GROUP, "v1", "VirtualMachineInstance")
    }

    /// Waits until KubeVirt reports this as its status: `Running`, `DataVolumeError`.
    pub async fn is(&self, status: &str) -> Result<DynamicObject> {
        let what = format!("{status} by the status of the VirtualMachine");
        let reports = |vm: &DynamicObject| vm.data["status"]["printableStatus"] == status;
        self.test.wait_among(&Self::all(self.test), &self.name, &what, reports).await
    }

    /// Waits until the guest sees disks with this content. A disk in a file system may be larger: the rest is empty then.
    pub async fn sees(&self, disks: &[&[u8]]) -> Result<()> {
        let wanted: Vec<_> = disks.iter().map(|bytes| DiskSeen::with_content(bytes)).collect();
        let empty = DiskSeen::with_content(&vec![0; MIB as usize]).sums[1].clone();
        let is_same = |(seen, wanted): (&DiskSeen, &DiskSeen)| {
            let has_grown =
                seen.size > wanted.size && seen.sums == [wanted.sums[0].clone(), empty.clone()];
            seen == wanted || has_grown
        };
        self.waits_for(&wanted, |seen| {
            seen.len() == wanted.len() && seen.iter().zip(&wanted).all(is_same)
        })
        .await
    }

    /// The same, and with these sizes.
    pub async fn sees_exactly(&self, wanted: &[DiskSeen]) -> Result<()> {
        self.waits_for(wanted, |seen| seen == wanted).await
    }

    /// Waits until the guest has printed something.
    pub async fn prints<T>(&self, what: &str, find: impl Fn(&str) -> Option<T>) -> Result<T> {
        let begin = Instant::now();
        loop {
            let console = self.console().await.unwrap_or_default();
            if let Some(found) = find(&console) {
                return Ok(found);
            }
            ensure!(begin.elapsed() < PATIENCE, "{} prints no {what}: {console}", self.name);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The disks that the guest sees, once it has printed them.
    pub async fn disks_seen(&self) -> Result<Vec<DiskSeen>> {
        let report = |console: &str| Some(guest::disks_seen(console)).filter(|all| !all.is_empty());
        self.prints("disks", report).await
    }

    async fn waits_for(
        &self,
        wanted: &[DiskSeen],
        is_right: impl Fn(&[DiskSeen]) -> bool,
    ) -> Result<()> {
        let begin = Instant::now();
        loop {
            let console = self.console().await.unwrap_or_default();
            let seen = guest::disks_seen(&console);
            if is_right(&seen) {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                let vm = Self::all(self.test).get(&self.name).await?.data["status"].take();
                bail!(
                    "the guest of {} sees {seen:#?}\ninstead of {wanted:#?}\n{vm}\n{console}",
                    self.name
                );
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The newest pod that runs the guest.
    async fn pod(&self) -> Result<Pod> {
        let which = format!("kubevirt.io=virt-launcher,vm.kubevirt.io/name={}", self.name);
        let pods = self.test.all::<Pod>().list(&ListParams::default().labels(&which)).await?.items;
        let newest = pods.into_iter().max_by_key(|pod| pod.creation_timestamp().map(|time| time.0));
        newest.with_context(|| format!("no pod runs {}", self.name))
    }

    /// What the guest has written to its serial console since it was booted.
    async fn console(&self) -> Result<String> {
        let pod = self.pod().await?.name_any();
        let of_console = LogParams { container: Some(CONSOLE.to_owned()), ..LogParams::default() };
        Ok(self.test.all::<Pod>().logs(&pod, &of_console).await?)
    }

    /// Changes its manifest.
    pub async fn change(&self, patch: Value) -> Result<()> {
        let all = Self::all(self.test);
        all.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Switches the guest off, and waits until its disks are free.
    pub async fn stop(&self) -> Result<()> {
        self.change(json!({ "spec": { "runStrategy": "Halted" } })).await?;
        self.is("Stopped").await?;
        self.test.wait_until_gone(&self.instances(), &self.name).await?;
        self.no_pod_is_left().await
    }

    /// Boots the guest.
    pub async fn start(&self) -> Result<()> {
        self.change(json!({ "spec": { "runStrategy": "Always" } })).await?;
        self.is("Running").await.map(drop)
    }

    async fn no_pod_is_left(&self) -> Result<()> {
        let begin = Instant::now();
        while let Ok(pod) = self.pod().await {
            ensure!(begin.elapsed() < PATIENCE, "{} is still there", pod.name_any());
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Deletes it, and waits until it and its pod are gone.
    pub async fn delete(self) -> Result<()> {
        let all = Self::all(self.test);
        all.delete(&self.name, &DeleteParams::default()).await?;
        self.test.wait_until_gone(&all, &self.name).await?;
        self.no_pod_is_left().await
    }
}
