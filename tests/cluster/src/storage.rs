//! Storage: a driver with all features, one with none, and local volumes as an administrator creates them.

use std::fs::{self, File};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::addresses::NODE_NAME;
use crate::processes::{self, inside};
use crate::shell;
use crate::state::State;
use crate::tools::Tools;

/// The driver with snapshots, clones and expansion; also its snapshot class.
const FULL: &str = "loop.csi.cdi.test";
/// The same program without any of that.
const PLAIN: &str = "plain.csi.cdi.test";
/// Local volumes of each mode.
const LOCAL_VOLUMES: usize = 4;
const LOCAL_BYTES: u64 = 1 << 30;

/// Defines the kinds of snapshot objects.
///
/// # Errors
/// When the API server rejects them.
pub fn define(state: &State, tools: &Tools) -> Result<()> {
    let folder = tools.path("snapshot-crds")?;
    let mut files: Vec<_> = fs::read_dir(&folder)
        .with_context(|| format!("cannot read {folder}"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    let mut kubectl = crate::up::kubectl(state, tools)?;
    kubectl.args(["apply", "--server-side"]);
    // Those of volumes only: group snapshots, and the list that a kustomization is, belong to others.
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("snapshot.storage.k8s.io_") {
            kubectl.arg("-f").arg(file);
        }
    }
    shell::output(&mut kubectl).map(|_| ())
}

/// Creates local volumes as an administrator would.
///
/// # Errors
/// When one cannot be created.
pub fn local_volumes(state: &State, tools: &Tools) -> Result<()> {
    let mut objects = Vec::new();
    for number in 0..LOCAL_VOLUMES {
        objects.push(local_filesystem(state, number)?);
        objects.push(local_device(state, number)?);
    }
    apply(state, tools, &objects)
}

/// Creates the storage classes.
///
/// # Errors
/// When one cannot be created.
pub fn classes(state: &State, tools: &Tools) -> Result<()> {
    let objects = [
        driver(FULL),
        driver(PLAIN),
        class("csi", FULL, "Immediate", true),
        class("csi-wait", FULL, "WaitForFirstConsumer", true),
        class("plain", PLAIN, "Immediate", false),
        class("plain-wait", PLAIN, "WaitForFirstConsumer", false),
        class("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer", false),
    ];
    apply(state, tools, &objects)?;
    let snapshots = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshotClass",
        "metadata": {"name": "csi"},
        "driver": FULL,
        "deletionPolicy": "Delete",
    });
    // Their kind was defined just before.
    shell::wait("the kind VolumeSnapshotClass", std::time::Duration::from_secs(20), || {
        apply(state, tools, std::slice::from_ref(&snapshots))
    })
}

/// Starts the drivers and their sidecars as processes next to kubelet, and the controller of snapshots.
///
/// # Errors
/// When one does not start.
pub fn drivers(state: &State, tools: &Tools) -> Result<()> {
    let kubeconfig = format!("--kubeconfig={}", state.kubeconfig().display());
    for (name, short) in [(FULL, "csi"), (PLAIN, "csi-plain")] {
        let socket = state.text(&format!("kubelet/plugins/{name}/csi.sock"));
        let mut words = vec![
            tools.path("loopcsi")?,
            format!("-name={name}"),
            format!("-folder={}", state.text(&format!("volumes/{short}"))),
            format!("-socket={socket}"),
            format!(
                "-register={}",
                state.text(&format!("kubelet/plugins_registry/{name}-reg.sock"))
            ),
            format!("-node={NODE_NAME}"),
        ];
        if name == PLAIN {
            words.push("-plain".into());
        }
        processes::start(state, &format!("{short}-driver"), words)?;
        let mut sidecars = vec![("provisioner", "--extra-create-metadata")];
        if name == FULL {
            sidecars.push(("snapshotter", "--extra-create-metadata"));
            sidecars.push(("resizer", "--handle-volume-inuse-error=false"));
        }
        for (sidecar, option) in sidecars {
            let words = vec![
                tools.path(&format!("csi-{sidecar}"))?,
                kubeconfig.clone(),
                format!("--csi-address={socket}"),
                option.into(),
                // A failed attempt is repeated soon, so that a test sees its result.
                "--retry-interval-max=5s".into(),
                "--kube-api-qps=100".into(),
                "--kube-api-burst=200".into(),
            ];
            processes::start(state, &format!("{short}-{sidecar}"), words)?;
        }
    }
    let words = vec![tools.path("snapshot-controller")?, kubeconfig];
    processes::start(state, "snapshot-controller", words)
}

fn apply(state: &State, tools: &Tools, objects: &[Value]) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let file = state.write("objects.json", &list.to_string())?;
    let mut kubectl = crate::up::kubectl(state, tools)?;
    kubectl.args(["apply", "--server-side", "-f", &file]);
    shell::output(&mut kubectl).map(|_| ())
}

fn driver(name: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": name},
        "spec": {"attachRequired": false, "podInfoOnMount": false, "fsGroupPolicy": "File"},
    })
}

fn class(name: &str, provisioner: &str, binding: &str, grows: bool) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": binding,
        "allowVolumeExpansion": grows,
        "reclaimPolicy": "Delete",
    })
}

fn local(name: &str, mode: &str, path: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": LOCAL_BYTES.to_string()},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "local",
            "volumeMode": mode,
            "local": {"path": path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE_NAME]},
            ]}]}},
        },
    })
}

fn local_filesystem(state: &State, number: usize) -> Result<Value> {
    let path = state.path(&format!("volumes/local/folder-{number}"));
    fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    Ok(local(&format!("local-folder-{number}"), "Filesystem", &path.display().to_string()))
}

fn local_device(state: &State, number: usize) -> Result<Value> {
    let path = state.path(&format!("volumes/local/device-{number}"));
    File::create(&path)
        .and_then(|file| file.set_len(LOCAL_BYTES))
        .with_context(|| format!("cannot make {}", path.display()))?;
    let backing = path.display().to_string();
    let device = shell::output(&mut inside(state, "losetup", &["--find", "--show", &backing])?)
        .context("cannot create loop devices")?;
    Ok(local(&format!("local-device-{number}"), "Block", device.trim()))
}
