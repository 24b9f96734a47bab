//! Certificates are renewed without failed requests.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::v1beta1::{Cdi, DataVolume};
use e2e::{NAMESPACE, PATIENCE, Program, run_installed};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::world::volume;

const SECRET: &str = "cdi-apiserver-server-cert";

fn certificate(secret: &Secret) -> String {
    let bytes = secret.data.as_ref().and_then(|data| data.get("tls.crt"));
    bytes.and_then(|bytes| first(&String::from_utf8_lossy(&bytes.0))).unwrap_or_default()
}

/// The first certificate of a text, however its lines are broken.
fn first(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("-----BEGIN CERTIFICATE-----")?;
    let (certificate, _) = rest.split_once("-----END")?;
    Some(certificate.split_whitespace().collect())
}

/// The certificate that a server shows.
fn shown(address: &str) -> Result<String> {
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-connect", address]).stdin(Stdio::null());
    let output = openssl.output().context("cannot start openssl")?;
    first(&String::from_utf8_lossy(&output.stdout)).context("a server shows a certificate")
}

#[test]
fn certificate_renewal_refuses_no_request() {
    run_installed("renewed", async |test| {
        let secrets = Api::<Secret>::namespaced(test.client(), NAMESPACE);
        let before = certificate(&secrets.get(SECRET).await?);
        let address = format!("{}:443", test.service_address("cdi-api").await?);
        anyhow::ensure!(shown(&address)? == before, "it shows another one");
        // With another lifetime the current certificates are due for renewal.
        let installation = json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDI", "metadata": { "name": "cdi" },
            "spec": { "certConfig": { "server": { "duration": "23h0m0s", "renewBefore": "11h0m0s" } } },
        });
        let patch = PatchParams::apply("e2e");
        let installations = Api::<Cdi>::all(test.client());
        installations.patch("cdi", &patch, &Patch::Apply(installation)).await?;
        let is_renewed = |secret: &Secret| certificate(secret) != before;
        let renewed = test.wait_among(&secrets, SECRET, "renewed", is_renewed).await?;
        Program::named(&test, "cdi-apiserver").pod().await?; // ready
        let replicas = ListParams::default().labels("cdi.kubevirt.io=cdi-apiserver");
        let pods = Api::<Pod>::namespaced(test.client(), NAMESPACE);
        let begin = Instant::now();
        let trial = PostParams { dry_run: true, ..PostParams::default() };
        let made = volume("disk", "csi", "Block", json!({ "blank": {} }));
        let made: DataVolume = serde_json::from_value(made)?;
        loop {
            let all = pods.list(&replicas).await?.items;
            let addresses = all.iter().filter_map(|pod| pod.status.as_ref()?.pod_ip.as_ref());
            let shown: Vec<_> =
                addresses.map(|ip| shown(&format!("{ip}:8443"))).collect::<Result<_>>()?;
            if !shown.is_empty() && shown.iter().all(|shown| *shown == certificate(&renewed)) {
                break;
            }
            if begin.elapsed() > PATIENCE {
                bail!("it still shows the old certificate");
            }
            test.all::<DataVolume>().create(&trial, &made).await.context("while it changes")?;
            // The kubelet updates the files when it syncs a pod: a changed annotation causes a sync.
            let word = begin.elapsed().as_secs().to_string();
            let word = json!({ "metadata": { "annotations": { "e2e/look": word } } });
            for pod in &all {
                let word = Patch::Merge(&word);
                pods.patch(&pod.name_any(), &PatchParams::default(), &word).await?;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        test.all::<DataVolume>().create(&trial, &made).await.context("after it changed")?;
        Ok(())
    });
}
