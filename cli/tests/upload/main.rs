//! `cdi upload` as a person runs it, against a real proxy and a real upload server over TLS, with a network that breaks.

#![allow(clippy::unwrap_used)] // helpers of tests

mod network;
#[allow(dead_code)] // it does more for the tests of the proxy
#[path = "../../../uploadproxy/tests/proxy/world.rs"]
mod world;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use testkit::process::{Finished, run};
use testkit::{MIB, Proxy, Qcow2Options, QemuImg, Random, SparseDisk};

use network::Network;
use world::{DONE, NAMESPACE, READY, Server, TARGET, TestCluster};

const LIMIT: Duration = Duration::from_secs(120);

/// The person's directory, with a token and the proxy's CA in it.
struct Bench {
    world: TestCluster,
    server: Server,
}

impl Bench {
    fn new() -> Self {
        let world = TestCluster::new();
        let server = world.ready("disk");
        let bench = Self { world, server };
        bench.write("proxy.pem", bench.world.trusted.as_bytes());
        bench.renew();
        bench
    }

    fn folder(&self) -> &Path {
        self.world.folder.path()
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.folder().join(name), bytes).unwrap();
    }

    fn renew(&self) {
        let token = self.world.token("disk");
        let token = token.trim_start_matches("Authorization: Bearer ").trim().to_owned();
        self.write("token", token.as_bytes());
    }

    fn command(&self, image: &str, port: u16, more: &[&str]) -> Command {
        self.command_to(&format!("localhost:{port}"), image, more)
    }

    fn command_to(&self, address: &str, image: &str, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cdi"));
        command
            .args(["upload", image, &format!("{NAMESPACE}/disk"), "--url", address])
            .args(["--ca", "proxy.pem"])
            .args(more)
            .current_dir(self.folder());
        command
    }

    /// With a token that was fetched before.
    fn upload(&self, image: &str, port: u16, more: &[&str]) -> Finished {
        let more = [&["--token-file", "token", "--json"][..], more].concat();
        run(&mut self.command(image, port, &more), LIMIT)
    }

    fn disk(&self) -> Vec<u8> {
        self.server.disk().expect("a disk")
    }
}

fn report(finished: &Finished) -> serde_json::Value {
    serde_json::from_str(&finished.stdout).unwrap()
}

#[test]
fn sparse_disk_is_uploaded_without_its_holes() {
    let bench = Bench::new();
    let mut disk = SparseDisk::mixed(24 * MIB, 3).bytes();
    disk.resize(96 << 20, 0);
    let path = bench.folder().join("disk.img");
    fs::write(&path, &disk[..24 << 20]).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len(96 << 20).unwrap();
    let port = bench.world.address.port();
    let finished = bench.upload("disk.img", port, &[]).expect_success();
    assert!(bench.disk() == disk);
    let report = report(&finished);
    assert_eq!(report["imageSize"], 96 << 20);
    assert!(report["bytesSent"].as_u64().unwrap() < 24 << 20, "{report}");
    let mut hasher = contract::Hasher::sha256();
    hasher.update(&disk);
    assert_eq!(report["digest"], hasher.finish().to_string());
    let text = fs::read_to_string(bench.folder().join("token")).unwrap();
    assert!(!finished.stderr.contains(&text) && !finished.stdout.contains(&text));
}

#[test]
fn upload_resumes_after_a_cut_at_any_byte() {
    let bench = Bench::new();
    let mut image = vec![0; 6 << 20];
    Random::new(5).fill(&mut image);
    bench.write("disk.img", &image);
    // So many bytes the connections carry towards the proxy, each of them one request, before they break.
    let network =
        Network::new(bench.world.address, &[0, 300, 9000, 9000, 1 << 20, 1, 9000, 3 << 20, 9000]);
    let finished = bench.upload("disk.img", network.port, &[]).expect_success();
    assert!(bench.disk() == image);
    let report = report(&finished);
    assert!(report["interruptions"].as_u64().unwrap() >= 3, "{report}");
}

