//! The kinds of OpenShift, with the fields that are read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// Name of the only Infrastructure.
pub const INFRASTRUCTURE: &str = "cluster";
/// Name of the only Proxy.
pub const PROXY: &str = "cluster";
/// The topology of one node.
const SINGLE: &str = "SingleReplica";

/// An endpoint for clients outside of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Route {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: RouteSpec,
    #[serde(default)]
    pub status: RouteStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteSpec {
    /// Usually a service.
    #[serde(default)]
    pub to: RouteTarget,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteTarget {
    /// Of the service.
    #[serde(default)]
    pub name: String,
}

/// The state of a Route, reported by the routers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteStatus {
    /// One for each router. May be empty or absent.
    #[serde(default)]
    pub ingress: Option<Vec<RouteIngress>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteIngress {
    #[serde(default)]
    pub host: String,
}

impl Route {
    /// The host at which the first router admits clients of this service.
    pub fn host_of(&self, service: &str) -> Option<&str> {
        let first = self.status.ingress.as_ref()?.first()?;
        (self.spec.to.name == service && !first.host.is_empty()).then_some(&*first.host)
    }
}

/// The infrastructure of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Infrastructure {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub status: InfrastructureStatus,
}

/// The topology of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InfrastructureStatus {
    /// Of the nodes for shared workloads.
    #[serde(default)]
    pub infrastructure_topology: String,
    /// Of the nodes of the control plane.
    #[serde(default)]
    pub control_plane_topology: String,
}

impl Infrastructure {
    /// Whether there is one node, so that no volume has to be reached from two.
    pub fn is_single_node(&self) -> bool {
        let InfrastructureStatus { infrastructure_topology, control_plane_topology } = &self.status;
        control_plane_topology == SINGLE && matches!(infrastructure_topology.as_str(), SINGLE | "")
    }
}

/// The proxies between the cluster and other networks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Proxy {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: ProxySpec,
    /// The effective proxies. `no_proxy` includes the hosts of the cluster itself.
    #[serde(default)]
    pub status: ProxyStatus,
}

/// The requested proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxySpec {
    /// A ConfigMap of `openshift-config`.
    #[serde(default, rename = "trustedCA")]
    pub trusted_ca: ProxyAuthority,
}

/// Reference to the CA certificates that sign the certificates of the proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyAuthority {
    /// Of the ConfigMap; may be empty.
    #[serde(default)]
    pub name: String,
}

/// The effective proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyStatus {
    /// For http.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_proxy: Option<String>,
    /// For https.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub https_proxy: Option<String>,
    /// Hosts to connect to without a proxy, comma-separated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_proxy: Option<String>,
}

impl Proxy {
    /// Name of the ConfigMap with the CA certificates of the proxies.
    pub fn authority(&self) -> Option<&str> {
        Some(self.spec.trusted_ca.name.as_str()).filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn route_has_a_host_once_a_router_has_admitted_it() {
        let host = |to: &str, status: Value| {
            let route = json!({ "spec": { "host": "asked.test", "to": { "kind": "Service", "name": to } }, "status": status });
            let route: Route = serde_json::from_value(route).unwrap();
            route.host_of("up").map(str::to_owned)
        };
        let taken = json!({ "ingress": [{ "host": "a.test" }, { "host": "b.test" }] });
        assert_eq!(host("up", taken.clone()).as_deref(), Some("a.test"));
        assert_eq!(host("other", taken), None);
        for status in [
            json!({}),
            json!({ "ingress": null }),
            json!({ "ingress": [] }),
            json!({ "ingress": [{}] }),
        ] {
            assert_eq!(host("up", status.clone()), None, "{status}");
        }
    }

    #[test]
    fn proxy_without_settings_is_read() {
        let proxy: Proxy =
            serde_json::from_value(json!({ "spec": { "trustedCA": { "name": "" } } })).unwrap();
        assert_eq!((proxy.authority(), &proxy.status), (None, &ProxyStatus::default()));
        let proxy: Proxy = serde_json::from_value(json!({
            "spec": { "trustedCA": { "name": "ca" }, "httpProxy": "http://asked" },
            "status": { "httpProxy": "http://p:3128", "noProxy": ".svc,10.0.0.0/8" },
        }))
        .unwrap();
        assert_eq!(proxy.authority(), Some("ca"));
        assert_eq!(proxy.status.http_proxy.as_deref(), Some("http://p:3128"));
        assert_eq!(proxy.status.no_proxy.as_deref(), Some(".svc,10.0.0.0/8"));
    }

    #[test]
    fn single_node_topology_decision_table() {
        for (control_plane, infrastructure, expected) in [
            ("SingleReplica", "SingleReplica", true),
            ("SingleReplica", "", true), // older versions know only the one
            ("SingleReplica", "HighlyAvailable", false),
            ("External", "SingleReplica", false),
            ("HighlyAvailable", "HighlyAvailable", false),
            ("", "", false),
        ] {
            let infrastructure: Infrastructure = serde_json::from_value(json!({ "status": {
                "controlPlaneTopology": control_plane, "infrastructureTopology": infrastructure,
            } }))
            .unwrap();
            assert_eq!(infrastructure.is_single_node(), expected, "{infrastructure:?}");
        }
        assert!(!Infrastructure::default().is_single_node());
    }
}
