//! NetworkPolicies of the installation's programs: one denies everything, others allow what they need. A pod
//! may do what any policy that selects it allows.
//!
//! Policies cannot name the API server: it is no pod, its addresses differ in each cluster, and it calls webhooks from them. So
//! it is allowed by port. The kubelet's probes need no policy: a node always reaches its own pods.

use api::labels::{self, component};
use serde_json::{Value, json};

use super::{DESCRIPTION, Settings, object};

/// Port of all programs, workers included.
const PORT: u16 = 8443;
/// Ports of API servers: of the service `kubernetes`, and of the servers themselves.
const API_PORTS: [u16; 2] = [443, 6443];
/// Ports of name servers; the second is OpenShift's, behind its service.
const DNS_PORTS: [u16; 2] = [53, 5353];
/// Link-local addresses, such as those of cloud metadata services.
const LINK_LOCAL: [(&str, &str); 2] = [("0.0.0.0/0", "169.254.0.0/16"), ("::/0", "fe80::/10")];
/// The label that every namespace has with its name.
const NAMESPACE: &str = "kubernetes.io/metadata.name";
const METRICS: &str = "cdi-allow-ingress-to-metrics";

/// The values of the programs' component label.
const PROGRAMS: [&str; 4] =
    [component::APISERVER, component::DEPLOYMENT, component::OPERATOR, component::UPLOADPROXY];

/// One policy per purpose, and the denial of all else.
pub(super) fn objects(settings: &Settings) -> Vec<Value> {
    let from_anywhere = json!([{ "ports": tcp(&[PORT]) }]);
    let program = |name| labelled(labels::COMPONENT, name);
    let picked = json!({ "matchExpressions": [
        { "key": labels::COMPONENT, "operator": "In", "values": PROGRAMS },
    ] });
    let mut api_ports = settings.api_server_ports.clone();
    api_ports.extend(API_PORTS);
    let mut services = tcp(&api_ports.into_iter().collect::<Vec<_>>());
    services.extend(DNS_PORTS.map(|port| json!({ "port": port, "protocol": "UDP" })));
    services.extend(tcp(&DNS_PORTS));
    vec![
        policy(
            settings,
            METRICS,
            "Metrics are read with a token that the program has reviewed. Where the monitoring stack is known, \
             options/metrics-from-monitoring.yaml allows its namespace only.",
            (labelled(labels::PROMETHEUS, "true"), json!({ "ingress": from_anywhere })),
        ),
        policy(
            settings,
            "cdi-allow-uploadproxy-communications",
            "Clients upload from outside of the cluster, and the proxy passes what they send to upload servers in their \
             namespaces.",
            (
                program(component::UPLOADPROXY),
                json!({ "ingress": from_anywhere, "egress": to_workers(&[UPLOAD_SERVERS]) }),
            ),
        ),
        policy(
            settings,
            "cdi-allow-cdi-api-webhook-server",
            "The cluster's API server calls webhooks and the aggregated API, from addresses that no policy can name.",
            (program(component::APISERVER), json!({ "ingress": from_anywhere })),
        ),
        policy(
            settings,
            "cdi-allow-cdi-deployment-importer-metrics",
            "The controller reads the progress of workers: importers, clone sources and upload servers.",
            (
                program(component::DEPLOYMENT),
                json!({ "egress": to_workers(&[(labels::PROMETHEUS, "true"), UPLOAD_SERVERS]) }),
            ),
        ),
        policy(
            settings,
            "cdi-allow-egress-to-sources",
            "The controller polls the sources of DataImportCrons, which users name: any but link-local \
             addresses. With -poll-from=jobs it may be deleted.",
            (program(component::DEPLOYMENT), json!({ "egress": [to_sources()] })),
        ),
        policy(
            settings,
            "cdi-allow-egress-from-poller",
            "With -poll-from=jobs these pods poll registries, which users name: any but link-local addresses. They serve \
             nothing.",
            (
                labelled(labels::DATA_IMPORT_CRON_POLLER, ""),
                json!({ "ingress": [], "egress": [to_sources()] }),
            ),
        ),
        policy(
            settings,
            "cdi-allow-egress-to-cluster-services",
            "The API server and name servers, which may be anywhere. Where the API server listens at another port than 443 or \
             6443, add that port.",
            (
                labelled(labels::ALLOW_CLUSTER_SERVICES, "true"),
                json!({ "egress": [{ "ports": services }] }),
            ),
        ),
        // Last: before the others allow it, the operator could not reach the API server to create them.
        policy(
            settings,
            "cdi-default-deny",
            "Denies all connections of the programs except those that other policies allow.",
            (picked, json!({ "ingress": [], "egress": [] })),
        ),
    ]
}

/// Replaces the policy for metrics, for a monitoring stack in its usual namespace.
pub(super) fn metrics_from_monitoring(settings: &Settings) -> Vec<Value> {
    let namespace = &settings.monitoring_namespace;
    let from = json!({ "namespaceSelector": { "matchLabels": { NAMESPACE: namespace } } });
    vec![policy(
        settings,
        METRICS,
        "Metrics are read from the namespace of the monitoring stack, with a token that the program has reviewed.",
        (
            labelled(labels::PROMETHEUS, "true"),
            json!({ "ingress": [{ "from": [from], "ports": tcp(&[PORT]) }] }),
        ),
    )]
}

/// A policy for the pods of `selector`, for the directions that `rules` names.
fn policy(
    settings: &Settings,
    name: &str,
    description: &str,
    (selector, rules): (Value, Value),
) -> Value {
    let mut spec = rules;
    let directions = [("Ingress", "ingress"), ("Egress", "egress")];
    let types = directions.iter().filter(|(_, member)| !spec[*member].is_null());
    let types: Vec<&str> = types.map(|(name, _)| *name).collect();
    spec["policyTypes"] = json!(types);
    spec["podSelector"] = selector;
    let place = Some(settings.namespace.as_str());
    let spec = json!({ "spec": spec });
    let mut object = object("networking.k8s.io/v1", "NetworkPolicy", name, place, "", spec);
    object["metadata"]["annotations"] = json!({ DESCRIPTION: description });
    object
}

fn labelled(key: &str, value: &str) -> Value {
    json!({ "matchLabels": { key: value } })
}

fn tcp(ports: &[u16]) -> Vec<Value> {
    ports.iter().map(|port| json!({ "port": port, "protocol": "TCP" })).collect()
}

const UPLOAD_SERVERS: (&str, &str) = (labels::COMPONENT, component::UPLOAD_SERVER);

/// To workers with one of these labels, in any namespace.
fn to_workers(all: &[(&str, &str)]) -> Value {
    let pods = |(key, value): &(&str, &str)| json!({ "podSelector": labelled(key, value), "namespaceSelector": {} });
    json!([{ "to": all.iter().map(pods).collect::<Vec<_>>(), "ports": tcp(&[PORT]) }])
}

/// TCP to all but link-local addresses. Pods are named, too, as for some network plugins no address block contains them.
fn to_sources() -> Value {
    let block =
        |(all, except): (&str, &str)| json!({ "ipBlock": { "cidr": all, "except": [except] } });
    let mut to: Vec<_> = LINK_LOCAL.map(block).into();
    to.push(json!({ "namespaceSelector": {} }));
    json!({ "to": to, "ports": [{ "protocol": "TCP" }] })
}