#[test]
fn same_command_resumes_after_a_kill() {
    let bench = Bench::new();
    let mut image = vec![0; 8 << 20];
    Random::new(7).fill(&mut image);
    bench.write("disk.img", &image);
    // The third connection carries the image; everything after it is refused, until patience ends.
    let network = Network::new(bench.world.address, &[100_000, 100_000, 4 << 20]);
    network.refuse_later();
    let finished = bench.upload("disk.img", network.port, &["--patience", "1s"]);
    assert!(!finished.status.success());
    assert!(finished.stderr.contains("cannot upload disk.img to ns/disk"), "{}", finished.stderr);
    let port = bench.world.address.port();
    let report = report(&bench.upload("disk.img", port, &[]).expect_success());
    assert!(bench.disk() == image);
    assert!(report["resumedAt"].as_u64().unwrap() >= 256 << 10, "{report}");
}

#[test]
fn qcow2_image_is_uploaded_as_its_disk() {
    let Some(qemu) = QemuImg::require() else { return };
    let bench = Bench::new();
    let disk = SparseDisk::mixed(12 * MIB, 9);
    bench.write("disk.qcow2", &qemu.qcow2(&disk, &Qcow2Options::default()).bytes());
    let port = bench.world.address.port();
    bench.upload("disk.qcow2", port, &[]).expect_success();
    assert!(bench.disk() == disk.bytes());
}

#[test]
fn proxy_of_the_environment_is_used() {
    let bench = Bench::new();
    let disk = SparseDisk::mixed(3 * MIB, 4).bytes();
    bench.write("disk.img", &disk);
    let proxy = Proxy::start().basic_auth("me", "hush");
    let place = format!("upload.test:{}", bench.world.address.port());
    let upload = |proxy: &str| {
        let more = ["--token-file", "token", "--patience", "0s"];
        run(bench.command_to(&place, "disk.img", &more).env("https_proxy", proxy), LIMIT)
    };
    let refused = upload(&proxy.url());
    assert!(refused.stderr.contains("refuses to connect to upload.test"), "{}", refused.stderr);
    upload(&proxy.url().replace("//", "//me:hush@")).expect_success();
    assert!(bench.disk() == disk);
    let requests = proxy.requests();
    assert!(requests.iter().all(|request| request.method == "CONNECT" && request.target == place));
}

#[test]
fn invalid_arguments_and_refusals_fail_at_once() {
    let bench = Bench::new();
    bench.write("disk.img", &[1; 5000]);
    bench.write("empty.img", b"");
    let port = bench.world.address.port();
    for (image, token, expected) in [
        ("gone.img", "token", "cannot read gone.img"),
        ("empty.img", "token", "is empty"),
        ("disk.img", "gone", "cannot read the token"),
    ] {
        let finished = run(&mut bench.command(image, port, &["--token-file", token]), LIMIT);
        assert!(!finished.status.success(), "{expected}");
        assert!(finished.stderr.contains(expected), "{}", finished.stderr);
    }
    // The proxy's CA is not trusted.
    let mut command =
        bench.command("disk.img", port, &["--token-file", "token", "--patience", "0s"]);
    command.args(["--ca", "client.crt"]);
    let elsewhere = TestCluster::new();
    bench.write("proxy.pem", elsewhere.trusted.as_bytes());
    let finished = run(&mut command, LIMIT);
    assert!(finished.stderr.contains("certificate"), "{}", finished.stderr);
    bench.write("proxy.pem", bench.world.trusted.as_bytes());
    // An invalid token, and a volume that is complete.
    bench.write("token", b"abc");
    let finished = bench.upload("disk.img", port, &[]);
    assert!(finished.stderr.contains("the upload proxy refused the token"), "{}", finished.stderr);
    bench.renew();
    bench.world.set_pvc("disk", false, &[TARGET, READY, DONE]);
    let finished = bench.upload("disk.img", port, &[]);
    assert!(finished.stderr.contains("complete already"), "{}", finished.stderr);
    assert_eq!(bench.server.disk(), None);
}

