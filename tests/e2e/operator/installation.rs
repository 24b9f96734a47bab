//! The manifests of an installation by an operator, and its state.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use api::v1beta1::Cdi;
use e2e::{
    MONITORING, NAMESPACE, OPENSHIFT, PAUSE, POPULATORS, REGISTRY, Test, is_available, run_alone,
};
pub use e2e::{operator_version, release_file};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::discovery::verbs;
use kube::{Discovery, ResourceExt};
use serde_json::{Value, json};

/// The name of the CDI object in `cdi-cr.yaml`.
pub const CR: &str = "cdi";
/// An installation is available, repaired or removed within this time even during a build on both cores.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Of the programs, by the names of their Deployments.
pub const PROGRAMS: [&str; 3] = ["cdi-apiserver", "cdi-deployment", "cdi-uploadproxy"];

/// CRDs that a test creates and deletes.
pub const STAND_INS: [&str; 3] = [OPENSHIFT, MONITORING, POPULATORS];

/// `cdi-operator.yaml` of another version: the same images, which installs the same programs.
pub fn operator_of_version(version: &str) -> Result<String> {
    let text = release_file("cdi-operator.yaml")?;
    let mut documents = Vec::new();
    for document in text.split("\n---\n") {
        let mut object: Value = yaml_serde::from_str(document)?;
        let environment = "/spec/template/spec/containers/0/env";
        let variables = object.pointer_mut(environment).and_then(Value::as_array_mut);
        for variable in variables.into_iter().flatten() {
            if variable["name"] == "OPERATOR_VERSION" {
                variable["value"] = version.into();
            }
        }
        documents.push(object.to_string());
    }
    ensure!(documents.iter().any(|text| text.contains(version)), "no OPERATOR_VERSION to change");
    Ok(documents.join("\n---\n"))
}

/// As [`run_alone`], in a cluster where nothing is installed.
///
/// # Panics
/// As [`run_alone`].
pub fn run_where_nothing_is_installed<F>(name: &str, test: impl FnOnce(Arc<Test>) -> F)
where
    F: Future<Output = Result<()>>,
{
    run_alone(name, async |running: Arc<Test>| {
        clear(&running).await.context("cannot clear the cluster")?;
        test(running).await
    });
}

/// Sets in the CDI object that the cluster's registry speaks plain HTTP.
pub fn allow_plain_registry(test: &Test) -> Result<()> {
    let patch = json!({ "spec": { "config": { "insecureRegistries": [REGISTRY] } } }).to_string();
    let (succeeded, output) =
        kubectl(test, &["patch", "cdi", CR, "--type=merge", "--patch", &patch], "")?;
    ensure!(succeeded, "{output}");
    Ok(())
}

/// Runs `kubectl`, without a namespace of its own. `input` is its standard input.
pub fn kubectl(test: &Test, words: &[&str], input: &str) -> Result<(bool, String)> {
    let output = e2e::kubectl(test.state(), words, input)?;
    Ok((output.code == 0, output.stdout + &output.stderr))
}

/// `kubectl apply`, as an administrator types it.
pub fn apply(test: &Test, manifest: &str) -> Result<()> {
    let (succeeded, output) = kubectl(test, &["apply", "--filename=-"], manifest)?;
    ensure!(succeeded, "kubectl apply: {output}");
    Ok(())
}

pub fn delete(test: &Test, manifest: &str) -> Result<()> {
    let words = ["delete", "--ignore-not-found", "--timeout=300s", "--filename=-"];
    let (succeeded, output) = kubectl(test, &words, manifest)?;
    ensure!(succeeded, "kubectl delete: {output}");
    Ok(())
}

/// Applies both files of the release, and waits until the installation is available.
pub async fn install(test: &Test) -> Result<Duration> {
    let begin = Instant::now();
    apply(test, &release_file("cdi-operator.yaml")?)?;
    apply(test, &release_file("cdi-cr.yaml")?)?;
    available(test, None).await?;
    Ok(begin.elapsed())
}

/// Waits until the CDI object is deployed in a version, available, and neither progressing nor degraded.
pub async fn available(test: &Test, version: Option<&str>) -> Result<Cdi> {
    let all = Api::<Cdi>::all(test.client());
    test.wait_among(&all, CR, "available", |cdi: &Cdi| is_available(cdi, version)).await
}

/// Every kind of object that can be listed.
async fn kinds(test: &Test) -> Result<Vec<(ApiResource, bool)>> {
    let discovery = Discovery::new(test.client()).run().await?;
    let mut kinds = Vec::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            // Events about the installation and Leases remain after its end.
            let is_trace = matches!(resource.kind.as_str(), "Event" | "Lease");
            if capabilities.supports_operation(verbs::LIST) && !is_trace {
                kinds.push((resource, capabilities.supports_operation(verbs::DELETE)));
            }
        }
    }
    Ok(kinds)
}

/// The objects that the CDI object controls.
pub async fn owned_objects(test: &Test) -> Result<Vec<(ApiResource, DynamicObject)>> {
    let mut owned = Vec::new();
    for (kind, can_be_deleted) in kinds(test).await? {
        let all = Api::<DynamicObject>::all_with(test.client(), &kind);
        for object in all.list(&ListParams::default()).await?.items {
            let owners = object.owner_references();
            let is_owned = owners.iter().any(|owner| owner.kind == "CDI" && owner.name == CR);
            if is_owned && can_be_deleted {
                owned.push((kind.clone(), object));
            }
        }
    }
    Ok(owned)
}

