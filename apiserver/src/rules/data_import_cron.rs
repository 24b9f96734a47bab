//! Rules on DataImportCrons.

use api::data_volume::Source;
use api::validate::CLUSTER_SCHEMES;
use api::{DataVolumeSpec, ObjectMeta, validate_spec};
use controller_core::data_import_cron::Schedule;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::same::same;
use crate::admission_result::AdmissionResult;
use crate::review::{Operation, Request};

const NAME_LENGTH_MAX: usize = api::names::LABEL_LENGTH_MAX;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cron {
    metadata: ObjectMeta,
    spec: Spec,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    template: Template,
    schedule: String,
    garbage_collect: Option<String>,
    imports_to_keep: Option<i64>,
    managed_data_source: String,
    retention_policy: Option<String>,
    service_account_name: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Template {
    metadata: Value,
    spec: DataVolumeSpec,
}

pub fn validate(request: &Request) -> AdmissionResult {
    validate_at(request, Timestamp::now())
}

fn validate_at(request: &Request, now: Timestamp) -> AdmissionResult {
    if !request.is_about(super::GROUP, "dataimportcrons") {
        return AdmissionResult::Refused("expected a DataImportCron".into());
    }
    if request.operation == Operation::Update && request.has_same_spec() {
        return AdmissionResult::ALLOWED;
    }
    let cron: Cron = match request.object() {
        Ok(cron) => cron,
        Err(reason) => return AdmissionResult::Refused(reason),
    };
    if cron.metadata.name.len() > NAME_LENGTH_MAX {
        let message = format!("Name cannot be longer than {NAME_LENGTH_MAX} characters");
        return AdmissionResult::invalid("metadata.name", message);
    }
    if request.operation == Operation::Update {
        return match request.old_object::<Cron>() {
            Ok(old) if same(&old.spec, &cron.spec) => AdmissionResult::ALLOWED,
            Ok(_) => AdmissionResult::duplicate(
                "DataImportCron.Spec",
                "Cannot update DataImportCron Spec",
            ),
            Err(reason) => AdmissionResult::Refused(reason),
        };
    }
    check_spec(&cron.spec, now).err().unwrap_or(AdmissionResult::ALLOWED)
}

fn check_spec(spec: &Spec, now: Timestamp) -> Result<(), AdmissionResult> {
    let template = &spec.template.spec;
    let members = template.source.as_ref().map(|source| source.members()).unwrap_or_default();
    // A newer image of a web server or object store is detected by ETag, date or a checksum file.
    let is_known = |source: &Source| {
        matches!(source, Source::Registry(_) | Source::Pvc(_) | Source::Http(_) | Source::S3(_))
    };
    if !members.iter().any(is_known) {
        return Err(AdmissionResult::invalid("spec.Template", "Missing source"));
    }
    if template.source_ref.is_some()
        || template.content_type.as_deref().is_some_and(|kind| !kind.is_empty())
        || !template.checkpoints.is_empty()
        || template.final_checkpoint == Some(true)
    {
        let message =
            "Unsettable fields: SourceRef, ContentType, Checkpoints, FinalCheckpoint".to_owned();
        return Err(AdmissionResult::invalid("spec.Template", message));
    }
    validate_spec(template, CLUSTER_SCHEMES).map_err(|mut invalid| {
        for text in [&mut invalid.field, &mut invalid.message] {
            if let Some(rest) = text.strip_prefix("spec.") {
                *text = format!("Template.{rest}");
            }
        }
        AdmissionResult::from(invalid)
    })?;
    // An empty schedule means never.
    if !spec.schedule.is_empty() {
        let field = "spec.Schedule";
        if Schedule::cached(&spec.schedule).is_err() {
            return Err(AdmissionResult::invalid(field, "Illegal cron schedule"));
        }
        if Schedule::parse_for_use(&spec.schedule, now).is_err() {
            let message = "Illegal cron schedule: it has no time within five years";
            return Err(AdmissionResult::invalid(field, message));
        }
    }
    if spec.imports_to_keep.is_some_and(|count| !(0..=i64::from(i32::MAX)).contains(&count)) {
        return Err(AdmissionResult::invalid("spec.ImportsToKeep", "Illegal ImportsToKeep value"));
    }
    let garbage_collect = spec.garbage_collect.as_deref().unwrap_or_default();
    if !["", "Outdated", "Never"].contains(&garbage_collect) {
        return Err(AdmissionResult::invalid(
            "spec.GarbageCollect",
            "Illegal GarbageCollect value",
        ));
    }
    let field = "spec.ManagedDataSource";
    match spec.managed_data_source.len() {
        0 => Err(AdmissionResult::invalid(field, "Illegal ManagedDataSource value")),
        1..=NAME_LENGTH_MAX => Ok(()),
        _ => {
            let message = format!("Name cannot be longer than {NAME_LENGTH_MAX} characters");
            Err(AdmissionResult::invalid(field, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::review::ResourceName;

    fn good() -> Value {
        json!({
            "metadata": { "name": "fedora" },
            "spec": {
                "template": { "metadata": {}, "spec": {
                    "source": { "registry": { "url": "docker://a/b" } },
                    "storage": { "resources": { "requests": { "storage": "1Gi" } } },
                } },
                "schedule": "30 1 * * 1",
                "managedDataSource": "fedora",
            },
        })
    }

    fn outcome(operation: Operation, object: Value, old_object: Option<Value>) -> String {
        let resource =
            ResourceName { group: "cdi.kubevirt.io".into(), resource: "dataimportcrons".into() };
        let request =
            Request { operation, resource, object: Some(object), old_object, ..Request::default() };
        match validate_at(&request, "2026-11-21T20:00:00Z".parse().unwrap()) {
            AdmissionResult::Allowed { .. } => String::new(),
            AdmissionResult::Invalid(causes) => {
                format!("{}: {}", causes[0].field, causes[0].message)
            }
            AdmissionResult::Refused(reason) => reason,
        }
    }

    #[test]
    fn new_cron_is_checked_in_order_of_the_rules() {
        let unsettable = "spec.Template: Unsettable fields: SourceRef, ContentType, Checkpoints, FinalCheckpoint";
        let schedule = "spec.Schedule: Illegal cron schedule";
        let never = "spec.Schedule: Illegal cron schedule: it has no time within five years";
        for (path, value, expected) in [
            ("/metadata/name", json!("fedora"), ""),
            (
                "/metadata/name",
                json!("x".repeat(64)),
                "metadata.name: Name cannot be longer than 63 characters",
            ),
            ("/spec/template/spec/source", json!(null), "spec.Template: Missing source"),
            ("/spec/template/spec/source", json!({ "blank": {} }), "spec.Template: Missing source"),
            ("/spec/template/spec/source", json!({ "http": { "url": "http://a/b" } }), ""),
            ("/spec/template/spec/source", json!({ "s3": { "url": "https://a/b/c" } }), ""),
            (
                "/spec/template/spec/source",
                json!({ "http": { "url": "ftp://a/b" } }),
                "Template.source.HTTP.url: Template.source Invalid source URL scheme: \"ftp\", expected http, https, gs",
            ),
            ("/spec/template/spec/source", json!({ "pvc": { "name": "a", "namespace": "b" } }), ""),
            (
                "/spec/template/spec/sourceRef",
                json!({ "kind": "DataSource", "name": "a" }),
                unsettable,
            ),
            ("/spec/template/spec/contentType", json!("kubevirt"), unsettable),
            (
                "/spec/template/spec/checkpoints",
                json!([{ "previous": "", "current": "a" }]),
                unsettable,
            ),
            ("/spec/template/spec/finalCheckpoint", json!(true), unsettable),
            ("/spec/template/spec/storage", json!(null), "Template.PVC: Missing Data volume PVC"),
            (
                "/spec/template/spec/source/registry/url",
                json!("http://a/b"),
                "Template.source.Registry.URL: Illegal registry source URL scheme \"http\", expected docker, oci-archive",
            ),
            ("/spec/schedule", json!(""), ""),
            ("/spec/schedule", json!("0 */12 * * *"), ""),
            ("/spec/schedule", json!("0 0 L * *"), ""),
            ("/spec/schedule", json!("55 8/12 * * *"), ""),
            ("/spec/schedule", json!("0 0 * * * 2027"), ""),
            ("/spec/schedule", json!("0 0 29 2 *"), ""),
            ("/spec/schedule", json!("0 0 30 2 *"), never),
            ("/spec/schedule", json!("0 0 1 * +MON#5"), never),
            ("/spec/schedule", json!("0 0 * * * 2025"), never),
            ("/spec/schedule", json!("61 * * * *"), schedule),
            ("/spec/schedule", json!("now and then"), schedule),
            ("/spec/schedule", json!("* * *"), schedule),
            ("/spec/schedule", json!("1,".repeat(1000)), schedule),
            ("/spec/importsToKeep", json!(0), ""),
            ("/spec/importsToKeep", json!(-1), "spec.ImportsToKeep: Illegal ImportsToKeep value"),
            ("/spec/garbageCollect", json!("Never"), ""),
            (
                "/spec/garbageCollect",
                json!("Always"),
                "spec.GarbageCollect: Illegal GarbageCollect value",
            ),
            ("/spec/retentionPolicy", json!("Whatever"), ""),
            (
                "/spec/managedDataSource",
                json!(""),
                "spec.ManagedDataSource: Illegal ManagedDataSource value",
            ),
            (
                "/spec/managedDataSource",
                json!("x".repeat(64)),
                "spec.ManagedDataSource: Name cannot be longer than 63 characters",
            ),
        ] {
            let mut object = good();
            let (parent, field) = path.rsplit_once('/').unwrap();
            object.pointer_mut(parent).unwrap()[field] = value.clone();
            assert_eq!(outcome(Operation::Create, object, None), expected, "{path} {value}");
        }
    }

    #[test]
    fn spec_is_immutable() {
        let mut changed = good();
        changed["spec"]["schedule"] = "".into();
        assert_eq!(
            outcome(Operation::Update, changed, Some(good())),
            "DataImportCron.Spec: Cannot update DataImportCron Spec"
        );
        let mut finished = good();
        finished["status"] = json!({ "conditions": [] });
        finished["spec"]["template"]["spec"]["storage"]["selector"] = json!(null);
        assert_eq!(outcome(Operation::Update, finished, Some(good())), "");
        // An object from before the rule may still be updated.
        let mut over = good();
        over["spec"]["schedule"] = "0 0 30 2 *".into();
        let mut labelled = over.clone();
        labelled["metadata"]["labels"] = json!({ "a": "b" });
        assert_eq!(outcome(Operation::Update, labelled, Some(over)), "");
    }
}
