//! The memory of a running guest, in a PVC that KubeVirt's client creates.

use anyhow::{Context, Result, ensure};
use cluster::NODE_IMAGE;
use cluster::guest::REMEMBER;
use e2e::{PodPlan, Test};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, DynamicObject};
use serde_json::json;

use crate::vm::{Vm, manifest, with_network};
use crate::world::{
    DATA_SIZE, DEVICE, FILE, GUEST_SIZE, data_disk, guest_disk, guest_server, http,
    run_with_machines, volume,
};

const CLAIM: &str = "dump";
/// The memory of the guest.
const MEMORY: u64 = 128 << 20;
/// The type of an ELF file that is a core dump.
const ET_CORE: &str = "4";

/// Prints of a file in the PVC: its size, the name and the type in its ELF header, and how many lines contain the text.
async fn inspect(test: &Test, file: &str, text: &str) -> Result<Vec<String>> {
    let script = "cd /dump && stat -c %s \"$0\" && head -c 4 \"$0\" | tail -c 3 && \
        od -A n -t u2 -j 16 -N 2 \"$0\" && grep -a -c -F \"$1\" \"$0\" || true";
    let command = ["bash", "-c", script, file, text];
    let plan = PodPlan::new("inspector", &[]).image(NODE_IMAGE).command(&command);
    let printed = plan.mount(CLAIM, "/dump").output(test).await?;
    test.all::<Pod>().delete("inspector", &DeleteParams::default()).await?;
    Ok(printed.split_whitespace().map(str::to_owned).collect())
}

#[test]
fn memory_is_dumped_to_a_pvc_that_virtctl_creates() {
    run_with_machines("vm-dump", async |test| {
        let text = format!("{REMEMBER}{}", test.namespace());
        let mut disk = data_disk();
        let line = format!("{text}\n");
        disk[..line.len()].copy_from_slice(line.as_bytes());
        let (server, data) = (guest_server()?, e2e::server(&disk));
        let templates = [
            volume("root", DEVICE, GUEST_SIZE, http(&server)),
            volume("data", DEVICE, DATA_SIZE, http(&data)),
        ];
        let mut manifest = with_network(manifest("guest", &["root", "data"], &templates));
        // virtctl computes the size of the PVC from this alone.
        manifest["spec"]["template"]["spec"]["domain"]["resources"] =
            json!({ "requests": { "memory": MEMORY.to_string() } });
        let vm = Vm::create(&test, manifest).await?;
        vm.sees(&[&guest_disk()?, &disk]).await?;

        let class = format!("--storage-class={}", FILE.class);
        let claim = format!("--claim-name={CLAIM}");
        test.virtctl(&["memory-dump", "get", "guest", &claim, "--create-claim", &class])?;
        let request = |vm: &DynamicObject| vm.data["status"]["memoryDumpRequest"].clone();
        let has_ended = |vm: &DynamicObject| {
            ["Completed", "Failed"].iter().any(|phase| request(vm)["phase"] == *phase)
        };
        let machines = Vm::all(&test);
        let dumped = test.wait_among(&machines, "guest", "dumped", has_ended).await?;
        ensure!(request(&dumped)["phase"] == "Completed", "{}", request(&dumped));
        let volumes = dumped.data["spec"]["template"]["spec"]["volumes"].to_string();
        ensure!(volumes.contains("memoryDump"), "the dump is no volume of the VM: {volumes}");

        let request = request(&dumped);
        let file = request["fileName"].as_str().context("the dump has no name")?;
        let found = inspect(&test, file, &text).await?;
        let [size, name, kind, lines] = found.as_slice() else { anyhow::bail!("{found:?}") };
        ensure!(name == "ELF" && kind == ET_CORE, "this is no core dump: {found:?}");
        ensure!(size.parse::<u64>()? >= MEMORY, "this is not all of the memory: {found:?}");
        ensure!(lines.parse::<u64>()? > 0, "the text is not in the dump");

        test.virtctl(&["memory-dump", "remove", "guest"])?;
        let is_removed = |vm: &DynamicObject| {
            let volumes = vm.data["spec"]["template"]["spec"]["volumes"].to_string();
            vm.data["status"]["memoryDumpRequest"].is_null() && !volumes.contains("memoryDump")
        };
        test.wait_among(&machines, "guest", "without its dump", is_removed).await?;
        vm.delete().await?;
        // It is the user's, and the machine does not own it.
        test.all::<PersistentVolumeClaim>().get(CLAIM).await?;
        test.only_these_are_left(&[CLAIM]).await
    });
}
