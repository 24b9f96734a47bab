//! The annotation by which `spec.config` of the CDI object counts, and the import of a CDIConfig that was edited before.

use api::annotations::request::CONFIG_AUTHORITY;
use serde_json::Value;

use crate::metadata;

/// Sets the annotation. If the CDI object has no `spec.config` and exactly one CDIConfig has a spec, that spec is copied
/// first, so that nothing an administrator has set is lost. `configs`: all CDIConfigs.
pub fn claim_config_authority(installation: &mut Value, configs: &[Value]) {
    if metadata::annotation(installation, CONFIG_AUTHORITY).is_some() {
        return;
    }
    if needs_config(installation)
        && let [config] = configs
        && config["spec"].as_object().is_some_and(|spec| !spec.is_empty())
    {
        if !installation["spec"].is_object() {
            installation["spec"] = Value::Object(serde_json::Map::new());
        }
        installation["spec"]["config"] = config["spec"].clone();
    }
    metadata::set_annotation(installation, CONFIG_AUTHORITY, "");
}

/// Whether the CDIConfigs have to be read.
pub fn needs_config(installation: &Value) -> bool {
    metadata::annotation(installation, CONFIG_AUTHORITY).is_none()
        && installation["spec"]["config"].is_null()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn authority_decision_table() {
        let edited = || vec![json!({ "spec": { "preallocation": true } })];
        let settings = || json!({ "logVerbosity": 3 });
        let claimed = || json!({ CONFIG_AUTHORITY: "" });
        for (case, annotations, config, configs, expected) in [
            ("fresh", json!({}), Value::Null, vec![], Value::Null),
            ("edited before", json!({}), Value::Null, edited(), json!({ "preallocation": true })),
            ("empty CDIConfig", json!({}), Value::Null, vec![json!({ "spec": {} })], Value::Null),
            (
                "several CDIConfigs",
                json!({}),
                Value::Null,
                [edited(), edited()].concat(),
                Value::Null,
            ),
            ("own settings", json!({}), settings(), edited(), settings()),
            ("claimed before", claimed(), Value::Null, edited(), Value::Null),
        ] {
            let mut cdi = json!({ "metadata": { "annotations": annotations }, "spec": {} });
            if !config.is_null() {
                cdi["spec"]["config"] = config;
            }
            claim_config_authority(&mut cdi, &configs);
            assert_eq!(cdi["spec"]["config"], expected, "{case}");
            assert_eq!(cdi["metadata"]["annotations"], claimed(), "{case}");
        }
    }
}
