//! Deletion of the CDI object, which deletes every DataVolume.

use api::v1beta1::UninstallStrategy;
use serde::Deserialize;

use crate::admission_result::AdmissionResult;
use crate::review::{Operation, Request};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Installation {
    spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    uninstall_strategy: Option<UninstallStrategy>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
}

/// How many DataVolumes the message names at most.
pub const NAMED: usize = 3;

/// Whether the number of DataVolumes matters.
///
/// # Errors
/// The result for a request about another kind or operation.
pub fn counts_volumes(request: &Request) -> Result<bool, AdmissionResult> {
    if !request.is_about(super::GROUP, "cdis") {
        return Err(AdmissionResult::Refused("expected a CDI".into()));
    }
    if request.operation != Operation::Delete {
        return Err(AdmissionResult::Refused("expected a deletion".into()));
    }
    let installation: Installation = request.old_object().map_err(AdmissionResult::Refused)?;
    let is_working = !["", "Error"].contains(&installation.status.phase.as_str());
    let strategy = installation.spec.uninstall_strategy;
    // Without a strategy a deletion is refused too, unlike upstream CDI's: data that is deleted by mistake is lost.
    Ok(is_working && strategy != Some(UninstallStrategy::RemoveWorkloads))
}

/// Whether the CDI object may be deleted, if [`counts_volumes`]. `volumes`: "namespace/name" of DataVolumes that no
/// DataImportCron created, at least [`NAMED`]` + 1` of them if there are so many.
pub fn validate(volumes: &[String]) -> AdmissionResult {
    if volumes.is_empty() {
        return AdmissionResult::ALLOWED;
    }
    let names = volumes.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if volumes.len() > NAMED { " and more" } else { "" };
    // Tests of OpenShift Virtualization match "there are still DataVolumes present.", with the full stop.
    AdmissionResult::Refused(format!(
        "rejecting the uninstall request, since there are still DataVolumes present. Either delete all CDI related \
         workloads or change the uninstall strategy before uninstalling CDI. Present: {names}{more}"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::review::ResourceName;

    fn deletion(object: Value) -> Request {
        Request {
            operation: Operation::Delete,
            resource: ResourceName { group: "cdi.kubevirt.io".into(), resource: "cdis".into() },
            old_object: Some(object),
            ..Request::default()
        }
    }

    #[test]
    fn only_a_deployed_installation_that_blocks_counts_volumes() {
        for (phase, strategy, expected) in [
            ("Deployed", json!("BlockUninstallIfWorkloadsExist"), true),
            ("Upgrading", json!("BlockUninstallIfWorkloadsExist"), true),
            ("Deployed", json!("RemoveWorkloads"), false),
            ("Deployed", json!(null), true),
            ("", json!("BlockUninstallIfWorkloadsExist"), false),
            ("Error", json!("BlockUninstallIfWorkloadsExist"), false),
        ] {
            let object =
                json!({ "spec": { "uninstallStrategy": strategy }, "status": { "phase": phase } });
            assert_eq!(counts_volumes(&deletion(object.clone())), Ok(expected), "{object}");
        }
        assert!(counts_volumes(&deletion(json!(null))).is_err());
        let update = Request { operation: Operation::Update, ..deletion(json!({})) };
        assert!(counts_volumes(&update).is_err());
    }

    #[test]
    fn refusal_names_datavolumes() {
        let names =
            |count| (1..=count).map(|number| format!("vms/disk-{number}")).collect::<Vec<_>>();
        assert_eq!(validate(&[]), AdmissionResult::ALLOWED);
        let message = |count| match validate(&names(count)) {
            AdmissionResult::Refused(reason) => reason,
            other => panic!("{other:?}"),
        };
        assert!(message(1).contains("there are still DataVolumes present. "));
        assert!(message(1).ends_with("Present: vms/disk-1"));
        assert!(message(NAMED).ends_with("Present: vms/disk-1, vms/disk-2, vms/disk-3"));
        assert!(
            message(NAMED + 1).ends_with("Present: vms/disk-1, vms/disk-2, vms/disk-3 and more")
        );
    }
}
