//! The files of a release, and the state of what they install.

use std::path::Path;

use anyhow::{Context, Result};
use api::v1beta1::Cdi;

/// A file below `deploy/operator`.
///
/// # Errors
/// When it cannot be read.
pub fn release_file(name: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/operator").join(name);
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The version of an operator's manifest.
///
/// # Errors
/// When it has none.
pub fn operator_version(manifest: &str) -> Result<String> {
    let lines: Vec<_> = manifest.lines().collect();
    let at = lines.iter().position(|line| line.trim() == "- name: OPERATOR_VERSION");
    let value = at.and_then(|at| lines.get(at + 1)?.trim().strip_prefix("value: "));
    Ok(value.context("no OPERATOR_VERSION")?.trim_matches('"').to_owned())
}

/// The status of a condition.
pub fn cdi_condition<'a>(cdi: &'a Cdi, kind: &str) -> Option<&'a str> {
    let status = cdi.status.as_ref()?;
    let mut conditions = status.conditions.as_deref().unwrap_or_default().iter();
    conditions.find(|condition| condition.type_ == kind).map(|found| found.status.as_str())
}

/// Whether the CDI object is deployed in a version, available, and neither progressing nor degraded.
pub fn is_available(cdi: &Cdi, version: Option<&str>) -> bool {
    let status = cdi.status.as_ref();
    let observed = status.and_then(|status| status.observed_version.as_deref());
    let phase = status.and_then(|status| status.phase.as_deref());
    phase == Some("Deployed")
        && version.is_none_or(|version| observed == Some(version))
        && cdi_condition(cdi, "Available") == Some("True")
        && cdi_condition(cdi, "Progressing") == Some("False")
        && cdi_condition(cdi, "Degraded") == Some("False")
}
