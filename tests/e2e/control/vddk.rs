//! Imports from VMware: the test simulates vCenter, and an nbdkit plugin of this project replaces that for VMware's
//! library.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use api::v1beta1::DataVolume;
use e2e::{HOST, Test, condition, phase, run_installed, volume};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use ociimage::Entry;
use serde_json::{Value, json};
use testkit::disk::Fill;
use testkit::vsphere::{FILES, MACHINE_UUID};
use testkit::{MIB, SparseDisk, Vsphere, VsphereState};

const LEN: u64 = 12 * MIB;
/// Of no certificate: the simulated vCenter has no TLS.
const THUMBPRINT: &str = "20:6c:8a:5d:44:40:b3:79:4b:28:ea:76:13:60:90:6e:49:d9:d9:a3";
/// The command of the init container, which copies the plugin to the path that the importer expects.
const PROGRAMS: [&str; 3] = ["/bin/sh", "/bin/cp", "/bin/mkdir"];
const COPY: &str = "mkdir -p /opt/testing && cp /vddk/* /opt/testing/";

fn before() -> SparseDisk {
    SparseDisk::new(LEN).with(0, 2 * MIB, Fill::Pattern).with(9 * MIB, MIB, Fill::Random(1))
}

/// The next state: some data, and zeroes where there was data.
fn after() -> SparseDisk {
    before().with(MIB, MIB, Fill::Byte(0)).with(5 * MIB, 2 * MIB, Fill::Random(2))
}

fn vsphere() -> Vsphere {
    let areas = vec![(MIB, MIB), (5 * MIB, 2 * MIB)];
    Vsphere::start_on(HOST, VsphereState { capacity: LEN, areas, ..VsphereState::default() })
}

/// Compiles the plugin.
fn plugin(folder: &Path) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/vddk/plugin.c");
    let plugin = folder.join("libvddk-test-plugin.so");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&plugin).arg(source);
    let output = cc.output().context("cannot run cc")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(plugin)
}

/// The image that users build of VMware's library: its program copies the library to `/opt`.
fn library(test: &Test) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let mut files = vec![
        Entry::directory("vddk", 0o755),
        Entry::file("vddk/libvddk-test-plugin.so", 0o755, std::fs::read(plugin(folder.path())?)?),
        Entry::file("vddk/disk", 0o644, before().bytes()),
        Entry::file("vddk/snapshot-1", 0o644, before().bytes()),
        Entry::file("vddk/snapshot-2", 0o644, after().bytes()),
    ];
    let mut needed: Vec<PathBuf> = PROGRAMS.iter().map(PathBuf::from).collect();
    for program in PROGRAMS {
        needed.extend(ociimage::libraries(Path::new(program))?);
    }
    needed.sort();
    needed.dedup();
    for path in needed {
        let name = path.display().to_string();
        files.push(Entry::file(name.trim_start_matches('/'), 0o755, std::fs::read(&path)?));
    }
    let entrypoint = ["/bin/sh", "-c", COPY].map(str::to_owned).to_vec();
    Ok(test.push_program("vddk", "1", entrypoint, files)?.reference)
}

async fn credentials(test: &Test) -> Result<()> {
    test.apply(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "vcenter" },
        "stringData": { "accessKeyId": "root", "secretKey": "hush & <hush>" },
    }))
    .await
    .map(|_| ())
}

fn of_vmware(name: &str, mode: &str, vsphere: &Vsphere, library: &str) -> Value {
    let source = json!({ "vddk": {
        "url": vsphere.endpoint(), "uuid": MACHINE_UUID, "backingFile": FILES[0], "thumbprint": THUMBPRINT,
        "secretRef": "vcenter", "initImageURL": library,
    } });
    volume(name, "csi", mode, source)
}

async fn knows_its_host(test: &Test, name: &str) -> Result<()> {
    let claim = test.all::<PersistentVolumeClaim>().get(name).await?;
    for (key, expected) in [("host", "esx.example"), ("version", "8.0.2")] {
        let key = format!("cdi.kubevirt.io/storage.pod.vddk.{key}");
        let found = claim.annotations().get(&key).map(String::as_str);
        ensure!(found == Some(expected), "{key}: {found:?}");
    }
    Ok(())
}

#[test]
fn vmware_disk_is_imported() {
    run_installed("vddk-cold", async |test| {
        let (vsphere, library) = (vsphere(), library(&test)?);
        credentials(&test).await?;
        for (name, mode) in [("file", "Filesystem"), ("device", "Block")] {
            test.apply(of_vmware(name, mode, &vsphere, &library)).await?;
            test.succeeded(name).await?;
            test.holds(name, &before().bytes()).await?;
            knows_its_host(&test, name).await?;
        }
        test.only_these_are_left(&["file", "device"]).await
    });
}

#[test]
fn vmware_disk_is_imported_in_stages() {
    run_installed("vddk-warm", async |test| {
        let (vsphere, library) = (vsphere(), library(&test)?);
        credentials(&test).await?;
        let mut object = of_vmware("disk", "Block", &vsphere, &library);
        object["spec"]["finalCheckpoint"] = false.into();
        object["spec"]["checkpoints"] = json!([{ "previous": "", "current": "snapshot-1" }]);
        test.apply(object).await?;
        let paused = |volume: &DataVolume| phase(volume) == "Paused";
        let volume = test.wait("disk", "paused", paused).await?;
        let running = condition(&volume, "Running").context("it reports what runs")?;
        ensure!(running.status == "False", "{running:?}");
        let calls = vsphere.state().calls.clone();
        ensure!(!calls.iter().any(|call| call.starts_with("QueryChangedDiskAreas")), "{calls:?}");
        // The virtual machine is shut down, and the changes since the snapshot are copied.
        let last = json!({ "spec": { "finalCheckpoint": true, "checkpoints": [
            { "previous": "", "current": "snapshot-1" },
            { "previous": "snapshot-1", "current": "snapshot-2" },
        ] } });
        let volumes = test.all::<DataVolume>();
        volumes.patch("disk", &PatchParams::default(), &Patch::Merge(last)).await?;
        test.succeeded("disk").await?;
        let calls = vsphere.state().calls.clone();
        ensure!(calls.contains(&"QueryChangedDiskAreas 52 aa/1".to_owned()), "{calls:?}");
        test.holds("disk", &after().bytes()).await?;
        knows_its_host(&test, "disk").await?;
        test.only_these_are_left(&["disk"]).await
    });
}

#[test]
fn wrong_vmware_password_is_reported() {
    run_installed("vddk-refused", async |test| {
        let (vsphere, library) = (vsphere(), library(&test)?);
        test.apply(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "vcenter" },
            "stringData": { "accessKeyId": "root", "secretKey": "not-this-one" },
        }))
        .await?;
        test.apply(of_vmware("disk", "Block", &vsphere, &library)).await?;
        let refused = |volume: &DataVolume| {
            e2e::condition_is_false_with(volume, "Running", "Cannot complete login")
        };
        let volume = test.wait("disk", "refused", refused).await?;
        ensure!(!serde_json::to_string(&volume)?.contains("not-this-one"), "{volume:?}");
        Ok(())
    });
}
