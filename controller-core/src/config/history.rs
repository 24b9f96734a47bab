//! What the CDIConfig was before: whether a user has edited it, and which settings were there before this installation.
//! Both are recorded in annotations of the CDIConfig.

use api::annotations::state;
use api::v1beta1::{Cdi, CdiConfig, CdiConfigSpec};
use api::{events, names};
use contract::Hasher;

use super::{CdiConfigSource, config_source};
use crate::event::Event;
use crate::meta;

/// Value of [`state::INHERITED_TTL`]: no inherited value is left.
const NONE: &str = "none";

/// The settings of a new CDIConfig: PVCs wait for the pods that they are for.
pub fn default_spec() -> CdiConfigSpec {
    CdiConfigSpec {
        feature_gates: Some(vec![names::GATE_HONOR_WAIT_FOR_FIRST_CONSUMER.into()]),
        ..CdiConfigSpec::default()
    }
}

/// The effective settings: those of the CDIConfig, without a `dataVolumeTTLSeconds` that has not been set since the
/// installation. Upstream ignores that field since v1.62, so that a forgotten value must not begin to delete
/// DataVolumes.
pub fn in_force(config: &CdiConfig) -> CdiConfigSpec {
    let mut spec = config.spec.clone();
    if inherited_ttl(config).is_some() {
        spec.data_volume_ttl_seconds = None;
    }
    spec
}

/// The `dataVolumeTTLSeconds` that was there before the installation and still is.
fn inherited_ttl(config: &CdiConfig) -> Option<i32> {
    let ttl = config.spec.data_volume_ttl_seconds?;
    // Without the annotation no controller of this installation has seen the CDIConfig yet.
    let noted = meta::annotation(&config.metadata, state::INHERITED_TTL);
    noted.is_none_or(|noted| noted == ttl.to_string()).then_some(ttl)
}

/// The annotations of the CDIConfig `present` after its spec has become `spec`. A spec that the controller writes is
/// recorded, so that an edit shows.
pub fn annotations(present: &CdiConfig, spec: &CdiConfigSpec) -> meta::Changes {
    let mut changes = meta::Changes::default();
    let inherited = inherited_ttl(&CdiConfig { spec: spec.clone(), ..present.clone() });
    let inherited = inherited.map_or_else(|| NONE.to_owned(), |ttl| ttl.to_string());
    changes.set(&present.metadata, state::INHERITED_TTL, inherited);
    if is_unedited(present) || *spec != present.spec {
        changes.set(&present.metadata, state::CONTROLLER_CONFIG, fingerprint(spec));
    }
    changes
}

/// The same, of a CDIConfig that the controller creates.
pub fn annotations_of_new(spec: &CdiConfigSpec) -> meta::Pairs {
    [
        (state::INHERITED_TTL.to_owned(), NONE.to_owned()),
        (state::CONTROLLER_CONFIG.to_owned(), fingerprint(spec)),
    ]
    .into()
}

/// Whether the spec is as the controller wrote it last. One that it has never written counts if it is the default.
pub(super) fn is_unedited(config: &CdiConfig) -> bool {
    match meta::annotation(&config.metadata, state::CONTROLLER_CONFIG) {
        Some(written) => written == fingerprint(&config.spec),
        None => [CdiConfigSpec::default(), default_spec()].contains(&config.spec),
    }
}

fn fingerprint(spec: &CdiConfigSpec) -> String {
    let mut hasher = Hasher::sha256();
    hasher.update(serde_json::json!(spec).to_string().as_bytes());
    hasher.finish().to_string()
}

/// What users have to know of settings without effect.
pub fn ignored(config: &CdiConfig) -> Option<Event> {
    let ttl = inherited_ttl(config).filter(|ttl| *ttl >= 0)?;
    let message = format!(
        "dataVolumeTTLSeconds {ttl} was set before this version was installed and is ignored: remove it, and set it \
         again to have finished DataVolumes deleted"
    );
    Some(Event::warning(events::SETTING_IGNORED, message))
}

/// What users have to know of feature gates without effect. All gates of upstream are known by name.
pub fn ignored_gates(spec: &CdiConfigSpec) -> Option<Event> {
    let gates = spec.feature_gates.iter().flatten().map(String::as_str);
    let words: Vec<_> = gates
        .filter_map(|gate| match gate {
            names::GATE_HONOR_WAIT_FOR_FIRST_CONSUMER
            | names::GATE_CLAIM_ADOPTION
            // Always on, as in upstream; webhookPvcRendering turns it off.
            | names::GATE_WEBHOOK_PVC_RENDERING => None,
            names::GATE_BOOTC_IMAGE_IMPORT => Some(format!(
                "feature gate {gate} is not supported: bootable container images (bootc) are not imported, only \
                 container disks"
            )),
            other => {
                let other: String = other.chars().take(60).collect();
                Some(format!("feature gate {other:?} is not known"))
            }
        })
        .collect();
    (!words.is_empty()).then(|| Event::warning(events::SETTING_IGNORED, words.join("; ")))
}

/// What users have to know of a CDI object whose `spec.config` has no effect.
pub fn ignored_installation(installation: &Cdi, present: &CdiConfig) -> Option<Event> {
    let is_ignored = config_source(Some(installation), present) == CdiConfigSource::Ignored;
    let message = "spec.config is ignored, as the CDIConfig was edited: annotate this object with \
                   cdi.kubevirt.io/configAuthority to replace the CDIConfig";
    is_ignored.then(|| Event::warning(events::SETTING_IGNORED, message))
}

