//! Who may do what: users, by roles that add to those of the platform, and the programs, each no more than it does.

use api::names;
use serde_json::{Value, json};

use super::{API_SERVICE, MUTATING, Settings, VALIDATING, object};
use crate::chains::Chains;

const RBAC: &str = "rbac.authorization.k8s.io";
const RBAC_V1: &str = "rbac.authorization.k8s.io/v1";
const CDI: &str = "cdi.kubevirt.io";
const FORKLIFT: &str = "forklift.cdi.kubevirt.io";
const UPLOAD: &str = "upload.cdi.kubevirt.io";
const SNAPSHOT: &str = "snapshot.storage.k8s.io";
const READ: &[&str] = &["get", "list", "watch"];
const ALL: &[&str] = &["*"];

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": resources, "verbs": verbs })
}

fn named(group: &str, resources: &[&str], names: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": resources, "resourceNames": names, "verbs": verbs })
}

fn paths(paths: &[&str]) -> Value {
    json!({ "nonResourceURLs": paths, "verbs": ["get"] })
}

/// Accounts, roles and who has them.
pub(super) fn objects(settings: &Settings) -> Vec<Value> {
    let mut all = accounts(settings);
    all.extend(users());
    all.extend(cluster_wide(settings));
    all.extend(in_namespace(settings));
    all
}

fn accounts(settings: &Settings) -> Vec<Value> {
    let place = Some(settings.namespace.as_str());
    let account = |name| object("v1", "ServiceAccount", name, place, "", json!({}));
    names::SERVICE_ACCOUNTS.into_iter().map(account).collect()
}

fn cluster_role(name: &str, rules: &[Value]) -> Value {
    object(RBAC_V1, "ClusterRole", name, None, "", json!({ "rules": rules }))
}

/// The roles of users. A role of the platform takes them in by their label.
fn users() -> Vec<Value> {
    let aggregated = |name: &str, to: &str, rules: &[Value]| {
        let mut role = cluster_role(name, rules);
        role["metadata"]["labels"][format!("{RBAC}/aggregate-to-{to}")] = "true".into();
        role
    };
    let populators = ["openstackvolumepopulators", "ovirtvolumepopulators"];
    let source = rule(CDI, &["datavolumes/source"], &["create"]);
    let owned = [
        "dataimportcrons",
        "datasources",
        "datavolumes",
        "volumeclonesources",
        "volumeimportsources",
        "volumeuploadsources",
    ];
    let edit = [
        rule(CDI, &owned, ALL),
        source.clone(),
        rule(UPLOAD, &["uploadtokenrequests"], ALL),
        rule(FORKLIFT, &populators, ALL),
    ];
    let seen = [
        "cdiconfigs",
        "dataimportcrons",
        "datasources",
        "datavolumes",
        "objecttransfers",
        "storageprofiles",
        "volumeclonesources",
        "volumeimportsources",
        "volumeuploadsources",
    ];
    let view = [rule(CDI, &seen, READ), source.clone(), rule(FORKLIFT, &populators, READ)];
    let config = [rule(CDI, &["cdiconfigs", "storageprofiles"], READ)];
    let everybody = json!({
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": "cdi.kubevirt.io:config-reader" },
        "subjects": [
            { "apiGroup": RBAC, "kind": "Group", "name": "system:authenticated" },
            { "apiGroup": RBAC, "kind": "Group", "name": "system:serviceaccount" },
        ],
    });
    vec![
        aggregated("cdi.kubevirt.io:admin", "admin", &edit),
        aggregated("cdi.kubevirt.io:edit", "edit", &edit),
        aggregated("cdi.kubevirt.io:view", "view", &view),
        cluster_role("cdi.kubevirt.io:clone-sourcer", &[source]),
        cluster_role("cdi.kubevirt.io:config-reader", &config),
        object(RBAC_V1, "ClusterRoleBinding", "cdi.kubevirt.io:config-reader", None, "", everybody),
        cluster_role("cdi-pprof-reader", &[paths(&["/debug/pprof", "/debug/pprof/*"])]),
    ]
}

/// What a program may do in all namespaces, and its account.
fn cluster_wide(settings: &Settings) -> Vec<Value> {
    let roles = [
        ("cdi", "cdi-sa", controller()),
        ("cdi-apiserver", "cdi-apiserver", apiserver()),
        ("cdi-uploadproxy", "cdi-uploadproxy", vec![rule("", &["persistentvolumeclaims"], READ)]),
        (
            "cdi-cronjob",
            "cdi-cronjob",
            vec![rule(CDI, &["dataimportcrons"], &["get", "list", "update", "patch"])],
        ),
        ("cdi-metrics-reader", "cdi-metrics-reader", vec![paths(&["/metrics"])]),
        ("cdi-operator-cluster", "cdi-operator", operator()),
    ];
    let mut all = Vec::new();
    for (name, account, rules) in roles {
        all.push(cluster_role(name, &rules));
        let bound = bound("ClusterRole", name, account, settings);
        // The controller's binding has always had the name of its account.
        let binding = if account == "cdi-sa" { account } else { name };
        all.push(object(RBAC_V1, "ClusterRoleBinding", binding, None, "", bound));
    }
    all
}

fn bound(kind: &str, role: &str, account: &str, settings: &Settings) -> Value {
    json!({
        "roleRef": { "apiGroup": RBAC, "kind": kind, "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": settings.namespace }],
    })
}

