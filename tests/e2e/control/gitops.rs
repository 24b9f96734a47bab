//! Clients that apply the same manifest again and again (R-CFG-7): `kubectl apply`, Argo CD, Terraform; and those that never do:
//! Tekton's `create` with `generateName`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use api::v1beta1::{DataImportCron, DataVolume};
use e2e::{PATIENCE, Test, condition_is_false_with, is_bound, manifest, run_installed};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use testkit::FaultServer;

use crate::world::{disk, of_web, server};

/// How often a GitOps controller applies.
const PERIOD: Duration = Duration::from_secs(10);
const LOOP: Duration = Duration::from_secs(300);
/// As long nothing changes before what follows counts.
const QUIET: Duration = Duration::from_secs(10);
/// `kubectl apply`, as users run it and as controllers do.
const CLIENT_SIDE: [&str; 3] = ["apply", "-f", "-"];
const SERVER_SIDE: [&str; 5] =
    ["apply", "--server-side", "--field-manager=argocd-controller", "-f", "-"];
/// The kinds in a repository, and those that the controllers create for them.
const KINDS: [(&str, &str, &str); 7] = [
    ("cdi.kubevirt.io", "v1beta1", "DataVolume"),
    ("cdi.kubevirt.io", "v1beta1", "DataSource"),
    ("cdi.kubevirt.io", "v1beta1", "DataImportCron"),
    ("cdi.kubevirt.io", "v1beta1", "VolumeImportSource"),
    ("", "v1", "PersistentVolumeClaim"),
    ("", "v1", "Pod"),
    ("", "v1", "Event"),
];

/// A repository with one object of each kind that users keep in one.
fn repository(test: &Test, server: &FaultServer) -> Vec<Value> {
    let url = server.url_of("/disk.img");
    let storage = json!({
        "storageClassName": "csi", "volumeMode": "Block", "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "48Mi" } },
    });
    let mut claim = storage.clone();
    claim["dataSourceRef"] = json!({
        "apiGroup": "cdi.kubevirt.io", "kind": "VolumeImportSource", "name": "source",
    });
    let cdi = |kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": kind,
            "metadata": { "name": name, "labels": { "app.kubernetes.io/instance": "disks" } },
            "spec": spec,
        })
    };
    vec![
        of_web("disk", server),
        cdi("VolumeImportSource", "source", json!({ "source": { "http": { "url": url } } })),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "populated" },
            "spec": claim,
        }),
        cdi(
            "DataSource",
            "image",
            json!({ "source": { "pvc": { "namespace": test.namespace(), "name": "disk" } } }),
        ),
        cdi(
            "DataImportCron",
            "cron",
            json!({
                "schedule": "0 0 1 1 *", "managedDataSource": "golden",
                "template": { "spec": { "source": { "http": { "url": url } }, "storage": storage } },
            }),
        ),
    ]
}

/// Waits until everything in the repository is complete.
async fn is_complete(test: &Test) -> Result<()> {
    test.succeeded("disk").await?;
    test.wait("populated", "bound", is_bound).await?;
    let is_up_to_date = |cron: &DataImportCron| {
        let conditions = cron.status.as_ref().and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|found| found.type_ == "UpToDate" && found.status == "True")
    };
    test.wait("cron", "up to date", is_up_to_date).await.map(|_| ())
}

/// Every object in the namespace, with its resource version. An event that is repeated has another one.
async fn objects(test: &Test) -> Result<BTreeMap<String, DynamicObject>> {
    let mut objects = BTreeMap::new();
    for (group, version, kind) in KINDS {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let all = Api::<DynamicObject>::namespaced_with(test.client(), test.namespace(), &resource);
        for object in all.list(&ListParams::default()).await?.items {
            // Six minutes after the last event of a series, as while a pod waits for a processor, the scheduler completes it.
            if kind == "Event" && object.data["reportingComponent"] == "default-scheduler" {
                continue;
            }
            objects.insert(format!("{kind}/{}", object.name_any()), object);
        }
    }
    Ok(objects)
}

