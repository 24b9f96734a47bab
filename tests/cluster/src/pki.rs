//! Certificates: one CA for the cluster, one for the API server's own requests, and a kubeconfig for each program.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;

use crate::addresses::{API_PORT, API_SERVICE, HOST, NODE};
use crate::node_id::NodeId;
use crate::shell;
use crate::state::State;

/// The subject of a certificate, and its files.
struct Subject<'a> {
    /// `pki/FILE.crt` and `pki/FILE.key`.
    file: &'a str,
    user: &'a str,
    group: &'a str,
    /// The names of a server: `DNS:name` or `IP:address`.
    names: &'a [&'a str],
}

const fn client<'a>(file: &'a str, user: &'a str, group: &'a str) -> Subject<'a> {
    Subject { file, user, group, names: &[] }
}

const fn server<'a>(file: &'a str, user: &'a str, names: &'a [&'a str]) -> Subject<'a> {
    Subject { file, user, group: "", names }
}

/// Creates every key, certificate and kubeconfig.
///
/// # Errors
/// When one cannot be created or written.
pub fn make(state: &State) -> Result<()> {
    authority(state, "ca")?;
    authority(state, "front-proxy-ca")?;
    certify(state, "front-proxy-ca", &client("front-proxy", "front-proxy", ""))?;
    let (node_ip, host_ip) = (format!("IP:{NODE}"), format!("IP:{HOST}"));
    let service_ip = format!("IP:{API_SERVICE}");
    let api = [
        "DNS:kubernetes",
        "DNS:kubernetes.default",
        "DNS:kubernetes.default.svc",
        "DNS:kubernetes.default.svc.cluster.local",
        "DNS:localhost",
        "IP:127.0.0.1",
        &service_ip,
        &node_ip,
    ];
    certify(state, "ca", &server("apiserver", "kube-apiserver", &api))?;
    // For what a test serves on this machine.
    certify(state, "ca", &server("host", "host", &[&host_ip]))?;
    let masters = "system:masters";
    certify(state, "ca", &client("kubelet-client", "kube-apiserver-kubelet", masters))?;
    // RSA: the API server accepts keys of elliptic curves in one outdated format only.
    let mut accounts = openssl(&["genpkey", "-algorithm", "RSA", "-out"]);
    run(accounts.arg(state.path("pki/service-accounts.key")))?;

    let clients = [
        ("kubeconfig", client("admin", "admin", masters)),
        (
            "pki/controller-manager.conf",
            client("controllers", "system:kube-controller-manager", ""),
        ),
        ("pki/scheduler.conf", client("scheduler", "system:kube-scheduler", "")),
        ("pki/proxy.conf", client("proxy", "system:kube-proxy", "")),
    ];
    for (config, subject) in clients {
        certify_client(state, config, &subject)?;
    }
    state.nodes().into_iter().try_for_each(|node| make_node(state, node))
}

/// Creates what the kubelet of a node serves and identifies itself with.
fn make_node(state: &State, node: NodeId) -> Result<()> {
    let names = [format!("DNS:{}", node.name()), format!("IP:{}", node.address())];
    let names = names.each_ref().map(String::as_str);
    certify(state, "ca", &server(&node.record("kubelet-server"), node.name(), &names))?;
    let (file, user) = (node.record("kubelet"), format!("system:node:{}", node.name()));
    certify_client(state, &format!("pki/{file}.conf"), &client(&file, &user, "system:nodes"))
}

/// Creates a certificate, and the kubeconfig that names it.
fn certify_client(state: &State, config: &str, subject: &Subject) -> Result<()> {
    certify(state, "ca", subject)?;
    state.write(config, &kubeconfig(state, subject.file)).map(|_| ())
}

/// A server's certificate in PEM, with the CA that signs it.
pub struct Certificate {
    /// The CA, for clients to trust.
    pub authority: String,
    pub certificate: String,
    pub key: String,
}

/// Creates a certificate for a server of a test, in files of the name `file`.
///
/// # Errors
/// When it cannot be created.
pub fn certificate(state: &State, file: &str, names: &[&str]) -> Result<Certificate> {
    certify(state, "ca", &server(file, file, names))?;
    let read = |name: &str| {
        let path = state.path("pki").join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    Ok(Certificate {
        authority: read("ca.crt")?,
        certificate: read(&format!("{file}.crt"))?,
        key: read(&format!("{file}.key"))?,
    })
}

const CURVE: &str = "ec_paramgen_curve:P-256";

fn authority(state: &State, name: &str) -> Result<()> {
    let mut request = request(state, name, &format!("/CN=cdi-cluster {name}"));
    run(request.args(["-addext", "keyUsage=critical,keyCertSign,digitalSignature"]))
}

fn certify(state: &State, authority: &str, subject: &Subject) -> Result<()> {
    let group =
        if subject.group.is_empty() { String::new() } else { format!("/O={}", subject.group) };
    let mut request = request(state, subject.file, &format!("{group}/CN={}", subject.user));
    request.arg("-CA").arg(state.path(&format!("pki/{authority}.crt")));
    request.arg("-CAkey").arg(state.path(&format!("pki/{authority}.key")));
    request.args(["-addext", "basicConstraints=critical,CA:false"]);
    request.args(["-addext", "keyUsage=critical,digitalSignature"]);
    request.args(["-addext", "extendedKeyUsage=clientAuth,serverAuth"]);
    if !subject.names.is_empty() {
        request.args(["-addext", &format!("subjectAltName={}", subject.names.join(","))]);
    }
    run(&mut request)
}

/// Creates a key and a certificate for it that is valid longer than any cluster of a test lives.
fn request(state: &State, file: &str, subject: &str) -> Command {
    let mut command = openssl(&["req", "-x509", "-newkey", "ec", "-pkeyopt", CURVE, "-noenc"]);
    command.args(["-days", "365", "-subj", subject, "-keyout"]);
    command.arg(state.path(&format!("pki/{file}.key"))).arg("-out");
    command.arg(state.path(&format!("pki/{file}.crt")));
    command
}

fn openssl(words: &[&str]) -> Command {
    shell::program("openssl", words)
}

fn run(command: &mut Command) -> Result<()> {
    shell::output(command)
        .context("cannot create a key with openssl: install the package openssl")
        .map(|_| ())
}

/// JSON is YAML too.
fn kubeconfig(state: &State, file: &str) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cdi", "cluster": {
            "server": format!("https://{NODE}:{API_PORT}"),
            "certificate-authority": state.path("pki/ca.crt"),
        }}],
        "users": [{"name": file, "user": {
            "client-certificate": state.path(&format!("pki/{file}.crt")),
            "client-key": state.path(&format!("pki/{file}.key")),
        }}],
        "contexts": [{"name": "cdi", "context": {"cluster": "cdi", "user": file}}],
        "current-context": "cdi",
    });
    format!("{config:#}\n")
}
