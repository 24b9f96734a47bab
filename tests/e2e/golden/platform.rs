//! Golden images of a platform, by the manifests of `docs/examples`, unchanged: the operator of templates creates
//! DataImportCrons in its own namespaces, for images in a public registry, and virtual machines in other namespaces
//! clone them.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use api::v1beta1::{CdiConfig, DataImportCron, DataSource, DataVolume};
use e2e::{HOST, NAMESPACE, REGISTRY, Test, files_for_nodes, files_of_disk, run_installed_alone};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};

use crate::classes::{Class, DEFAULTS};
use crate::quay::Quay;
use crate::world::{SIZE, condition, disk, reference_of, server, up_to_date_condition_is};

/// The namespace of a platform's images, and that of a customer's.
const COMMON: &str = "openshift-virtualization-os-images";
const CUSTOM: &str = "golden-images";
/// The class that one of the examples names.
const NAMED_CLASS: &str = "rook-ceph-block";
const AUTHORITY: &str = "quay-authority";

/// The first object of an example.
fn example(name: &str) -> Result<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
    let text = std::fs::read_to_string(folder.join(format!("{name}.yaml")))?;
    yaml_serde::from_str(&text).with_context(|| format!("{name} is YAML"))
}

/// Creates an object in the namespace that it names.
async fn make(test: &Test, object: Value) -> Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (group, version) = version.rsplit_once('/').unwrap_or(("", &version));
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let namespace = text(&object["metadata"]["namespace"]);
    let all = Api::<DynamicObject>::namespaced_with(test.client(), &namespace, &kind);
    all.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

/// The objects of one of the namespaces.
struct Images<'a> {
    test: &'a Test,
    namespace: &'a str,
}

impl Images<'_> {
    fn crons(&self) -> Api<DataImportCron> {
        Api::namespaced(self.test.client(), self.namespace)
    }

    fn sources(&self) -> Api<DataSource> {
        Api::namespaced(self.test.client(), self.namespace)
    }

    fn snapshots(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", "VolumeSnapshot");
        let kind = ApiResource::from_gvk(&kind);
        Api::namespaced_with(self.test.client(), self.namespace, &kind)
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.test.client(), self.namespace)
    }

    /// Waits until a DataSource is ready, and returns the name of the object that it refers to.
    async fn ready(&self, name: &str) -> Result<String> {
        let is_so = |source: &DataSource| {
            let status = source.status.as_ref();
            let ready = condition(status.and_then(|s| s.conditions.as_ref()), "Ready");
            ready.is_some_and(|ready| ready.status == "True")
        };
        let source = self.test.wait_among(&self.sources(), name, "ready", is_so).await?;
        let standing = reference_of(&source);
        Ok(standing.split(' ').next_back().unwrap_or_default().to_owned())
    }

    async fn up_to_date(&self, cron: &str) -> Result<()> {
        let is_so = |cron: &DataImportCron| up_to_date_condition_is(cron, "True", "UpToDate");
        self.test.wait_among(&self.crons(), cron, "up to date", is_so).await.map(|_| ())
    }
}

/// Has imports go through this proxy, or through none.
async fn go_through(test: &Test, proxy: Option<&Quay>) -> Result<()> {
    let maps = Api::<ConfigMap>::namespaced(test.client(), NAMESPACE);
    let setting = match proxy {
        Some(quay) => {
            let map = json!({
                "metadata": { "name": AUTHORITY }, "data": { "ca.pem": quay.authority },
            });
            maps.create(&PostParams::default(), &serde_json::from_value(map)?).await?;
            let host = HOST.to_string();
            let cluster = REGISTRY.split(':').next().unwrap_or_default();
            json!({
                "HTTPSProxy": quay.url, "noProxy": format!("{host},{cluster},.svc"),
                "trustedCAProxy": AUTHORITY,
            })
        }
        None => {
            maps.delete(AUTHORITY, &DeleteParams::default()).await?;
            Value::Null
        }
    };
    let configs = Api::<CdiConfig>::all(test.client());
    let patch = json!({ "spec": { "importProxy": setting } });
    configs.patch("config", &PatchParams::default(), &Patch::Merge(patch)).await?;
    let is_taken = |config: &CdiConfig| {
        let status = config.status.as_ref().and_then(|status| status.import_proxy.as_ref());
        let found = status.and_then(|status| status.https_proxy.as_deref()).unwrap_or_default();
        found == proxy.map_or("", |quay| &quay.url)
    };
    test.wait_among(&configs, "config", "taken over", is_taken).await.map(|_| ())
}

/// Has nodes find in the cluster's registry what they want of `quay.io`.
fn mirror(test: &Test) -> Result<()> {
    let text = format!(
        "server = \"https://quay.io\"\n[host.\"http://{REGISTRY}\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
    );
    test.state().write("registries/quay.io/hosts.toml", &text).map(|_| ())
}

