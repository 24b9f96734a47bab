//! Uploads by `virtctl`, with every flag that it has.

use std::process::Child;

use anyhow::{Context, Result, ensure};
use api::v1beta1::{CdiConfig, DataVolume};
use e2e::{Claim, Test, phase, run_installed};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::uploader::{PROXY_HOST, Uploader, expect, text_of};
use crate::world::{SIZE, annotated, apply_all, disk, name, small, volume};

/// Name, file, further arguments.
type Row = (&'static str, &'static str, &'static [&'static str]);

/// DataVolumes that it creates. It sends all images to the asynchronous path, except the archive.
const VOLUMES: [Row; 7] = [
    ("raw", "disk.img", &["--storage-class=csi", "--volume-mode=filesystem"]),
    ("packed", "disk.qcow2", &["--storage-class=csi", "--volume-mode=block"]),
    ("file", "disk.qcow2", &["--storage-class=csi", "--access-mode=ReadWriteOnce"]),
    ("gzipped", "disk.img.gz", &["--storage-class=csi", "--block-volume"]),
    ("wrapped", "disk.qcow2.xz", &["--storage-class=csi", "--wait-secs=240", "--retry=1"]),
    ("bound", "disk.img", &["--storage-class=csi-wait", "--force-bind"]),
    ("files", "files.tar", &["--storage-class=csi"]),
];
/// PVCs that it creates.
const CLAIMS: [Row; 5] = [
    ("raw", "disk.img", &["--storage-class=csi"]),
    ("packed", "disk.qcow2", &["--storage-class=csi", "--volume-mode=block"]),
    ("gzipped", "disk.img.gz", &["--storage-class=csi", "--access-mode=ReadWriteOnce"]),
    ("bound", "disk.img.xz", &["--storage-class=csi-wait", "--force-bind"]),
    ("files", "files.tar.gz", &["--storage-class=csi", "--volume-mode=filesystem"]),
];
/// Uploads that it does not attempt, or that are rejected at once.
const REFUSED: [(&str, &str, &str, &[&str], &str); 6] = [
    ("dv", "a", "files.tar", &["--volume-mode=block"], "should always be filesystem"),
    ("pvc", "a", "disk.img", &["--access-mode=ReadOnlyMany"], "readonly volume"),
    ("dv", "a", "disk.img", &["--storage-class=none"], "not found"),
    ("dv", "a", "disk.img", &["--no-create"], "not found"),
    ("dv", "waits", "disk.img", &["--storage-class=csi-wait"], "use force-bind flag"),
    ("pvc", "plain", "files.tar", &["--no-create"], "doesn't have archive contentType annotation"),
];

fn start(uploader: &Uploader, kind: &str, (name, file, more): Row) -> Result<Child> {
    let path = uploader.image(file)?.display().to_string();
    let path = if file.starts_with("files") {
        format!("--archive-path={path}")
    } else {
        format!("--image-path={path}")
    };
    let size = format!("--size={SIZE}");
    let mut words = vec![kind, name, &path];
    if !more.contains(&"--no-create") {
        words.push(&size);
    }
    words.extend(more);
    uploader.start(&words)
}

/// All of them at the same time: most of it is waiting.
fn upload_all(uploader: &Uploader, kind: &str, rows: &[Row]) -> Result<()> {
    let started: Result<Vec<_>> = rows.iter().map(|row| start(uploader, kind, *row)).collect();
    let ended: Vec<_> = started?.into_iter().map(Child::wait_with_output).collect();
    for ((name, ..), output) in rows.iter().zip(ended) {
        expect(&output.context("cannot wait for virtctl")?, name)?;
    }
    Ok(())
}

#[test]
fn virtctl_uploads_to_a_data_volume_that_it_creates() {
    run_installed("virtctl", async |test| {
        let uploader = Uploader::new(&test).await?;
        upload_all(&uploader, "dv", &VOLUMES)?;
        for (name, ..) in VOLUMES {
            test.succeeded(name).await?;
            test.event_message(name, "UploadSucceeded").await?;
            test.holds(name, &disk()).await?;
        }
        let again = start(&uploader, "dv", ("raw", "disk.img", &["--no-create"]))?;
        let again = text_of(&again.wait_with_output()?);
        ensure!(again.contains("already successfully populated"), "{again}");
        test.only_these_are_left(&VOLUMES.map(|(name, ..)| name)).await
    });
}

