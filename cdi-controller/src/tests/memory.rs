//! What the objects of a DataVolume take in the caches: a cluster may have ten thousand of them.

use serde::Serialize;

use super::world::TestCluster;
use super::{DONE, blank};
use crate::engine::api_client::Kind;
use crate::engine::cache::Cache;

/// The sizes of one cached object: packed, and as JSON.
fn sizes<K: Kind + Serialize>(cache: &Cache<K>) -> (usize, usize) {
    let [object] = &cache.filter(|_| true)[..] else { panic!("one {} is cached", K::kind(&())) };
    (cache.packed_len(), serde_json::to_vec(object.as_ref()).unwrap().len())
}

/// Fails if the controllers write fields or annotations that the samples (`engine/samples`) do not contain.
#[tokio::test(start_paused = true)]
async fn packed_objects_of_a_data_volume_are_a_fraction_of_their_json() {
    let mut world = TestCluster::new("Immediate", true);
    world.volume("disk", blank());
    world.until_worker(DONE).await;
    let (pod, pod_json) = sizes(&world.engine.api.caches.pods);
    world.until("disk", "Succeeded", DONE).await;
    let caches = &world.engine.api.caches;
    let (volume, volume_json) = sizes(&caches.volumes);
    let (claim, claim_json) = sizes(&caches.claims);
    let (persistent, persistent_json) = sizes(&caches.persistent_volumes);
    for (kind, packed, json, fraction) in [
        ("Pod", pod, pod_json, 6),
        ("DataVolume", volume, volume_json, 4),
        ("PersistentVolumeClaim", claim, claim_json, 5),
        ("PersistentVolume", persistent, persistent_json, 2),
    ] {
        assert!(packed * fraction <= json, "{kind}: {packed} of {json} bytes");
    }
}
