//! A node: containerd, kubelet, kube-proxy; on the first one also the resolver of names and the registry.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use crate::addresses::{NODE, NODE_NAME, PODS, REGISTRY_PORT};
use crate::image;
use crate::node_id::NodeId;
use crate::processes::{self, Process, inside};
use crate::shell;
use crate::state::State;
use crate::tools::Tools;

/// The control group that all pods are in, of every controller. That of a cluster with a name begins with it.
pub const CONTROL_GROUP: &str = "cdi-cluster";
/// Holds `testpod`, which is also the pause program of every pod.
pub const TEST_IMAGE: &str = "cdi.test/testpod:1";
/// How long a node of two reports nothing until it is taken for lost, and the lease that it renews four times as often.
pub const SILENCE_OF_A_LOST_NODE: &str = "20s";
const LEASE_SECONDS_OF_TWO_NODES: u32 = 20;
/// That of one node is the default of Kubernetes.
const LEASE_SECONDS: u32 = 40;
/// Where Debian puts them.
const CNI_PLUGINS: &str = "/usr/lib/cni";
const CONTROLLERS: &str = "/sys/fs/cgroup";
/// containerd's folder of what does not outlive the machine.
const CONTAINERD_RUN: &str = "containerd-run";

/// Starts the programs of each node. The nodes become ready a little later.
///
/// # Errors
/// When one does not start; its log holds the cause.
pub fn start(state: &State, tools: &Tools) -> Result<()> {
    let nodes = state.nodes();
    for &node in &nodes {
        control_groups(state, node)?;
        network(state, node)?;
        containerd(state, node)?;
    }
    image::load_program(state, Path::new(&tools.path("testpod")?), TEST_IMAGE)?;
    let lease = if nodes.len() == 1 { LEASE_SECONDS } else { LEASE_SECONDS_OF_TWO_NODES };
    for node in nodes {
        kubelet(state, tools, node, lease)?;
        proxy(state, tools, node)?;
    }
    registry(state)?;
    let resolver = vec![
        tools.path("resolver")?,
        format!("--kubeconfig={}", state.kubeconfig().display()),
        format!("--address={NODE}:53"),
    ];
    processes::start(state, NodeId::First, "resolver", resolver)
}

/// Starts the programs of the second node, its storage drivers included, as they were started before, in namespaces that are new.
///
/// # Errors
/// As [`start`].
pub fn start_second_again(state: &State) -> Result<()> {
    let node = NodeId::Second;
    // On a real machine a memory file system holds it.
    let runtime = state.path(&node.file(CONTAINERD_RUN));
    fs::remove_dir_all(&runtime).with_context(|| format!("cannot remove {}", runtime.display()))?;
    let containerd = node.record("containerd");
    processes::restart(state, &containerd)?;
    wait_for_containerd(state, node)?;
    for process in Process::all(state)? {
        let is_program = process.node == node && !process.words.is_empty();
        if is_program && process.name != containerd {
            processes::restart(state, &process.name)?;
        }
    }
    Ok(())
}

/// Starts a simulated node instead: pods that run nothing, volumes that hold nothing.
///
/// # Errors
/// When the simulator does not start.
pub fn simulate(state: &State, tools: &Tools) -> Result<()> {
    let words = vec![
        tools.path("simulator")?,
        format!("--kubeconfig={}", state.kubeconfig().display()),
        format!("--node={NODE_NAME}"),
        format!("--address={NODE}"),
    ];
    processes::start(state, NodeId::First, "simulator", words)
}

/// Creates a control group of ours below every controller, so that all processes of pods are found there.
fn control_groups(state: &State, node: NodeId) -> Result<()> {
    for group in groups_of(state, node)? {
        fs::create_dir_all(&group).with_context(|| {
            format!("control groups of version 1 are needed: cannot make {}", group.display())
        })?;
        // A set of processors starts empty, and then takes no process.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if let Some(of_parent) = group.parent().map(|parent| parent.join(file))
                && of_parent.exists()
            {
                fs::write(group.join(file), fs::read(of_parent)?)?;
            }
        }
    }
    Ok(())
}

/// The cluster's below each controller of this machine. Those of the second node are in them.
pub fn groups(state: &State) -> Result<Vec<PathBuf>> {
    groups_of(state, NodeId::First)
}

/// Those of the pods of a node; of the first node, also all of the second.
pub fn groups_of(state: &State, node: NodeId) -> Result<Vec<PathBuf>> {
    let name = control_group(state, node);
    let mut groups = Vec::new();
    for entry in fs::read_dir(CONTROLLERS).with_context(|| format!("cannot read {CONTROLLERS}"))? {
        let controller = entry?.path();
        // Links such as cpu,cpuacct lead to one that is listed anyway.
        if controller.join("cgroup.procs").exists() && !controller.is_symlink() {
            groups.push(controller.join(&name));
        }
    }
    Ok(groups)
}

fn control_group(state: &State, node: NodeId) -> String {
    match node {
        NodeId::First => state.control_group(),
        NodeId::Second => format!("{}/node-2", state.control_group()),
    }
}

