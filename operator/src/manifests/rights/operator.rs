//! The permissions of an operator that installs what a CDI object describes.
//!
//! Two kinds of rules, each in roles of its own:
//!
//! 1. its own work: the objects of the installation. `create`, `list` and `watch` cannot be limited to names; everything else
//!    is, for objects without a namespace, which may belong to others.
//! 2. what it grants ([`granted`]): Kubernetes lets an account write only those roles whose permissions it has, unless it has
//!    the verb `escalate`, by which it could grant itself everything. So it has the permissions of all programs and users of
//!    CDI, and sends no request that only these allow.

use std::collections::BTreeMap;

use api::names;
use serde_json::Value;

use super::{
    CDI, FORKLIFT, POPULATORS, RBAC, USER_KINDS, deployed, named, polling_jobs, review_rules, rule,
};
use crate::chains::InstallationChains;
use crate::installer::DUMP;
use crate::manifests::{self, Settings};
use crate::plan::completion::{CLEANED_KINDS, DEPRECATED_CONFIG_MAP};
use crate::plan::lifecycle::MARKER;

/// A webhook configuration of old versions of upstream CDI, which is deleted.
const OLD_WEBHOOK: &str = "cdi-api-dataimportcron-mutate";
/// To create objects, and to notice changes of all of them.
const CREATE: &[&str] = &["create", "list", "watch"];
/// To keep objects.
const KEEP: &[&str] = &["get", "update"];
const ADMISSION: &str = "admissionregistration.k8s.io";

/// Kinds of the installation in its namespace: API group and resource.
const IN_NAMESPACE: [(&str, &str); 12] = [
    ("", "services"),
    ("", "serviceaccounts"),
    ("", "resourcequotas"),
    ("apps", "deployments"),
    (RBAC, "roles"),
    (RBAC, "rolebindings"),
    ("policy", "poddisruptionbudgets"),
    ("networking.k8s.io", "networkpolicies"),
    ("networking.k8s.io", "ingresses"),
    ("route.openshift.io", "routes"),
    ("monitoring.coreos.com", "prometheusrules"),
    ("monitoring.coreos.com", "servicemonitors"),
];
/// Kinds of the installation without a namespace: kind, API group and resource.
const CLUSTER_WIDE: [(&str, &str, &str); 8] = [
    ("CustomResourceDefinition", "apiextensions.k8s.io", "customresourcedefinitions"),
    ("ClusterRole", RBAC, "clusterroles"),
    ("ClusterRoleBinding", RBAC, "clusterrolebindings"),
    ("APIService", "apiregistration.k8s.io", "apiservices"),
    ("ValidatingWebhookConfiguration", ADMISSION, "validatingwebhookconfigurations"),
    ("MutatingWebhookConfiguration", ADMISSION, "mutatingwebhookconfigurations"),
    ("SecurityContextConstraints", "security.openshift.io", "securitycontextconstraints"),
    ("VolumePopulator", "populator.storage.k8s.io", "volumepopulators"),
];

/// In all namespaces.
pub(in crate::manifests) fn cluster_wide(settings: &Settings) -> Vec<Value> {
    let mut all = installation(settings);
    all.extend(status_and_workers());
    all.extend(review_rules());
    all
}

/// In the namespace of the installation.
pub(in crate::manifests) fn in_namespace(settings: &Settings) -> Vec<Value> {
    let chains = InstallationChains::new(&settings.namespace);
    let mut all: Vec<_> = IN_NAMESPACE
        .into_iter()
        .map(|(group, resource)| {
            rule(group, &[resource], &[CREATE, &keep_verbs(group, resource)].concat())
        })
        .collect();
    let mut secrets = chains.secrets();
    secrets.push(manifests::METRICS_TOKEN);
    // The apiserver creates it; the operator gives it its owner, so that it goes with the installation.
    secrets.push(names::SIGNING_KEY_SECRET);
    let mut bundles = chains.bundles();
    bundles.extend([MARKER, names::PLATFORM_CA_CONFIG_MAP]);
    all.extend([
        rule("", &["secrets", "configmaps"], CREATE),
        named("", &["secrets"], &secrets, KEEP),
        named("", &["configmaps"], &bundles, KEEP),
        named("", &["configmaps"], &[DEPRECATED_CONFIG_MAP], &["get", "delete"]),
        // If the administrator has set `DUMP_INSTALL_STRATEGY`.
        named("", &["configmaps"], &[DUMP], &["get", "update"]),
        // The owner of the Route; `blockOwnerDeletion` needs it.
        rule("apps", &["deployments/finalizers"], &["update"]),
        // A Route with a host or a destination CA.
        rule("route.openshift.io", &["routes/custom-host"], &["create", "update"]),
        rule("coordination.k8s.io", &["leases"], &["create"]),
        named("coordination.k8s.io", &["leases"], &[names::OPERATOR_LEASE], &["get", "update"]),
        // The controller's is deleted with the installation.
        named("coordination.k8s.io", &["leases"], &[names::CONTROLLER_LEASE], &["get", "delete"]),
    ]);
    all
}

