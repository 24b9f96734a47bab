//! The permissions of all programs but the controller.

use api::names;
use serde_json::Value;

use super::super::{API_SERVICE, MUTATING, VALIDATING};
use super::{CDI, FOLLOW, READ, SNAPSHOT, named, review_rules, rule};
use crate::chains::{InstallationChains, UPLOAD_SERVER_BUNDLE};

/// The CDIConfig, which every program watches.
fn settings() -> Value {
    named(CDI, &["cdiconfigs"], &[names::CDI_CONFIG], READ)
}

/// The API server reads the facts of admission rules, and changes nothing.
pub(super) fn apiserver() -> Vec<Value> {
    vec![
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
        rule("", &["persistentvolumeclaims", "namespaces"], &["get"]),
        rule("", &["persistentvolumes"], &["list", "watch"]),
        rule("storage.k8s.io", &["storageclasses"], &["list", "watch"]),
        rule(SNAPSHOT, &["volumesnapshots"], &["get"]),
        rule(CDI, &["volumeclonesources", "datasources"], &["get"]),
        rule(CDI, &["storageprofiles"], &["list", "watch"]),
        rule(CDI, &["datavolumes", "dataimportcrons"], &["get", "list"]),
        rule(CDI, &["cdis"], &["list"]),
        settings(),
        // The CA and headers of the front proxy, in `kube-system`. As a cluster-wide rule for one name, it needs no object in
        // that namespace, which the owner of the installation could not delete.
        named(
            "",
            &["configmaps"],
            &["extension-apiserver-authentication"],
            &["get", "list", "watch"],
        ),
    ]
}

/// The Secret of the token keys, created by the first of its processes, and again if it is deleted.
pub(super) fn apiserver_in_namespace() -> Vec<Value> {
    vec![
        rule("", &["secrets"], &["create"]),
        named("", &["secrets"], &[names::SIGNING_KEY_SECRET], &["get", "list", "watch"]),
    ]
}

/// The upload proxy reads the PVC that a token names until it is ready.
pub(super) fn uploadproxy() -> Vec<Value> {
    vec![
        rule("", &["persistentvolumeclaims"], &["get", "watch"]),
        named(CDI, &["cdiconfigs"], &[names::CDI_CONFIG], FOLLOW),
    ]
}

pub(super) fn uploadproxy_in_namespace() -> Vec<Value> {
    vec![named("", &["configmaps"], &[UPLOAD_SERVER_BUNDLE], &["get"])]
}

/// The operator writes CAs into webhook configurations and the APIService, each by its name.
pub(super) fn operator() -> Vec<Value> {
    let admission = "admissionregistration.k8s.io";
    let write = ["get", "patch"];
    vec![
        rule(CDI, &["cdis"], &["list"]),
        named(CDI, &["cdiconfigs"], &[names::CDI_CONFIG], &["get"]),
        named(admission, &["validatingwebhookconfigurations"], &VALIDATING, &write),
        named(admission, &["mutatingwebhookconfigurations"], &MUTATING, &write),
        named("apiregistration.k8s.io", &["apiservices"], &[API_SERVICE], &write),
    ]
    .into_iter()
    .chain(review_rules())
    .collect()
}

pub(super) fn operator_in_namespace(namespace: &str) -> Vec<Value> {
    let chains = InstallationChains::new(namespace);
    vec![
        rule("", &["secrets", "configmaps"], &["create"]),
        named("", &["secrets"], &chains.secrets(), &["get", "update"]),
        named("", &["configmaps"], &chains.bundles(), &["get", "update"]),
    ]
}