async fn crons_and_machines(test: &Test) -> Result<()> {
    let (common, custom) = (Images { test, namespace: COMMON }, Images { test, namespace: CUSTOM });
    let named = Class::make(test, NAMED_CLASS, "pvc").await?;
    for name in ["dataimportcron-centos7", "dataimportcron-retain-all", "dataimportcron-node-pull"]
    {
        make(test, example(name)?).await.context(name)?;
    }
    // One of them names its class.
    let stream9 = custom.ready("centos-stream9").await?;
    custom.up_to_date("centos-stream9-image-cron").await?;
    // The others wait for one, and start by themselves when there is one.
    let waits = |cron: &DataImportCron| up_to_date_condition_is(cron, "False", "ImportProgressing");
    test.wait_among(&common.crons(), "centos7-image-cron", "waiting", waits).await?;
    let default = Class::own(test, "default", "snapshot").await?;
    default.set_default(true).await?;
    let centos7 = common.ready("centos7").await?;
    common.snapshots().get(&centos7).await.context("images of this class are kept as snapshots")?;
    common.up_to_date("centos7-image-cron").await?;
    custom.ready("user-defined-centos-stream8").await?;
    custom.up_to_date("user-defined-dic").await?;
    let labels = common.sources().get("centos7").await?.metadata.labels.unwrap_or_default();
    let preference = labels.get("instancetype.kubevirt.io/default-preference");
    ensure!(preference.map(String::as_str) == Some("centos.7"), "{labels:?}");

    by_hand(test, &common, &default).await?;
    // The machine's disk is in another namespace than its image, names no size, and refers to a DataSource of a
    // snapshot.
    test.apply(example("dv-from-datasource")?).await?;
    test.succeeded("rhel9-root").await?;
    test.holds("rhel9-root", &disk(8)).await?;
    let mut machine = example("dv-from-datasource")?;
    machine["metadata"]["name"] = "centos7-root".into();
    machine["spec"]["sourceRef"]["name"] = "centos7".into();
    test.apply(machine).await?;
    test.succeeded("centos7-root").await?;
    test.holds("centos7-root", &disk(7)).await?;

    // The platform's setting for common images is switched off.
    let now = DeleteParams::default();
    common.crons().delete("centos7-image-cron", &now).await?;
    custom.crons().delete("centos-stream9-image-cron", &now).await?;
    test.wait_until_gone(&common.sources(), "centos7").await?;
    test.wait_until_gone(&common.snapshots(), &centos7).await?;
    custom.claims().get(&stream9).await.context("all of it is retained")?;
    custom.ready("centos-stream9").await?;
    common.ready("rhel8").await?;
    named.remove().await?;
    default.remove().await
}

/// Images that an administrator brings: a PVC, and a snapshot of it.
async fn by_hand(test: &Test, images: &Images<'_>, class: &Class<'_>) -> Result<()> {
    for name in ["datasource-pvc", "datasource-snapshot"] {
        make(test, example(name)?).await.context(name)?;
    }
    let web = server(8);
    make(
        test,
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
            "metadata": { "name": "rhel8", "namespace": COMMON },
            "spec": {
                "source": { "http": { "url": web.url_of("/rhel8.img") } },
                "storage": {
                    "storageClassName": class.name,
                    "resources": { "requests": { "storage": SIZE } },
                },
            },
        }),
    )
    .await?;
    let volumes = Api::<DataVolume>::namespaced(test.client(), COMMON);
    let is_done = |volume: &DataVolume| e2e::phase(volume) == "Succeeded";
    test.wait_among(&volumes, "rhel8", "imported", is_done).await?;
    ensure!(images.ready("rhel8").await? == "rhel8", "it refers to another PVC");
    make(
        test,
        json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": { "name": "rhel9-0c1d2e3f4a5b", "namespace": COMMON },
            "spec": {
                "volumeSnapshotClassName": "csi",
                "source": { "persistentVolumeClaimName": "rhel8" },
            },
        }),
    )
    .await?;
    images.ready("rhel9").await.map(|_| ())
}

#[test]
fn platform_manifests_work_unchanged() {
    let _only = DEFAULTS.lock();
    // The settings of imports are those of the cluster.
    run_installed_alone("platform", async |test| {
        mirror(&test)?;
        test.push_as("containerdisks/centos:7-2009", files_of_disk(disk(7)))?;
        test.push_as("containerdisks/centos-stream:9", files_of_disk(disk(9)))?;
        let files = [files_of_disk(disk(8)), files_for_nodes()?].concat();
        test.push_as("containerdisks/centos-stream:8", files)?;
        let quay = Quay::start().await?;
        for name in [COMMON, CUSTOM] {
            let profile = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
            let namespace = json!({ "metadata": { "name": name, "labels": profile } });
            // Of an earlier run on the same cluster.
            test.wait_until_gone(&Api::<Namespace>::all(test.client()), name).await?;
            test.create_global::<Namespace>(namespace).await?;
        }
        go_through(&test, Some(&quay)).await?;
        let outcome = crons_and_machines(&test).await;
        go_through(&test, None).await?;
        for name in [COMMON, CUSTOM] {
            test.remove_global::<Namespace>(name).await?;
        }
        outcome
    });
}