/// What `cdi-operator --check` reads in all namespaces, and in that of the installation. It writes nothing.
pub(in crate::manifests) fn check_rules(settings: &Settings) -> (Vec<Value>, Vec<Value>) {
    let reads = |rules: Vec<Value>| -> Vec<Value> { rules.iter().filter_map(read_part).collect() };
    let mut everywhere = reads(installation(settings));
    everywhere.extend([
        rule(CDI, &["cdis"], &["list"]),
        rule("scheduling.k8s.io", &["priorityclasses"], &["get"]),
        named("discovery.k8s.io", &["endpointslices"], &["kubernetes"], &["get"]),
    ]);
    let mut bundles = InstallationChains::new(&settings.namespace).bundles();
    bundles.push(MARKER);
    let kinds = IN_NAMESPACE.map(|(group, resource)| rule(group, &[resource], &["get", "list"]));
    let mut in_namespace = kinds.to_vec();
    in_namespace.extend([
        named("", &["configmaps"], &bundles, &["get"]),
        // Whether it exists: a Secret is never changed.
        named("", &["secrets"], &[manifests::METRICS_TOKEN], &["get"]),
    ]);
    (everywhere, in_namespace)
}

/// `rule` without the verbs that write or watch.
fn read_part(rule: &Value) -> Option<Value> {
    let mut rule = rule.clone();
    let verbs = rule["verbs"].as_array_mut()?;
    verbs.retain(|verb| verb == "get" || verb == "list");
    (!verbs.is_empty()).then_some(rule)
}

fn keep_verbs(group: &str, resource: &str) -> Vec<&'static str> {
    // Other objects stay until garbage collection deletes them with the CDI object.
    let deletes = CLEANED_KINDS.iter().any(|kind| kind.group == group && kind.plural == resource);
    KEEP.iter().copied().chain(deletes.then_some("delete")).collect()
}

/// Objects of the installation without a namespace.
fn installation(settings: &Settings) -> Vec<Value> {
    let objects = manifests::everything(settings);
    let mut by_kind = BTreeMap::<&str, Vec<&str>>::new();
    for object in &objects {
        let (kind, name) = (object["kind"].as_str(), object["metadata"]["name"].as_str());
        by_kind.entry(kind.unwrap_or_default()).or_default().extend(name);
    }
    let mut all = Vec::new();
    for (kind, group, resource) in CLUSTER_WIDE {
        let mut names = by_kind.get(kind).cloned().unwrap_or_default();
        if kind == "MutatingWebhookConfiguration" {
            names.push(OLD_WEBHOOK);
        }
        all.push(rule(group, &[resource], CREATE));
        all.push(named(group, &[resource], &names, &keep_verbs(group, resource)));
        if kind == "CustomResourceDefinition" {
            // `storedVersions`, once no object is stored in an old version.
            let status = "customresourcedefinitions/status";
            all.push(named(group, &[status], &names, &["update"]));
        }
    }
    all
}

/// The CDI object, what a pass reads, and workers, which a removal deletes.
fn status_and_workers() -> Vec<Value> {
    vec![
        rule(CDI, &["cdis"], &["get", "list", "watch", "update"]),
        rule(CDI, &["cdis/finalizers"], &["update"]),
        // The TLS profile of the metrics.
        named(CDI, &["cdiconfigs"], &[names::CDI_CONFIG], &["get"]),
        // Written back as they are, to be stored in the newest version.
        rule(CDI, &USER_KINDS, &["list", "update"]),
        rule(FORKLIFT, &POPULATORS, &["list", "update"]),
        rule("", &["pods", "services"], &["list", "delete"]),
        rule("", &["events"], &["create"]),
        rule("scheduling.k8s.io", &["priorityclasses"], &["get"]),
        // Ports of the API servers, for NetworkPolicies.
        named("discovery.k8s.io", &["endpointslices"], &["kubernetes"], &["get"]),
    ]
}

/// The permissions of all roles of a kind that the operator creates, each once.
pub(in crate::manifests) fn granted(settings: &Settings, kind: &str) -> Vec<Value> {
    let mut roles = deployed(settings);
    roles.extend(polling_jobs(settings));
    roles.extend(manifests::monitoring_access(settings));
    let rules = |role: &Value| role["rules"].as_array().cloned().unwrap_or_default();
    let mut all = Vec::new();
    for rule in roles.iter().filter(|role| role["kind"] == kind).flat_map(rules) {
        if !all.contains(&rule) {
            all.push(rule);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::PlatformApi;

    #[test]
    fn every_optional_kind_has_a_rule() {
        let all = [cluster_wide(&Settings::default()), in_namespace(&Settings::default())].concat();
        for api in PlatformApi::ALL {
            let (group, _) = api.api_version().split_once('/').unwrap();
            let is_it = |rule: &&Value| {
                rule["apiGroups"][0] == group && rule["resources"][0] == api.plural()
            };
            assert!(all.iter().any(|rule| is_it(&rule)), "{api:?}");
        }
    }
}
