//! An operator and a cluster, as the scenarios of tests need them.

use jiff::Timestamp;
use operator::Installer;
use operator::desired::OperatorEnvironment;
use serde_json::{Value, json};

use super::MemoryApi;

pub const CDI: &str = "cdi.kubevirt.io/cdis//cdi";
/// More passes than any scenario needs.
const PASSES_MAX: usize = 60;

/// What an operator installs.
#[derive(Clone, Copy, PartialEq)]
pub enum Objects {
    All,
    /// Not CRDs, cluster roles and webhooks.
    Namespaced,
}

pub fn environment(version: &str, objects: Objects) -> OperatorEnvironment {
    let read = |name: &str| match name {
        "OPERATOR_VERSION" => Some(version.to_owned()),
        "DEPLOY_CLUSTER_RESOURCES" => Some((objects == Objects::All).to_string()),
        name if name.ends_with("_IMAGE") => {
            Some(format!("registry/{}:{version}", name.to_lowercase()))
        }
        _ => None,
    };
    OperatorEnvironment::from_environment(read, "cdi").unwrap().unwrap()
}

/// An operator, restarted with each call of `new`.
pub struct Operator {
    api: MemoryApi,
    installer: Installer,
    seconds: i64,
}

impl Operator {
    pub fn new(api: &MemoryApi, version: &str) -> Self {
        Self::of_objects(api, version, Objects::All)
    }

    pub fn of_objects(api: &MemoryApi, version: &str, objects: Objects) -> Self {
        Self::in_environment(api, environment(version, objects))
    }

    pub fn in_environment(api: &MemoryApi, environment: OperatorEnvironment) -> Self {
        let installer = Installer::new(api.client(), environment);
        Self { api: api.clone(), installer, seconds: 1_800_000_000 }
    }

    pub async fn pass(&mut self) -> Result<(), operator::Error> {
        self.seconds += 1;
        let now = Timestamp::from_second(self.seconds).unwrap();
        self.installer.pass(now).await.map(drop)
    }

    /// Passes until nothing is written any more, while Kubernetes' controllers work. Returns the writes.
    pub async fn converge(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..PASSES_MAX {
            // A failure of the API server is retried.
            let before = self.api.version();
            let outcome = self.pass().await;
            self.api.settle();
            let writes = self.api.writes();
            let is_settled = outcome.is_ok() && self.api.version() == before;
            all.extend(writes);
            if is_settled {
                return all;
            }
        }
        panic!(
            "no end after {PASSES_MAX} passes; the last writes: {:?}",
            &all[all.len().saturating_sub(10)..]
        );
    }
}

pub fn cdi() -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDI",
        "metadata": { "name": "cdi", "labels": { "app.kubernetes.io/part-of": "hco" } },
        "spec": { "infra": { "apiServerReplicas": 2 } },
    })
}

/// With the CDI object, and what the operator's manifest brings along.
pub fn cluster() -> MemoryApi {
    let api = MemoryApi::default();
    api.put(CDI, cdi());
    api
}

pub async fn installed(version: &str) -> MemoryApi {
    installed_objects(version, Objects::All).await
}

pub async fn installed_objects(version: &str, objects: Objects) -> MemoryApi {
    let api = cluster();
    Operator::of_objects(&api, version, objects).converge().await;
    api
}
