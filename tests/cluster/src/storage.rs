//! Storage: a driver with all features, one with none, and local volumes as an administrator creates them. In a cluster of two
//! nodes also a driver whose volumes stay on a node, and one whose volumes are attached to one node at a time.

use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::addresses::NODE_NAME;
use crate::node_id::NodeId;
use crate::processes::{self, inside};
use crate::shell;
use crate::state::State;
use crate::tools::Tools;
use crate::up::Mode;

/// The driver with snapshots, clones and expansion; also its snapshot class.
const FULL: &str = "loop.csi.cdi.test";
/// The same program without any of that.
const PLAIN: &str = "plain.csi.cdi.test";
/// The same, with volumes that are local to a node.
const LOCAL: &str = "local.csi.cdi.test";
/// The same, with volumes that have to be detached from a node before another one can use them.
const FENCED: &str = "fenced.csi.cdi.test";
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
pub fn classes(state: &State, tools: &Tools, mode: Mode) -> Result<()> {
    let mut objects = vec![
        driver(FULL, false),
        driver(PLAIN, false),
        class("csi", FULL, "Immediate", true),
        class("csi-wait", FULL, "WaitForFirstConsumer", true),
        class("plain", PLAIN, "Immediate", false),
        class("plain-wait", PLAIN, "WaitForFirstConsumer", false),
        class("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer", false),
    ];
    if mode == Mode::TwoNodes {
        objects.extend([
            driver(LOCAL, false),
            driver(FENCED, true),
            class("node-wait", LOCAL, "WaitForFirstConsumer", false),
            class("fenced", FENCED, "Immediate", false),
            class("fenced-wait", FENCED, "WaitForFirstConsumer", false),
        ]);
    }
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

/// A driver, and the sidecars that turn requests of the API into calls to it.
struct Driver {
    name: &'static str,
    /// For names of programs and folders.
    short: &'static str,
    flags: &'static [&'static str],
    /// Each with an option of its own.
    sidecars: &'static [(&'static str, &'static str)],
}

const PROVISIONER: (&str, &str) = ("provisioner", "--extra-create-metadata");

const DRIVERS: [Driver; 2] = [
    Driver {
        name: FULL,
        short: "csi",
        flags: &[],
        sidecars: &[
            PROVISIONER,
            ("snapshotter", "--extra-create-metadata"),
            ("resizer", "--handle-volume-inuse-error=false"),
        ],
    },
    Driver { name: PLAIN, short: "csi-plain", flags: &["-plain"], sidecars: &[PROVISIONER] },
];

const DRIVERS_OF_TWO_NODES: [Driver; 2] = [
    Driver {
        name: LOCAL,
        short: "csi-local",
        flags: &["-plain", "-local"],
        sidecars: &[PROVISIONER],
    },
    Driver {
        name: FENCED,
        short: "csi-fenced",
        flags: &["-plain", "-fenced"],
        sidecars: &[PROVISIONER, ("attacher", "--worker-threads=10")],
    },
];

/// Starts the drivers as processes next to each kubelet, their sidecars next to the first one, and the controller of snapshots.
///
/// # Errors
/// When one does not start.
pub fn drivers(state: &State, tools: &Tools) -> Result<()> {
    let kubeconfig = format!("--kubeconfig={}", state.kubeconfig().display());
    let nodes = state.nodes();
    let mut all: Vec<&Driver> = DRIVERS.iter().collect();
    if nodes.len() > 1 {
        all.extend(&DRIVERS_OF_TWO_NODES);
    }
    for Driver { name, short, flags, sidecars } in all {
        for &node in &nodes {
            let registration = format!("plugins_registry/{name}-reg.sock");
            let mut words = vec![
                tools.path("loopcsi")?,
                format!("-name={name}"),
                format!("-folder={}", state.text(&format!("volumes/{short}"))),
                format!("-socket={}", socket(state, node, name)),
                format!("-register={}", state.kubelet_path(node, &registration).display()),
                format!("-node={}", node.name()),
            ];
            words.extend(flags.iter().map(|&flag| flag.to_owned()));
            processes::start(state, node, &format!("{short}-driver"), words)?;
        }
        for (sidecar, option) in *sidecars {
            let words = vec![
                tools.path(&format!("csi-{sidecar}"))?,
                kubeconfig.clone(),
                format!("--csi-address={}", socket(state, NodeId::First, name)),
                (*option).to_owned(),
                // A failed attempt is repeated soon, so that a test sees its result.
                "--retry-interval-max=5s".into(),
                "--kube-api-qps=100".into(),
                "--kube-api-burst=200".into(),
            ];
            processes::start(state, NodeId::First, &format!("{short}-{sidecar}"), words)?;
        }
    }
    let words = vec![tools.path("snapshot-controller")?, kubeconfig];
    processes::start(state, NodeId::First, "snapshot-controller", words)
}

fn socket(state: &State, node: NodeId, driver: &str) -> String {
    state.kubelet_path(node, &format!("plugins/{driver}/csi.sock")).display().to_string()
}

/// The records of loop devices by which a node reaches the volumes of all drivers: a file each, with the path of the device.
fn device_records(state: &State, node: NodeId) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for Driver { short, .. } in DRIVERS.iter().chain(&DRIVERS_OF_TWO_NODES) {
        let records = state.path(&format!("volumes/{short}/devices")).join(node.name());
        for record in fs::read_dir(records).into_iter().flatten() {
            found.push(record?.path());
        }
    }
    Ok(found)
}

/// The loop devices by which a node reaches volumes.
///
/// # Errors
/// When a record cannot be read.
pub fn devices_of(state: &State, node: NodeId) -> Result<Vec<PathBuf>> {
    let read = |path: PathBuf| Ok(fs::read_to_string(path)?.into());
    device_records(state, node)?.into_iter().map(read).collect()
}

/// Removes the records of a node's loop devices, after they were detached.
///
/// # Errors
/// When one cannot be removed.
pub fn remove_device_records(state: &State, node: NodeId) -> Result<()> {
    for record in device_records(state, node)? {
        fs::remove_file(&record).with_context(|| format!("cannot remove {}", record.display()))?;
    }
    Ok(())
}

fn apply(state: &State, tools: &Tools, objects: &[Value]) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let file = state.write("objects.json", &list.to_string())?;
    let mut kubectl = crate::up::kubectl(state, tools)?;
    kubectl.args(["apply", "--server-side", "-f", &file]);
    shell::output(&mut kubectl).map(|_| ())
}

fn driver(name: &str, is_attached: bool) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": name},
        "spec": {"attachRequired": is_attached, "podInfoOnMount": false, "fsGroupPolicy": "File"},
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
    let device = shell::output(&mut inside(
        state,
        NodeId::First,
        "losetup",
        &["--find", "--show", &backing],
    )?)
    .context("cannot create loop devices")?;
    Ok(local(&format!("local-device-{number}"), "Block", device.trim()))
}
