//! From nothing to an installation that is available, follows its CDI object, and repairs itself.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::v1beta1::Cdi;
use e2e::{NAMESPACE, PAUSE, Test, volume};
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::json;

use crate::installation::{
    CR, PATIENCE, apply, available, delete, install, kubectl, owned_objects, release_file, remove,
    run_where_nothing_is_installed,
};
use crate::{leadership, platform, settings};

/// An object that was deleted is back within this time.
const REPAIR_TIME: Duration = Duration::from_secs(30);
/// CRDs whose deletion removes no objects that the rest of the test needs.
const CRDS_WITHOUT_OBJECTS: [&str; 4] = [
    "objecttransfers.cdi.kubevirt.io",
    "openstackvolumepopulators.forklift.cdi.kubevirt.io",
    "ovirtvolumepopulators.forklift.cdi.kubevirt.io",
    "volumeuploadsources.cdi.kubevirt.io",
];

#[test]
fn installation_from_nothing_is_available_configurable_and_repaired() {
    run_where_nothing_is_installed("install", async |test| {
        let took = install(&test).await?;
        eprintln!("available {:.1} s after `kubectl apply`", took.as_secs_f64());
        let blank = json!({ "blank": {} });
        test.apply(volume("first", "csi", "Block", blank)).await?;
        test.succeeded("first").await?;
        settings::take_effect(&test).await?;
        leadership::second_replicas_take_over(&test).await?;
        foreign_labels_of_crds_stay(&test).await?;
        refused_object_is_named_and_the_others_are_repaired(&test).await?;
        second_installation_is_refused(&test).await?;
        deleted_objects_come_back(&test).await?;
        expired_certificates_are_renewed(&test).await?;
        // Last: what is created for an API stays when that is removed, and nothing repairs it then.
        platform::parts_follow_their_apis(&test).await?;
        ensure!(test.all::<api::v1beta1::DataVolume>().get("first").await.is_ok(), "it is gone");
        remove(&test, &release_file("cdi-operator.yaml")?).await
    });
}

/// A repair of our labels leaves those of others.
async fn foreign_labels_of_crds_stay(test: &Test) -> Result<()> {
    const OURS: &str = "app.kubernetes.io/component";
    let name = "datavolumes.cdi.kubevirt.io";
    let all = Api::<CustomResourceDefinition>::all(test.client());
    let labels = json!({ "velero.io/exclude-from-backup": "true", OURS: null });
    let edit = json!({ "metadata": { "labels": labels } });
    all.patch(name, &PatchParams::default(), &Patch::Merge(edit)).await?;
    let is_repaired = |crd: &CustomResourceDefinition| crd.labels().contains_key(OURS);
    let found = test.wait_among(&all, name, "repaired", is_repaired).await?;
    ensure!(found.labels().contains_key("velero.io/exclude-from-backup"), "{:?}", found.labels());
    Ok(())
}

async fn second_installation_is_refused(test: &Test) -> Result<()> {
    let second = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDI",
        "metadata": { "name": "second" }, "spec": {},
    });
    test.create_global::<Cdi>(second).await?;
    let all = Api::<Cdi>::all(test.client());
    let refused = |cdi: &Cdi| {
        let phase = cdi.status.as_ref().and_then(|status| status.phase.as_deref());
        phase == Some("Error")
    };
    test.wait_among(&all, "second", "refused", refused).await?;
    test.remove_global::<Cdi>("second").await?;
    test.wait_until_gone(&all, "second").await?;
    available(test, None).await.map(drop)
}

