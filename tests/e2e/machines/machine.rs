//! A virtual machine in a pod of KubeVirt's virt-launcher, which runs without the rest of KubeVirt.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use cluster::guest::{self, DiskSeen};
use e2e::{PATIENCE, PAUSE, Test};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// The user of the launcher and of QEMU; disks have to be theirs.
const USER: u32 = 107;
const UID: &str = "11111111-2222-3333-4444-555555555555";
/// Folders that the launcher writes to.
const FOLDERS: [&str; 7] = [
    "/var/run/kubevirt",
    "/var/run/kubevirt-ephemeral-disks",
    "/var/run/kubevirt-private",
    "/var/run/kubevirt/container-disks",
    "/var/run/kubevirt/hotplug-disks",
    "/var/run/kubevirt/sockets",
    "/var/run/libvirt",
];

static LAUNCHER: OnceCell<()> = OnceCell::const_new();

/// A disk of a machine.
#[derive(Clone, Copy, Debug)]
pub struct MachineDisk<'a> {
    /// The PVC, whose name is that of the disk too.
    pub claim: &'a str,
    pub is_device: bool,
}

impl<'a> MachineDisk<'a> {
    pub fn device(claim: &'a str) -> Self {
        Self { claim, is_device: true }
    }

    pub fn file(claim: &'a str) -> Self {
        Self { claim, is_device: false }
    }
}

/// A machine that has been started.
pub struct Machine<'a> {
    test: &'a Test,
    name: String,
}

