//! The copy of the CA certificates of the platform's proxy, in the namespace of the installation: importers trust it. It
//! always has the same name, which is the one ConfigMap there that the controller may change.

use api::annotations::state;
use api::events;
use api::names::PLATFORM_CA_CONFIG_MAP;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::event::Event;
use crate::meta::{self, Installation};
use crate::plan::Write;

/// Where the platform keeps CA certificates.
pub const PLATFORM_NAMESPACE: &str = "openshift-config";
/// The key of the ConfigMap of the platform, and that of the copy.
const PLATFORM_KEY: &str = "ca-bundle.crt";
const COPY_KEY: &str = "ca.crt";

/// The copy of the ConfigMap `name` of the platform.
pub struct CopyFacts<'a> {
    pub name: &'a str,
    pub source: Option<&'a ConfigMap>,
    /// The ConfigMap of the copy's name.
    pub present: Option<&'a ConfigMap>,
    pub installation: &'a Installation,
    pub owner: Option<OwnerReference>,
}

/// What brings the copy up to date; `None` where it is.
///
/// # Errors
/// Why there is no copy.
pub fn plan_copy(facts: CopyFacts) -> Result<Option<Write>, Event> {
    let missing = |message: String| Event::warning(events::RESOURCE_DOES_NOT_EXIST, message);
    let CopyFacts { name, source, present, installation, owner } = facts;
    let pem = source.and_then(|map| map.data.as_ref()?.get(PLATFORM_KEY));
    let pem = pem.ok_or_else(|| {
        missing(format!(
            "there is no ConfigMap {PLATFORM_NAMESPACE}/{name} with the authority of the proxy under {PLATFORM_KEY}"
        ))
    })?;
    let data = Some([(COPY_KEY.to_owned(), pem.clone())].into());
    let annotation = (state::COPY_OF.to_owned(), reference_to(name));
    let namespace = &installation.namespace;
    let Some(present) = present else {
        return Ok(Some(Write::create(ConfigMap {
            metadata: ObjectMeta {
                name: Some(PLATFORM_CA_CONFIG_MAP.to_owned()),
                namespace: Some(namespace.clone()),
                labels: Some(installation.labels()),
                annotations: Some([annotation].into()),
                owner_references: owner.map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            data,
            ..ConfigMap::default()
        })));
    };
    if !is_copy(present) {
        return Err(missing(format!(
            "the authority of the proxy cannot be copied to {namespace}/{PLATFORM_CA_CONFIG_MAP}: there is another ConfigMap of this name"
        )));
    }
    if present.data == data && copied_from(present) == Some(annotation.1.as_str()) {
        return Ok(None);
    }
    let mut changed = present.clone();
    changed.data = data;
    changed.metadata.annotations.get_or_insert_default().insert(annotation.0, annotation.1);
    Ok(Some(Write::replace(changed)))
}

/// What becomes of a ConfigMap that the settings named, and name no more.
#[derive(Clone, Debug, PartialEq)]
pub enum OldCopy {
    /// `None` where it is terminating.
    Delete(Box<Option<Write>>),
    /// Another client created it.
    Foreign,
    /// An earlier version created it, under the name of its source. The controller may not delete ConfigMaps of other names.
    Unused,
}

pub fn plan_removal(name: &str, present: Option<&ConfigMap>) -> OldCopy {
    match present.filter(|map| is_copy(map)) {
        None => OldCopy::Foreign,
        Some(copy) if name == PLATFORM_CA_CONFIG_MAP => {
            OldCopy::Delete(Box::new(Write::delete(copy)))
        }
        Some(_) => OldCopy::Unused,
    }
}

fn is_copy(map: &ConfigMap) -> bool {
    let prefix = reference_to("");
    copied_from(map).is_some_and(|source| source.starts_with(&prefix))
}

fn copied_from(map: &ConfigMap) -> Option<&str> {
    meta::annotation(&map.metadata, state::COPY_OF)
}

fn reference_to(name: &str) -> String {
    format!("{PLATFORM_NAMESPACE}/{name}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn map(metadata: Value, data: Value) -> ConfigMap {
        serde_json::from_value(json!({ "metadata": metadata, "data": data })).unwrap()
    }

    fn copy_of(source: &str, pem: &str) -> ConfigMap {
        let annotations = json!({ state::COPY_OF: source });
        let metadata = json!({ "name": PLATFORM_CA_CONFIG_MAP, "annotations": annotations });
        map(metadata, json!({ COPY_KEY: pem }))
    }

    #[test]
    fn copy_decision_table() {
        let source = map(json!({}), json!({ PLATFORM_KEY: "new" }));
        let empty = map(json!({}), json!({}));
        let foreign = map(json!({}), json!({ COPY_KEY: "new" }));
        let of = |name: &str, pem: &str| copy_of(&reference_to(name), pem);
        for (case, source, present, expected) in [
            ("no source", None, None, "event"),
            ("source without the key", Some(&empty), None, "event"),
            ("no copy", Some(&source), None, "create"),
            ("copy is current", Some(&source), Some(of("ca", "new")), "none"),
            ("copy is old", Some(&source), Some(of("ca", "old")), "replace"),
            ("copy of another source", Some(&source), Some(of("other", "new")), "replace"),
            ("foreign ConfigMap", Some(&source), Some(foreign), "event"),
        ] {
            let found = plan_copy(CopyFacts {
                name: "ca",
                source,
                present: present.as_ref(),
                installation: &Installation::default(),
                owner: None,
            });
            let found = match found {
                Err(_) => "event",
                Ok(None) => "none",
                Ok(Some(Write::Create(_))) => "create",
                Ok(Some(Write::Replace(_))) => "replace",
                Ok(Some(other)) => panic!("{other:?}"),
            };
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn only_a_copy_of_the_current_name_is_deleted() {
        let copy = copy_of(&reference_to("ca"), "x");
        let foreign = map(json!({ "name": PLATFORM_CA_CONFIG_MAP }), json!({}));
        let deleted = OldCopy::Delete(Box::new(Write::delete(&copy)));
        assert_eq!(plan_removal(PLATFORM_CA_CONFIG_MAP, Some(&copy)), deleted);
        assert_eq!(plan_removal(PLATFORM_CA_CONFIG_MAP, Some(&foreign)), OldCopy::Foreign);
        assert_eq!(plan_removal(PLATFORM_CA_CONFIG_MAP, None), OldCopy::Foreign);
        assert_eq!(plan_removal("ca", Some(&copy)), OldCopy::Unused);
    }
}
