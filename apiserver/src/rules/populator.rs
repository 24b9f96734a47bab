//! Rules on VolumeImportSources and VolumeUploadSources.

use api::data_volume::{Checkpoint, Sources};
use api::validate::CLUSTER_SCHEMES;
use api::{ContentType, DataVolumeSpec, ObjectMeta, validate_source};
use serde::{Deserialize, Serialize};

use super::same::same;
use crate::admission_result::AdmissionResult;
use crate::review::{Operation, Request};

const NAME_LENGTH_MAX: usize = api::names::LABEL_LENGTH_MAX;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Populator {
    metadata: ObjectMeta,
    spec: Spec,
}

/// The spec of both kinds; an upload has no source.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    source: Option<Sources>,
    content_type: Option<String>,
    preallocation: Option<bool>,
    target_claim: Option<String>,
    checkpoints: Vec<Checkpoint>,
    final_checkpoint: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Import,
    Upload,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Import => "VolumeImportSource",
            Self::Upload => "VolumeUploadSource",
        }
    }
}

pub fn validate(request: &Request) -> AdmissionResult {
    let kind = if request.is_about(super::GROUP, "volumeimportsources") {
        Kind::Import
    } else if request.is_about(super::GROUP, "volumeuploadsources") {
        Kind::Upload
    } else {
        return AdmissionResult::Refused(
            "expected a VolumeImportSource or a VolumeUploadSource".into(),
        );
    };
    if request.operation == Operation::Update && request.has_same_spec() {
        return AdmissionResult::ALLOWED;
    }
    let populator: Populator = match request.object() {
        Ok(populator) => populator,
        Err(reason) => return AdmissionResult::Refused(reason),
    };
    let spec = &populator.spec;
    if request.operation == Operation::Update {
        match request.old_object::<Populator>() {
            Ok(old) if is_changed(&old.spec, spec) => {
                let name = kind.name();
                let message = format!("Cannot update {name} Spec");
                return AdmissionResult::duplicate(format!("{name}.Spec"), message);
            }
            Ok(_) => {}
            Err(reason) => return AdmissionResult::Refused(reason),
        }
    }
    if populator.metadata.name.len() > NAME_LENGTH_MAX {
        let message = format!("Name cannot be longer than {NAME_LENGTH_MAX} characters");
        return AdmissionResult::invalid("metadata.name", message);
    }
    let word =
        DataVolumeSpec { content_type: spec.content_type.clone(), ..DataVolumeSpec::default() };
    let Some(content) = word.content_type() else {
        return AdmissionResult::invalid(
            "spec.contentType",
            "ContentType not one of: kubevirt, archive",
        );
    };
    match kind {
        Kind::Import => import(spec, content),
        Kind::Upload => AdmissionResult::ALLOWED,
    }
}

fn import(spec: &Spec, content: ContentType) -> AdmissionResult {
    let members = spec.source.as_ref().map(|source| source.members()).unwrap_or_default();
    let source = match members[..] {
        [] => return AdmissionResult::invalid("spec.source", "Missing VolumeImport source"),
        [source] => source,
        _ => return AdmissionResult::invalid("spec.source", "Multiple VolumeImport sources"),
    };
    let has_target = spec.target_claim.as_deref().is_some_and(|name| !name.is_empty());
    if is_multi_stage(spec) && !has_target {
        let message = "Unable to do multi-stage import without specifying a target claim";
        return AdmissionResult::invalid("spec.targetClaim", message);
    }
    validate_source(source, content, CLUSTER_SCHEMES)
        .map_or_else(AdmissionResult::from, |()| AdmissionResult::ALLOWED)
}

fn is_multi_stage(spec: &Spec) -> bool {
    let sources = spec.source.as_ref();
    let takes_stages = sources.is_some_and(|all| all.vddk.is_some() || all.imageio.is_some());
    takes_stages && !spec.checkpoints.is_empty()
}