/// The objects of an installation and its workers, in all namespaces.
async fn installed_objects(test: &Test) -> Result<Vec<(ApiResource, DynamicObject)>> {
    let mut installed = Vec::new();
    for (kind, _) in kinds(test).await? {
        let all = Api::<DynamicObject>::all_with(test.client(), &kind);
        let objects = match all.list(&ListParams::default()).await {
            Ok(objects) => objects.items,
            // A CRD of the installation, which was deleted after its discovery.
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            Err(error) => return Err(error).with_context(|| format!("cannot list {}", kind.kind)),
        };
        for object in objects {
            let name = object.name_any();
            let mut labels = object.labels().keys();
            let is_labelled = labels.any(|key| {
                key.starts_with("cdi.kubevirt.io") || key.starts_with("operator.cdi.kubevirt.io")
            });
            let is_named = name.contains("cdi.kubevirt.io") || name.starts_with("cdi-");
            let is_in_namespace = object.namespace().as_deref() == Some(NAMESPACE);
            if is_in_namespace
                || is_labelled
                || kind.group.ends_with("cdi.kubevirt.io")
                || (is_named && kind.kind != "Node")
            {
                installed.push((kind.clone(), object));
            }
        }
    }
    Ok(installed)
}

fn description(kind: &ApiResource, object: &DynamicObject) -> String {
    format!("{} {}/{}", kind.kind, object.namespace().unwrap_or_default(), object.name_any())
}

/// Deletes what a failed test has left, with finalizers whose controllers are gone.
async fn clear(test: &Test) -> Result<()> {
    // With Routes that no router serves, upstream CDI's controllers do not work.
    for definitions in STAND_INS {
        delete(test, definitions)?;
    }
    let begin = Instant::now();
    loop {
        let found = match clear_once(test).await {
            Ok(found) => found,
            // While the server of an APIService is gone, discovery fails.
            Err(error) if begin.elapsed() < PATIENCE => {
                eprintln!("clearing the cluster again: {error:#}");
                vec![String::new()]
            }
            Err(error) => return Err(error),
        };
        let Some(first) = found.first() else { return Ok(()) };
        ensure!(begin.elapsed() < PATIENCE, "still there: {first}");
        tokio::time::sleep(5 * PAUSE).await;
    }
}

/// Returns what it has found.
async fn clear_once(test: &Test) -> Result<Vec<String>> {
    // They would create other objects again.
    kubectl(test, &["delete", "deployments", "--all", "--namespace", NAMESPACE], "")?;
    // While their servers are gone, the API server refuses other requests.
    for kind in ["apiservices", "validatingwebhookconfigurations", "mutatingwebhookconfigurations"]
    {
        let (_, names) = kubectl(test, &["get", kind, "--output=name"], "")?;
        let is_installed = |name: &&str| name.contains("cdi.kubevirt.io") || name.contains("/cdi-");
        for name in names.lines().filter(is_installed) {
            kubectl(test, &["delete", "--ignore-not-found", name], "")?;
        }
    }
    // With what Kubernetes creates in every namespace.
    kubectl(test, &["delete", "namespace", "--ignore-not-found", "--wait=false", NAMESPACE], "")?;
    let mut found = installed_objects(test).await?;
    found.retain(|(_, object)| object.name_any() != test.namespace());
    for (kind, object) in &found {
        delete_by_force(test, kind, object).await?;
    }
    Ok(found.iter().map(|(kind, object)| description(kind, object)).collect())
}

async fn delete_by_force(test: &Test, kind: &ApiResource, object: &DynamicObject) -> Result<()> {
    let name = object.name_any();
    let all = match object.namespace() {
        Some(namespace) => Api::<DynamicObject>::namespaced_with(test.client(), &namespace, kind),
        None => Api::<DynamicObject>::all_with(test.client(), kind),
    };
    let changed = if object.metadata.deletion_timestamp.is_none() {
        all.delete(&name, &DeleteParams::background()).await.map(drop)
    } else if object.finalizers().is_empty() || kind.kind == "CustomResourceDefinition" {
        return Ok(());
    } else {
        let released = json!({ "metadata": { "finalizers": null } });
        all.patch(&name, &PatchParams::default(), &Patch::Merge(released)).await.map(drop)
    };
    match changed {
        // Gone, changed, or created by a controller that is about to stop.
        Err(kube::Error::Api(status)) if [404, 405, 409].contains(&status.code) => Ok(()),
        other => other.with_context(|| format!("cannot delete {}", description(kind, object))),
    }
}

/// Waits until nothing is left but `expected`.
pub async fn only_remains(test: &Test, expected: &[&str]) -> Result<()> {
    let begin = Instant::now();
    loop {
        let found = installed_objects(test).await?;
        let mut found: Vec<_> =
            found.iter().map(|(kind, object)| description(kind, object)).collect();
        found.retain(|object| !expected.iter().any(|kept| object.contains(kept)));
        if found.is_empty() {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            bail!("still there: {}", found.join(", "));
        }
        tokio::time::sleep(10 * PAUSE).await;
    }
}

/// Removes the CDI object, and then the operator.
pub async fn remove(test: &Test, operator: &str) -> Result<()> {
    remove_by_name(test, CR, operator).await
}

/// As [`remove`], for a CDI object of this name.
pub async fn remove_by_name(test: &Test, name: &str, operator: &str) -> Result<()> {
    let strategy = json!({ "spec": { "uninstallStrategy": "RemoveWorkloads" } }).to_string();
    let (succeeded, output) =
        kubectl(test, &["patch", "cdi", name, "--type=merge", "--patch", &strategy], "")?;
    ensure!(succeeded, "kubectl patch: {output}");
    let (succeeded, output) = kubectl(test, &["delete", "cdi", name, "--timeout=300s"], "")?;
    ensure!(succeeded, "kubectl delete cdi: {output}");
    delete(test, operator)?;
    only_remains(test, &[test.namespace()]).await
}
