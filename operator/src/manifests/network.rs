//! Which connections are allowed in the namespace of the installation, for clusters that allow none by themselves. In all
//! others a pod that is picked here has no more than what is allowed here, so that has to be all it needs.

use api::labels::{self, component};
use serde_json::{Value, json};

use super::{Settings, object};

/// Where every program listens, workers included.
const PORT: u16 = 8443;

/// One policy for each who listens, and for each who calls.
pub(super) fn objects(settings: &Settings) -> Vec<Value> {
    let policy = |name: &str, of: (&str, &str), spec: Value| {
        let mut spec = spec;
        spec["podSelector"] = json!({ "matchLabels": { of.0: of.1 } });
        let rules = [("Ingress", "ingress"), ("Egress", "egress")];
        let types = rules.iter().filter(|(_, member)| !spec[*member].is_null());
        let types: Vec<&str> = types.map(|(name, _)| *name).collect();
        spec["policyTypes"] = json!(types);
        let place = Some(settings.namespace.as_str());
        object("networking.k8s.io/v1", "NetworkPolicy", name, place, "", json!({ "spec": spec }))
    };
    let program = |name| (labels::COMPONENT, name);
    let ports = json!([{ "port": PORT, "protocol": "TCP" }]);
    let from_anywhere = json!([{ "ports": ports }]);
    // In whichever namespace they are.
    let to = |key: &str, value: &str| {
        let pods =
            json!({ "podSelector": { "matchLabels": { key: value } }, "namespaceSelector": {} });
        json!([{ "to": [pods], "ports": ports }])
    };
    let anywhere = json!([{}]);
    vec![
        policy(
            "cdi-allow-ingress-to-metrics",
            (labels::PROMETHEUS, "true"),
            json!({ "ingress": from_anywhere }),
        ),
        policy(
            "cdi-allow-uploadproxy-communications",
            program(component::UPLOADPROXY),
            json!({
                "ingress": from_anywhere,
                "egress": to(labels::COMPONENT, component::UPLOAD_SERVER),
            }),
        ),
        policy(
            "cdi-allow-cdi-api-webhook-server",
            program(component::APISERVER),
            json!({ "ingress": from_anywhere }),
        ),
        policy(
            "cdi-allow-cdi-deployment-importer-metrics",
            program(component::DEPLOYMENT),
            json!({ "egress": to(labels::PROMETHEUS, "true") }),
        ),
        policy(
            "cdi-allow-egress-from-poller",
            (labels::DATA_IMPORT_CRON_POLLER, ""),
            json!({ "egress": anywhere }),
        ),
        // Two of these would cut a program off from all else: from the API server and from names, whose addresses and ports
        // are different in each cluster. And the controller asks registries itself, as pollers do.
        policy(
            "cdi-allow-egress-to-cluster-services",
            (labels::ALLOW_CLUSTER_SERVICES, "true"),
            json!({ "egress": anywhere }),
        ),
    ]
}
