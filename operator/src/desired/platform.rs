//! What the desired objects depend on besides the CDI object: kinds that only some clusters serve, and state of others.

use std::collections::BTreeSet;

/// An API that not every cluster serves. Objects of its kind are desired only where it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlatformApi {
    Route,
    Ingress,
    SecurityContextConstraints,
    PrometheusRule,
    ServiceMonitor,
    VolumePopulator,
    NetworkPolicy,
}

impl PlatformApi {
    pub const ALL: [Self; 7] = [
        Self::Route,
        Self::Ingress,
        Self::SecurityContextConstraints,
        Self::PrometheusRule,
        Self::ServiceMonitor,
        Self::VolumePopulator,
        Self::NetworkPolicy,
    ];

    pub fn api_version(self) -> &'static str {
        match self {
            Self::Route => "route.openshift.io/v1",
            Self::Ingress | Self::NetworkPolicy => "networking.k8s.io/v1",
            Self::SecurityContextConstraints => "security.openshift.io/v1",
            Self::PrometheusRule | Self::ServiceMonitor => "monitoring.coreos.com/v1",
            Self::VolumePopulator => "populator.storage.k8s.io/v1beta1",
        }
    }

    pub fn kind(self) -> &'static str {
        match self {
            Self::Route => "Route",
            Self::Ingress => "Ingress",
            Self::SecurityContextConstraints => "SecurityContextConstraints",
            Self::PrometheusRule => "PrometheusRule",
            Self::ServiceMonitor => "ServiceMonitor",
            Self::VolumePopulator => "VolumePopulator",
            Self::NetworkPolicy => "NetworkPolicy",
        }
    }

    pub fn plural(self) -> &'static str {
        match self {
            Self::Route => "routes",
            Self::Ingress => "ingresses",
            Self::SecurityContextConstraints => "securitycontextconstraints",
            Self::PrometheusRule => "prometheusrules",
            Self::ServiceMonitor => "servicemonitors",
            Self::VolumePopulator => "volumepopulators",
            Self::NetworkPolicy => "networkpolicies",
        }
    }
}

/// The state of the cluster that decides about objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Platform {
    /// The served ones.
    pub apis: BTreeSet<PlatformApi>,
    /// Whether the class of [`super::priority_class`] exists.
    pub has_priority_class: bool,
    /// The CA bundle of the upload proxy (ConfigMap `cdi-uploadproxy-signer-bundle`). A Route needs it.
    pub upload_proxy_ca: Option<String>,
    /// Hosts of Routes and Ingresses in the namespace of the installation that the operator has not created. An address
    /// that one of them serves already is not served twice.
    pub foreign_hosts: BTreeSet<String>,
    /// The ports of the API servers (EndpointSlice `kubernetes` of the namespace `default`): NetworkPolicies have to allow
    /// them.
    pub api_server_ports: BTreeSet<u16>,
}

impl Platform {
    pub fn serves(&self, api: PlatformApi) -> bool {
        self.apis.contains(&api)
    }
}