/// Checkpoints may be added during an import; nothing else changes.
fn is_changed(old: &Spec, new: &Spec) -> bool {
    let mut old = old.clone();
    if is_multi_stage(new) {
        old.checkpoints.clone_from(&new.checkpoints);
        old.final_checkpoint = new.final_checkpoint;
    }
    !same(&old, new)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::review::ResourceName;

    fn request(resource: &str, operation: Operation, new: Value, old: Option<Value>) -> String {
        let object = |spec| json!({ "metadata": { "name": "a" }, "spec": spec });
        let request = Request {
            operation,
            resource: ResourceName { group: "cdi.kubevirt.io".into(), resource: resource.into() },
            object: Some(object(new)),
            old_object: old.map(object),
            ..Request::default()
        };
        outcome(&request)
    }

    fn outcome(request: &Request) -> String {
        match validate(request) {
            AdmissionResult::Allowed { .. } => String::new(),
            AdmissionResult::Invalid(causes) => {
                format!("{}: {}", causes[0].field, causes[0].message)
            }
            AdmissionResult::Refused(reason) => format!("400 {reason}"),
        }
    }

    fn vddk(stages: Value, target: &str) -> Value {
        json!({
            "source": { "vddk": { "url": "https://a", "uuid": "b", "backingFile": "c", "thumbprint": "d", "secretRef": "e" } },
            "checkpoints": stages,
            "targetClaim": target,
        })
    }

    #[test]
    fn import_has_exactly_one_valid_source() {
        let stages = json!([{ "previous": "", "current": "a" }]);
        for (spec, expected) in [
            (json!({ "source": { "blank": {} } }), ""),
            (json!({}), "spec.source: Missing VolumeImport source"),
            (json!({ "source": {} }), "spec.source: Missing VolumeImport source"),
            (
                json!({ "source": { "blank": {}, "http": { "url": "http://a/b" } } }),
                "spec.source: Multiple VolumeImport sources",
            ),
            (
                json!({ "source": { "blank": {} }, "contentType": "tar" }),
                "spec.contentType: ContentType not one of: kubevirt, archive",
            ),
            (
                json!({ "source": { "blank": {} }, "contentType": "archive" }),
                "spec.contentType: SourceType cannot be blank and the contentType be archive",
            ),
            (
                json!({ "source": { "http": { "url": "" } } }),
                "spec.source.HTTP.url: spec.source source URL is empty",
            ),
            (vddk(stages.clone(), "claim"), ""),
            (
                vddk(stages, ""),
                "spec.targetClaim: Unable to do multi-stage import without specifying a target claim",
            ),
            (vddk(json!([]), ""), ""),
        ] {
            let found = request("volumeimportsources", Operation::Create, spec.clone(), None);
            assert_eq!(found, expected, "{spec}");
        }
    }

    #[test]
    fn upload_needs_only_a_known_content_type() {
        let create = |spec| request("volumeuploadsources", Operation::Create, spec, None);
        assert_eq!(create(json!({})), "");
        assert_eq!(create(json!({ "contentType": "archive" })), "");
        assert_eq!(
            create(json!({ "contentType": "x" })),
            "spec.contentType: ContentType not one of: kubevirt, archive"
        );
        let named = Request {
            operation: Operation::Create,
            resource: ResourceName {
                group: "cdi.kubevirt.io".into(),
                resource: "volumeuploadsources".into(),
            },
            object: Some(json!({ "metadata": { "name": "x".repeat(64) }, "spec": {} })),
            ..Request::default()
        };
        assert_eq!(outcome(&named), "metadata.name: Name cannot be longer than 63 characters");
    }

    #[test]
    fn only_checkpoints_may_be_added() {
        let update = |resource, new, old| request(resource, Operation::Update, new, Some(old));
        let (one, two) = (
            json!([{ "previous": "", "current": "a" }]),
            json!([{ "previous": "", "current": "a" }, { "previous": "a", "current": "b" }]),
        );
        let imports = "volumeimportsources";
        assert_eq!(update(imports, vddk(two.clone(), "c"), vddk(one.clone(), "c")), "");
        let refused = "VolumeImportSource.Spec: Cannot update VolumeImportSource Spec";
        assert_eq!(update(imports, vddk(two, "other"), vddk(one.clone(), "c")), refused);
        assert_eq!(update(imports, vddk(json!([]), "c"), vddk(one, "c")), refused);
        assert_eq!(
            update("volumeuploadsources", json!({ "preallocation": true }), json!({})),
            "VolumeUploadSource.Spec: Cannot update VolumeUploadSource Spec"
        );
        assert_eq!(update("volumeuploadsources", json!({ "contentType": "" }), json!({})), "");
    }

    #[test]
    fn other_kinds_are_refused() {
        let found = request("volumeclonesources", Operation::Create, json!({}), None);
        assert_eq!(found, "400 expected a VolumeImportSource or a VolumeUploadSource");
    }
}
