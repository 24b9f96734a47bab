//! Upstream CDI's controllers in the place of ours: the same Deployment with another program in it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::v1beta1::Cdi;
use cluster::State;
use e2e::{NAMESPACE, is_ready};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::{PAUSE, unless_there};

/// The variables of the controllers with images of workers, and whose image it is.
const WORKER_IMAGES: [(&str, &str); 3] = [
    ("IMPORTER_IMAGE", "importer"),
    ("CLONER_IMAGE", "cloner"),
    ("UPLOADSERVER_IMAGE", "uploadserver"),
];
/// Pods start within seconds.
const PATIENCE: Duration = Duration::from_secs(180);
/// Grants the account of the controllers the permissions that upstream CDI's need: more than ours have.
const RIGHTS: &str = "cdi-reference";
/// Which Deployment and pods they are.
const LABEL: &str = "cdi.kubevirt.io";

/// Whose controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// This project's.
    Ours,
    /// Upstream CDI's.
    Reference,
}

impl Whose {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ours, Self::Reference];

    /// A, B, B, A: what changes with time affects both, and a lease is waited for as seldom as possible.
    pub fn in_turn(run: usize) -> [Self; 2] {
        let mut turns = Self::ALL;
        if run % 2 == 1 {
            turns.reverse();
        }
        turns
    }

    /// As figures name it; good in names of objects.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Reference => "reference",
        }
    }

    const fn deployment(self) -> &'static str {
        match self {
            Self::Ours => "cdi-deployment",
            Self::Reference => "cdi-reference",
        }
    }
}

/// The programs of both, of which one runs at a time.
pub struct Programs {
    client: Client,
}

impl Programs {
    /// Loads upstream CDI's programs into the cluster, next to ours. Starts none of them.
    pub async fn load_next_to_ours(client: &Client, state: &State) -> Result<Self> {
        cluster::load_upstream_images(state)?;
        // Upstream CDI creates no worker without a CDI object; ours does not need one.
        let cdi = json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDI",
            "metadata": { "name": "cdi" }, "spec": {},
        });
        let all = Api::<Cdi>::all(client.clone());
        unless_there(all.create(&PostParams::default(), &serde_json::from_value(cdi)?).await)?;
        let rights = json!({
            "metadata": { "name": RIGHTS },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin",
            },
            "subjects": [{ "kind": "ServiceAccount", "name": "cdi-sa", "namespace": NAMESPACE }],
        });
        let all = Api::<ClusterRoleBinding>::all(client.clone());
        unless_there(all.create(&PostParams::default(), &serde_json::from_value(rights)?).await)?;
        let all = Api::<Deployment>::namespaced(client.clone(), NAMESPACE);
        let ours = all.get_opt(Whose::Ours.deployment()).await?;
        let ours = ours
            .context("nothing is installed; `cargo xtask cluster install --manifests` does it")?;
        all.create(&PostParams::default(), &like(&ours)?).await?;
        Ok(Self { client: client.clone() })
    }

    /// Runs one of them and no other, and returns the UID of its pod.
    pub async fn turn(&self, whose: Whose) -> Result<String> {
        for other in Whose::ALL.into_iter().filter(|other| *other != whose) {
            self.scale(other, 0).await?;
        }
        for other in Whose::ALL.into_iter().filter(|other| *other != whose) {
            self.pods(other, "gone", |pods| pods.is_empty()).await?;
        }
        self.scale(whose, 1).await?;
        let is_there = |pods: &[Pod]| matches!(pods, [pod] if is_ready(pod));
        let pods = self.pods(whose, "ready", is_there).await?;
        pods.first().and_then(ResourceExt::uid).context("a pod has a UID")
    }

    /// Removes upstream CDI's programs, and leaves ours running.
    pub async fn leave(&self) -> Result<()> {
        self.turn(Whose::Ours).await?;
        let all = Api::<Deployment>::namespaced(self.client.clone(), NAMESPACE);
        all.delete(Whose::Reference.deployment(), &DeleteParams::default()).await?;
        let rights = Api::<ClusterRoleBinding>::all(self.client.clone());
        rights.delete(RIGHTS, &DeleteParams::default()).await?;
        Ok(())
    }

    async fn scale(&self, whose: Whose, replicas: u32) -> Result<()> {
        let all = Api::<Deployment>::namespaced(self.client.clone(), NAMESPACE);
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        all.patch(whose.deployment(), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn pods(
        &self,
        whose: Whose,
        what: &str,
        good: impl Fn(&[Pod]) -> bool,
    ) -> Result<Vec<Pod>> {
        let all = Api::<Pod>::namespaced(self.client.clone(), NAMESPACE);
        let which = ListParams::default().labels(&format!("{LABEL}={}", whose.deployment()));
        let begin = Instant::now();
        loop {
            let pods = all.list(&which).await?.items;
            if good(&pods) {
                return Ok(pods);
            }
            let name = whose.deployment();
            ensure!(begin.elapsed() < PATIENCE, "the pods of {name} are not {what}");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The same account, keys and resources; but upstream CDI has no HTTP endpoint for probes.
fn like(ours: &Deployment) -> Result<Deployment> {
    let name = Whose::Reference.deployment();
    let mut spec = serde_json::to_value(&ours.spec)?;
    spec["replicas"] = 0.into();
    spec["selector"]["matchLabels"][LABEL] = name.into();
    spec["template"]["metadata"]["labels"][LABEL] = name.into();
    let container = &mut spec["template"]["spec"]["containers"][0];
    container["image"] = cluster::upstream_image("controller").into();
    if let Some(container) = container.as_object_mut() {
        container.remove("livenessProbe");
        container.remove("readinessProbe");
    }
    for variable in container["env"].as_array_mut().into_iter().flatten() {
        for (name, image) in WORKER_IMAGES {
            if variable["name"] == name {
                variable["value"] = cluster::upstream_image(image).into();
            }
        }
    }
    let object: Value = json!({ "metadata": { "name": name }, "spec": spec });
    serde_json::from_value(object).context("not a Deployment")
}
