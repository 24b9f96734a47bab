//! Work for the controllers that costs a tenant little: many DataSources for one PVC that is annotated again and again, and
//! crons whose schedule never matches.

use e2e::{Claim, Test};
use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{cron, make};
use crate::scenario::{Scenario, image};

const CLAIM: &str = "crowded";
/// DataSources of each tenant for one PVC.
const SOURCES: usize = 200;
/// Crons of each tenant that are never due.
const CRONS: usize = 10;
/// What the API server is sent at once.
const AT_ONCE: usize = 4;
/// There is no fifth Monday on the first of a month.
const NEVER: &str = "0 0 1 * +MON#5";
/// Between two annotations: five each second, of all three tenants fifteen.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(200);

pub async fn attack(tenant: &Test, scenario: &Scenario) {
    let _ = Claim::block(CLAIM, "csi", e2e::SIZE).make(tenant).await;
    let sources = (0..SOURCES).map(|at| {
        let source = json!({ "pvc": { "namespace": tenant.namespace(), "name": CLAIM } });
        let object = json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
            "metadata": { "name": format!("{CLAIM}-{at}") }, "spec": { "source": source },
        });
        make(tenant, scenario, "DataSources created", "DataSources refused", object)
    });
    stream::iter(sources).buffer_unordered(AT_ONCE).for_each(|_| async {}).await;
    for at in 0..CRONS {
        let registry = json!({ "registry": { "url": image(tenant, "never:latest") } });
        let mut object = cron(&format!("never-{at}"), &registry);
        object["spec"]["schedule"] = NEVER.into();
        make(tenant, scenario, "crons created", "crons refused", object).await;
    }
    let claims = tenant.all::<PersistentVolumeClaim>();
    let mut at = 0_u64;
    while !scenario.is_over() {
        at += 1;
        let annotations = json!({ "hostile.cdi.test/count": at.to_string() });
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
        if claims.patch(CLAIM, &PatchParams::default(), &patch).await.is_ok() {
            scenario.count("annotations of a PVC with many DataSources");
        }
        tokio::time::sleep(PAUSE).await;
    }
}
