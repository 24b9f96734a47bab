//! Which connections the installation's pods have, by the rules of NetworkPolicies.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod objects;

use std::net::IpAddr;

use objects::platforms::{desired, kubernetes};
use objects::{all, name, with_options};
use operator::desired::Platform;
use operator::manifests::METRICS_NETWORK_FILE;
use serde_json::{Value, json};

/// The other end of a connection.
#[derive(Clone, Debug)]
enum Peer {
    /// A pod: its namespace, and its labels.
    Pod(&'static str, Value),
    /// What is no pod.
    Address(&'static str),
}

/// Whether the first `bits` of both addresses are the same.
fn is_within(address: IpAddr, block: &str) -> bool {
    let (base, bits) = block.split_once('/').unwrap();
    let bits: u32 = bits.parse().unwrap();
    let differ = match (address, base.parse().unwrap()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => return false,
    };
    differ >= bits
}

fn selects(selector: &Value, labels: &Value) -> bool {
    let equal = selector["matchLabels"].as_object().into_iter().flatten();
    let mut expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    equal.into_iter().all(|(key, value)| &labels[key] == value)
        && expressions.all(|one| {
            assert_eq!(one["operator"], "In");
            one["values"].as_array().unwrap().contains(&labels[one["key"].as_str().unwrap()])
        })
}

fn is_peer(rule: &Value, peer: &Peer) -> bool {
    let block = &rule["ipBlock"];
    match peer {
        // A network plugin may or may not count pods as addresses. What is needed has to work where it does not.
        Peer::Pod(namespace, labels) => {
            let namespaces = &rule["namespaceSelector"];
            let name = json!({ "kubernetes.io/metadata.name": namespace });
            block.is_null()
                && (namespaces.is_null() && *namespace == "cdi"
                    || !namespaces.is_null() && selects(namespaces, &name))
                && selects(&rule["podSelector"], labels)
        }
        Peer::Address(address) => {
            let address = address.parse().unwrap();
            let except = block["except"].as_array().into_iter().flatten();
            block.is_object()
                && is_within(address, block["cidr"].as_str().unwrap())
                && !except.into_iter().any(|one| is_within(address, one.as_str().unwrap()))
        }
    }
}

/// The policies of an installation.
struct Policies(Vec<Value>);

impl Policies {
    fn among(all: Vec<Value>) -> Self {
        Self(all.into_iter().filter(|object| object["kind"] == "NetworkPolicy").collect())
    }

    /// Whether a pod of the namespace `cdi` may have a connection; `direction`: `egress`, or `ingress`.
    fn allow(&self, pod: &Value, direction: &str, peer: &Peer, port: u16, protocol: &str) -> bool {
        let member = if direction == "egress" { ("Egress", "to") } else { ("Ingress", "from") };
        let applies = |policy: &&Value| {
            let types = policy["spec"]["policyTypes"].as_array().unwrap();
            types.contains(&member.0.into()) && selects(&policy["spec"]["podSelector"], pod)
        };
        let policies: Vec<_> = self.0.iter().filter(applies).collect();
        let mut rules =
            policies.iter().flat_map(|policy| policy["spec"][direction].as_array().unwrap());
        let is_port = |one: &Value| {
            one["protocol"] == protocol && (one["port"].is_null() || one["port"] == port)
        };
        policies.is_empty()
            || rules.any(|rule| {
                let peers = rule[member.1].as_array();
                let ports = rule["ports"].as_array();
                peers.is_none_or(|all| all.iter().any(|one| is_peer(one, peer)))
                    && ports.is_none_or(|all| all.iter().any(is_port))
            })
    }
}

/// The labels of a program's pods.
fn pod(all: &[Value], deployment: &str) -> Value {
    let is_it = |object: &&Value| object["kind"] == "Deployment" && name(object) == deployment;
    let found = all.iter().find(is_it).unwrap();
    found["spec"]["template"]["metadata"]["labels"].clone()
}

fn worker(component: &str) -> Peer {
    let label = match component {
        "cdi-upload-server" => json!({ "cdi.kubevirt.io": component }),
        _ => json!({ "cdi.kubevirt.io": component, "prometheus.cdi.kubevirt.io": "true" }),
    };
    Peer::Pod("vms", label)
}

const PROGRAMS: [&str; 4] = ["cdi-apiserver", "cdi-deployment", "cdi-operator", "cdi-uploadproxy"];
const API_SERVER: Peer = Peer::Address("10.1.2.3");
const INTERNET: Peer = Peer::Address("192.0.2.7");
const METADATA: Peer = Peer::Address("169.254.169.254");

#[test]
fn every_program_reaches_names_and_the_api_server() {
    let all = all();
    let policies = Policies::among(all.clone());
    let resolver = Peer::Pod("kube-system", json!({ "k8s-app": "kube-dns" }));
    for program in PROGRAMS {
        let labels = pod(&all, program);
        for port in [443, 6443] {
            assert!(
                policies.allow(&labels, "egress", &API_SERVER, port, "TCP"),
                "{program} {port}"
            );
        }
        for (port, protocol) in [(53, "UDP"), (53, "TCP"), (5353, "UDP"), (5353, "TCP")] {
            for peer in [&resolver, &Peer::Address("169.254.20.10")] {
                assert!(
                    policies.allow(&labels, "egress", peer, port, protocol),
                    "{program} {port}"
                );
            }
        }
    }
}

#[test]
fn each_program_has_the_connections_of_its_work_and_no_others() {
    let all = all();
    let policies = Policies::among(all.clone());
    let database = Peer::Pod("shop", json!({ "app": "database" }));
    let (importer, reader) = (worker("importer"), worker("cdi-clone-source"));
    let (server, forklift) = (worker("cdi-upload-server"), worker("forklift-populator"));
    let v6 = Peer::Address("fe80::1");
    let table = [
        // From whom, to where, at which port: controller, API server, operator, upload proxy.
        ("metrics of an importer", &importer, 8443, [true, false, false, false]),
        ("metrics of a reader", &reader, 8443, [true, false, false, false]),
        ("metrics of a populator", &forklift, 8443, [true, false, false, false]),
        ("an upload server", &server, 8443, [true, false, false, true]),
        ("another port of an upload server", &server, 8080, [true, false, false, false]),
        ("a registry", &INTERNET, 5000, [true, false, false, false]),
        ("a registry in the cluster", &database, 5000, [true, false, false, false]),
        ("a database of the cluster", &database, 5432, [true, false, false, false]),
        ("a cloud's metadata service", &METADATA, 80, [false, false, false, false]),
        ("a neighbour without a router", &v6, 80, [false, false, false, false]),
    ];
    for (what, peer, port, expected) in table {
        let programs = ["cdi-deployment", "cdi-apiserver", "cdi-operator", "cdi-uploadproxy"];
        let found = programs
            .map(|program| policies.allow(&pod(&all, program), "egress", peer, port, "TCP"));
        assert_eq!(found, expected, "{what}");
    }
    for program in PROGRAMS {
        assert!(
            !policies.allow(&pod(&all, program), "egress", &INTERNET, 9999, "UDP"),
            "{program}"
        );
    }
}

#[test]
fn each_program_is_reached_at_its_one_port() {
    let all = all();
    let policies = Policies::among(all.clone());
    let neighbour = Peer::Pod("shop", json!({ "app": "database" }));
    for program in PROGRAMS {
        let labels = pod(&all, program);
        for (peer, port, expected) in [
            (&API_SERVER, 8443, true),
            (&neighbour, 8443, true),
            (&neighbour, 8080, false),
            (&API_SERVER, 22, false),
        ] {
            let found = policies.allow(&labels, "ingress", peer, port, "TCP");
            assert_eq!(found, expected, "{program} {port}");
        }
    }
    let poller = json!({
        "cdi.kubevirt.io/dataImportCronPoller": "", "np.kubevirt.io/allow-access-cluster-services": "true",
    });
    assert!(!policies.allow(&poller, "ingress", &neighbour, 8443, "TCP"));
    assert!(policies.allow(&poller, "egress", &INTERNET, 5000, "TCP"));
    assert!(policies.allow(&poller, "egress", &API_SERVER, 6443, "TCP"));
    assert!(!policies.allow(&poller, "egress", &METADATA, 80, "TCP"));
    // What users run in the namespace is theirs.
    let own = json!({ "app": "own" });
    assert!(policies.allow(&own, "ingress", &neighbour, 1, "TCP"));
}

#[test]
fn programs_of_the_operator_reach_an_api_server_at_any_port() {
    let platform = Platform { api_server_ports: [16443].into(), ..kubernetes() };
    let all = desired(json!({}), &platform).objects;
    let policies = Policies::among(all.clone());
    for program in ["cdi-apiserver", "cdi-deployment", "cdi-uploadproxy"] {
        let labels = pod(&all, program);
        for port in [443, 6443, 16443] {
            assert!(
                policies.allow(&labels, "egress", &API_SERVER, port, "TCP"),
                "{program} {port}"
            );
        }
    }
    // The operator and its check are not part of the set, but of the policies.
    let check = json!({ "np.kubevirt.io/allow-access-cluster-services": "true" });
    assert!(policies.allow(&check, "egress", &API_SERVER, 16443, "TCP"));
    let proxy = pod(&all, "cdi-uploadproxy");
    assert!(!policies.allow(&proxy, "egress", &API_SERVER, 16444, "TCP"));
}

/// The operator creates the policies, and they apply to its own connections.
#[test]
fn denial_follows_the_policies_that_allow() {
    let all = [all(), desired(json!({}), &kubernetes()).objects];
    for objects in all {
        let policies = Policies::among(objects).0;
        let denies = |policy: &&Value| {
            let rules = ["ingress", "egress"].map(|member| &policy["spec"][member]);
            rules.iter().all(|rules| rules.as_array().is_some_and(Vec::is_empty))
        };
        let denials: Vec<_> = policies.iter().filter(denies).map(name).collect();
        assert_eq!(denials, ["cdi-default-deny"]);
        assert_eq!(policies.last().map(name), Some("cdi-default-deny"));
    }
}

/// The policy that the guide gives to users, in addition to one that denies everything.
#[test]
fn workers_have_their_connections_in_a_namespace_that_denies_all_others() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples/networkpolicy-workers.yaml");
    let documented = yaml_serde::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let denial = json!({ "kind": "NetworkPolicy", "spec": {
        "podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [], "egress": [],
    } });
    let policies = Policies::among(vec![documented, denial]);
    let controller = Peer::Pod("cdi", json!({ "cdi.kubevirt.io": "cdi-deployment" }));
    let proxy = Peer::Pod("cdi", json!({ "cdi.kubevirt.io": "cdi-uploadproxy" }));
    let neighbour = Peer::Pod("shop", json!({ "app": "database" }));
    let (reader, server) = (worker("cdi-clone-source"), worker("cdi-upload-server"));
    let labels = |component: &str| json!({ "cdi.kubevirt.io": component });
    let table = [
        ("importer", "ingress", &controller, 8443, true),
        ("importer", "ingress", &neighbour, 8443, false),
        ("importer", "egress", &INTERNET, 443, true),
        ("importer", "egress", &neighbour, 5000, true),
        ("importer", "egress", &METADATA, 80, false),
        ("cdi-upload-server", "ingress", &proxy, 8443, true),
        ("cdi-upload-server", "ingress", &controller, 8443, true),
        ("cdi-upload-server", "ingress", &reader, 8443, true),
        ("cdi-upload-server", "ingress", &neighbour, 8443, false),
        ("cdi-upload-server", "ingress", &proxy, 22, false),
        ("cdi-clone-source", "ingress", &controller, 8443, true),
        ("cdi-clone-source", "egress", &server, 8443, true),
        ("cdi-forklift-populator", "ingress", &controller, 8443, true),
        ("cdi-forklift-populator", "egress", &INTERNET, 54322, true),
        ("own", "ingress", &controller, 8443, false),
        ("own", "egress", &INTERNET, 443, false),
    ];
    for (component, direction, peer, port, expected) in table {
        let found = policies.allow(&labels(component), direction, peer, port, "TCP");
        assert_eq!(found, expected, "{component} {direction} {peer:?} {port}");
    }
    for component in ["importer", "cdi-clone-source", "cdi-forklift-populator"] {
        assert!(
            policies.allow(&labels(component), "egress", &API_SERVER, 53, "UDP"),
            "{component}"
        );
    }
}

#[test]
fn metrics_are_read_by_the_monitoring_stack_alone_where_that_is_chosen() {
    let all = with_options(&[METRICS_NETWORK_FILE]);
    let policies = Policies::among(all.clone());
    let (prometheus, neighbour) =
        (Peer::Pod("monitoring", json!({})), Peer::Pod("shop", json!({})));
    for (program, peer, expected) in [
        ("cdi-operator", &prometheus, true),
        ("cdi-deployment", &prometheus, true),
        ("cdi-operator", &neighbour, false),
        ("cdi-deployment", &neighbour, false),
        ("cdi-apiserver", &API_SERVER, true),
        ("cdi-uploadproxy", &neighbour, true),
    ] {
        let found = policies.allow(&pod(&all, program), "ingress", peer, 8443, "TCP");
        assert_eq!(found, expected, "{program} {peer:?}");
    }
}

#[test]
fn every_policy_has_a_description() {
    for policy in Policies::among(all()).0 {
        let words = policy["metadata"]["annotations"]["kubernetes.io/description"].as_str();
        assert!(words.is_some_and(|words| words.len() > 40), "{}", name(&policy));
    }
}