#[cfg(test)]
mod tests {
    use api::annotations::request;
    use serde_json::{Value, json};

    use super::super::authoritative;
    use super::*;

    fn config(spec: Value, annotations: Value) -> CdiConfig {
        serde_json::from_value(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDIConfig",
            "metadata": { "name": "config", "annotations": annotations }, "spec": spec,
        }))
        .unwrap()
    }

    fn cdi(config: Value, annotations: Value) -> Cdi {
        serde_json::from_value(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDI",
            "metadata": { "name": "cdi", "annotations": annotations }, "spec": { "config": config },
        }))
        .unwrap()
    }

    /// The CDIConfig after the controller has written `spec`.
    fn written(mut config: CdiConfig, spec: CdiConfigSpec) -> CdiConfig {
        let annotations = annotations(&config, &spec).applied_to(&config.metadata);
        config.metadata.annotations = Some(annotations);
        config.spec = spec;
        config
    }

    #[test]
    fn ttl_counts_only_if_it_was_set_after_the_installation() {
        let ttl = |seconds: i32| json!({ "dataVolumeTTLSeconds": seconds });
        let spec = |seconds: Option<i32>| CdiConfigSpec {
            data_volume_ttl_seconds: seconds,
            ..CdiConfigSpec::default()
        };
        let in_force = |config: &CdiConfig| in_force(config).data_volume_ttl_seconds;
        // From upstream.
        let old = config(ttl(3600), json!({}));
        assert_eq!(in_force(&old), None, "before the first reconcile");
        let old = written(old, spec(Some(3600)));
        assert_eq!(in_force(&old), None);
        let event = ignored(&old).unwrap();
        assert_eq!(event.reason, "SettingIgnored");
        assert!(event.message.contains("dataVolumeTTLSeconds 3600"), "{}", event.message);
        // Another value is set, or the same one once more.
        let changed = CdiConfig { spec: spec(Some(60)), ..old.clone() };
        assert_eq!(in_force(&changed), Some(60));
        let changed = written(changed, spec(Some(60)));
        assert_eq!((in_force(&changed), ignored(&changed)), (Some(60), None));
        let removed = written(old, spec(None));
        let again = CdiConfig { spec: spec(Some(3600)), ..removed };
        assert_eq!(in_force(&again), Some(3600));
        // Of a new installation.
        let mut new = config(json!({}), json!({}));
        new.metadata.annotations = Some(annotations_of_new(&new.spec));
        new.spec = spec(Some(0));
        assert_eq!((in_force(&new), ignored(&new)), (Some(0), None));
        // A value that deletes nothing is not reported.
        assert_eq!(ignored(&config(ttl(-1), json!({}))), None);
    }

    #[test]
    fn spec_config_of_the_cdi_object_counts_until_the_cdi_config_is_edited() {
        let of_cdi = cdi(json!({ "logVerbosity": 3 }), json!({}));
        let mut present = config(json!({}), json!({}));
        present.spec = default_spec();
        present.metadata.annotations = Some(annotations_of_new(&present.spec));
        let spec = authoritative(Some(&of_cdi), &present);
        assert_eq!((spec.log_verbosity, &spec.feature_gates), (Some(3), &None), "all of it");
        assert_eq!(ignored_installation(&of_cdi, &present), None);

        // What the controller has written can be replaced again.
        let present = written(present, spec);
        let other = cdi(json!({ "logVerbosity": 2 }), json!({}));
        assert_eq!(authoritative(Some(&other), &present).log_verbosity, Some(2));

        let mut edited = present;
        edited.spec.preallocation = Some(true);
        assert_eq!(authoritative(Some(&other), &edited), edited.spec);
        let event = ignored_installation(&other, &edited).unwrap();
        assert_eq!(event.reason, "SettingIgnored");
        // An edit stays one, whatever the controller writes of the status.
        let edited = written(edited.clone(), edited.spec);
        assert_eq!(authoritative(Some(&other), &edited), edited.spec);

        // With the annotation the CDI object counts always.
        let master = cdi(json!({ "logVerbosity": 1 }), json!({ request::CONFIG_AUTHORITY: "" }));
        assert_eq!(authoritative(Some(&master), &edited).log_verbosity, Some(1));
        assert_eq!(ignored_installation(&master, &edited), None);
        // Nor is anything ignored where the CDI object has no settings.
        let silent = cdi(json!(null), json!({}));
        assert_eq!(ignored_installation(&silent, &edited), None);
        assert_eq!(authoritative(Some(&silent), &edited), edited.spec);
    }

    #[test]
    fn feature_gates_without_effect_are_reported_by_name() {
        let gates = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            let spec = CdiConfigSpec { feature_gates: Some(names), ..CdiConfigSpec::default() };
            ignored_gates(&spec).map(|event| event.message)
        };
        let known = ["HonorWaitForFirstConsumer", "DataVolumeClaimAdoption", "WebhookPvcRendering"];
        assert_eq!(gates(&known), None);
        let message = gates(&["BootcImageImport", "Unheard"]).unwrap();
        assert!(message.starts_with("feature gate BootcImageImport is not supported"), "{message}");
        assert!(message.ends_with("feature gate \"Unheard\" is not known"), "{message}");
    }
}