#[test]
fn expired_token_is_requested_again() {
    let bench = Bench::new();
    let disk = SparseDisk::mixed(3 * MIB, 4).bytes();
    bench.write("disk.img", &disk);
    fs::rename(bench.folder().join("token"), bench.folder().join("fresh")).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    let expired = bench.world.sign(&auth::token::Claims::upload(NAMESPACE, "disk"), long_ago);
    let expired = expired.trim_start_matches("Authorization: Bearer ").trim();
    bench.write("token", expired.as_bytes());
    bench.write(
        "kubectl",
        KUBECTL.replace("$(cat token)", "$(cat token; cp fresh token)").as_bytes(),
    );
    let kubectl = bench.folder().join("kubectl");
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
    let more = ["--kubectl", kubectl.to_str().unwrap()];
    run(&mut bench.command("disk.img", bench.world.address.port(), &more), LIMIT).expect_success();
    assert!(bench.disk() == disk);
    let calls = fs::read_to_string(bench.folder().join("calls")).unwrap();
    assert_eq!(calls.lines().filter(|line| line.contains("create --raw")).count(), 2, "{calls}");
}

/// A `kubectl` that knows one DataVolume once it was made.
const KUBECTL: &str = r#"#!/bin/sh
echo "$*" >>calls
case "$*" in
*"get datavolume"*--ignore-not-found*) if [ -e made ]; then cat made; fi ;;
*"get datavolume"*--watch*)
    echo '{"status":{"phase":"UploadScheduled"}}'
    if [ -e disk/data/disk.img ]; then echo '{"status":{"phase":"Succeeded"}}'
    else echo '{"status":{"phase":"UploadReady"}}'; fi
    exec sleep 60 ;;
*"create --raw"*) cat >wanted; printf '{"status":{"token":"%s"}}' "$(cat token)" ;;
*"create -f -"*) cat >made ;;
*) echo "what is $*?" >&2; exit 1 ;;
esac
"#;

#[test]
fn volume_and_token_come_from_the_cluster() {
    let bench = Bench::new();
    let disk = SparseDisk::mixed(3 * MIB, 3).bytes();
    bench.write("disk.img", &disk);
    bench.write("kubectl", KUBECTL.as_bytes());
    let kubectl = bench.folder().join("kubectl");
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
    let port = bench.world.address.port();
    let program = kubectl.to_str().unwrap();
    let more = [
        "--kubectl",
        program,
        "--context",
        "there",
        "--storage-class",
        "fast",
        "--volume-mode",
        "block",
    ];
    run(&mut bench.command("disk.img", port, &more), LIMIT).expect_success();
    assert!(bench.disk() == disk);
    let read = |name: &str| fs::read_to_string(bench.folder().join(name)).unwrap();
    let made: serde_json::Value = serde_json::from_str(&read("made")).unwrap();
    assert_eq!(made["metadata"]["name"], "disk");
    assert_eq!(made["spec"]["source"]["upload"], serde_json::json!({}));
    assert_eq!(made["spec"]["storage"]["resources"]["requests"]["storage"], disk.len().to_string());
    assert_eq!(made["spec"]["storage"]["storageClassName"], "fast");
    assert_eq!(made["spec"]["storage"]["volumeMode"], "Block");
    assert!(read("wanted").contains(r#""pvcName":"disk""#));
    for line in read("calls").lines() {
        assert!(line.starts_with("--context there --namespace ns "), "{line}");
    }
}

/// The same `kubectl` in a cluster whose CDIConfig is the file `config`. It forwards the port in the file `port`.
fn forwarding_kubectl(bench: &Bench, config: &str) -> String {
    let script = KUBECTL.replace(
        "*) echo",
        r#"*"get cdiconfig config"*) cat config ;;
*"get apiservice"*) echo '{"spec":{"service":{"namespace":"cdi","name":"cdi-api"}}}' ;;
*"get configmap cdi-uploadproxy-signer-bundle"*)
    if [ -e bundle ]; then cat bundle; else echo 'configmaps is forbidden' >&2; exit 1; fi ;;
*"port-forward "*)
    if [ -e port ]; then echo "Forwarding from 127.0.0.1:$(cat port) -> 8443"; exec sleep 600
    else echo 'pods is forbidden' >&2; exit 1; fi ;;
*) echo"#,
    );
    bench.write("config", config.as_bytes());
    bench.write("kubectl", script.as_bytes());
    let kubectl = bench.folder().join("kubectl");
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
    kubectl.to_str().unwrap().to_owned()
}

