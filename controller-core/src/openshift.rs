//! What a cluster of OpenShift has besides, as far as it is looked at.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// What the only Infrastructure is called.
pub const INFRASTRUCTURE: &str = "cluster";
/// What the only Proxy is called.
pub const PROXY: &str = "cluster";
/// What a topology is called that has one node.
const SINGLE: &str = "SingleReplica";

/// A way in for clients outside of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Route {
    /// Its name.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Where it leads.
    #[serde(default)]
    pub spec: RouteSpec,
    /// What routers have made of it.
    #[serde(default)]
    pub status: RouteStatus,
}

/// Where a Route leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteSpec {
    /// To a service, as a rule.
    #[serde(default)]
    pub to: RouteTarget,
}

/// To what a Route leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteTarget {
    /// Of the service.
    #[serde(default)]
    pub name: String,
}

/// What routers have made of a Route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteStatus {
    /// One for each router. There may be none, and it may be said so.
    #[serde(default)]
    pub ingress: Option<Vec<RouteIngress>>,
}

/// What one router has made of a Route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteIngress {
    /// Where it answers.
    #[serde(default)]
    pub host: String,
}

impl Route {
    /// The host under which the first router lets in whoever wants to get to this service.
    pub fn host_of(&self, service: &str) -> Option<&str> {
        let first = self.status.ingress.as_ref()?.first()?;
        (self.spec.to.name == service && !first.host.is_empty()).then_some(&*first.host)
    }
}

/// What the cluster runs on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Infrastructure {
    /// Its name.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// As it was set up.
    #[serde(default)]
    pub status: InfrastructureStatus,
}

/// How a cluster was set up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InfrastructureStatus {
    /// Of the nodes that run what everybody needs.
    #[serde(default)]
    pub infrastructure_topology: String,
    /// Of the nodes that run the cluster itself.
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

/// The proxies between the cluster and the rest of the world.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Proxy {
    /// Its name.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// As it was asked for.
    #[serde(default)]
    pub spec: ProxySpec,
    /// As it is in force: hosts of the cluster itself are among those that are talked to without.
    #[serde(default)]
    pub status: ProxyStatus,
}

/// What is asked for of a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxySpec {
    /// A ConfigMap of `openshift-config`.
    #[serde(default, rename = "trustedCA")]
    pub trusted_ca: ProxyAuthority,
}

/// Who vouches for what a proxy shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyAuthority {
    /// Of the ConfigMap; may be empty.
    #[serde(default)]
    pub name: String,
}

/// The proxies in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyStatus {
    /// For http.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_proxy: Option<String>,
    /// For https.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub https_proxy: Option<String>,
    /// Hosts to talk to without a proxy, with commas in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_proxy: Option<String>,
}

impl Proxy {
    /// Name of the ConfigMap with the authority of the proxies.
    pub fn authority(&self) -> Option<&str> {
        Some(self.spec.trusted_ca.name.as_str()).filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_route_is_of_its_service_once_a_router_has_taken_it() {
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
    fn a_proxy_may_say_nothing() {
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
    fn one_node_is_all_of_the_cluster_or_none_of_it() {
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
