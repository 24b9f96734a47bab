//! Virtual machines, in so far as they own DataVolumes and wait for them. The tests create the CRD, and simulate
//! KubeVirt: they create the DataVolumes of a virtual machine's templates, and start it once its disks are populated.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use api::v1beta1::{DataSource, DataVolume};
use e2e::{PATIENCE, PodPlan, Test, condition, phase, run_installed};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::Fault;

use crate::world::{SIZE, disk, of_web, server};

const GROUP: &str = "kubevirt.io";

/// Creates the CRD of virtual machines, with the fields that the tests use. It stays with the cluster.
async fn know_machines(test: &Test) -> Result<()> {
    let kind = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "virtualmachines.kubevirt.io" },
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": { "kind": "VirtualMachine", "plural": "virtualmachines" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                } },
            }],
        },
    });
    let kinds = Api::<CustomResourceDefinition>::all(test.client());
    let name = "virtualmachines.kubevirt.io";
    kinds.patch(name, &PatchParams::apply("e2e-machines"), &Patch::Apply(kind)).await?;
    let is_served = |kind: &CustomResourceDefinition| {
        let conditions = kind.status.as_ref().and_then(|status| status.conditions.as_ref());
        let mut all = conditions.into_iter().flatten();
        all.any(|condition| condition.type_ == "Established" && condition.status == "True")
    };
    test.wait_among(&kinds, name, "served", is_served).await.map(|_| ())
}

/// A VM with disks of these templates.
async fn machine(test: &Test, templates: &[Value]) -> Result<DynamicObject> {
    know_machines(test).await?;
    let volumes: Vec<_> = templates
        .iter()
        .map(|template| {
            let name = &template["metadata"]["name"];
            json!({ "name": name, "dataVolume": { "name": name } })
        })
        .collect();
    let made = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": "vm" },
        "spec": {
            "running": true, "dataVolumeTemplates": templates,
            "template": { "spec": { "domain": {}, "volumes": volumes } },
        },
    });
    // The clients observe a new CRD a moment later.
    for _ in 0..100 {
        match test.apply(made.clone()).await {
            Ok(machine) => return Ok(machine),
            Err(error) if format!("{error:#}").contains("not found") => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(error) => return Err(error),
        }
    }
    bail!("the API server does not know VirtualMachines")
}

/// Creates the DataVolumes of the templates as KubeVirt does: the virtual machine owns each, and a DataSource is
/// resolved before.
async fn provision(test: &Test, machine: &DynamicObject) -> Result<()> {
    let templates = machine.data["spec"]["dataVolumeTemplates"].as_array();
    let uid = machine.uid().context("a machine has a UID")?;
    for template in templates.context("a machine has templates")? {
        let mut made = json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
            "metadata": template["metadata"], "spec": template["spec"],
        });
        made["metadata"]["annotations"]["cdi.kubevirt.io/allowClaimAdoption"] = "true".into();
        made["metadata"]["labels"]["kubevirt.io/created-by"] = uid.as_str().into();
        made["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": machine.name_any(),
            "uid": uid, "controller": true, "blockOwnerDeletion": true,
        }]);
        if let Some(name) = made["spec"]["sourceRef"]["name"].as_str() {
            let source = test.all::<DataSource>().get(name).await?;
            made["spec"]["source"] = serde_json::to_value(&source.spec.source)?;
            if let Some(spec) = made["spec"].as_object_mut() {
                spec.remove("sourceRef");
            }
        }
        test.apply(made).await?;
    }
    Ok(())
}

/// Whether the PVC is populated for KubeVirt: one that a DataVolume controls is when the DataVolume has succeeded, and
/// every other is.
async fn is_populated(test: &Test, claim: &str) -> Result<bool> {
    let Some(found) = test.all::<PersistentVolumeClaim>().get_opt(claim).await? else {
        return Ok(false);
    };
    let owners = found.metadata.owner_references.unwrap_or_default();
    let owner = owners.iter().find(|owner| owner.controller == Some(true));
    match owner.filter(|owner| owner.kind == "DataVolume") {
        Some(owner) => {
            let volume = test.all::<DataVolume>().get_opt(&owner.name).await?;
            Ok(volume.is_some_and(|volume| phase(&volume) == "Succeeded"))
        }
        None => Ok(true),
    }
}

