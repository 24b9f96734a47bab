//! The roles of users. A role of the platform takes them in by their label.

use serde_json::{Value, json};

use super::super::Viewers;
use super::{CDI, FORKLIFT, RBAC, RBAC_V1, READ, UPLOAD, cluster_role, object, paths, rule};

/// In upstream's order, as in all lists here: tools that compare roles compare lists.
const POPULATORS: [&str; 2] = ["ovirtvolumepopulators", "openstackvolumepopulators"];
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
        cluster_role("cdi.kubevirt.io:clone-sourcer", &[copying()]),
        cluster_role("cdi.kubevirt.io:config-reader", &config),
        object(RBAC_V1, "ClusterRoleBinding", "cdi.kubevirt.io:config-reader", None, "", everybody),
        cluster_role("cdi-pprof-reader", &[paths(&["/debug/pprof", "/debug/pprof/*"])]),
    ]
}

/// What copying a volume of a namespace to another one takes.
fn copying() -> Value {
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
        copying(),
        rule(UPLOAD, &["uploadtokenrequests"], ALL),
        rule(FORKLIFT, &POPULATORS, ALL),
    ]
}

/// The role that every user of the platform's role `view` has.
pub(super) fn viewer(viewers: Viewers) -> Value {
    let seen = [
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
    let mut rules = vec![rule(CDI, &seen, READ)];
    if viewers == Viewers::MayCopy {
        rules.push(copying());
    }
    rules.push(rule(FORKLIFT, &POPULATORS, READ));
    aggregated("cdi.kubevirt.io:view", "view", &rules)
}