fn controller() -> Vec<Value> {
    let claim_verbs =
        ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
    let lives = ["get", "list", "watch", "create", "delete"];
    vec![
        rule("", &["events"], &["create", "patch", "get", "list", "watch"]),
        rule("", &["persistentvolumeclaims"], &claim_verbs),
        rule("", &["persistentvolumes"], &["get", "list", "watch", "update", "patch"]),
        rule("", &["persistentvolumeclaims/finalizers", "pods/finalizers"], &["update"]),
        rule("", &["pods", "services"], &lives),
        rule("", &["namespaces"], READ),
        rule("", &["configmaps"], &["get", "create"]),
        rule("", &["secrets"], &["create", "delete"]),
        rule("storage.k8s.io", &["storageclasses", "csidrivers"], READ),
        rule("scheduling.k8s.io", &["priorityclasses"], READ),
        rule("apiextensions.k8s.io", &["customresourcedefinitions"], READ),
        rule(CDI, ALL, ALL),
        rule(FORKLIFT, ALL, ALL),
        rule(
            SNAPSHOT,
            &["volumesnapshots", "volumesnapshotclasses", "volumesnapshotcontents"],
            &lives,
        ),
        rule(SNAPSHOT, &["volumesnapshots"], &["update", "patch", "deletecollection"]),
        rule("config.openshift.io", &["proxies", "infrastructures"], READ),
        rule("config.openshift.io", &["clusterversions"], &["get"]),
        rule("image.openshift.io", &["imagestreams"], READ),
        rule("kubevirt.io", &["virtualmachines/finalizers"], &["update"]),
    ]
    .into_iter()
    .chain(asking())
    .collect()
}

/// To ask who somebody is that wants to read metrics, and whether they may.
fn asking() -> [Value; 2] {
    [
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
    ]
}

fn apiserver() -> Vec<Value> {
    vec![
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
        rule("", &["persistentvolumeclaims", "persistentvolumes"], READ),
        rule("", &["namespaces"], &["get"]),
        rule("storage.k8s.io", &["storageclasses"], READ),
        rule(SNAPSHOT, &["volumesnapshots"], READ),
        rule(CDI, &["volumeclonesources", "storageprofiles", "cdis", "cdiconfigs"], READ),
        rule(CDI, &["datavolumes"], &["get", "list"]),
        rule(CDI, &["dataimportcrons", "datasources"], &["get", "list"]),
        rule(CDI, &["cdis/finalizers"], &["update"]),
    ]
}

/// It writes authorities into what is called by the cluster's API server, each by its name.
fn operator() -> Vec<Value> {
    let admission = "admissionregistration.k8s.io";
    let write = ["get", "patch"];
    vec![
        rule(CDI, &["cdis", "cdiconfigs"], READ),
        named(admission, &["validatingwebhookconfigurations"], &VALIDATING, &write),
        named(admission, &["mutatingwebhookconfigurations"], &MUTATING, &write),
        named("apiregistration.k8s.io", &["apiservices"], &[API_SERVICE], &write),
    ]
    .into_iter()
    .chain(asking())
    .collect()
}

/// What a program may do in the namespace of the installation.
fn in_namespace(settings: &Settings) -> Vec<Value> {
    let place = Some(settings.namespace.as_str());
    let chains = Chains::of(&settings.namespace);
    let (secrets, bundles) = (chains.secrets(), chains.bundles());
    let roles = [
        (
            "cdi-deployment",
            "cdi-sa",
            vec![
                rule("", &["configmaps"], &["get", "list", "watch", "create", "update", "delete"]),
                rule("", &["secrets"], READ),
                rule(
                    "batch",
                    &["cronjobs"],
                    &["get", "list", "watch", "create", "update", "delete", "deletecollection"],
                ),
                rule(
                    "batch",
                    &["jobs"],
                    &["create", "delete", "deletecollection", "list", "watch"],
                ),
                rule("coordination.k8s.io", &["leases"], &["get", "create", "update"]),
                rule("networking.k8s.io", &["ingresses"], READ),
                rule("route.openshift.io", &["routes"], READ),
            ],
        ),
        (
            "cdi-apiserver",
            "cdi-apiserver",
            vec![rule("", &["secrets"], &["get", "list", "watch", "create"])],
        ),
        ("cdi-uploadproxy", "cdi-uploadproxy", vec![rule("", &["configmaps"], READ)]),
        (
            "cdi-operator",
            "cdi-operator",
            vec![
                rule("", &["secrets", "configmaps"], &["create"]),
                named("", &["secrets"], &secrets, &["get", "update"]),
                named("", &["configmaps"], &bundles, &["get", "update"]),
            ],
        ),
    ];
    let mut all = Vec::new();
    for (name, account, rules) in roles {
        all.push(object(RBAC_V1, "Role", name, place, "", json!({ "rules": rules })));
        let bound = bound("Role", name, account, settings);
        all.push(object(RBAC_V1, "RoleBinding", name, place, "", bound));
    }
    // How the cluster's API server vouches for users is written where every aggregated API may read it.
    let reader =
        bound("Role", "extension-apiserver-authentication-reader", "cdi-apiserver", settings);
    let (kind, name) = ("RoleBinding", "cdi-extension-apiserver-authentication");
    all.push(object(RBAC_V1, kind, name, Some("kube-system"), "", reader));
    all
}
