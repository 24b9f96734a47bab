//! What the tests have in common: images that differ, DataImportCrons that are polled on request, and waits
//! for their results.

use anyhow::{Context, Result, bail, ensure};
use api::annotations::cron as key;
use api::v1beta1::{Condition, DataImportCron, DataSource, DataVolume};
use e2e::{Pushed, Test, files_of_disk};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::{FaultServer, MIB, pattern};

/// Fits every disk of these tests.
pub const SIZE: &str = "16Mi";
/// The cron of a test, and the DataSource that it manages.
pub const CRON: &str = "cron";
pub const DATA_SOURCE: &str = "fedora";
/// A time at which each poll is due.
const PAST: &str = "2026-01-01T00:00:00Z";
/// How many digits of a digest are part of a name.
const DIGEST_PART: usize = 12;

/// A disk that differs from that of every other number in each byte.
pub fn disk(number: u8) -> Vec<u8> {
    let mut bytes = pattern(8 * MIB);
    bytes.iter_mut().for_each(|byte| *byte ^= number);
    bytes
}

/// A web server with this disk.
pub fn server(number: u8) -> FaultServer {
    e2e::server(&disk(number))
}

/// Has the tag `golden:latest` name an image of this disk.
pub fn publish(test: &Test, number: u8) -> Result<Pushed> {
    test.push("golden", "latest", files_of_disk(disk(number)))
}

/// The name of the import of an image.
pub fn name_of(image: &Pushed) -> String {
    let digest = image.digest.trim_start_matches("sha256:");
    format!("{DATA_SOURCE}-{}", &digest[..DIGEST_PART])
}

/// The source that is followed, whichever image it names.
pub fn registry(image: &Pushed) -> Value {
    json!({ "registry": { "url": image.url() } })
}

/// A DataImportCron on devices of a class, or of the default one where none is named. Its schedule is never due during
/// a test.
pub fn cron(source: Value, class: Option<&str>) -> Value {
    let mut storage = json!({
        "volumeMode": "Block", "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": SIZE } },
    });
    if let Some(class) = class {
        storage["storageClassName"] = class.into();
    }
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron",
        "metadata": { "name": CRON },
        "spec": {
            "schedule": "0 0 1 1 *", "managedDataSource": DATA_SOURCE,
            "template": { "spec": { "source": source, "storage": storage } },
        },
    })
}

/// The same with another member in its `spec`.
pub fn with(mut cron: Value, member: &str, value: impl Into<Value>) -> Value {
    cron["spec"][member] = value.into();
    cron
}

/// What KubeVirt creates for a machine whose disk is a clone of what the DataSource refers to.
pub fn of_machine(name: &str, class: &str) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": {
            "name": name, "annotations": { "cdi.kubevirt.io/allowClaimAdoption": "true" },
        },
        "spec": {
            "sourceRef": { "kind": "DataSource", "name": DATA_SOURCE },
            "storage": { "storageClassName": class, "volumeMode": "Block", "accessModes": ["ReadWriteOnce"] },
        },
    })
}

/// Creates a machine's disk, and checks its content.
pub async fn clones(test: &Test, name: &str, class: &str, number: u8) -> Result<()> {
    test.apply(of_machine(name, class)).await?;
    test.succeeded(name).await?;
    test.holds(name, &disk(number)).await
}

/// Annotates the cron, as a user does.
pub async fn annotate(test: &Test, key: &str, value: Option<&str>) -> Result<()> {
    let patch = json!({ "metadata": { "annotations": { key: value } } });
    let all = test.all::<DataImportCron>();
    all.patch(CRON, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// Requests a poll of the source at once, as documented, and waits until its result is recorded.
pub async fn ask(test: &Test) -> Result<DataImportCron> {
    annotate(test, key::NEXT_TIME, Some(PAST)).await?;
    let is_polled = |cron: &DataImportCron| noted(cron, key::NEXT_TIME).is_some_and(|t| t != PAST);
    test.wait(CRON, "polled", is_polled).await
}

/// An annotation of a cron.
pub fn noted<'a>(cron: &'a DataImportCron, key: &str) -> Option<&'a str> {
    cron.annotations().get(key).map(String::as_str)
}

