//! etcd, the API server, the controllers and the scheduler.

use std::time::Duration;

use anyhow::Result;

use crate::addresses::{API_PORT, NODE, SERVICES};
use crate::node;
use crate::node_id::NodeId;
use crate::processes;
use crate::shell;
use crate::state::State;
use crate::tools::Tools;
use crate::up::Mode;

/// Starts them all and waits until the API server is ready.
///
/// # Errors
/// When one does not start; its log holds the cause.
pub fn start(state: &State, tools: &Tools, mode: Mode) -> Result<()> {
    etcd(state, tools)?;
    api_server(state, tools, mode)?;
    let kubectl = tools.path("kubectl")?;
    let config = state.kubeconfig().display().to_string();
    let ready = ["--kubeconfig", &config, "get", "--raw", "/readyz"];
    shell::wait("the API server", Duration::from_secs(60), || {
        shell::output(&mut shell::program(&kubectl, &ready))
    })?;
    controller_manager(state, tools, mode)?;
    scheduler(state, tools)
}

fn etcd(state: &State, tools: &Tools) -> Result<()> {
    let words = [
        tools.path("etcd")?,
        format!("--data-dir={}", state.text("etcd")),
        // The loopback device of the cluster's network namespace; only programs of the cluster reach it.
        "--listen-client-urls=http://127.0.0.1:2379".into(),
        "--advertise-client-urls=http://127.0.0.1:2379".into(),
        "--listen-peer-urls=http://127.0.0.1:2380".into(),
        // After a power failure the cluster is created again.
        "--unsafe-no-fsync".into(),
        "--log-level=warn".into(),
    ];
    processes::start(state, NodeId::First, "etcd", words.to_vec())
}

/// The API server logs requests, without their content, of the programs of this project alone, which run in the namespace `cdi`.
/// It logs each stage of a request, so that a watch is logged when it begins.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: ['system:serviceaccounts:cdi']
- level: None
";
/// The log is rotated at this size, and this number of old logs is kept: a run of all tests fills less than one.
const AUDIT_LOG_MIB: u32 = 200;
const AUDIT_LOGS: u32 = 2;

/// The flags for the audit log.
fn audit(state: &State) -> Result<[String; 4]> {
    let policy = state.write("audit-policy.yaml", AUDIT_POLICY)?;
    Ok([
        format!("--audit-policy-file={policy}"),
        format!("--audit-log-path={}", state.text("logs/audit.log")),
        format!("--audit-log-maxsize={AUDIT_LOG_MIB}"),
        format!("--audit-log-maxbackup={AUDIT_LOGS}"),
    ])
}

fn api_server(state: &State, tools: &Tools, mode: Mode) -> Result<()> {
    let pki = |file: &str| state.text(&format!("pki/{file}"));
    let mut words = vec![
        tools.path("kube-apiserver")?,
        "--etcd-servers=http://127.0.0.1:2379".into(),
        // Not loopback: the endpoint of the service `kubernetes` has to be an address that pods reach.
        format!("--advertise-address={NODE}"),
        format!("--secure-port={API_PORT}"),
        format!("--tls-cert-file={}", pki("apiserver.crt")),
        format!("--tls-private-key-file={}", pki("apiserver.key")),
        format!("--client-ca-file={}", pki("ca.crt")),
        format!("--service-cluster-ip-range={SERVICES}"),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
        format!("--service-account-key-file={}", pki("service-accounts.key")),
        format!("--service-account-signing-key-file={}", pki("service-accounts.key")),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        format!("--requestheader-client-ca-file={}", pki("front-proxy-ca.crt")),
        "--requestheader-allowed-names=front-proxy".into(),
        "--requestheader-username-headers=X-Remote-User".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        format!("--proxy-client-cert-file={}", pki("front-proxy.crt")),
        format!("--proxy-client-key-file={}", pki("front-proxy.key")),
        format!("--kubelet-client-certificate={}", pki("kubelet-client.crt")),
        format!("--kubelet-client-key={}", pki("kubelet-client.key")),
        format!("--kubelet-certificate-authority={}", pki("ca.crt")),
        "--kubelet-preferred-address-types=InternalIP".into(),
        "--allow-privileged=true".into(),
        // A test that pauses it or sends many requests must not get another result by throttling.
        "--max-requests-inflight=1000".into(),
        "--max-mutating-requests-inflight=500".into(),
    ];
    // Not where thousands of objects are counted and timed.
    if mode != Mode::ControlPlane {
        words.extend(audit(state)?);
    }
    processes::start(state, NodeId::First, "kube-apiserver", words)
}

fn controller_manager(state: &State, tools: &Tools, mode: Mode) -> Result<()> {
    let pki = |file: &str| state.text(&format!("pki/{file}"));
    let mut words = vec![
        tools.path("kube-controller-manager")?,
        format!("--kubeconfig={}", pki("controller-manager.conf")),
        format!("--authentication-kubeconfig={}", pki("controller-manager.conf")),
        format!("--authorization-kubeconfig={}", pki("controller-manager.conf")),
        "--bind-address=127.0.0.1".into(),
        "--leader-elect=false".into(),
        "--use-service-account-credentials=true".into(),
        format!("--service-account-private-key-file={}", pki("service-accounts.key")),
        format!("--root-ca-file={}", pki("ca.crt")),
        format!("--cluster-signing-cert-file={}", pki("ca.crt")),
        format!("--cluster-signing-key-file={}", pki("ca.key")),
        // By default a PVC that cannot be bound is retried after 15 s, for which tests would wait.
        "--pvclaimbinder-sync-period=2s".into(),
        "--kube-api-qps=200".into(),
        "--kube-api-burst=400".into(),
    ];
    if mode == Mode::TwoNodes {
        // A node that was lost is noticed before a test has waited for a minute.
        words.push(format!("--node-monitor-grace-period={}", node::SILENCE_OF_A_LOST_NODE));
        words.push("--node-monitor-period=2s".into());
    }
    processes::start(state, NodeId::First, "kube-controller-manager", words)
}

fn scheduler(state: &State, tools: &Tools) -> Result<()> {
    let config = state.text("pki/scheduler.conf");
    let words = vec![
        tools.path("kube-scheduler")?,
        format!("--kubeconfig={config}"),
        format!("--authentication-kubeconfig={config}"),
        format!("--authorization-kubeconfig={config}"),
        "--bind-address=127.0.0.1".into(),
        "--leader-elect=false".into(),
        "--kube-api-qps=200".into(),
        "--kube-api-burst=400".into(),
    ];
    processes::start(state, NodeId::First, "kube-scheduler", words)
}
