//! Settings of the whole cluster, and commands of users.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use api::v1beta1::{Cdi, CdiConfig};
use cluster::{KUBERNETES, Tools};
use e2e::{PATIENCE, PAUSE, Test, run_installed, run_installed_alone};
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim};
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::{Fault, MIB, pattern};

use crate::world::{SIZE, disk, server, volume, worker};

/// 60 MiB: what ext4 and XFS need for 48 MiB, which is more than the fifth that is configured.
const SIZE_WITH_OVERHEAD: &str = "60Mi";

async fn change(test: &Test, spec: Value) -> Result<()> {
    let configs = Api::<CdiConfig>::all(test.client());
    let patch = Patch::Merge(json!({ "spec": spec }));
    configs.patch("config", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Sets the spec of the CDI object. Changes only fields that this manager owns.
async fn apply_installation(test: &Test, spec: Value) -> Result<()> {
    let installations = Api::<Cdi>::all(test.client());
    let ours = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDI", "metadata": { "name": "cdi" },
        "spec": spec,
    });
    let parameters = PatchParams::apply("e2e-settings").force();
    installations.patch("cdi", &parameters, &Patch::Apply(ours)).await?;
    Ok(())
}

fn overhead_is(config: &CdiConfig, class: &str, wanted: &str) -> bool {
    let status = serde_json::to_value(&config.status).unwrap_or_default();
    let overhead = &status["filesystemOverhead"];
    match class {
        "" => overhead["global"] == wanted,
        class => overhead["storageClass"][class] == wanted,
    }
}

/// Waits for the event about a CDI object whose settings are ignored. Events of such objects are in `default`.
async fn wait_for_ignored_settings_event(test: &Test) -> Result<()> {
    let events = Api::<Event>::namespaced(test.client(), "default");
    let about = "involvedObject.kind=CDI,involvedObject.name=cdi,reason=SettingIgnored";
    let begin = Instant::now();
    while events.list(&ListParams::default().fields(about)).await?.items.is_empty() {
        ensure!(begin.elapsed() < PATIENCE, "no event reports that settings are ignored");
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

async fn with_settings(test: &Test) -> Result<()> {
    change(
        test,
        json!({
            "filesystemOverhead": { "global": "0.1", "storageClass": { "csi": "0.2" } },
            "podResourceRequirements": {
                "limits": { "cpu": "500m", "memory": "300Mi" },
                "requests": { "cpu": "20m", "memory": "30Mi" },
            },
        }),
    )
    .await?;
    let workload = json!({ "nodeSelector": { "kubernetes.io/os": "linux" } });
    // The CDIConfig was edited: the `config` of the CDI object is ignored, and an event reports that.
    let both = json!({ "workload": workload, "config": { "logVerbosity": 2 } });
    apply_installation(test, both).await?;
    wait_for_ignored_settings_event(test).await?;
    apply_installation(test, json!({ "workload": workload })).await?;
    let configs = Api::<CdiConfig>::all(test.client());
    let is_published = |config: &CdiConfig| {
        [("", "0.1"), ("csi", "0.2"), ("plain", "0.1")]
            .iter()
            .all(|(class, wanted)| overhead_is(config, class, wanted))
    };
    test.wait_among(&configs, "config", "published", is_published).await?;

    let image = pattern(16 * MIB);
    let server = server(&image).once(Fault::StallAt(8 * MIB));
    let source = json!({ "http": { "url": server.url_of("/disk.img") } });
    let mut made = volume("disk", "csi", "Filesystem", source);
    let spec = made["spec"].as_object_mut().context("it has a spec")?;
    let storage = spec.remove("pvc").unwrap_or_default();
    spec.insert("storage".into(), storage);
    test.apply(made).await?;
    let pod = serde_json::to_value(worker(test).await?)?;
    let resources = &pod["spec"]["containers"][0]["resources"];
    ensure!(resources["limits"]["memory"] == "300Mi", "{resources}");
    ensure!(resources["requests"]["cpu"] == "20m", "{resources}");
    let selector = &pod["spec"]["nodeSelector"];
    ensure!(selector["kubernetes.io/os"] == "linux", "{selector}");
    let claim = test.all::<PersistentVolumeClaim>().get("disk").await?;
    let claim = serde_json::to_value(claim)?;
    let size = &claim["spec"]["resources"]["requests"]["storage"];
    ensure!(size == SIZE_WITH_OVERHEAD, "{SIZE} became {size}");
    server.heal();
    test.succeeded("disk").await?;
    test.holds("disk", &image).await
}

#[test]
fn changed_settings_apply_without_restart() {
    run_installed_alone("settings", async |test| {
        let outcome = with_settings(&test).await;
        // Not by an apply of nothing: an API server sets a spec to `null` if no field manager owns a field of it.
        let withdrawn = Patch::Merge(json!({ "spec": { "workload": null, "config": null } }));
        let installations = Api::<Cdi>::all(test.client());
        installations.patch("cdi", &PatchParams::default(), &withdrawn).await?;
        change(&test, json!({ "filesystemOverhead": null, "podResourceRequirements": null }))
            .await?;
        let configs = Api::<CdiConfig>::all(test.client());
        let is_default = |config: &CdiConfig| overhead_is(config, "csi", "0.055");
        test.wait_among(&configs, "config", "as it was", is_default).await?;
        outcome
    });
}

fn kubectl(test: &Test, words: &[&str]) -> Result<String> {
    let mut kubectl = cluster::kubectl(test.state(), &Tools::ready(&[KUBERNETES])?)?;
    let output = kubectl.arg(format!("--namespace={}", test.namespace())).args(words).output();
    let output = output.context("cannot start kubectl")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl {}: {error}", words.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn kubectl_commands_show_cdi_objects() {
    run_installed("kubectl", async |test| {
        let server = server(&disk());
        test.apply(crate::world::of_web("disk", &server)).await?;
        test.succeeded("disk").await?;
        test.event_message("disk", "ImportSucceeded").await?;
        for (line, wanted) in [
            ("get dvs", &["NAME", "PHASE", "PROGRESS", "RESTARTS", "Succeeded", "100.0%"][..]),
            ("get dv disk -o yaml", &["phase: Succeeded", "message: PVC disk Bound"]),
            (
                "describe dv disk",
                &["Import Complete", "Successfully imported into PVC disk", "PVC disk Bound"],
            ),
            ("get all", &["datavolume.cdi.kubevirt.io/disk"]),
            ("get storageprofile csi -o yaml", &["provisioner: loop.csi.cdi.test"]),
            ("get dataimportcron -A -o json", &["\"items\""]),
            ("get das,dics", &[]),
            ("get cdiconfig -o jsonpath={.items..status.filesystemOverhead}", &["global"]),
            ("explain dv.spec.source.http.url", &["FIELD: url <string>", "DESCRIPTION"]),
            ("explain cdi.spec.config.filesystemOverhead", &["global", "storageClass"]),
            ("auth can-i create uploadtokenrequests.upload.cdi.kubevirt.io", &["yes"]),
        ] {
            let words: Vec<_> = line.split(' ').collect();
            let output = kubectl(&test, &words)?;
            for words in wanted {
                ensure!(
                    output.contains(words),
                    "kubectl {line} does not print {words:?}: {output}"
                );
            }
        }
        Ok(())
    });
}
