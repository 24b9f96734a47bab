//! RBAC: roles of users, which aggregate to those of the platform, and of the programs, each limited to its needs.
//!
//! `tests/e2e/rights` compares the programs' permissions with their requests in a real cluster, both ways.

mod controller;
mod operator;
mod programs;
mod users;

use api::names;
use serde_json::{Value, json};

use super::{DESCRIPTION, Settings, object};

const RBAC: &str = "rbac.authorization.k8s.io";
const RBAC_V1: &str = "rbac.authorization.k8s.io/v1";
const CDI: &str = "cdi.kubevirt.io";
const FORKLIFT: &str = "forklift.cdi.kubevirt.io";
const UPLOAD: &str = "upload.cdi.kubevirt.io";
const SNAPSHOT: &str = "snapshot.storage.k8s.io";
const READ: &[&str] = &["get", "list", "watch"];
/// Kinds whose objects users write, and the controllers change.
const USER_KINDS: [&str; 9] = [
    "cdiconfigs",
    "dataimportcrons",
    "datasources",
    "datavolumes",
    "objecttransfers",
    "storageprofiles",
    "volumeimportsources",
    "volumeuploadsources",
    "volumeclonesources",
];
/// Of forklift. In upstream's order, as in all lists here: tools that compare roles compare lists.
const POPULATORS: [&str; 2] = ["ovirtvolumepopulators", "openstackvolumepopulators"];
/// The verbs of a watch.
const FOLLOW: &[&str] = &["list", "watch"];

/// Accounts that no program of the installation runs as. A pod gets the token of such an account only on request.
const WITHOUT_PROGRAM: [&str; 2] = [POLLER, "cdi-metrics-reader"];
/// The account of polling jobs.
const POLLER: &str = "cdi-cronjob";
/// The account of the operator.
const OPERATOR: &str = "cdi-operator";
const OPERATOR_CLUSTER_ROLE: &str = "cdi-operator-cluster";
/// The operator's roles with the permissions that it grants.
const GRANTED: &str = "cdi-operator-granted";
const GRANTED_DESCRIPTION: &str = "Kubernetes lets the operator create only roles whose permissions it has. These are \
     the permissions of the programs and users of CDI. The operator itself does not use them.";
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

/// Accounts, roles and bindings of an installation whose operator keeps the certificates only.
pub(super) fn objects(settings: &Settings) -> Vec<Value> {
    let mut all = vec![account(OPERATOR, settings)];
    all.extend(deployed(settings));
    let namespace = &settings.namespace;
    let rules = (programs::operator(), programs::operator_in_namespace(namespace));
    all.extend(operator_roles(rules, settings));
    all
}

/// Accounts, roles and bindings of users and of all programs but the operator.
pub(super) fn deployed(settings: &Settings) -> Vec<Value> {
    let others = names::SERVICE_ACCOUNTS.into_iter().filter(|name| *name != OPERATOR);
    let mut all: Vec<_> = others.map(|name| account(name, settings)).collect();
    all.extend(users::objects(settings.viewers));
    all.extend(cluster_wide(settings));
    all.extend(in_namespace(settings));
    all
}

/// The account and roles of an operator that installs what a CDI object describes.
pub(super) fn installer(settings: &Settings) -> Vec<Value> {
    let mut all = vec![account(OPERATOR, settings)];
    let own = (operator::cluster_wide(settings), operator::in_namespace(settings));
    all.extend(operator_roles(own, settings));
    let [everywhere, in_namespace] =
        ["ClusterRole", "Role"].map(|kind| operator::granted(settings, kind));
    let mut granted = cluster_role_of((GRANTED, OPERATOR, &everywhere), settings);
    granted.extend(role_of((GRANTED, OPERATOR, in_namespace), settings));
    for role in granted.iter_mut().filter(|role| role["rules"].is_array()) {
        role["metadata"]["annotations"] = json!({ DESCRIPTION: GRANTED_DESCRIPTION });
    }
    all.extend(granted);
    all
}

/// The account and roles of the check before an installation.
pub(super) fn checker(settings: &Settings, name: &str) -> Vec<Value> {
    let (everywhere, in_namespace) = operator::check_rules(settings);
    let mut all = vec![account(name, settings)];
    all.extend(cluster_role_of((name, name, &everywhere), settings));
    all.extend(role_of((name, name, in_namespace), settings));
    all
}

/// Roles of the operator, by their rules: in all namespaces, and in its own.
fn operator_roles(
    (everywhere, in_namespace): (Vec<Value>, Vec<Value>),
    settings: &Settings,
) -> Vec<Value> {
    let mut all = cluster_role_of((OPERATOR_CLUSTER_ROLE, OPERATOR, &everywhere), settings);
    all.extend(role_of((OPERATOR, OPERATOR, in_namespace), settings));
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

fn account(name: &str, settings: &Settings) -> Value {
    let rest = if WITHOUT_PROGRAM.contains(&name) {
        json!({ "automountServiceAccountToken": false })
    } else {
        json!({})
    };
    object("v1", "ServiceAccount", name, Some(&settings.namespace), "", rest)
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

/// The cluster-wide permissions of the programs, and of the readers of metrics.
fn cluster_wide(settings: &Settings) -> Vec<Value> {
    let roles = [
        ("cdi", CONTROLLER, controller::cluster_wide()),
        ("cdi-apiserver", "cdi-apiserver", programs::apiserver()),
        ("cdi-uploadproxy", "cdi-uploadproxy", programs::uploadproxy()),
        ("cdi-metrics-reader", "cdi-metrics-reader", vec![paths(&["/metrics"])]),
    ];
    roles
        .iter()
        .flat_map(|(name, account, rules)| cluster_role_of((*name, *account, rules), settings))
        .collect()
}

fn cluster_role_of(
    (name, account, rules): (&str, &str, &[Value]),
    settings: &Settings,
) -> Vec<Value> {
    let bound = bound("ClusterRole", name, account, settings);
    // Upstream CDI's names: some bindings have that of the account.
    let binding = if ["cdi", OPERATOR_CLUSTER_ROLE].contains(&name) { account } else { name };
    vec![cluster_role(name, rules), object(RBAC_V1, "ClusterRoleBinding", binding, None, "", bound)]
}

/// The permissions of the programs in the namespace of the installation.
fn in_namespace(settings: &Settings) -> Vec<Value> {
    let roles = [
        ("cdi-deployment", CONTROLLER, controller::in_namespace()),
        ("cdi-apiserver", "cdi-apiserver", programs::apiserver_in_namespace()),
        ("cdi-uploadproxy", "cdi-uploadproxy", programs::uploadproxy_in_namespace()),
    ];
    roles.into_iter().flat_map(|role| role_of(role, settings)).collect()
}

fn role_of((name, account, rules): (&str, &str, Vec<Value>), settings: &Settings) -> Vec<Value> {
    let place = Some(settings.namespace.as_str());
    let bound = bound("Role", name, account, settings);
    vec![
        object(RBAC_V1, "Role", name, place, "", json!({ "rules": rules })),
        object(RBAC_V1, "RoleBinding", name, place, "", bound),
    ]
}

/// Token and access reviews, for readers of metrics.
fn review_rules() -> [Value; 2] {
    [
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
    ]
}