impl<'a> Machine<'a> {
    /// Starts a machine that boots from the first of these disks.
    ///
    /// # Errors
    /// When its pod cannot be created.
    pub async fn start(test: &'a Test, name: &str, disks: &[MachineDisk<'_>]) -> Result<Self> {
        LAUNCHER.get_or_try_init(async || load_launcher(test)).await?;
        let pod: Pod = serde_json::from_value(pod(test.namespace(), name, disks))?;
        test.all::<Pod>().create(&PostParams::default(), &pod).await?;
        Ok(Self { test, name: name.to_owned() })
    }

    /// The disks that the guest has found, once it has printed them.
    ///
    /// # Errors
    /// When it does not boot; the error holds the end of its console and of the launcher's log.
    pub async fn disks_seen(&self) -> Result<Vec<DiskSeen>> {
        let begin = Instant::now();
        loop {
            let console = self.console()?;
            if console.contains(guest::DONE) {
                return Ok(guest::disks_seen(&console));
            }
            let pod = self.test.all::<Pod>().get(&self.name).await?;
            let phase = pod.status.and_then(|status| status.phase).unwrap_or_default();
            if begin.elapsed() > PATIENCE || phase == "Failed" || phase == "Succeeded" {
                let log = self.test.kubectl(&["logs", "--tail=40", &self.name], "")?;
                bail!("{} does not boot ({phase}): {console}\n{}", self.name, log.stdout);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// What the guest has written to its serial console, empty before it has one.
    fn console(&self) -> Result<String> {
        let file = format!("/var/run/kubevirt-private/{UID}/virt-serial0-log");
        let output = self.test.kubectl(&["exec", &self.name, "--", "cat", &file], "")?;
        Ok(output.stdout)
    }

    /// Switches it off and removes its pod.
    ///
    /// # Errors
    /// When the pod remains.
    pub async fn delete(self) -> Result<()> {
        let pods = self.test.all::<Pod>();
        pods.delete(&self.name, &DeleteParams::default().grace_period(0)).await?;
        self.test.wait_until_gone(&pods, &self.name).await
    }
}

fn load_launcher(test: &Test) -> Result<()> {
    let archive = cluster::launcher_image()?;
    let loaded = cluster::load(test.state(), &archive)?;
    ensure!(loaded.contains(cluster::LAUNCHER_IMAGE), "{loaded}");
    Ok(())
}

/// The guest's disk as an image.
pub fn disk() -> Result<Vec<u8>> {
    let path = guest::disk()?;
    std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// What a launcher gets of virt-controller.
fn machine(namespace: &str, name: &str, disks: &[MachineDisk<'_>]) -> Value {
    let names: Vec<_> = disks.iter().map(|disk| disk.claim).collect();
    let volume = |disk: &MachineDisk<'_>| json!({ "name": disk.claim, "persistentVolumeClaim": { "claimName": disk.claim } });
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": { "name": name, "namespace": namespace, "uid": UID },
        "spec": {
            "architecture": "amd64",
            "terminationGracePeriodSeconds": 0,
            "domain": {
                "firmware": { "uuid": UID },
                "machine": { "type": "q35" },
                "cpu": { "cores": 1, "sockets": 1, "threads": 1, "model": "qemu64" },
                "memory": { "guest": "128Mi" },
                "resources": { "requests": { "memory": "128Mi" } },
                "devices": e2e::machine_devices(&names),
            },
            "volumes": disks.iter().map(volume).collect::<Vec<_>>(),
        },
        "status": { "runtimeUser": USER },
    })
}

fn pod(namespace: &str, name: &str, disks: &[MachineDisk<'_>]) -> Value {
    let folder = |at: usize| format!("folder-{at}");
    let mut volumes: Vec<_> =
        (0..FOLDERS.len()).map(|at| json!({ "name": folder(at), "emptyDir": {} })).collect();
    let mut mounts: Vec<_> = FOLDERS
        .iter()
        .enumerate()
        .map(|(at, path)| json!({ "name": folder(at), "mountPath": path }))
        .collect();
    let mut devices = Vec::new();
    for MachineDisk { claim, is_device } in disks {
        volumes.push(json!({ "name": claim, "persistentVolumeClaim": { "claimName": claim } }));
        if *is_device {
            devices.push(json!({ "name": claim, "devicePath": format!("/dev/{claim}") }));
        } else {
            let path = format!("/var/run/kubevirt-private/vmi-disks/{claim}");
            mounts.push(json!({ "name": claim, "mountPath": path }));
        }
    }
    let arguments = [
        "--qemu-timeout=2m",
        &format!("--name={name}"),
        &format!("--uid={UID}"),
        &format!("--namespace={namespace}"),
        "--kubevirt-share-dir=/var/run/kubevirt",
        "--ephemeral-disk-dir=/var/run/kubevirt-ephemeral-disks",
        "--container-disk-dir=/var/run/kubevirt/container-disks",
        "--grace-period-seconds=1",
        "--hook-sidecars=0",
        "--ovmf-path=/usr/share/OVMF",
        "--disk-memory-limit=2097152000",
        "--hypervisor=kvm",
        "--run-as-nonroot",
        "--allow-emulation",
    ];
    let variable = |name: &str, value: &str| json!({ "name": name, "value": value });
    json!({
        "metadata": { "name": name },
        "spec": {
            "restartPolicy": "Never",
            "securityContext": {
                "runAsUser": USER, "runAsGroup": USER, "runAsNonRoot": true, "fsGroup": USER,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": "compute",
                "image": cluster::LAUNCHER_IMAGE,
                "imagePullPolicy": "Never",
                "args": arguments,
                "env": [
                    variable("POD_NAME", name),
                    variable("STANDALONE_VMI", &machine(namespace, name, disks).to_string()),
                    variable("XDG_CACHE_HOME", "/var/run/kubevirt-private"),
                    variable("XDG_CONFIG_HOME", "/var/run/kubevirt-private"),
                    variable("XDG_RUNTIME_DIR", "/var/run"),
                ],
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "capabilities": { "drop": ["ALL"], "add": ["NET_BIND_SERVICE"] },
                },
                "volumeMounts": mounts,
                "volumeDevices": devices,
            }],
            "volumes": volumes,
        },
    })
}