/// A condition of those that an object has.
pub fn condition<'a>(all: Option<&'a Vec<Condition>>, kind: &str) -> Option<&'a Condition> {
    all?.iter().find(|condition| condition.type_ == kind)
}

fn is_ready(source: &DataSource) -> bool {
    let status = source.status.as_ref();
    let ready = condition(status.and_then(|status| status.conditions.as_ref()), "Ready");
    ready.is_some_and(|ready| ready.status == "True")
}

/// Whether the condition `UpToDate` has this status and reason.
pub fn up_to_date_condition_is(cron: &DataImportCron, status: &str, reason: &str) -> bool {
    let all = cron.status.as_ref().and_then(|status| status.conditions.as_ref());
    condition(all, "UpToDate").is_some_and(|condition| {
        condition.status == status && condition.reason.as_deref() == Some(reason)
    })
}

/// Waits until the latest image is imported.
pub async fn up_to_date(test: &Test) -> Result<DataImportCron> {
    let is_so = |cron: &DataImportCron| up_to_date_condition_is(cron, "True", "UpToDate");
    test.wait(CRON, "up to date", is_so).await
}

/// What a DataSource refers to: `pvc NAME`, `snapshot NAME`, or nothing.
pub fn reference_of(source: &DataSource) -> String {
    let members = &source.spec.source;
    match (&members.pvc, &members.snapshot) {
        (Some(claim), _) => format!("pvc {}", claim.name),
        (None, Some(snapshot)) => format!("snapshot {}", snapshot.name),
        (None, None) => String::new(),
    }
}

/// Waits until the DataSource refers to this and is ready.
pub async fn wait_for_reference(test: &Test, kind: &str, name: &str) -> Result<()> {
    let wanted = format!("{kind} {name}");
    let is_so = |source: &DataSource| reference_of(source) == wanted && is_ready(source);
    test.wait(DATA_SOURCE, &wanted, is_so).await.map(|_| ())
}

/// Waits until the DataSource refers to a PVC that is none of these, and returns its name.
pub async fn refers_to_another(test: &Test, known: &[&str]) -> Result<String> {
    let is_so = |source: &DataSource| {
        let reference = reference_of(source);
        let name = reference.strip_prefix("pvc ");
        name.is_some_and(|name| !known.contains(&name)) && is_ready(source)
    };
    let source = test.wait(DATA_SOURCE, "moved", is_so).await?;
    let name = source.spec.source.pvc.map(|claim| claim.name);
    name.context("it refers to a PVC")
}

/// The import that is under way, once there is one, or the last one.
pub async fn import(test: &Test) -> Result<String> {
    let current = |cron: &DataImportCron| {
        let all = cron.status.as_ref()?.current_imports.as_ref()?;
        Some(all.first()?.data_volume_name.clone())
    };
    let begun = |cron: &DataImportCron| current(cron).is_some();
    let cron = test.wait(CRON, "importing", begun).await?;
    current(&cron).context("it has begun")
}

/// Checks that these DataVolumes are there, and no others.
pub async fn volumes_are(test: &Test, wanted: &[&str]) -> Result<()> {
    let all = test.all::<DataVolume>().list(&ListParams::default()).await?.items;
    let names: Vec<_> = all.iter().map(ResourceExt::name_any).collect();
    ensure!(
        names.len() == wanted.len() && wanted.iter().all(|name| names.iter().any(|n| n == name)),
        "there are {names:?}, not {wanted:?}"
    );
    Ok(())
}

/// Waits until an import is deleted, with its PVC.
pub async fn is_gone(test: &Test, name: &str) -> Result<()> {
    test.wait_until_gone(&test.all::<DataVolume>(), name).await?;
    test.wait_until_gone(&test.all::<PersistentVolumeClaim>(), name).await
}

/// The storage class of a PVC.
pub async fn class_of(test: &Test, claim: &str) -> Result<String> {
    let claims: Api<PersistentVolumeClaim> = test.all();
    match claims.get(claim).await?.spec.and_then(|spec| spec.storage_class_name) {
        Some(class) => Ok(class),
        None => bail!("{claim} has no storage class"),
    }
}
