//! Disks in images of the cluster's registry.

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::v1beta1::DataVolume;
use cluster::State;
use e2e::{HOST, Test, condition_is_false_with, files_for_nodes, files_of_disk, run_installed};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{Running, ServerCertificate, require_tool};

use crate::world::{apply_all, disk, name, small};

/// The address of an image with the disk.
fn push(test: &Test, repository: &str) -> Result<String> {
    let files = [files_of_disk(disk()), files_for_nodes()?].concat();
    Ok(test.push(repository, "1", files)?.url())
}

async fn imported(test: &Test, example: &str, address: &str) -> Result<()> {
    let mut objects = small(example)?;
    let volume = objects.last_mut().context("an example has objects")?;
    let url = volume.pointer_mut("/spec/source/registry/url").context("it has an address")?;
    *url = address.into();
    let source = volume.pointer_mut("/spec/source/registry").and_then(Value::as_object_mut);
    // The registry speaks plain HTTP, and needs no credentials for reads.
    source.context("it has a source")?.retain(|key, _| matches!(&**key, "url" | "pullMethod"));
    let claim = name(volume);
    apply_all(test, objects).await?;
    test.succeeded(&claim).await.with_context(|| example.to_owned())?;
    test.holds(&claim, &disk()).await.with_context(|| example.to_owned())
}

#[test]
fn registry_disks_are_pulled_by_the_importer() {
    run_installed("registry", async |test| {
        let address = push(&test, "pod")?;
        for example in [
            "dv-import-registry",
            "dv-import-registry-insecure",
            "dv-import-registry-preallocated",
            "dv-multus-secondary-network",
        ] {
            imported(&test, example, &address).await?;
        }
        Ok(())
    });
}

/// `anna` and `open sesame`, by bcrypt.
const HTPASSWD: &str = "anna:$2b$05$abcdefghijklmnopqrstuupx2xBUC4954936wVIjyyPHmUBFu0wCW\n";

/// The cluster's registry behind TLS and a password.
struct Guarded {
    host: String,
    _process: Running,
    _folder: TempDir,
}

impl Guarded {
    fn start(state: &State) -> Result<Self> {
        let tool = require_tool("docker-registry").context("docker-registry is missing")?;
        let folder = TempDir::with_prefix("cdi-registry-")?;
        let listener = TcpListener::bind((HOST, 0))?;
        let host = listener.local_addr()?.to_string();
        drop(listener);
        let passwords = folder.path().join("htpasswd");
        std::fs::write(&passwords, HTPASSWD)?;
        let config = json!({
            "version": "0.1",
            "log": { "level": "error", "accesslog": { "disabled": true } },
            "storage": { "filesystem": { "rootdirectory": state.path("registry") } },
            "http": { "addr": host, "tls": {
                "certificate": state.path("pki/host.crt"), "key": state.path("pki/host.key"),
            } },
            "auth": { "htpasswd": { "realm": "tests", "path": passwords } },
        });
        let file = folder.path().join("config.yml");
        std::fs::write(&file, config.to_string())?;
        let mut command = tool.command(testkit::arguments!["serve", file]);
        let process = Running::start(command.env("OTEL_TRACES_EXPORTER", "none"));
        let begin = Instant::now();
        while TcpStream::connect(&host).is_err() {
            ensure!(begin.elapsed() < Duration::from_secs(60), "the registry does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Self { host, _process: process, _folder: folder })
    }
}

#[test]
fn registry_with_private_ca_and_password_reports_errors() {
    run_installed("registry-private", async |test| {
        let address = push(&test, "private")?;
        let guarded = Guarded::start(test.state())?;
        let place = address.trim_start_matches("docker://");
        let (_, repository) = place.split_once('/').context("a reference has a host")?;
        let url = format!("docker://{}/{repository}", guarded.host);
        let authority = std::fs::read_to_string(test.state().path("pki/ca.crt"))?;
        for (name, password) in [("data-source-secret", "open sesame"), ("wrong-secret", "closed")]
        {
            test.apply(json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
                "stringData": { "accessKeyId": "anna", "secretKey": password },
            }))
            .await?;
        }
        let others = ServerCertificate::new().ca;
        for (name, text) in [("tls-certs", authority), ("wrong-certs", others)] {
            test.apply(json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name },
                "data": { "ca.pem": text },
            }))
            .await?;
        }
        let mut objects = small("dv-import-registry-private")?;
        let example = objects.last_mut().context("an example has objects")?;
        example["spec"]["source"]["registry"]["url"] = url.into();
        for (name, key, value, words) in [
            ("bad-authority", "certConfigMap", "wrong-certs", "certificate"),
            ("bad-password", "secretRef", "wrong-secret", "401"),
        ] {
            let mut bad = example.clone();
            bad["metadata"]["name"] = name.into();
            bad["spec"]["source"]["registry"][key] = value.into();
            test.apply(bad).await?;
            let is_reported =
                |volume: &DataVolume| condition_is_false_with(volume, "Running", words);
            test.wait(name, words, is_reported).await?;
        }
        let claim = name(example);
        apply_all(&test, objects).await?;
        test.succeeded(&claim).await?;
        test.holds(&claim, &disk()).await
    });
}

#[test]
fn registry_disks_are_pulled_by_the_node() {
    run_installed("registry-node", async |test| {
        let address = push(&test, "node")?;
        imported(&test, "dv-import-registry-node-pull", &address).await?;
        test.only_these_are_left(&["node-pulled"]).await
    });
}