#[test]
fn virtctl_uploads_to_a_pvc_that_it_creates() {
    run_installed("virtctl-claim", async |test| {
        let uploader = Uploader::new(&test).await?;
        let path = format!("--image-path={}", uploader.image("disk.img")?.display());
        let old = ["--pvc-name=old", &format!("--pvc-size={SIZE}"), &path, "--storage-class=csi"];
        let old = uploader.start(&old)?; // with the flags of older releases
        upload_all(&uploader, "pvc", &CLAIMS)?;
        expect(&old.wait_with_output()?, "old")?;
        let names = CLAIMS.map(|(name, ..)| name);
        for name in names.into_iter().chain(["old"]) {
            test.holds(name, &disk()).await?;
        }
        // Afterwards it is a PVC like any other, and can be cloned.
        let source = json!({ "pvc": { "namespace": test.namespace(), "name": "packed" } });
        test.apply(volume("cloned", "csi", "Block", source)).await?;
        test.succeeded("cloned").await?;
        test.holds("cloned", &disk()).await?;
        test.only_these_are_left(&[&names[..], &["old", "cloned"][..]].concat()).await
    });
}

#[test]
fn virtctl_uploads_to_existing_objects() {
    run_installed("virtctl-there", async |test| {
        let uploader = Uploader::new(&test).await?;
        for example in ["dv-upload", "dv-upload-block"] {
            let objects = small(example)?;
            let volume = name(objects.last().context("an example has objects")?);
            apply_all(&test, objects).await?;
            test.upload_ready(&volume).await?;
        }
        // PVCs without the annotation.
        Claim::filesystem("plain", "csi", SIZE).bound(&test).await?;
        Claim::block("plain-block", "csi", SIZE).bound(&test).await?;
        let no_create: &[&str] = &["--no-create"];
        let volumes =
            [("uploaded-disk", "disk.img", no_create), ("uploaded-block", "disk.qcow2", no_create)];
        upload_all(&uploader, "dv", &volumes)?;
        let claims = [("plain", "disk.img.gz", no_create), ("plain-block", "disk.img", no_create)];
        upload_all(&uploader, "pvc", &claims)?;
        for (name, ..) in volumes {
            test.succeeded(name).await?;
        }
        let names = [volumes, claims].concat().into_iter().map(|(name, ..)| name);
        let names: Vec<_> = names.collect();
        for name in &names {
            test.holds(name, &disk()).await?;
        }
        test.only_these_are_left(&names).await
    });
}

#[test]
fn virtctl_gets_errors_that_it_matches() {
    run_installed("virtctl-refused", async |test| {
        let uploader = Uploader::new(&test).await?;
        Claim::filesystem("plain", "csi", SIZE).make(&test).await?;
        for (kind, name, file, more, words) in REFUSED {
            let output = start(&uploader, kind, (name, file, more))?.wait_with_output()?;
            let text = text_of(&output);
            ensure!(!output.status.success() && text.contains(words), "{words}: {text}");
        }
        Ok(())
    });
}

#[test]
fn virtctl_labels_are_on_the_created_objects() {
    run_installed("virtctl-typed", async |test| {
        // Workers have their share of a namespace that counts.
        let quota = json!({ "metadata": { "name": "quota" }, "spec": { "hard": {
            "requests.cpu": "4", "requests.memory": "8Gi", "limits.cpu": "8", "limits.memory": "8Gi",
        } } });
        test.create::<ResourceQuota>(quota).await?;
        let uploader = Uploader::new(&test).await?;
        let row = [
            "--storage-class=csi",
            "--datasource",
            "--default-instancetype=u1.small",
            "--default-instancetype-kind=virtualmachineinstancetype",
            "--default-preference=debian",
            "--default-preference-kind=virtualmachinepreference",
        ];
        let path = format!("--image-path={}", uploader.image("disk.qcow2")?.display());
        let size = format!("--size={SIZE}");
        let words = [&["dv", "typed", &path, &size][..], &row[..]].concat();
        expect(&uploader.virtctl(&words)?, "typed")?;
        test.succeeded("typed").await?;
        let claim = test.all::<PersistentVolumeClaim>().get("typed").await?;
        let source = test.all_of("cdi.kubevirt.io", "v1beta1", "DataSource").get("typed").await?;
        for (key, value) in [
            ("default-instancetype", "u1.small"),
            ("default-instancetype-kind", "virtualmachineinstancetype"),
            ("default-preference", "debian"),
            ("default-preference-kind", "virtualmachinepreference"),
        ] {
            let key = format!("instancetype.kubevirt.io/{key}");
            for labels in [claim.labels(), source.labels()] {
                ensure!(labels.get(&key).map(String::as_str) == Some(value), "{key}: {labels:?}");
            }
        }
        ensure!(source.data["spec"]["source"]["pvc"]["name"] == "typed", "{:?}", source.data);
        test.all::<ResourceQuota>().delete("quota", &DeleteParams::default()).await?;
        test.holds("typed", &disk()).await
    });
}

