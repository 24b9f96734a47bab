//! The CDI object, which takes every DataVolume with it when it goes.

use api::v1beta1::UninstallStrategy;
use serde::Deserialize;

use crate::review::{Operation, Request};
use crate::verdict::Verdict;

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

/// How many DataVolumes are asked for: one would do, and a second one says "at least".
pub const COUNTED: usize = 2;

/// Whether it matters how many DataVolumes there are. The error is the verdict on a request that cannot be read.
///
/// # Errors
/// With the verdict, where the request is about something else.
pub fn counts_volumes(request: &Request) -> Result<bool, Verdict> {
    if !request.is_about(super::GROUP, "cdis") {
        return Err(Verdict::Refused("expected a CDI".into()));
    }
    if request.operation != Operation::Delete {
        return Err(Verdict::Refused("expected a deletion".into()));
    }
    let installation: Installation = request.old_object().map_err(Verdict::Refused)?;
    let is_working = !["", "Error"].contains(&installation.status.phase.as_str());
    let strategy = installation.spec.uninstall_strategy;
    Ok(is_working && strategy == Some(UninstallStrategy::BlockUninstallIfWorkloadsExist))
}

/// Whether the installation may go, where [`counts_volumes`] says that it matters. `volumes` is at most [`COUNTED`], and
/// leaves out those that a DataImportCron made.
pub fn validate(volumes: usize) -> Verdict {
    match volumes {
        0 => Verdict::ALLOWED,
        count => {
            let more = if count >= COUNTED { "at least " } else { "" };
            Verdict::Refused(format!(
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
    fn only_a_working_installation_that_blocks_counts() {
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
    fn whoever_is_in_the_way_is_counted() {
        assert_eq!(validate(0), Verdict::ALLOWED);
        let told = |volumes| match validate(volumes) {
            Verdict::Refused(reason) => reason,
            other => panic!("{other:?}"),
        };
        assert!(told(1).contains("present: 1."));
        assert!(told(2).contains("present: at least 2."));
    }
}
