//! What a pass would change, read from the cluster without a write: before an installation, an upgrade, or the takeover of
//! an installation of upstream CDI.

use std::fmt::Write;

use api::v1beta1::Cdi;
use kube::Client;
use serde_json::{Value, json};

use crate::desired::OperatorEnvironment;
use crate::error::Error;
use crate::installer::Installer;
use crate::kinds::{self, ObjectId};
use crate::metadata;
use crate::plan::drift::{DriftFacts, ObjectStep, changed_fields, object_step};
use crate::plan::lifecycle::{
    DOWNGRADED, LifecycleFacts, LifecycleStep, blocks_installation, lifecycle_step,
};
use crate::plan::stored_versions::{StoredVersionStep, stored_version_step, with_stored_versions};

/// Changed fields that are printed for each object.
const FIELDS_MAX: usize = 12;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreflightReport {
    /// What the operator would do, in order.
    pub changes: Vec<String>,
    /// Why it would refuse or wait.
    pub blockers: Vec<String>,
    pub unchanged: usize,
}

impl PreflightReport {
    pub fn text(&self) -> String {
        let mut text = String::new();
        for change in &self.changes {
            let _ = writeln!(text, "{change}");
        }
        for blocker in &self.blockers {
            let _ = writeln!(text, "blocked: {blocker}");
        }
        let (changes, blockers) = (self.changes.len(), self.blockers.len());
        let _ = writeln!(
            text,
            "{} objects unchanged, {changes} changes, {blockers} blockers",
            self.unchanged
        );
        text
    }
}

/// Without a CDI object: what the installation of an empty one would create.
///
/// # Errors
/// When the cluster cannot be read.
pub async fn preflight(
    client: Client,
    environment: OperatorEnvironment,
) -> Result<PreflightReport, Error> {
    let installer = Installer::new(client, environment);
    let mut report = PreflightReport::default();
    let installations = installer.api.list(&kinds::CDI, "", None).await?;
    let marker = installer.api.get(&installer.marker_id()).await?;
    let mut checked = 0;
    for installation in &installations {
        let step = lifecycle_step(&LifecycleFacts {
            installation,
            installations: &installations,
            marker: marker.as_ref(),
            operator_version: &installer.environment.version,
        });
        let name = metadata::name(installation);
        match step {
            LifecycleStep::Claim
            | LifecycleStep::RestoreMarker
            | LifecycleStep::StartDeploying
            | LifecycleStep::StartUpgrade
            | LifecycleStep::Keep => {
                let version = &installer.environment.version;
                let observed = installation["status"]["observedVersion"].as_str().unwrap_or("none");
                report.changes.push(match step {
                    LifecycleStep::Keep | LifecycleStep::RestoreMarker => {
                        format!("keep CDI {name}, version {observed}")
                    }
                    LifecycleStep::StartUpgrade => {
                        format!("upgrade CDI {name} from version {observed} to {version}")
                    }
                    _ => format!("install version {version} for CDI {name}"),
                });
                installer.check_objects(installation, step, &mut report).await?;
                checked += 1;
            }
            LifecycleStep::Reject(message) => {
                report.blockers.push(format!("CDI {name}: {message}"));
            }
            LifecycleStep::RefuseDowngrade => {
                let observed = installation["status"]["observedVersion"].as_str();
                report.blockers.push(format!(
                    "CDI {name}: {DOWNGRADED} (installed: {}, operator: {})",
                    observed.unwrap_or_default(),
                    installer.environment.version
                ));
            }
            LifecycleStep::AwaitOwner => {
                report
                    .blockers
                    .push(format!("CDI {name}: the earlier installation is being deleted"));
            }
            LifecycleStep::Remove | LifecycleStep::Release | LifecycleStep::Ignore => {
                report.blockers.push(format!("CDI {name} is being deleted"));
            }
        }
    }
    if installations.is_empty() {
        report
            .changes
            .push("there is no CDI object: showing the installation of an empty one".into());
        let installation = json!({
            "apiVersion": kinds::CDI.api_version(), "kind": kinds::CDI.kind,
            "metadata": { "name": "cdi" }, "spec": {},
        });
        installer.check_objects(&installation, LifecycleStep::Claim, &mut report).await?;
    } else if checked == 0 && report.blockers.is_empty() {
        report.blockers.push("no CDI object would be reconciled".into());
    }
    Ok(report)
}

impl Installer {
    async fn check_objects(
        &self,
        installation: &Value,
        lifecycle: LifecycleStep,
        report: &mut PreflightReport,
    ) -> Result<(), Error> {
        let cdi: Cdi = match serde_json::from_value(installation.clone()) {
            Ok(cdi) => cdi,
            Err(error) => {
                report.blockers.push(format!("cannot decode the CDI object: {error}"));
                return Ok(());
            }
        };
        let rendered = self.render(&cdi).await?;
        report.blockers.extend(rendered.errors.iter().cloned());
        let ca_bundle = self.api_server_bundle().await?;
        let owner = metadata::installation_reference(installation);
        for (id, desired) in &rendered.objects {
            let current = self.api.get(id).await?;
            if lifecycle == LifecycleStep::Claim
                && let Some(found) = &current
                && blocks_installation(found, metadata::uid(installation))
            {
                report.blockers.push(format!("{id} belongs to another installation"));
                continue;
            }
            self.check_object(id, desired, current.as_ref(), &owner, ca_bundle.as_deref(), report);
        }
        Ok(())
    }

    fn check_object(
        &self,
        id: &ObjectId,
        desired: &Value,
        current: Option<&Value>,
        owner: &Value,
        ca_bundle: Option<&str>,
        report: &mut PreflightReport,
    ) {
        let desired = match current {
            Some(current) if id.kind == &kinds::CRD => {
                if let StoredVersionStep::Rewrite { version } =
                    stored_version_step(desired, current)
                {
                    report
                        .changes
                        .push(format!("rewrite the objects of {id} in version {version}"));
                }
                with_stored_versions(desired, current)
            }
            _ => desired.clone(),
        };
        let step = object_step(&DriftFacts {
            id,
            desired: &desired,
            current,
            owner,
            operator_version: &self.environment.version,
            ca_bundle,
            accepted: None,
        });
        match (step, current) {
            (ObjectStep::Keep, _) => report.unchanged += 1,
            (ObjectStep::Create(_), _) => report.changes.push(format!("create {id}")),
            (ObjectStep::Recreate, _) => {
                report.changes.push(format!("delete and create {id}: an immutable field differs"));
            }
            (ObjectStep::AwaitDeletion, _) => {
                report.changes.push(format!("create {id} when its deletion is complete"));
            }
            (ObjectStep::Replace(merged), Some(current)) => {
                let fields = changed_fields(current, &merged, FIELDS_MAX + 1);
                let shown = fields.len().min(FIELDS_MAX);
                let rest = if fields.len() > FIELDS_MAX { ", …" } else { "" };
                report.changes.push(format!("update {id}: {}{rest}", fields[..shown].join(", ")));
            }
            (ObjectStep::Replace(_), None) => {}
        }
    }
}
