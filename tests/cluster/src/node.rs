//! The node: containerd, kubelet, kube-proxy, the resolver of names, the registry.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use crate::addresses::{NODE, NODE_NAME, PODS, REGISTRY_PORT};
use crate::image;
use crate::processes::{self, inside};
use crate::shell;
use crate::state::State;
use crate::tools::Tools;

/// The control group that all pods are in, of every controller. That of a cluster with a name begins with it.
pub const CONTROL_GROUP: &str = "cdi-cluster";
/// Holds `testpod`, which is also the pause program of every pod.
pub const TEST_IMAGE: &str = "cdi.test/testpod:1";
/// The address of pods on this node, a part of [`PODS`].
const NODE_PODS: &str = "10.97.0.0/24";
/// Where Debian puts them.
const CNI_PLUGINS: &str = "/usr/lib/cni";
const CONTROLLERS: &str = "/sys/fs/cgroup";

/// Starts the node's programs. The node becomes ready a little later.
///
/// # Errors
/// When one does not start; its log holds the cause.
pub fn start(state: &State, tools: &Tools) -> Result<()> {
    control_groups(state)?;
    network(state)?;
    containerd(state)?;
    image::load_program(state, Path::new(&tools.path("testpod")?), TEST_IMAGE)?;
    kubelet(state, tools)?;
    proxy(state, tools)?;
    registry(state)?;
    let resolver = vec![
        tools.path("resolver")?,
        format!("--kubeconfig={}", state.kubeconfig().display()),
        format!("--address={NODE}:53"),
    ];
    processes::start(state, "resolver", resolver)
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
    processes::start(state, "simulator", words)
}

/// Creates a control group of ours below every controller, so that all processes of pods are found there.
fn control_groups(state: &State) -> Result<()> {
    for group in groups(state)? {
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

/// The cluster's below each controller of this machine.
pub fn groups(state: &State) -> Result<Vec<std::path::PathBuf>> {
    let mut groups = Vec::new();
    for entry in fs::read_dir(CONTROLLERS).with_context(|| format!("cannot read {CONTROLLERS}"))? {
        let controller = entry?.path();
        // Links such as cpu,cpuacct lead to one that is listed anyway.
        if controller.join("cgroup.procs").exists() && !controller.is_symlink() {
            groups.push(controller.join(state.control_group()));
        }
    }
    Ok(groups)
}

/// The configuration of CNI: a bridge to which all pods are connected.
fn network(state: &State) -> Result<()> {
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
                    "dataDir": state.text("addresses"),
                    "ranges": [[{"subnet": NODE_PODS}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    });
    state.write("cni/10-cdi.conflist", &config.to_string()).map(|_| ())
}

fn containerd(state: &State) -> Result<()> {
    let program = shell::find("containerd", "containerd")?;
    shell::find("runc", "runc")?;
    shell::find("iptables", "iptables")?;
    anyhow::ensure!(
        Path::new(CNI_PLUGINS).join("bridge").exists(),
        "there is no {CNI_PLUGINS}/bridge; `cargo xtask deps` installs the package containernetworking-plugins"
    );
    let registry = format!("{NODE}:{REGISTRY_PORT}");
    state.write(
        &format!("registries/{registry}/hosts.toml"),
        &format!("server = \"http://{registry}\"\n[host.\"http://{registry}\"]\n"),
    )?;
    let folder = state.folder().display();
    let config = format!(
        r#"version = 2
root = "{folder}/containerd"
state = "{folder}/containerd-run"
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
    let config = state.write("containerd.toml", &config)?;
    let words = vec![program.display().to_string(), "--config".into(), config];
    processes::start(state, "containerd", words)?;
    shell::wait("containerd", Duration::from_secs(30), || {
        shell::output(&mut ctr(state, &["version"])?)
    })?;
    Ok(())
}

/// containerd's own client, in the namespaces of the cluster, with containerd's namespace that kubelet uses.
pub fn ctr(state: &State, words: &[&str]) -> Result<std::process::Command> {
    let address = state.text("containerd.sock");
    let mut all = vec!["--address", &address, "--namespace", "k8s.io"];
    all.extend(words);
    inside(state, "ctr", &all)
}

fn kubelet(state: &State, tools: &Tools) -> Result<()> {
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE,
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": state.path("pki/ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": state.path("pki/kubelet-server.crt"),
        "tlsPrivateKeyFile": state.path("pki/kubelet-server.key"),
        "containerRuntimeEndpoint": format!("unix://{}", state.text("containerd.sock")),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", state.control_group()),
        "failCgroupV1": false,
        "failSwapOn": false,
        "oomScoreAdj": 0,
        "clusterDNS": [NODE],
        "clusterDomain": "cluster.local",
        "resolvConf": state.write("resolv.conf", "")?,
        "podLogsDir": state.path("logs/pods"),
        "volumePluginDir": state.path("kubelet/volume-plugins"),
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
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
    });
    let config = state.write("kubelet.yaml", &format!("{config:#}\n"))?;
    let words = vec![
        tools.path("kubelet")?,
        format!("--config={config}"),
        format!("--kubeconfig={}", state.text("pki/kubelet.conf")),
        format!("--root-dir={}", state.text("kubelet")),
        format!("--hostname-override={NODE_NAME}"),
        format!("--node-ip={NODE}"),
    ];
    processes::start(state, "kubelet", words)
}

fn proxy(state: &State, tools: &Tools) -> Result<()> {
    let config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": state.path("pki/proxy.conf")},
        "bindAddress": NODE,
        "healthzBindAddress": "",
        "metricsBindAddress": "127.0.0.1:10249",
        "hostnameOverride": NODE_NAME,
        "mode": "iptables",
        "clusterCIDR": PODS,
        "oomScoreAdj": 0,
        // Pods are on one bridge: without it a response would bypass the rules that translate its address back.
        "iptables": {"masqueradeAll": true, "minSyncPeriod": "0s"},
        // Settings of the whole machine: left alone.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    });
    let config = state.write("kube-proxy.yaml", &format!("{config:#}\n"))?;
    let words = vec![tools.path("kube-proxy")?, format!("--config={config}")];
    processes::start(state, "kube-proxy", words)
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
    processes::start(state, "registry", words)
}