async fn deleted_objects_come_back(test: &Test) -> Result<()> {
    let (mut repaired, mut missing) = (0, Vec::new());
    for (kind, object) in owned_objects(test).await? {
        let name = object.name_any();
        if kind.kind == "CustomResourceDefinition" && !CRDS_WITHOUT_OBJECTS.contains(&name.as_str())
        {
            continue;
        }
        let all = match object.namespace() {
            Some(namespace) => {
                Api::<DynamicObject>::namespaced_with(test.client(), &namespace, &kind)
            }
            None => Api::<DynamicObject>::all_with(test.client(), &kind),
        };
        all.delete(&name, &DeleteParams::background()).await?;
        let begin = Instant::now();
        loop {
            if let Some(found) = all.get_opt(&name).await?
                && found.uid() != object.uid()
            {
                break;
            }
            if begin.elapsed() > REPAIR_TIME {
                missing.push(format!("{} {name}", kind.kind));
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        repaired += 1;
    }
    ensure!(missing.is_empty(), "deleted and not back: {}", missing.join(", "));
    ensure!(repaired >= 40, "only {repaired} objects belong to the installation");
    eprintln!("{repaired} deleted objects came back within {} s each", REPAIR_TIME.as_secs());
    available(test, None).await.map(drop)
}

async fn expired_certificates_are_renewed(test: &Test) -> Result<()> {
    let all = Api::<Secret>::namespaced(test.client(), NAMESPACE);
    let name = "cdi-apiserver-server-cert";
    let before = all.get(name).await?.data.context("a Secret has data")?;
    let expired = json!({ "metadata": { "annotations": {
        "auth.openshift.io/certificate-not-after": "2020-01-01T00:00:00Z",
    } } });
    all.patch(name, &PatchParams::default(), &Patch::Merge(expired)).await?;
    let begin = Instant::now();
    while all.get(name).await?.data.as_ref() == Some(&before) {
        ensure!(begin.elapsed() < PATIENCE, "the certificate is not renewed");
        tokio::time::sleep(PAUSE).await;
    }
    eprintln!("an expired certificate was renewed within {} s", begin.elapsed().as_secs());
    Ok(())
}

/// A policy of the cluster's administrator, which refuses one of the objects.
fn policy_against(service: &str, reason: &str) -> String {
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["services"],
    });
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": "one-service-is-refused" },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [rule] },
            "validations": [{ "expression": format!("object.metadata.name != '{service}'"), "message": reason }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": "one-service-is-refused" },
        "spec": { "policyName": "one-service-is-refused", "validationActions": ["Deny"] },
    });
    format!("{policy}\n---\n{binding}")
}

async fn refused_object_is_named_and_the_others_are_repaired(test: &Test) -> Result<()> {
    const REFUSED: &str = "cdi-prometheus-metrics";
    const OTHER: &str = "cdi-uploadproxy";
    const REASON: &str = "this cluster has another service for metrics";
    let policy = policy_against(REFUSED, REASON);
    apply(test, &policy)?;
    let trial = ["create", "service", "clusterip", REFUSED, "--tcp=1", "--dry-run=server"];
    let begin = Instant::now();
    while !kubectl(test, &[&trial[..], &["--namespace", test.namespace()]].concat(), "")?
        .1
        .contains(REASON)
    {
        ensure!(begin.elapsed() < PATIENCE, "the policy has no effect");
        tokio::time::sleep(PAUSE).await;
    }
    let services = Api::<Service>::namespaced(test.client(), NAMESPACE);
    for name in [REFUSED, OTHER] {
        services.delete(name, &DeleteParams::default()).await?;
    }
    let message = format!("Failed to create resource Service {NAMESPACE}/{REFUSED}");
    let all = Api::<Cdi>::all(test.client());
    test.wait_among(&all, CR, "degraded, with the name of the object", |cdi: &Cdi| {
        let conditions = cdi.status.as_ref().and_then(|status| status.conditions.as_deref());
        conditions.unwrap_or_default().iter().any(|condition| {
            let text = condition.message.as_deref().unwrap_or_default();
            condition.type_ == "Degraded"
                && condition.status == "True"
                && condition.reason.as_deref() == Some("CreateResourceFailed")
                && text.starts_with(&message)
                && text.contains(REASON)
        })
    })
    .await?;
    test.wait_among(&services, OTHER, "there again", |_: &Service| true).await?;
    ensure!(services.get_opt(REFUSED).await?.is_none(), "the policy refuses nothing");
    delete(test, &policy)?;
    test.wait_among(&services, REFUSED, "there again", |_: &Service| true).await?;
    available(test, None).await.map(drop)
}
