//! The manifests that an administrator may apply to the installation: the files in `deploy/options`.

use std::path::Path;

use anyhow::{Context, Result};
use kube::ResourceExt;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams,
};
use serde::Deserialize;
use serde_json::Value;

use crate::Test;

/// The field manager.
const MANAGER: &str = "e2e";

/// An option that is applied.
pub struct InstalledOption(Vec<DynamicObject>);

impl InstalledOption {
    /// Applies `deploy/options/NAME.yaml`.
    ///
    /// # Errors
    /// When the file cannot be read, or the API server refuses an object.
    pub async fn apply(test: &Test, name: &str) -> Result<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/options");
        let path = folder.join(format!("{name}.yaml"));
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let mut objects = Vec::new();
        for document in yaml_serde::Deserializer::from_str(&text) {
            objects.push(serde_json::from_value(Value::deserialize(document)?)?);
        }
        let parameters = PatchParams::apply(MANAGER).force();
        for object in &objects {
            let api = api(test, object)?;
            api.patch(&object.name_any(), &parameters, &Patch::Apply(object)).await?;
        }
        Ok(Self(objects))
    }

    /// Deletes what was applied. For options that add objects; those that change some are undone by applying `deploy/` again.
    ///
    /// # Errors
    /// When the cluster does not delete it.
    pub async fn remove(self, test: &Test) -> Result<()> {
        for object in &self.0 {
            api(test, object)?.delete(&object.name_any(), &DeleteParams::default()).await?;
        }
        Ok(())
    }
}

fn api(test: &Test, object: &DynamicObject) -> Result<Api<DynamicObject>> {
    let types = object.types.as_ref().context("an object has a kind")?;
    let kind = ApiResource::from_gvk(&GroupVersionKind::try_from(types)?);
    Ok(match object.namespace() {
        Some(namespace) => Api::namespaced_with(test.client(), &namespace, &kind),
        None => Api::all_with(test.client(), &kind),
    })
}
