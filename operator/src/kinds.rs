//! The kinds of objects that the operator reads and writes, with their paths in the API.

use std::fmt;

use serde_json::Value;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// Empty for the core API.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub scope: Scope,
    pub origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    Cluster,
    Namespaced,
}

/// Whether every cluster serves the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    Kubernetes,
    /// A CRD or an aggregated API of the platform, which may be missing or appear later.
    Platform,
}

const fn cluster(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> Kind {
    Kind { group, version, kind, plural, scope: Scope::Cluster, origin: Origin::Kubernetes }
}

const fn namespaced(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> Kind {
    Kind { group, version, kind, plural, scope: Scope::Namespaced, origin: Origin::Kubernetes }
}

const fn platform(kind: Kind) -> Kind {
    Kind { origin: Origin::Platform, ..kind }
}

const ADMISSION: &str = "admissionregistration.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";

pub static API_SERVICE: Kind = cluster("apiregistration.k8s.io", "v1", "APIService", "apiservices");
pub static CLUSTER_ROLE: Kind = cluster(RBAC, "v1", "ClusterRole", "clusterroles");
pub static CLUSTER_ROLE_BINDING: Kind =
    cluster(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings");
pub static CONFIG_MAP: Kind = namespaced("", "v1", "ConfigMap", "configmaps");
pub static CRD: Kind =
    cluster("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
pub static DEPLOYMENT: Kind = namespaced("apps", "v1", "Deployment", "deployments");
pub static ENDPOINT_SLICE: Kind =
    namespaced("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices");
pub static INGRESS: Kind = namespaced("networking.k8s.io", "v1", "Ingress", "ingresses");
pub static LEASE: Kind = namespaced("coordination.k8s.io", "v1", "Lease", "leases");
pub static MUTATING_WEBHOOKS: Kind =
    cluster(ADMISSION, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations");
pub static NETWORK_POLICY: Kind =
    namespaced("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies");
pub static POD_DISRUPTION_BUDGET: Kind =
    namespaced("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets");
pub static PRIORITY_CLASS: Kind =
    cluster("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses");
pub static RESOURCE_QUOTA: Kind = namespaced("", "v1", "ResourceQuota", "resourcequotas");
pub static ROLE: Kind = namespaced(RBAC, "v1", "Role", "roles");
pub static ROLE_BINDING: Kind = namespaced(RBAC, "v1", "RoleBinding", "rolebindings");
pub static SECRET: Kind = namespaced("", "v1", "Secret", "secrets");
pub static SERVICE: Kind = namespaced("", "v1", "Service", "services");
pub static SERVICE_ACCOUNT: Kind = namespaced("", "v1", "ServiceAccount", "serviceaccounts");
pub static VALIDATING_WEBHOOKS: Kind =
    cluster(ADMISSION, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations");

pub static PROMETHEUS_RULE: Kind =
    platform(namespaced("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"));
pub static ROUTE: Kind = platform(namespaced("route.openshift.io", "v1", "Route", "routes"));
pub static SECURITY_CONTEXT_CONSTRAINTS: Kind = platform(cluster(
    "security.openshift.io",
    "v1",
    "SecurityContextConstraints",
    "securitycontextconstraints",
));
pub static SERVICE_MONITOR: Kind =
    platform(namespaced("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"));
pub static VOLUME_POPULATOR: Kind =
    platform(cluster("populator.storage.k8s.io", "v1beta1", "VolumePopulator", "volumepopulators"));

pub static CDI: Kind = cluster("cdi.kubevirt.io", "v1beta1", "CDI", "cdis");
pub static CDI_CONFIG: Kind = cluster("cdi.kubevirt.io", "v1beta1", "CDIConfig", "cdiconfigs");
pub static POD: Kind = namespaced("", "v1", "Pod", "pods");

/// The kinds of objects that an installation may consist of.
pub static INSTALLED_KINDS: [&Kind; 23] = [
    &API_SERVICE,
    &CLUSTER_ROLE,
    &CLUSTER_ROLE_BINDING,
    &CONFIG_MAP,
    &CRD,
    &DEPLOYMENT,
    &INGRESS,
    &MUTATING_WEBHOOKS,
    &NETWORK_POLICY,
    &POD_DISRUPTION_BUDGET,
    &PROMETHEUS_RULE,
    &RESOURCE_QUOTA,
    &ROLE,
    &ROLE_BINDING,
    &ROUTE,
    &SECRET,
    &SECURITY_CONTEXT_CONSTRAINTS,
    &SERVICE,
    &SERVICE_ACCOUNT,
    &SERVICE_MONITOR,
    &VALIDATING_WEBHOOKS,
    &VOLUME_POPULATOR,
    &PRIORITY_CLASS,
];

impl Kind {
    /// `group/version`, or `version` for the core API.
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The path of the kind's objects in a namespace, or in all of them if that is empty.
    pub fn collection_path(&self, namespace: &str) -> String {
        let base = match self.group {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        match (self.scope, namespace) {
            (Scope::Namespaced, namespace) if !namespace.is_empty() => {
                format!("{base}/namespaces/{namespace}/{}", self.plural)
            }
            _ => format!("{base}/{}", self.plural),
        }
    }
}

/// Identifies an object of the installation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectId {
    pub kind: &'static Kind,
    /// Empty for kinds of the cluster's scope.
    pub namespace: String,
    pub name: String,
}

impl ObjectId {
    pub fn new(kind: &'static Kind, namespace: &str, name: &str) -> Self {
        let namespace = match kind.scope {
            Scope::Cluster => "",
            Scope::Namespaced => namespace,
        };
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// `None` for an object of a kind that no installation has, and for one without a name.
    pub fn of_object(object: &Value) -> Option<Self> {
        let (api_version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let kind =
            INSTALLED_KINDS.into_iter().find(|known| known.group == group && known.kind == kind)?;
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        Some(Self::new(kind, namespace, metadata["name"].as_str()?))
    }
}

/// Such as `Deployment cdi/cdi-apiserver`.
impl fmt::Display for ObjectId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => write!(formatter, "{} {}", self.kind.kind, self.name),
            namespace => write!(formatter, "{} {namespace}/{}", self.kind.kind, self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_follow_group_and_scope() {
        assert_eq!(CONFIG_MAP.collection_path("cdi"), "/api/v1/namespaces/cdi/configmaps");
        assert_eq!(POD.collection_path(""), "/api/v1/pods");
        assert_eq!(CDI.collection_path("cdi"), "/apis/cdi.kubevirt.io/v1beta1/cdis");
        assert_eq!(DEPLOYMENT.collection_path("cdi"), "/apis/apps/v1/namespaces/cdi/deployments");
    }

    #[test]
    fn object_identity_ignores_the_namespace_of_cluster_wide_kinds() {
        let object = |api: &str, kind: &str| json!({ "apiVersion": api, "kind": kind, "metadata": { "name": "a", "namespace": "cdi" } });
        let id = ObjectId::of_object(&object("apps/v1", "Deployment")).unwrap();
        assert_eq!(id.to_string(), "Deployment cdi/a");
        let id = ObjectId::of_object(&object("rbac.authorization.k8s.io/v1", "ClusterRole"));
        assert_eq!(id.unwrap().to_string(), "ClusterRole a");
        assert_eq!(ObjectId::of_object(&object("example.com/v1", "Deployment")), None);
        assert_eq!(ObjectId::of_object(&json!({ "apiVersion": "v1", "kind": "Secret" })), None);
    }
}