/// The configuration of CNI: a bridge to which all pods of the node are connected.
fn network(state: &State, node: NodeId) -> Result<()> {
    let config = json!({
        "cniVersion": "1.0.0",
        "name": "cdi-cluster",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cdi0",
                "isGateway": true,
                "ipMasq": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": state.node_text(node, "addresses"),
                    "ranges": [[{"subnet": node.pods()}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    });
    state.write(&node.file("cni/10-cdi.conflist"), &config.to_string()).map(|_| ())
}

fn containerd(state: &State, node: NodeId) -> Result<()> {
    let program = shell::find("containerd", "containerd")?;
    shell::find("runc", "runc")?;
    shell::find("iptables", "iptables")?;
    anyhow::ensure!(
        Path::new(CNI_PLUGINS).join("bridge").exists(),
        "there is no {CNI_PLUGINS}/bridge; `cargo xtask deps` installs the package containernetworking-plugins"
    );
    let registry = format!("{NODE}:{REGISTRY_PORT}");
    state.write(
        &node.file(&format!("registries/{registry}/hosts.toml")),
        &format!("server = \"http://{registry}\"\n[host.\"http://{registry}\"]\n"),
    )?;
    let folder = state.node_text(node, "");
    let folder = folder.trim_end_matches('/');
    let config = format!(
        r#"version = 2
root = "{folder}/containerd"
state = "{folder}/{CONTAINERD_RUN}"
[grpc]
  address = "{folder}/containerd.sock"
[ttrpc]
  address = "{folder}/containerd.sock.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/containerd-opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{TEST_IMAGE}"
  # Where the capability to lower it is missing, runc would die at the attempt.
  restrict_oom_score_adj = true
  # A block device in a pod belongs to the pod's user.
  device_ownership_from_security_context = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PLUGINS}"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{folder}/registries"
"#
    );
    let config = state.write(&node.file("containerd.toml"), &config)?;
    let words = vec![program.display().to_string(), "--config".into(), config];
    processes::start(state, node, "containerd", words)?;
    wait_for_containerd(state, node)
}

fn wait_for_containerd(state: &State, node: NodeId) -> Result<()> {
    shell::wait("containerd", Duration::from_secs(30), || {
        shell::output(&mut ctr(state, node, &["version"])?)
    })
    .map(|_| ())
}

/// containerd's own client, in the namespaces of a node, with containerd's namespace that kubelet uses.
pub fn ctr(state: &State, node: NodeId, words: &[&str]) -> Result<std::process::Command> {
    let address = state.node_text(node, "containerd.sock");
    let mut all = vec!["--address", &address, "--namespace", "k8s.io"];
    all.extend(words);
    inside(state, node, "ctr", &all)
}

fn kubelet(state: &State, tools: &Tools, node: NodeId, lease_seconds: u32) -> Result<()> {
    let certificate =
        |kind: &str| state.path(&format!("pki/{}.{kind}", node.record("kubelet-server")));
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address(),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": state.path("pki/ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": certificate("crt"),
        "tlsPrivateKeyFile": certificate("key"),
        "containerRuntimeEndpoint": format!("unix://{}", state.node_text(node, "containerd.sock")),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", control_group(state, node)),
        "failCgroupV1": false,
        "failSwapOn": false,
        "oomScoreAdj": 0,
        "clusterDNS": [NODE],
        "clusterDomain": "cluster.local",
        "resolvConf": state.write("resolv.conf", "")?,
        "podLogsDir": state.path("logs").join(node.record("pods")),
        "volumePluginDir": state.kubelet_path(node, "volume-plugins"),
        "maxPods": 200,
        "serializeImagePulls": false,
        // Images are loaded by hand, and the disk is not kubelet's alone: it must not collect garbage.
        "imageGCHighThresholdPercent": 100,
        "imageMaximumGCAge": "0s",
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        "nodeStatusReportFrequency": "1m",
        "nodeStatusUpdateFrequency": "5s",
        "nodeLeaseDurationSeconds": lease_seconds,
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
    });
    let config = state.write(&node.file("kubelet.yaml"), &format!("{config:#}\n"))?;
    let words = vec![
        tools.path("kubelet")?,
        format!("--config={config}"),
        format!("--kubeconfig={}", state.text(&format!("pki/{}.conf", node.record("kubelet")))),
        format!("--root-dir={}", state.node_text(node, "kubelet")),
        format!("--hostname-override={}", node.name()),
        format!("--node-ip={}", node.address()),
    ];
    processes::start(state, node, "kubelet", words)
}

fn proxy(state: &State, tools: &Tools, node: NodeId) -> Result<()> {
    let config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": state.path("pki/proxy.conf")},
        "bindAddress": node.address(),
        "healthzBindAddress": "",
        "metricsBindAddress": "127.0.0.1:10249",
        "hostnameOverride": node.name(),
        "mode": "iptables",
        "clusterCIDR": PODS,
        "oomScoreAdj": 0,
        // Pods are on one bridge: without it a response would bypass the rules that translate its address back.
        "iptables": {"masqueradeAll": true, "minSyncPeriod": "0s"},
        // Settings of the whole machine: left alone.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    });
    let config = state.write(&node.file("kube-proxy.yaml"), &format!("{config:#}\n"))?;
    let words = vec![tools.path("kube-proxy")?, format!("--config={config}")];
    processes::start(state, node, "kube-proxy", words)
}

fn registry(state: &State) -> Result<()> {
    let program = shell::find("docker-registry", "docker-registry")?;
    let config = json!({
        "version": "0.1",
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": state.path("registry")}, "delete": {"enabled": true}},
        "http": {"addr": format!("{NODE}:{REGISTRY_PORT}")},
    });
    let config = state.write("registry.yaml", &format!("{config:#}\n"))?;
    let words = vec![program.display().to_string(), "serve".into(), config];
    processes::start(state, NodeId::First, "registry", words)
}
