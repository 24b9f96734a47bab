//! The CDI object as the HyperConverged operator creates it, and the conditions by which that operator follows it.

use std::time::Instant;

use anyhow::{Result, ensure};
use api::v1beta1::{Cdi, CdiConfig};
use e2e::{NAMESPACE, PAUSE, Test, volume};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::installation::{
    PATIENCE, apply, kubectl, release_file, remove_by_name, run_where_nothing_is_installed,
};
use crate::runbooks::commands_show_programs_and_operator;

const NAME: &str = "cdi-kubevirt-hyperconverged";
const PART_OF: &str = "app.kubernetes.io/part-of";
const VERSION: &str = "app.kubernetes.io/version";

/// With the labels, annotation and settings that HyperConverged 1.x gives it.
fn cdi_object() -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDI",
        "metadata": {
            "name": NAME,
            "annotations": { "cdi.kubevirt.io/configAuthority": "" },
            "labels": {
                "app": "kubevirt-hyperconverged",
                "app.kubernetes.io/component": "storage",
                "app.kubernetes.io/managed-by": "hco-operator",
                PART_OF: "hyperconverged-cluster",
                VERSION: "1.18.0",
            },
        },
        "spec": {
            "certConfig": {
                "ca": { "duration": "48h0m0s", "renewBefore": "24h0m0s" },
                "server": { "duration": "24h0m0s", "renewBefore": "12h0m0s" },
            },
            "config": {
                "featureGates": ["HonorWaitForFirstConsumer"],
                "tlsSecurityProfile": { "type": "Intermediate", "intermediate": {} },
            },
            "uninstallStrategy": "BlockUninstallIfWorkloadsExist",
            "infra": {}, "workload": {},
        },
    })
}

const DEPLOYING: &str = "Deploying: Available False, Progressing True, Degraded False";
const DEPLOYED: &str = "Deployed: Available True, Progressing False, Degraded False";

#[test]
fn hyperconverged_object_is_installed_with_the_conditions_it_waits_for() {
    run_where_nothing_is_installed("hyperconverged", async |test| {
        let operator = release_file("cdi-operator.yaml")?;
        apply(&test, &operator)?;
        apply(&test, &cdi_object().to_string())?;
        let states = states_until_deployed(&test).await?;
        ensure!(states == [DEPLOYING, DEPLOYED], "{states:#?}");
        labels_are_passed_on(&test).await?;
        commands_show_programs_and_operator(&test).await?;
        patches_take_effect(&test).await?;
        programs_that_are_not_ready_are_reported(&test).await?;
        test.apply(volume("first", "csi", "Block", json!({ "blank": {} }))).await?;
        test.succeeded("first").await?;
        remove_by_name(&test, NAME, &operator).await
    });
}

/// The phase and conditions of the CDI object; `None` before it has them.
fn state(cdi: &Cdi) -> Option<String> {
    let phase = cdi.status.as_ref()?.phase.as_deref().filter(|phase| !phase.is_empty())?;
    let [available, progressing, degraded] = ["Available", "Progressing", "Degraded"]
        .map(|kind| e2e::cdi_condition(cdi, kind).unwrap_or("unset"));
    Some(format!("{phase}: Available {available}, Progressing {progressing}, Degraded {degraded}"))
}

/// The states that the CDI object goes through, without repetitions.
async fn states_until_deployed(test: &Test) -> Result<Vec<String>> {
    let all = Api::<Cdi>::all(test.client());
    let begin = Instant::now();
    let mut states = Vec::new();
    while states.last().map(String::as_str) != Some(DEPLOYED) {
        ensure!(begin.elapsed() < PATIENCE, "not deployed: {states:#?}");
        let found = all.get_opt(NAME).await?.as_ref().and_then(state);
        if let Some(found) = found
            && states.last() != Some(&found)
        {
            states.push(found);
        }
        tokio::time::sleep(PAUSE / 4).await;
    }
    Ok(states)
}

/// HyperConverged's labels stay on the CDI object, and the two recommended ones are on everything that is installed.
async fn labels_are_passed_on(test: &Test) -> Result<()> {
    let cdi = Api::<Cdi>::all(test.client()).get(NAME).await?;
    let expected = cdi_object()["metadata"]["labels"].clone();
    ensure!(json!(cdi.labels()) == expected, "{:?}", cdi.labels());
    let programs = Api::<Deployment>::namespaced(test.client(), NAMESPACE);
    let program = programs.get("cdi-deployment").await?;
    for key in [PART_OF, VERSION] {
        let label = program.labels().get(key).map(String::as_str);
        ensure!(label == expected[key].as_str(), "{key}: {label:?}");
    }
    Ok(())
}

/// What HyperConverged applies for the annotation `containerizeddataimporter.kubevirt.io/jsonpatch`, `null` for unused
/// profiles included.
async fn patches_take_effect(test: &Test) -> Result<()> {
    let unused =
        json!({ "type": "Old", "old": {}, "intermediate": null, "modern": null, "custom": null });
    let patch = json!([
        { "op": "add", "path": "/spec/config/dataVolumeTTLSeconds", "value": -1 },
        { "op": "add", "path": "/spec/config/uploadProxyURLOverride", "value": "https://uploads.example.test" },
        { "op": "replace", "path": "/spec/config/tlsSecurityProfile", "value": unused },
    ]);
    let patch = format!("--patch={patch}");
    let (succeeded, output) = kubectl(test, &["patch", "cdi", NAME, "--type=json", &patch], "")?;
    ensure!(succeeded && !output.contains("Warning"), "{output}");
    let is_taken = |config: &CdiConfig| {
        let config = serde_json::to_value(config).unwrap_or_default();
        let (spec, status) = (&config["spec"], &config["status"]);
        spec["dataVolumeTTLSeconds"] == -1
            && spec["tlsSecurityProfile"]["type"] == "Old"
            && status["uploadProxyURL"] == "https://uploads.example.test"
    };
    let configs = Api::<CdiConfig>::all(test.client());
    test.wait_among(&configs, "config", "as patched", is_taken).await.map(|_| ())
}

/// A setting by which no node is suitable: HyperConverged reads that CDI is degraded, and later that it is not.
async fn programs_that_are_not_ready_are_reported(test: &Test) -> Result<()> {
    let all = Api::<Cdi>::all(test.client());
    for (node, degraded) in [(json!("nowhere"), "True"), (Value::Null, "False")] {
        let selector = json!({ "kubernetes.io/hostname": node });
        let change = json!({ "spec": { "infra": { "nodeSelector": selector } } });
        all.patch(NAME, &PatchParams::default(), &Patch::Merge(change)).await?;
        let expected = format!("Deployed: Available True, Progressing False, Degraded {degraded}");
        let is_so = |cdi: &Cdi| state(cdi).as_ref() == Some(&expected);
        test.wait_among(&all, NAME, &expected, is_so).await?;
    }
    Ok(())
}
