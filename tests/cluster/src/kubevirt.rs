//! KubeVirt in the cluster: its programs, built from the pinned Go module, installed by its operator.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::image;
use crate::launcher::{NODE_IMAGE, SERVICES_IMAGE, kubevirt_images};
use crate::shell;
use crate::state::State;
use crate::tools::{KUBERNETES, KUBEVIRT_ALL, Tools};
use crate::up::kubectl;

/// Where its programs run.
pub const NAMESPACE: &str = "kubevirt";
/// How long the operator may take: 80 s on two idle cores.
const AVAILABLE_WITHIN: &str = "--timeout=600s";
/// Features that are off by default, and concern disks.
const FEATURE_GATES: [&str; 4] = ["ExpandDisks", "HotplugVolumes", "Snapshot", "VMExport"];

/// Loads the images, applies the objects of the operator and those that configure it, and waits until KubeVirt is available.
///
/// # Errors
/// When a program cannot be built, the cluster is not up, or KubeVirt does not become available.
pub fn install(state: &State) -> Result<()> {
    let tools = Tools::ready(&[KUBERNETES, KUBEVIRT_ALL])?;
    let archive = kubevirt_images()?;
    let begin = Instant::now();
    image::load(state, &archive)?;
    let mut objects = Command::new(tools.path("kubevirt-objects")?);
    objects.arg(format!("-namespace={NAMESPACE}"));
    objects.arg(format!("-node-image={NODE_IMAGE}"));
    objects.arg(format!("-services-image={SERVICES_IMAGE}"));
    apply(state, &tools, "kubevirt-operator.json", &shell::output(&mut objects)?)?;
    let wait = |words: &[&str]| -> Result<()> {
        let mut command = kubectl(state, &tools)?;
        command.args(["wait", AVAILABLE_WITHIN, "--namespace", NAMESPACE]).args(words);
        shell::output(&mut command).map(drop)
    };
    wait(&["--for=condition=Established", "crd/kubevirts.kubevirt.io"])?;
    apply(state, &tools, "kubevirt.json", &configuration(&state.path("kubelet")).to_string())?;
    wait(&["--for=condition=Available", "kubevirt/kubevirt"]).context("KubeVirt is not ready")?;
    eprintln!("installed KubeVirt in {} s", begin.elapsed().as_secs());
    Ok(())
}

/// By the server: the schema of this kind is longer than the annotation that a client would write.
fn apply(state: &State, tools: &Tools, file: &str, objects: &str) -> Result<()> {
    let path = state.write(file, objects)?;
    let mut apply = kubectl(state, tools)?;
    shell::output(apply.args(["apply", "--server-side", "--filename", &path])).map(drop)
}

/// Software emulation, one replica, and the directory of this cluster's kubelet. The sockets of its device plugins are at the usual
/// path nevertheless.
fn configuration(kubelet: &Path) -> Value {
    let placement = json!({ "nodeSelector": { "kubernetes.io/os": "linux" } });
    let pods = kubelet.join("pods");
    let patch = json!({ "spec": { "template": { "spec": {
        "volumes": [
            { "name": "kubelet-pods", "hostPath": { "path": pods } },
            { "name": "kubelet-state", "hostPath": { "path": kubelet } },
        ],
        "containers": [{ "name": "virt-handler", "volumeMounts": [{
            "name": "kubelet-state", "mountPath": kubelet, "mountPropagation": "Bidirectional",
        }] }],
    } } } });
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
        "metadata": { "name": "kubevirt", "namespace": NAMESPACE },
        "spec": {
            "imagePullPolicy": "IfNotPresent",
            "infra": { "replicas": 1, "nodePlacement": placement },
            "workloads": { "nodePlacement": placement },
            "configuration": {
                "developerConfiguration": { "useEmulation": true, "featureGates": FEATURE_GATES },
                // Memory that can be added at run time, as a large machine has it otherwise, takes a newer libvirt.
                "vmRolloutStrategy": "Stage",
                // So that pods of machines meet the restricted standard.
                "seccompConfiguration": { "virtualMachineInstanceProfile": {
                    "customProfile": { "runtimeDefaultProfile": true },
                } },
            },
            "customizeComponents": {
                "flags": { "handler": { "kubelet-pods-dir": pods, "kubelet-root": kubelet } },
                "patches": [{
                    "resourceType": "DaemonSet", "resourceName": "virt-handler",
                    "type": "strategic", "patch": patch.to_string(),
                }],
            },
        },
    })
}
