//! PVCs that the tests create.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};

use crate::Test;

/// A PVC to be created.
#[derive(Clone, Debug)]
pub struct Claim {
    name: String,
    class: String,
    mode: &'static str,
    size: String,
    access: &'static str,
    source: Option<Value>,
}

impl Claim {
    /// A device.
    pub fn block(name: &str, class: &str, size: &str) -> Self {
        Self::new(name, class, size, "Block")
    }

    /// A file system.
    pub fn filesystem(name: &str, class: &str, size: &str) -> Self {
        Self::new(name, class, size, "Filesystem")
    }

    fn new(name: &str, class: &str, size: &str, mode: &'static str) -> Self {
        let (name, class, size) = (name.to_owned(), class.to_owned(), size.to_owned());
        Self { name, class, mode, size, access: "ReadWriteOnce", source: None }
    }

    /// To be written by pods of several nodes.
    #[must_use]
    pub fn many(mut self) -> Self {
        self.access = "ReadWriteMany";
        self
    }

    /// Begins as a copy of another PVC.
    #[must_use]
    pub fn from_claim(mut self, name: &str) -> Self {
        self.source = Some(json!({"kind": "PersistentVolumeClaim", "name": name}));
        self
    }

    /// Begins as a snapshot was.
    #[must_use]
    pub fn from_snapshot(mut self, name: &str) -> Self {
        let group = "snapshot.storage.k8s.io";
        self.source = Some(json!({"apiGroup": group, "kind": "VolumeSnapshot", "name": name}));
        self
    }

    /// Creates it.
    ///
    /// # Errors
    /// When the API server refuses the request.
    pub async fn make(&self, test: &Test) -> Result<PersistentVolumeClaim> {
        let mut object = json!({
            "metadata": {"name": self.name},
            "spec": {
                "accessModes": [self.access],
                "storageClassName": self.class,
                "volumeMode": self.mode,
                "resources": {"requests": {"storage": self.size}},
            },
        });
        if let Some(source) = &self.source {
            object["spec"]["dataSource"] = source.clone();
        }
        let made = test.create(object).await;
        made.with_context(|| format!("cannot create the PVC {}", self.name))
    }

    /// Creates it and waits until it is bound.
    ///
    /// # Errors
    /// When it is not bound.
    pub async fn bound(&self, test: &Test) -> Result<PersistentVolumeClaim> {
        self.make(test).await?;
        test.wait(&self.name, "bound", is_bound).await
    }
}

pub fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}
