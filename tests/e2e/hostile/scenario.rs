//! The state that attackers and victim share: the namespaces, the addresses of the installation, the end of the run,
//! and the counters.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use api::v1beta1::CdiConfig;
use e2e::{NAMESPACE, REGISTRY, Test};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::{MIB, ServerCertificate, pattern};

/// The port that is listened on where only the controllers can connect. Nothing else in the cluster uses it.
pub const CANARY_PORT: u16 = 9797;
/// A PVC in a namespace in which no attacker has permissions.
pub const SECRET_DISK: &str = "secret-disk";
/// A Secret of the installation with the account of a registry; it does not name the registry.
pub const ACCOUNT: &str = "hostile-registry-account";
/// The password in it.
pub const PASSWORD: &str = "a password of the installation";
/// The ConfigMap of the installation by which the attackers' registry has a good certificate, as a public one would.
pub const AUTHORITY: &str = "hostile-authority";

/// The state that all attacks and checks of one run share.
pub struct Scenario {
    end: Instant,
    /// The namespace of the secret disk.
    pub vault: String,
    /// The installation's pods: the name of the program, and the pod's address.
    pub programs: Vec<(String, String)>,
    /// The attackers' servers speak TLS with it.
    pub certificate: ServerCertificate,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl Scenario {
    /// Prepares what an administrator has set up.
    pub async fn prepare(vault: &Test, duration: Duration) -> Result<Self> {
        let host = e2e::HOST.to_string();
        let certificate = ServerCertificate::for_names(&[&host]);
        remove_settings(vault).await?;
        let account = json!({
            "metadata": { "name": ACCOUNT },
            "stringData": { "accessKeyId": "installation", "secretKey": PASSWORD },
        });
        let secrets = Api::<Secret>::namespaced(vault.client(), NAMESPACE);
        secrets.create(&PostParams::default(), &serde_json::from_value(account)?).await?;
        let authority = json!({
            "metadata": { "name": AUTHORITY }, "data": { "ca.pem": certificate.ca },
        });
        let maps = Api::<ConfigMap>::namespaced(vault.client(), NAMESPACE);
        maps.create(&PostParams::default(), &serde_json::from_value(authority)?).await?;
        Ok(Self {
            end: Instant::now() + duration,
            vault: vault.namespace().to_owned(),
            programs: programs(vault).await?,
            certificate,
            counts: Mutex::default(),
        })
    }

    /// Whether attackers and victim begin nothing more.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// The remaining time.
    pub fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Waits, but not longer than the remaining time.
    pub async fn pause(&self, seconds: u64) {
        tokio::time::sleep(self.left().min(Duration::from_secs(seconds))).await;
    }

    /// Counts something that an attacker did.
    pub fn count(&self, what: &'static str) {
        self.add(what, 1);
    }

    /// Counts something that an attacker did so often.
    pub fn add(&self, what: &'static str, times: u64) {
        *self.locked().entry(what).or_default() += times;
    }

    /// All that was counted.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.locked().clone()
    }

    fn locked(&self) -> parking_lot::MutexGuard<'_, BTreeMap<&'static str, u64>> {
        self.counts.lock()
    }

    /// The addresses of the pods of a program.
    pub fn addresses<'a>(&'a self, program: &'a str) -> impl Iterator<Item = &'a str> {
        self.programs.iter().filter(move |(name, _)| name == program).map(|(_, ip)| ip.as_str())
    }
}

/// Name of the program and address, of each pod of the installation.
async fn programs(vault: &Test) -> Result<Vec<(String, String)>> {
    let pods = Api::<Pod>::namespaced(vault.client(), NAMESPACE);
    let pods = pods.list(&ListParams::default().labels("cdi.kubevirt.io")).await?.items;
    let programs = pods.into_iter().map(|pod| {
        let program = pod.labels().get("cdi.kubevirt.io").cloned().unwrap_or_default();
        let address = pod.status.and_then(|status| status.pod_ip);
        Ok((program, address.context("a pod of the installation has no address")?))
    });
    programs.collect()
}

/// Removes the objects that [`Scenario::prepare`] created in the namespace of the installation, also in an earlier run.
pub async fn remove_settings(vault: &Test) -> Result<()> {
    let secrets = Api::<Secret>::namespaced(vault.client(), NAMESPACE);
    gone(secrets.delete(ACCOUNT, &DeleteParams::default()).await)?;
    let maps = Api::<ConfigMap>::namespaced(vault.client(), NAMESPACE);
    gone(maps.delete(AUTHORITY, &DeleteParams::default()).await)
}

/// Sets the resources that workers request, as an administrator does; null is the default.
pub async fn set_worker_requests(admin: &Test, requests: Value) -> Result<()> {
    let configs = Api::<CdiConfig>::all(admin.client());
    let settings = json!({ "spec": { "podResourceRequirements": { "requests": requests } } });
    configs.patch("config", &PatchParams::default(), &Patch::Merge(settings)).await?;
    Ok(())
}

/// That there was nothing to delete is no failure.
pub fn gone<T>(deleted: kube::Result<T>) -> Result<()> {
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        outcome => Ok(outcome.map(drop)?),
    }
}

/// The secret disk's content; no other disk has it.
pub fn secret() -> Vec<u8> {
    let mut bytes = pattern(8 * MIB);
    bytes.iter_mut().for_each(|byte| *byte ^= 0x5a);
    bytes
}

/// A reference to an image of the cluster's registry.
pub fn image(test: &Test, name: &str) -> String {
    format!("docker://{REGISTRY}/{}/{name}", test.namespace())
}
