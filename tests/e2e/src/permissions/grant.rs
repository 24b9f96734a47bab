//! What service accounts are permitted, by the manifests of the installation.

use std::fmt;

use anyhow::{Context, Result};
use k8s_openapi::api::rbac::v1::{PolicyRule, RoleRef, Subject};
use serde::Deserialize;
use serde_json::Value;

use super::AuditedRequest;

/// One verb on one resource, in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The service account that has it.
    pub account: String,
    /// `ClusterRole cdi`.
    pub role: String,
    /// The namespace that it is limited to; `None`: everywhere.
    pub namespace: Option<String>,
    /// `get`, `list` …
    pub verb: String,
    /// Empty for that of pods.
    pub group: String,
    /// `pods`, `pods/status`.
    pub resource: String,
    /// The objects that it is limited to; empty: all.
    pub names: Vec<String>,
}

impl Grant {
    /// Whether this grant allows a request.
    pub fn allows(&self, request: &AuditedRequest) -> bool {
        let Self { account, role: _, namespace, verb, group, resource, names } = self;
        let is = |granted: &str, wanted: &str| granted == wanted || granted == "*";
        *account == request.account
            && namespace.as_ref().is_none_or(|namespace| *namespace == request.namespace)
            && is(verb, &request.verb)
            && is(group, &request.group)
            && is(resource, &request.resource)
            && (names.is_empty() || names.contains(&request.name))
    }

    /// `GROUP/RESOURCE`
    pub fn object(&self) -> String {
        format!("{}/{}", self.group, self.resource)
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { account, role, verb, names, .. } = self;
        write!(formatter, "{account}: {verb} {} by {role}", self.object())?;
        if !names.is_empty() {
            write!(formatter, ", names {}", names.join(", "))?;
        }
        Ok(())
    }
}

/// The grants in manifests, each a text of YAML documents. Roles that come with Kubernetes are in none of them.
///
/// # Errors
/// When a manifest cannot be read.
pub fn read(manifests: &[String]) -> Result<Vec<Grant>> {
    let mut objects = Vec::new();
    for text in manifests {
        for document in yaml_serde::Deserializer::from_str(text) {
            objects.push(Value::deserialize(document).context("a manifest is no YAML")?);
        }
    }
    let mut grants = Vec::new();
    for binding in objects.iter().filter(|object| object["roleRef"].is_object()) {
        let role: RoleRef = serde_json::from_value(binding["roleRef"].clone())?;
        let is_role = |object: &&Value| {
            object["kind"] == role.kind.as_str() && object["metadata"]["name"] == role.name.as_str()
        };
        let Some(found) = objects.iter().find(is_role) else { continue };
        let rules: Vec<PolicyRule> = serde_json::from_value(found["rules"].clone())?;
        let subjects: Vec<Subject> = serde_json::from_value(binding["subjects"].clone())?;
        for subject in subjects.iter().filter(|subject| subject.kind == "ServiceAccount") {
            let namespace = binding["metadata"]["namespace"].as_str().map(str::to_owned);
            for rule in &rules {
                expand(&mut grants, subject, &role, namespace.as_ref(), rule);
            }
        }
    }
    Ok(grants)
}

fn expand(
    grants: &mut Vec<Grant>,
    subject: &Subject,
    role: &RoleRef,
    namespace: Option<&String>,
    rule: &PolicyRule,
) {
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            for verb in &rule.verbs {
                grants.push(Grant {
                    account: subject.name.clone(),
                    role: format!("{} {}", role.kind, role.name),
                    namespace: namespace.cloned(),
                    verb: verb.clone(),
                    group: group.clone(),
                    resource: resource.clone(),
                    names: rule.resource_names.clone().unwrap_or_default(),
                });
            }
        }
    }
}