/// The objects that were created, written or deleted, as they were and as they are. Their managed fields name who wrote them.
fn written(
    before: &BTreeMap<String, DynamicObject>,
    after: &BTreeMap<String, DynamicObject>,
) -> Result<Vec<String>> {
    let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let versions = names.into_iter().map(|name| (name, before.get(name), after.get(name)));
    let changed = versions.filter(|(_, before, after)| {
        before.map(ResourceExt::resource_version) != after.map(ResourceExt::resource_version)
    });
    let text = |object: Option<&DynamicObject>| serde_json::to_string(&object);
    changed
        .map(|(name, before, after)| {
            Ok(format!("{name}: {} became {}", text(before)?, text(after)?))
        })
        .collect()
}

/// Waits until nothing has been written for a while: events may come after the state that they are about.
async fn quiet_objects(test: &Test) -> Result<BTreeMap<String, DynamicObject>> {
    let begin = Instant::now();
    let mut before = objects(test).await?;
    while begin.elapsed() < PATIENCE {
        tokio::time::sleep(QUIET).await;
        let now = objects(test).await?;
        if written(&before, &now)?.is_empty() {
            return Ok(now);
        }
        before = now;
    }
    bail!("the namespace does not come to rest")
}

/// Applies a repository for five minutes, as a GitOps controller does.
async fn apply_in_a_loop(test: &Test, command: &[&str]) -> Result<()> {
    let server = server(&disk());
    let repository = manifest(&repository(test, &server));
    test.kubectl_ok(command, &repository)?;
    is_complete(test).await?;
    let before = quiet_objects(test).await?;
    let bytes = server.body_bytes_sent();
    let begin = Instant::now();
    while begin.elapsed() < LOOP {
        let applied = test.kubectl_ok(command, &repository)?;
        let words =
            if command.contains(&"--server-side") { "serverside-applied" } else { "unchanged" };
        for line in applied.stdout.lines() {
            ensure!(line.ends_with(words), "{line}");
        }
        // Controllers and API servers that other tests restart meanwhile write nothing either.
        test.sleep_without_cluster_lock(PERIOD).await;
    }
    let written = written(&before, &objects(test).await?)?;
    ensure!(written.is_empty(), "objects were written:\n{}", written.join("\n"));
    ensure!(server.body_bytes_sent() == bytes, "an image was imported again");
    Ok(())
}

#[test]
fn gitops_applying_every_ten_seconds_causes_no_write_and_no_event() {
    run_installed("argo", async |test| apply_in_a_loop(&test, &SERVER_SIDE).await);
}

#[test]
fn users_who_apply_every_ten_seconds_cause_no_write_and_no_event() {
    run_installed("apply", async |test| apply_in_a_loop(&test, &CLIENT_SIDE).await);
}

/// Applies `object` and checks that it is refused with this message, and that the object in the cluster has not
/// changed.
fn is_refused(test: &Test, command: &[&str], object: &Value, words: &str) -> Result<()> {
    let before = test
        .kubectl_ok(&["get", "-o", "json", "-f", "-"], &manifest(std::slice::from_ref(object)))?;
    let refused = test.kubectl(command, &manifest(std::slice::from_ref(object)))?;
    ensure!(refused.code == 1, "it was applied: {}", refused.stdout);
    ensure!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
    let after = test
        .kubectl_ok(&["get", "-o", "json", "-f", "-"], &manifest(std::slice::from_ref(object)))?;
    ensure!(before.json()?["spec"] == after.json()?["spec"], "{}", after.stdout);
    Ok(())
}

#[test]
fn changed_overlay_is_refused_with_a_reason() {
    run_installed("overlay", async |test| {
        let server = server(&disk());
        for (name, command) in [("client", &CLIENT_SIDE[..]), ("server", &SERVER_SIDE[..])] {
            let volume = of_web(name, &server);
            test.kubectl_ok(command, &manifest(std::slice::from_ref(&volume)))?;
            test.succeeded(name).await?;
            let mut overlay = volume.clone();
            overlay["spec"]["pvc"]["storageClassName"] = "plain".into();
            let forced = [command, &["--force-conflicts"][..]].concat();
            let command = if name == "server" { &forced[..] } else { command };
            let words = "Cannot update DataVolume Spec";
            is_refused(&test, command, &overlay, words).context(name)?;
            let mut overlay = volume.clone();
            overlay["spec"]["source"]["http"]["url"] = server.url_of("/other.img").into();
            is_refused(&test, command, &overlay, words).context(name)?;
            // What every GitOps controller adds is no such change.
            let mut tracked = volume.clone();
            tracked["metadata"]["labels"]["app.kubernetes.io/instance"] = "disks".into();
            tracked["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"] =
                "disks:cdi.kubevirt.io/DataVolume:vms/disk".into();
            test.kubectl_ok(command, &manifest(&[tracked]))?;
        }
        Ok(())
    });
}