/// Without `--url`.
fn upload_by_cluster(bench: &Bench, kubectl: &str, more: &[&str]) -> Finished {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cdi"));
    command
        .args(["upload", "disk.img", &format!("{NAMESPACE}/disk"), "--kubectl", kubectl])
        .args(more)
        .current_dir(bench.folder());
    run(&mut command, LIMIT)
}

/// Where the proxy publishes no address: one namespace holds it and its CA, another the DataVolume.
#[test]
fn port_is_forwarded_if_the_proxy_has_no_published_address() {
    let bench = Bench::new();
    let disk = SparseDisk::mixed(3 * MIB, 6).bytes();
    bench.write("disk.img", &disk);
    let bundle = serde_json::json!({ "data": { "ca-bundle.crt": bench.world.trusted } });
    bench.write("bundle", bundle.to_string().as_bytes());
    bench.write("port", bench.world.address.port().to_string().as_bytes());
    let kubectl = forwarding_kubectl(&bench, r#"{"status":{"uploadProxyURL":""}}"#);
    upload_by_cluster(&bench, &kubectl, &["--context", "there"]).expect_success();
    assert!(bench.disk() == disk);
    let calls = fs::read_to_string(bench.folder().join("calls")).unwrap();
    let forwarded = "--context there --namespace cdi port-forward --address 127.0.0.1 service/cdi-uploadproxy :443";
    assert_eq!(calls.lines().filter(|line| *line == forwarded).count(), 1, "{calls}");
    // Nothing is created before the proxy can be reached.
    let at = |words: &str| calls.lines().position(|line| line.contains(words)).unwrap();
    assert!(at("port-forward") < at("create -f -"), "{calls}");
}

#[test]
fn unreachable_proxy_leaves_no_data_volume() {
    let bench = Bench::new();
    bench.write("disk.img", &[1; 5000]);
    let nowhere = r#"{"status":{}}"#;
    let bundle = serde_json::json!({ "data": { "ca-bundle.crt": bench.world.trusted } });
    for (config, has_bundle, more, words) in [
        ("not an object", false, &[][..], "cannot parse the output of kubectl as an object"),
        (nowhere, false, &[][..], "cannot read the upload proxy's CA from ConfigMap cdi/"),
        (nowhere, true, &[][..], "cannot forward a port to service cdi/cdi-uploadproxy"),
        // The CA may come from elsewhere.
        (nowhere, false, &["--ca", "proxy.pem"][..], "pods is forbidden"),
        (nowhere, false, &["--insecure"][..], "pods is forbidden"),
        (
            r#"{"status":{"uploadProxyURL":"http://plain"}}"#,
            false,
            &[][..],
            "the address has to be https",
        ),
    ] {
        let kubectl = forwarding_kubectl(&bench, config);
        let path = bench.folder().join("bundle");
        if has_bundle {
            fs::write(&path, bundle.to_string()).unwrap()
        } else {
            drop(fs::remove_file(&path))
        }
        let finished = upload_by_cluster(&bench, &kubectl, more);
        assert!(!finished.status.success(), "{config} {more:?}");
        assert!(finished.stderr.contains(words), "{words}: {}", finished.stderr);
        let calls = fs::read_to_string(bench.folder().join("calls")).unwrap();
        assert!(!calls.contains("create"), "{calls}");
    }
}
