//! All objects of the installation in a ConfigMap, if the operator has `DUMP_INSTALL_STRATEGY=true`. For an administrator
//! who wants to read them; no program reads the ConfigMap.

use serde_json::{Value, json};

use crate::error::Error;
use crate::installer::apply::{ApplyContext, ApplyReport};
use crate::kinds::{self, ObjectId};
use crate::metadata;
use crate::plan::completion::WriteVerb;

/// Upstream CDI's name, and that of the key.
pub(crate) const DUMP: &str = "cdi-install-strategy";
const KEY: &str = "manifests";

/// Writes the ConfigMap if it differs. A ConfigMap that is too large is refused by the API server, which the CDI object
/// then reports as it reports other failures.
pub async fn dump_objects(
    context: &mut ApplyContext<'_>,
    report: &mut ApplyReport,
    objects: &[(ObjectId, Value)],
    namespace: &str,
) {
    let id = ObjectId::new(&kinds::CONFIG_MAP, namespace, DUMP);
    if let Err(error) = write_dump(context, &id, objects).await {
        report.fail(context, WriteVerb::Update, id.to_string(), &error).await;
    }
}

async fn write_dump(
    context: &ApplyContext<'_>,
    id: &ObjectId,
    objects: &[(ObjectId, Value)],
) -> Result<(), Error> {
    let text = manifests(objects);
    let Some(mut current) = context.api.get(id).await? else {
        let desired = json!({
            "apiVersion": "v1", "kind": kinds::CONFIG_MAP.kind,
            "metadata": {
                "name": id.name, "namespace": id.namespace,
                "labels": { api::labels::OPERATOR: "" },
                "ownerReferences": [metadata::installation_reference(context.installation)],
            },
            "data": { KEY: text },
        });
        return context.api.create(id, &desired).await.map(drop);
    };
    if current["data"][KEY] == *text {
        return Ok(());
    }
    current["data"] = json!({ KEY: text });
    context.api.replace(id, &current).await.map(drop)
}

/// One YAML document per object.
fn manifests(objects: &[(ObjectId, Value)]) -> String {
    let documents = objects.iter().filter_map(|(_, object)| yaml_serde::to_string(object).ok());
    documents.collect::<Vec<_>>().join("---\n")
}