/// Checks that every value that a manifest gives is in the object as it was given.
fn has_all(object: &Value, wanted: &Value, path: &str) -> Result<()> {
    match wanted {
        Value::Object(members) => {
            for (key, wanted) in members {
                has_all(&object[key], wanted, &format!("{path}.{key}"))?;
            }
        }
        Value::Array(items) => {
            ensure!(
                object.as_array().is_some_and(|found| found.len() == items.len()),
                "{path} is {object} and not {wanted}"
            );
            for (number, wanted) in items.iter().enumerate() {
                has_all(&object[number], wanted, &format!("{path}[{number}]"))?;
            }
        }
        wanted => ensure!(object == wanted, "{path} is {object} and not {wanted}"),
    }
    Ok(())
}

/// Terraform does a dry run first, and fails if the applied object has other values than that or than its
/// configuration.
#[test]
fn applied_plan_shows_no_difference_afterwards() {
    run_installed("terraform", async |test| {
        let server = server(&disk());
        let apply =
            ["apply", "--server-side", "--field-manager=Terraform", "-f", "-", "-o", "json"];
        let plan = [&apply[..], &["--dry-run=server"]].concat();
        for object in repository(&test, &server) {
            let file = manifest(std::slice::from_ref(&object));
            for command in [&plan[..], &apply[..]] {
                let made = test.kubectl_ok(command, &file)?.json()?;
                has_all(&made, &object, "object")?;
            }
        }
        is_complete(&test).await?;
        for object in repository(&test, &server) {
            let file = manifest(std::slice::from_ref(&object));
            // Without force: no field of the manifest belongs to another manager.
            has_all(&test.kubectl_ok(&plan, &file)?.json()?, &object, "object")?;
            let diff = ["diff", "--server-side", "--field-manager=Terraform", "-f", "-"];
            let difference = test.kubectl(&diff, &file)?;
            ensure!(difference.code == 0, "{}{}", difference.stdout, difference.stderr);
        }
        Ok(())
    });
}

/// A pipeline creates objects with generated names, and waits for a condition.
#[test]
fn pipeline_creates_by_generate_name_and_waits_for_a_condition() {
    run_installed("tekton", async |test| {
        let server = server(&disk());
        let mut object = of_web("", &server);
        object["metadata"] = json!({ "generateName": "pipeline-disk-" });
        let mut names = Vec::new();
        for _ in 0..2 {
            let file = manifest(std::slice::from_ref(&object));
            let made = test.kubectl_ok(&["create", "-f", "-", "-o", "json"], &file)?.json()?;
            let name = made["metadata"]["name"].as_str().context("it has a name")?.to_owned();
            ensure!(name.starts_with("pipeline-disk-"), "{name}");
            names.push(name);
        }
        ensure!(names[0] != names[1], "{names:?}");
        for name in &names {
            let volume = format!("datavolume/{name}");
            let wait = ["wait", "--for=condition=Ready", "--timeout=300s", &volume];
            test.kubectl_ok(&wait, "")?;
            let wait =
                ["wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=300s", &volume];
            test.kubectl_ok(&wait, "")?;
            test.holds(name, &disk()).await?;
        }
        // One that fails is seen by the same condition.
        object["spec"]["source"]["http"]["url"] = "http://10.98.0.1:1/disk.img".into();
        let made = test.kubectl_ok(&["create", "-f", "-", "-o", "json"], &manifest(&[object]))?;
        let made = made.json()?;
        let name = made["metadata"]["name"].as_str().context("it has a name")?;
        let failed =
            |volume: &DataVolume| condition_is_false_with(volume, "Running", "10.98.0.1:1");
        test.wait(name, "reported to have failed", failed).await.map(|_| ())
    });
}
