//! RBAC: roles of users, which aggregate to those of the platform, and of the programs, each limited to its needs.
//!
//! `tests/e2e/rights` compares the programs' permissions with their requests in a real cluster, both ways.

mod controller;
mod programs;
mod users;

use api::names;
use serde_json::{Value, json};

use super::{Settings, object};

const RBAC: &str = "rbac.authorization.k8s.io";
const RBAC_V1: &str = "rbac.authorization.k8s.io/v1";
const CDI: &str = "cdi.kubevirt.io";
const FORKLIFT: &str = "forklift.cdi.kubevirt.io";
const UPLOAD: &str = "upload.cdi.kubevirt.io";
const SNAPSHOT: &str = "snapshot.storage.k8s.io";
const READ: &[&str] = &["get", "list", "watch"];
/// The verbs of a watch.
const FOLLOW: &[&str] = &["list", "watch"];

/// Accounts that no program of the installation runs as. A pod gets the token of such an account only on request.
const WITHOUT_PROGRAM: [&str; 2] = [POLLER, "cdi-metrics-reader"];
/// The account of polling jobs.
const POLLER: &str = "cdi-cronjob";
/// The account of the controller.
const CONTROLLER: &str = names::CONTROLLER_ACCOUNT;

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": resources, "verbs": verbs })
}

/// Of objects with these names only. `list` and `watch` are then allowed with the field selector `metadata.name=…`, and
/// `create` is not.
fn named(group: &str, resources: &[&str], names: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": resources, "resourceNames": names, "verbs": verbs })
}

fn paths(paths: &[&str]) -> Value {
    json!({ "nonResourceURLs": paths, "verbs": ["get"] })
}

/// Accounts, roles and bindings.
pub(super) fn objects(settings: &Settings) -> Vec<Value> {
    let mut all = accounts(settings);
    all.extend(users::objects(settings.viewers));
    all.extend(cluster_wide(settings));
    all.extend(in_namespace(settings));
    all
}

/// The role of viewers for `settings`, to be applied over that of the installation.
pub(super) fn viewers(settings: &Settings) -> Vec<Value> {
    vec![users::viewer(settings.viewers)]
}

/// Additional permissions for a controller with `-poll-from=jobs`: it creates CronJobs, whose pods write their
/// results to DataImportCrons of all namespaces.
pub(super) fn polling_jobs(settings: &Settings) -> Vec<Value> {
    let place = Some(settings.namespace.as_str());
    let jobs = [
        rule("batch", &["cronjobs"], &["create", "update"]),
        rule("batch", &["jobs"], &["create"]),
    ];
    let (name, crons) = (POLLER, [rule(CDI, &["dataimportcrons"], &["get", "patch"])]);
    let poller = bound("ClusterRole", name, POLLER, settings);
    let makes = bound("Role", POLLING_JOBS, CONTROLLER, settings);
    vec![
        cluster_role(name, &crons),
        object(RBAC_V1, "ClusterRoleBinding", name, None, "", poller),
        object(RBAC_V1, "Role", POLLING_JOBS, place, "", json!({ "rules": jobs })),
        object(RBAC_V1, "RoleBinding", POLLING_JOBS, place, "", makes),
    ]
}

/// The controller's role for CronJobs.
const POLLING_JOBS: &str = "cdi-polling-jobs";

fn accounts(settings: &Settings) -> Vec<Value> {
    let place = Some(settings.namespace.as_str());
    let account = |name| {
        let rest = if WITHOUT_PROGRAM.contains(&name) {
            json!({ "automountServiceAccountToken": false })
        } else {
            json!({})
        };
        object("v1", "ServiceAccount", name, place, "", rest)
    };
    names::SERVICE_ACCOUNTS.into_iter().map(account).collect()
}

fn cluster_role(name: &str, rules: &[Value]) -> Value {
    object(RBAC_V1, "ClusterRole", name, None, "", json!({ "rules": rules }))
}

fn bound(kind: &str, role: &str, account: &str, settings: &Settings) -> Value {
    json!({
        "roleRef": { "apiGroup": RBAC, "kind": kind, "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": settings.namespace }],
    })
}

/// The cluster-wide permissions of a program, and its account.
fn cluster_wide(settings: &Settings) -> Vec<Value> {
    let roles = [
        ("cdi", CONTROLLER, controller::cluster_wide()),
        ("cdi-apiserver", "cdi-apiserver", programs::apiserver()),
        ("cdi-uploadproxy", "cdi-uploadproxy", programs::uploadproxy()),
        ("cdi-metrics-reader", "cdi-metrics-reader", vec![paths(&["/metrics"])]),
        ("cdi-operator-cluster", "cdi-operator", programs::operator()),
    ];
    let mut all = Vec::new();
    for (name, account, rules) in roles {
        all.push(cluster_role(name, &rules));
        let bound = bound("ClusterRole", name, account, settings);
        // The controller's binding has upstream CDI's name, that of its account.
        let binding = if account == CONTROLLER { account } else { name };
        all.push(object(RBAC_V1, "ClusterRoleBinding", binding, None, "", bound));
    }
    all
}

/// The permissions of a program in the namespace of the installation.
fn in_namespace(settings: &Settings) -> Vec<Value> {
    let place = Some(settings.namespace.as_str());
    let roles = [
        ("cdi-deployment", CONTROLLER, controller::in_namespace()),
        ("cdi-apiserver", "cdi-apiserver", programs::apiserver_in_namespace()),
        ("cdi-uploadproxy", "cdi-uploadproxy", programs::uploadproxy_in_namespace()),
        ("cdi-operator", "cdi-operator", programs::operator_in_namespace(&settings.namespace)),
    ];
    let mut all = Vec::new();
    for (name, account, rules) in roles {
        all.push(object(RBAC_V1, "Role", name, place, "", json!({ "rules": rules })));
        let bound = bound("Role", name, account, settings);
        all.push(object(RBAC_V1, "RoleBinding", name, place, "", bound));
    }
    // The front-proxy CA and headers are in a ConfigMap that every aggregated API may read.
    let reader =
        bound("Role", "extension-apiserver-authentication-reader", "cdi-apiserver", settings);
    let (kind, name) = ("RoleBinding", "cdi-extension-apiserver-authentication");
    all.push(object(RBAC_V1, kind, name, Some("kube-system"), "", reader));
    all
}

/// Token and access reviews, for readers of metrics.
fn review_rules() -> [Value; 2] {
    [
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
    ]
}
