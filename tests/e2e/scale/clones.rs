//! Many clones of one image at once, by each method: all succeed, within the limit of concurrent clones, and none times
//! out.

use api::v1beta1::StorageProfile;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Map;

use super::*;

const WAYS: [&str; 3] = ["csi-clone", "snapshot", "copy"];
/// How many clones the controllers run concurrently for one storage class, by default.
const AT_WORK_MAX: usize = 32;
/// The label of all objects that are created for a clone.
const HELPER: &str = "cdi.kubevirt.io/OwnedByUID";
const GOLDEN: &str = "golden";

/// The resources that the clones use, by each method.
pub async fn measure(state: &State, program: &str, number: usize) -> Result<Value> {
    let client = connect(state).await?;
    let classes = Api::<StorageClass>::all(client.clone());
    for way in WAYS {
        let class = serde_json::from_value(json!({
            "metadata": {
                "name": class(way), "annotations": { "cdi.kubevirt.io/clone-strategy": way },
            },
            "provisioner": "loop.csi.cdi.test", "allowVolumeExpansion": true,
        }))?;
        unless_there(classes.create(&PostParams::default(), &class).await)?;
    }
    let controller = Controller::start(state, program)?;
    let meter = Meter::for_process(controller.0.id(), &client, NAMESPACES[0]).await?;
    let all = Api::<DataVolume>::namespaced(client.clone(), NAMESPACES[1]);
    let golden = volume(GOLDEN, "csi", json!({ "blank": {} }))?;
    all.create(&PostParams::default(), &golden).await?;
    wait(&all, 1).await?;
    let profiles = Api::<StorageProfile>::all(client.clone());
    for way in WAYS {
        while profiles.get_opt(&class(way)).await?.is_none_or(|profile| profile.status.is_none()) {
            tokio::time::sleep(PAUSE).await;
        }
    }
    let mut figures = Map::new();
    for way in WAYS {
        let figure = of_way(&client, &meter, way, number).await;
        figures.insert(way.into(), figure.with_context(|| way.to_owned())?);
    }
    Ok(figures.into())
}

fn class(way: &str) -> String {
    format!("scale-{way}")
}

fn volume(name: &str, class: &str, source: Value) -> Result<DataVolume> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": { "name": name },
        "spec": { "source": source, "pvc": {
            "storageClassName": class, "accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
            "resources": { "requests": { "storage": "1Gi" } },
        } },
    }))?)
}

async fn of_way(client: &Client, meter: &Meter, way: &str, number: usize) -> Result<Value> {
    let all = Api::<DataVolume>::namespaced(client.clone(), NAMESPACES[1]);
    let all = &all;
    let (begin, before, events_before) =
        (Instant::now(), meter.read()?, event_count(client).await?);
    let made = stream::iter(0..number).map(|number| async move {
        let source = json!({ "pvc": { "namespace": NAMESPACES[1], "name": GOLDEN } });
        let object = volume(&format!("{way}-{number}"), &class(way), source)?;
        all.create(&PostParams::default(), &object).await?;
        anyhow::Ok(())
    });
    let made = made.buffer_unordered(CLIENTS).try_collect::<()>();
    let (made, most) = futures_util::future::join(made, watch(client, way, number)).await;
    made?;
    let (most, seconds) = (most?, begin.elapsed().as_secs_f64());
    nothing_is_left(client).await?;
    let (after, events_after) = (meter.read()?, event_count(client).await?);
    ensure!(most <= AT_WORK_MAX, "{most} were at work at once");
    let of_time = ListParams::default().fields("reason=CloneTimedOut");
    let events = Api::<Event>::namespaced(client.clone(), NAMESPACES[1]);
    let late = events.list(&of_time).await?.items.len();
    ensure!(late == 0, "{late} were given up for a copy");
    let each = |count: u64| count as f64 / number as f64;
    Ok(json!({
        "clones": number,
        "seconds_to_all_succeeded": seconds,
        "most_at_work": most,
        "reads_each": each(after.reads - before.reads),
        "writes_each": each(after.writes - before.writes),
        // The API server forgets them after an hour.
        "events_each": each(events_after.saturating_sub(events_before) as u64),
        "cpu_ms_each": millis(after.usage.cpu - before.usage.cpu) / number as f64,
        "rss_mib": after.usage.rss_mib,
    }))
}

/// Waits until all have succeeded. Returns the largest number that ran at once.
async fn watch(client: &Client, way: &str, number: usize) -> Result<usize> {
    let volumes = Api::<DataVolume>::namespaced(client.clone(), NAMESPACES[1]);
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), NAMESPACES[1]);
    let (begin, mut most) = (Instant::now(), 0);
    loop {
        let asked = Instant::now();
        let helpers = claims.list(&ListParams::default().labels(HELPER)).await?.items;
        most = most.max(helpers.iter().filter(|claim| is_at_work(claim)).count());
        // From the API server's own memory: the measurement must not change what is measured.
        let found = volumes.list(&ListParams::default().match_any()).await?.items;
        let is_done = |volume: &&DataVolume| {
            volume.name_any().starts_with(way) && phase(volume) == "Succeeded"
        };
        let done = found.iter().filter(is_done).count();
        if done >= number {
            return Ok(most);
        }
        eprintln!("{way}: {done} of {number} after {} s", begin.elapsed().as_secs());
        ensure!(begin.elapsed() < PATIENCE, "only {done} of {number} have succeeded");
        tokio::time::sleep(PAUSE.max(asked.elapsed() * 4)).await;
    }
}

/// Whether a temporary PVC is still to be filled.
fn is_at_work(claim: &PersistentVolumeClaim) -> bool {
    let noted = |key: &str| claim.annotations().get(key).map(String::as_str);
    if claim.metadata.deletion_timestamp.is_some() {
        return false;
    }
    match noted("k8s.io/CloneRequest") {
        Some(_) => noted("cdi.kubevirt.io/storage.pod.phase") != Some("Succeeded"),
        None => !e2e::is_bound(claim) && claim_phase(claim) != "Lost",
    }
}

fn claim_phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Waits until all objects that were created for clones are deleted.
async fn nothing_is_left(client: &Client) -> Result<()> {
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), NAMESPACES[1]);
    let kind = GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", "VolumeSnapshot");
    let kind = ApiResource::from_gvk(&kind);
    let snapshots = Api::<DynamicObject>::namespaced_with(client.clone(), NAMESPACES[1], &kind);
    let helpers = ListParams::default().labels(HELPER);
    let begin = Instant::now();
    loop {
        let left =
            claims.list(&helpers).await?.items.len() + snapshots.list(&helpers).await?.items.len();
        if left == 0 {
            return Ok(());
        }
        ensure!(begin.elapsed() < PATIENCE, "{left} helpers are left");
        tokio::time::sleep(PAUSE).await;
    }
}
