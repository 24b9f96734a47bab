//! Disks of a machine that are filled while the controllers are killed.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use api::v1beta1::DataVolume;
use e2e::{PATIENCE, Program, Test, phase, upload_token};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;
use testkit::{Fault, MIB};

use crate::vm::{Vm, manifest};
use crate::world::{
    DATA_SIZE, DEVICE, GUEST_SIZE, PLAIN_DEVICE, data_disk, guest_disk, guest_server, http,
    other_data_disk, run_with_machines_alone, volume,
};

const CONTROLLER: &str = "cdi-deployment";
/// Short, to observe a pod before it has ended.
const GLANCE: Duration = Duration::from_millis(20);
/// An upload of a disk for data takes eight seconds.
const UPLOAD_RATE: &str = "2M";
/// After which it is under way.
const UPLOAD_BEGINS: Duration = Duration::from_secs(2);

/// The controllers, found before they are to be killed: that takes no time then.
struct Controllers<'a> {
    test: &'a Test,
    pod_uid: String,
}

impl<'a> Controllers<'a> {
    /// In a new pod, which starts again at once after its first crash; the pause grows with each.
    async fn start(test: &'a Test) -> Result<Self> {
        let program = Program::named(test, CONTROLLER);
        program.lose().await?;
        let pod = program.pod().await?;
        Ok(Self { test, pod_uid: pod.uid().context("a pod has a uid")? })
    }

    /// Kills them, and checks that this DataVolume was not complete.
    async fn crash_before_success_of(self, name: &str) -> Result<()> {
        self.test.chaos().kill_in_pod(&self.pod_uid)?;
        let volume = self.test.all::<DataVolume>().get(name).await?;
        ensure!(phase(&volume) != "Succeeded", "{name} was complete before the controllers died");
        Ok(())
    }
}

/// Waits until a pod exists that reads for a clone.
async fn copy_begins(test: &Test) -> Result<()> {
    let readers = ListParams::default().labels("cdi.kubevirt.io=cdi-clone-source");
    let begin = Instant::now();
    while test.all::<Pod>().list(&readers).await?.items.is_empty() {
        ensure!(begin.elapsed() < PATIENCE, "no pod copies");
        tokio::time::sleep(GLANCE).await;
    }
    Ok(())
}

/// Starts a slow upload of a file.
async fn start_upload(test: &Test, claim: &str, file: &Path) -> Result<Child> {
    let address = test.service_address("cdi-uploadproxy").await?;
    let token = upload_token(test, claim).await?;
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--insecure", "--fail-with-body", "--request", "POST"]);
    curl.args(["--limit-rate", UPLOAD_RATE, "--header", &format!("Authorization: Bearer {token}")]);
    curl.arg("--data-binary").arg(format!("@{}", file.display()));
    curl.arg(format!("https://{address}/v1beta1/upload"));
    curl.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    curl.spawn().context("cannot start curl")
}

#[test]
fn vm_boots_from_disks_whose_controllers_were_killed_meanwhile() {
    run_with_machines_alone("vm-crashes", async |test| {
        let golden = e2e::server(&data_disk());
        test.apply(volume("golden", DEVICE, DATA_SIZE, http(&golden))).await?;
        test.succeeded("golden").await?;

        // The other disks of the machine are created one after the other: it waits for all.
        let controllers = Controllers::start(&test).await?;
        let server = guest_server()?.always(Fault::SlowDown(MIB));
        let root = volume("root", DEVICE, GUEST_SIZE, http(&server));
        let vm = manifest("guest", &["root", "copied", "uploaded"], &[root]);
        let vm = Vm::create(&test, vm).await?;
        let is_running = |volume: &DataVolume| phase(volume) == "ImportInProgress";
        test.wait("root", "being imported", is_running).await?;
        controllers.crash_before_success_of("root").await?;
        server.heal();
        test.succeeded("root").await?;

        let controllers = Controllers::start(&test).await?;
        let source = json!({ "pvc": { "namespace": test.namespace(), "name": "golden" } });
        test.apply(volume("copied", PLAIN_DEVICE, DATA_SIZE, source)).await?;
        copy_begins(&test).await?;
        controllers.crash_before_success_of("copied").await?;
        test.succeeded("copied").await?;

        test.apply(volume("uploaded", DEVICE, DATA_SIZE, json!({ "upload": {} }))).await?;
        test.upload_ready("uploaded").await?;
        let controllers = Controllers::start(&test).await?;
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), other_data_disk())?;
        let mut upload = start_upload(&test, "uploaded", file.path()).await?;
        tokio::time::sleep(UPLOAD_BEGINS).await;
        controllers.crash_before_success_of("uploaded").await?;
        ensure!(upload.try_wait()?.is_none(), "the upload has ended before");
        let output = upload.wait_with_output().context("cannot wait for curl")?;
        if !output.status.success() {
            bail!("the upload fails: {}", String::from_utf8_lossy(&output.stderr));
        }
        test.succeeded("uploaded").await?;

        vm.sees(&[&guest_disk()?, &data_disk(), &other_data_disk()]).await?;
        vm.delete().await?;
        test.clones_leave(&["golden", "copied", "uploaded"], &[]).await
    });
}
