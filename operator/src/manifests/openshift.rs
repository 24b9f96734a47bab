//! SecurityContextConstraints that admit worker pods on OpenShift.
//!
//! OpenShift admits a pod by the SecurityContextConstraints of the account that creates it and of the account that it runs as. Workers
//! run as user 107 in namespaces of tenants, whose own constraints allow only users of the namespace's range.

use api::labels::component;
use serde_json::{Value, json};

use super::{Settings, object};

/// The account of the controller, which creates workers, and the account of polling jobs.
const ACCOUNTS: [&str; 2] = ["cdi-sa", "cdi-cronjob"];

/// Under upstream CDI's name.
pub(super) fn constraints(settings: &Settings) -> Vec<Value> {
    let namespace = &settings.namespace;
    let users = ACCOUNTS.map(|account| format!("system:serviceaccount:{namespace}:{account}"));
    let rest = json!({
        "users": users,
        "runAsUser": { "type": "MustRunAsNonRoot" },
        "seLinuxContext": { "type": "MustRunAs" },
        "supplementalGroups": { "type": "MustRunAs" },
        "fsGroup": { "type": "RunAsAny" },
        "seccompProfiles": ["runtime/default"],
        "requiredDropCapabilities": ["ALL"],
        "volumes": [
            "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim",
            "projected", "secret",
        ],
        "allowPrivilegeEscalation": false,
        "allowPrivilegedContainer": false,
        "allowHostDirVolumePlugin": false,
        "allowHostIPC": false,
        "allowHostNetwork": false,
        "allowHostPID": false,
        "allowHostPorts": false,
        "readOnlyRootFilesystem": false,
    });
    let name = "containerized-data-importer";
    let kind = "SecurityContextConstraints";
    vec![object("security.openshift.io/v1", kind, name, None, component::OPERATOR, rest)]
}