#[test]
fn virtctl_finds_the_upload_proxy_and_verifies_it() {
    run_installed("virtctl-verifies", async |test| {
        let uploader = Uploader::new(&test).await?;
        let configs = Api::<CdiConfig>::all(test.client());
        let lead = async |url: Value| {
            let patch = json!({ "spec": { "uploadProxyURLOverride": url } });
            configs.patch("config", &PatchParams::default(), &Patch::Merge(patch)).await
        };
        let entrance = format!("https://{PROXY_HOST}");
        lead(entrance.as_str().into()).await?;
        let has_url = |config: &CdiConfig| {
            let status = config.status.as_ref();
            status.and_then(|status| status.upload_proxy_url.as_deref()) == Some(&entrance)
        };
        test.wait_among(&configs, "config", "with the URL of the proxy", has_url).await?;
        let proxy = uploader.http_proxy();
        let no_ca = uploader.file("no-ca.pem", b"")?;
        let authority = uploader.authority().await?;
        let path = format!("--image-path={}", uploader.image("disk.img.gz")?.display());
        let size = format!("--size={SIZE}");
        let words = ["dv", "trusted", &path, &size, "--storage-class=csi"];
        let stranger = uploader.verifying(&words, &proxy, &no_ca)?.wait_with_output()?;
        let output = uploader.verifying(&words, &proxy, &authority)?.wait_with_output()?;
        lead(Value::Null).await?; // before the checks, so that the setting is removed in any case
        let stranger = text_of(&stranger);
        ensure!(stranger.contains("certificate signed by unknown authority"), "{stranger}");
        expect(&output, "trusted")?;
        test.succeeded("trusted").await?;
        test.holds("trusted", &disk()).await
    });
}

/// Uploads by a proxy that pauses in the middle. Then the DataVolume shows the progress, and the upload pod is lost.
/// virtctl sends everything again.
async fn survive(
    test: &Test,
    words: &[&str],
    lose: impl AsyncFn(&Pod) -> Result<()>,
) -> Result<()> {
    let uploader = Uploader::new(test).await?;
    let proxy = uploader.http_proxy().holding_after(3 << 20);
    let authority = uploader.authority().await?;
    let path = format!("--image-path={}", uploader.image("disk.img")?.display());
    let url = format!("--uploadproxy-url=https://{PROXY_HOST}");
    let words = [&["dv", "disk", &path, &url, "--retry=12"][..], words].concat();
    let virtctl = uploader.verifying(&words, &proxy, &authority)?;
    let under_way = |volume: &DataVolume| {
        let progress = volume.status.as_ref().and_then(|status| status.progress.as_deref());
        phase(volume) == "UploadReady"
            && progress.is_some_and(|progress| !progress.starts_with("100") && progress != "N/A")
    };
    test.wait("disk", "under way, and its progress reported", under_way).await?;
    lose(&test.upload_server().await?).await?;
    proxy.release();
    expect(&virtctl.wait_with_output()?, "what was lost")?;
    test.succeeded("disk").await?;
    test.holds("disk", &disk()).await?;
    test.only_these_are_left(&["disk"]).await
}

#[test]
fn upload_shows_progress_and_survives_its_server() {
    run_installed("server-dies", async |test| {
        let size = format!("--size={SIZE}");
        let crash =
            async |pod: &Pod| test.chaos().kill_in_pod(&pod.uid().context("a pod has a uid")?);
        survive(&test, &[&size, "--storage-class=csi"], crash).await
    });
}

/// As upstream's own tests kill a server.
#[test]
fn upload_survives_a_kill_by_exec_in_its_server() {
    run_installed("server-killed", async |test| {
        let size = format!("--size={SIZE}");
        let kill = async |pod: &Pod| {
            let name = pod.name_any();
            let printed = test.kubectl_ok(&["exec", &name, "--", "cat", "/etc/passwd"], "")?;
            ensure!(printed.stdout.contains("qemu:x:107"), "{}", printed.stdout);
            let refused = test.kubectl(&["exec", &name, "--", "/bin/sh", "-c", "ls /"], "")?;
            ensure!(refused.code == 127, "{refused:?}");
            // 137 where the container has ended before the command.
            let killed = test.kubectl(&["exec", &name, "--", "/bin/sh", "-c", "kill 1"], "")?;
            ensure!(matches!(killed.code, 0 | 137), "{killed:?}");
            Ok(())
        };
        survive(&test, &[&size, "--storage-class=csi"], kill).await
    });
}

#[test]
fn upload_without_a_populator_survives_the_loss_of_its_pod() {
    run_installed("server-lost", async |test| {
        let disk = volume("disk", "csi", "Filesystem", json!({ "upload": {} }));
        test.apply(annotated(disk, "cdi.kubevirt.io/storage.usePopulator", "false")).await?;
        test.upload_ready("disk").await?;
        let lose = async |pod: &Pod| test.lose_pod(&pod.name_any()).await;
        survive(&test, &["--no-create"], lose).await
    });
}
