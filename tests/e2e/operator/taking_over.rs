//! From upstream CDI to this project and back, in place and under load.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use api::v1beta1::{Cdi, DataVolume};
use cluster::{UPSTREAM_VERSION, load_upstream_images, upstream_operator_manifest};
use e2e::{NAMESPACE, REGISTRY, Test};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::json;

use crate::admission_probe::{AdmissionProbe, Tolerance};
use crate::installation::{
    CR, apply, available, kubectl, operator_version, release_file, remove,
    run_where_nothing_is_installed,
};
use crate::load::{Load, Workers};

/// Two seconds of requests.
const ABRUPT_END: Tolerance = Tolerance::AbruptEnd(8);

/// The CDI object of the test: registries without TLS, as the cluster's one.
fn cdi() -> String {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDI", "metadata": { "name": CR },
        "spec": {
            "imagePullPolicy": "IfNotPresent",
            "infra": { "nodeSelector": { "kubernetes.io/os": "linux" } },
            "workload": { "nodeSelector": { "kubernetes.io/os": "linux" } },
            "config": {
                "featureGates": ["HonorWaitForFirstConsumer"],
                "insecureRegistries": [REGISTRY],
            },
        },
    })
    .to_string()
}

/// UIDs of all DataVolumes and PVCs: none of them may be another object afterwards.
async fn uids(test: &Test) -> Result<BTreeMap<String, String>> {
    let mut uids = BTreeMap::new();
    for volume in test.all::<DataVolume>().list(&ListParams::default()).await?.items {
        uids.insert(format!("DataVolume {}", volume.name_any()), volume.uid().unwrap_or_default());
    }
    for claim in test.all::<PersistentVolumeClaim>().list(&ListParams::default()).await?.items {
        let is_temporary =
            claim.name_any().starts_with("prime-") || claim.name_any().starts_with("tmp-");
        if !is_temporary {
            uids.insert(format!("PVC {}", claim.name_any()), claim.uid().unwrap_or_default());
        }
    }
    Ok(uids)
}

/// The signing key and the CAs: clients and workers hold what they signed.
async fn secrets(test: &Test) -> Result<BTreeMap<String, String>> {
    let all = Api::<Secret>::namespaced(test.client(), NAMESPACE);
    let secrets = all.list(&ListParams::default()).await?.items;
    Ok(secrets.iter().map(|secret| (secret.name_any(), secret.uid().unwrap_or_default())).collect())
}

/// Replaces the operator while DataVolumes of every source are in flight, and waits until the new one has taken over.
async fn replace_operator(
    test: &Test,
    manifest: &str,
    version: &str,
    tolerance: Tolerance,
) -> Result<()> {
    let load = Load::start(test).await?;
    let probe = AdmissionProbe::start(test);
    let (volumes, keys) = (uids(test).await?, secrets(test).await?);
    let cdi = Api::<Cdi>::all(test.client()).get(CR).await?;
    apply(test, manifest)?;
    let taken = available(test, Some(version)).await?;
    load.finish(test, Workers::UpstreamRetries).await?;
    probe.finish(tolerance).await?;
    ensure!(
        taken.uid() == cdi.uid() && taken.spec == cdi.spec,
        "the CDI object changed: {:?}",
        taken.spec
    );
    let after = uids(test).await?;
    for (name, uid) in &volumes {
        ensure!(after.get(name) == Some(uid), "{name} is another object");
    }
    let after = secrets(test).await?;
    for (name, uid) in &keys {
        ensure!(after.get(name) == Some(uid), "Secret {name} is another object");
    }
    Ok(())
}

/// Deletes the DataVolumes of the load.
fn delete_datavolumes(test: &Test) -> Result<()> {
    let words =
        ["delete", "datavolumes", "--all", "--namespace", test.namespace(), "--timeout=300s"];
    let (succeeded, output) = kubectl(test, &words, "")?;
    ensure!(succeeded, "{output}");
    Ok(())
}

#[test]
fn upstream_installation_is_taken_over_and_given_back() {
    run_where_nothing_is_installed("takeover", async |test| {
        load_upstream_images(test.state())?;
        let upstream = upstream_operator_manifest(NAMESPACE)?;
        let ours = release_file("cdi-operator.yaml")?;
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE },
        });
        apply(&test, &namespace.to_string())?;
        apply(&test, &upstream)?;
        apply(&test, &cdi())?;
        available(&test, Some(UPSTREAM_VERSION)).await.context("upstream's installation")?;

        let version = operator_version(&ours)?;
        replace_operator(&test, &ours, &version, ABRUPT_END).await.context("the takeover")?;
        delete_datavolumes(&test)?;
        test.only_these_are_left(&[]).await?;

        // Pods of this project leave their Service before they end.
        let way_back = replace_operator(&test, &upstream, UPSTREAM_VERSION, Tolerance::None);
        way_back.await.context("the way back")?;
        delete_datavolumes(&test)?;

        apply(&test, &ours)?;
        available(&test, Some(&version)).await.context("the second takeover")?;
        remove(&test, &ours).await
    });
}
