//! The roles of users, which the platform's roles aggregate by label.

use serde_json::{Value, json};

use super::super::Viewers;
use super::{
    CDI, FORKLIFT, POPULATORS, RBAC, RBAC_V1, READ, UPLOAD, USER_KINDS, cluster_role, object,
    paths, rule,
};

const ALL: &[&str] = &["*"];

pub(super) fn objects(viewers: Viewers) -> Vec<Value> {
    let config = [rule(CDI, &["cdiconfigs", "storageprofiles"], READ)];
    let everybody = json!({
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": "cdi.kubevirt.io:config-reader" },
        "subjects": [
            { "apiGroup": RBAC, "kind": "Group", "name": "system:authenticated" },
            { "apiGroup": RBAC, "kind": "Group", "name": "system:serviceaccount" },
        ],
    });
    vec![
        aggregated("cdi.kubevirt.io:admin", "admin", &editor()),
        aggregated("cdi.kubevirt.io:edit", "edit", &editor()),
        viewer(viewers),
        cluster_role("cdi.kubevirt.io:clone-sourcer", &[clone_source_rule()]),
        cluster_role("cdi.kubevirt.io:config-reader", &config),
        object(RBAC_V1, "ClusterRoleBinding", "cdi.kubevirt.io:config-reader", None, "", everybody),
        cluster_role("cdi-pprof-reader", &[paths(&["/debug/pprof", "/debug/pprof/*"])]),
    ]
}

/// The permission to clone a volume of a namespace to another one.
fn clone_source_rule() -> Value {
    rule(CDI, &["datavolumes/source"], &["create"])
}

fn aggregated(name: &str, to: &str, rules: &[Value]) -> Value {
    let mut role = cluster_role(name, rules);
    role["metadata"]["labels"][format!("{RBAC}/aggregate-to-{to}")] = "true".into();
    role
}

fn editor() -> Vec<Value> {
    let owned = [
        "datavolumes",
        "dataimportcrons",
        "datasources",
        "volumeimportsources",
        "volumeuploadsources",
        "volumeclonesources",
    ];
    vec![
        rule(CDI, &owned, ALL),
        clone_source_rule(),
        rule(UPLOAD, &["uploadtokenrequests"], ALL),
        rule(FORKLIFT, &POPULATORS, ALL),
    ]
}

/// Aggregated to the platform's role `view`.
pub(super) fn viewer(viewers: Viewers) -> Value {
    let mut rules = vec![rule(CDI, &USER_KINDS, READ)];
    if viewers == Viewers::MayClone {
        rules.push(clone_source_rule());
    }
    rules.push(rule(FORKLIFT, &POPULATORS, READ));
    aggregated("cdi.kubevirt.io:view", "view", &rules)
}
