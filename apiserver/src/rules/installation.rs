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

/// How many DataVolumes are listed at most. If there are more, the message has "at least".
pub const COUNTED: usize = 2;

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
    Ok(is_working && strategy == Some(UninstallStrategy::BlockUninstallIfWorkloadsExist))
}

/// Whether the CDI object may be deleted, if [`counts_volumes`]. `volumes` is at most [`COUNTED`], and
/// does not include those of DataImportCrons.
pub fn validate(volumes: usize) -> AdmissionResult {
    match volumes {
        0 => AdmissionResult::ALLOWED,
        count => {
            let more = if count >= COUNTED { "at least " } else { "" };
            AdmissionResult::Refused(format!(
                "rejecting the uninstall request, since there are still DataVolumes present: {more}{count}. Either \
                 delete all CDI related workloads or change the uninstall strategy before uninstalling CDI."
            ))
        }
    }
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
            ("Deployed", json!(null), false),
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
    fn deletion_is_refused_with_the_number_of_volumes() {
        assert_eq!(validate(0), AdmissionResult::ALLOWED);
        let message = |volumes| match validate(volumes) {
            AdmissionResult::Refused(reason) => reason,
            other => panic!("{other:?}"),
        };
        assert!(message(1).contains("present: 1."));
        assert!(message(2).contains("present: at least 2."));
    }
}