/// Whether KubeVirt would start a machine with these disks.
async fn may_start(test: &Test, disks: &[&str]) -> Result<bool> {
    for disk in disks {
        let volume = test.all::<DataVolume>().get(disk).await?;
        let is_ready = condition(&volume, "Ready").is_some_and(|ready| ready.status == "True");
        if !is_ready || !is_populated(test, disk).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn template(name: &str, source: Value, storage: Value) -> Value {
    json!({
        "metadata": { "name": name, "creationTimestamp": null },
        "spec": { "source": source, "storage": storage },
        "status": {},
    })
}

#[test]
fn vm_starts_with_populated_disks_and_deletes_them() {
    run_installed("machine", async |test| {
        let golden = server(&disk());
        test.apply(of_web("golden", &golden)).await?;
        test.succeeded("golden").await?;
        test.apply(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
            "metadata": { "name": "fedora" },
            "spec": { "source": { "pvc": { "namespace": test.namespace(), "name": "golden" } } },
        }))
        .await?;
        let slow = server(&disk()).always(Fault::StallAt(4 << 20));
        let sized = json!({
            "storageClassName": "csi", "volumeMode": "Block", "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": SIZE } },
        });
        let web = json!({ "http": { "url": slow.url_of("/disk.img") } });
        // What is made of a DataSource is as large as that.
        let mut as_large_as_that = sized.clone();
        as_large_as_that["resources"] = json!({});
        let mut root = template("root", json!({}), as_large_as_that);
        root["spec"]["sourceRef"] = json!({ "kind": "DataSource", "name": "fedora" });
        let templates = [
            root,
            template("web", web, sized.clone()),
            template("data", json!({ "blank": {} }), sized),
        ];
        let disks = ["root", "web", "data"];
        let machine = machine(&test, &templates).await?;
        provision(&test, &machine).await?;
        for disk in ["root", "data"] {
            test.succeeded(disk).await?;
        }
        slow.wait_for_stall(PATIENCE);
        ensure!(!may_start(&test, &disks).await?, "a disk is not full yet");
        slow.heal();
        test.succeeded("web").await?;
        ensure!(may_start(&test, &disks).await?, "all disks are full");
        let started = PodPlan::new("virt-launcher", &["pause"]);
        let started = started.device("web", "/web").device("data", "/data");
        started.start(&test).await?;
        test.holds("root", &disk()).await?;
        // The virtual machine is deleted in the foreground: not before its disks.
        let machines = test.all_of(GROUP, "v1", "VirtualMachine");
        machines.delete("vm", &DeleteParams::foreground()).await?;
        test.all::<Pod>().delete("virt-launcher", &DeleteParams::default()).await?;
        test.wait_until_gone(&machines, "vm").await?;
        let left = test.all::<DataVolume>().list(&ListParams::default()).await?;
        let left: Vec<_> = left.items.iter().map(ResourceExt::name_any).collect();
        ensure!(left == ["golden"], "{left:?} outlived the machine");
        test.only_these_are_left(&["golden"]).await?;
        no_volume_is_left_of(&test, &disks).await
    });
}

/// The storage deletes volumes without the knowledge of Kubernetes.
async fn no_volume_is_left_of(test: &Test, claims: &[&str]) -> Result<()> {
    let volumes = Api::<PersistentVolume>::all(test.client());
    for volume in volumes.list(&ListParams::default()).await?.items {
        let owner = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        let is_left = owner.is_some_and(|owner| {
            owner.namespace.as_deref() == Some(test.namespace())
                && claims.iter().any(|claim| owner.name.as_deref() == Some(*claim))
        });
        if is_left {
            test.wait_until_gone(&volumes, &volume.name_any()).await?;
        }
    }
    Ok(())
}

#[test]
fn shared_disk_is_a_block_device_for_all_vms() {
    run_installed("shared", async |test| {
        let server = server(&disk());
        let mut shared = of_web("shared", &server);
        shared["spec"]["pvc"]["accessModes"] = json!(["ReadWriteMany"]);
        test.apply(shared).await?;
        test.succeeded("shared").await?;
        let claim = test.all::<PersistentVolumeClaim>().get("shared").await?;
        let modes = claim.status.and_then(|status| status.access_modes).unwrap_or_default();
        ensure!(modes == ["ReadWriteMany"], "{modes:?}");
        for machine in ["first", "second"] {
            PodPlan::new(machine, &["pause"]).device("shared", "/disk").start(&test).await?;
        }
        test.holds("shared", &disk()).await
    });
}
