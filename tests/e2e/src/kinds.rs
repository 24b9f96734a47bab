//! Kinds of other platforms, as CRDs of this project: they have all fields that this project reads, and validate
//! nothing else.

use anyhow::Result;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};

use crate::Test;

/// OpenShift's Route, ImageStream, Proxy, Infrastructure, SecurityContextConstraints and ConsoleCLIDownload.
pub const OPENSHIFT: &str = include_str!("../kinds/openshift.yaml");
/// The NetworkAttachmentDefinition of Multus.
pub const MULTUS: &str = include_str!("../kinds/multus.yaml");
/// PrometheusRule and ServiceMonitor of the Prometheus operator.
pub const MONITORING: &str = include_str!("../kinds/monitoring.yaml");
/// VolumePopulator of the volume data source validator.
pub const POPULATORS: &str = include_str!("../kinds/populators.yaml");

impl Test {
    /// Creates CRDs, which remain until the cluster is deleted. Several tests may do so.
    ///
    /// # Errors
    /// When the API server refuses them.
    pub fn define_kinds(&self, definitions: &str) -> Result<()> {
        self.kubectl_ok(&["apply", "--server-side", "-f", "-"], definitions)?;
        let wait = ["wait", "--for=condition=Established", "--timeout=120s", "-f", "-"];
        self.kubectl_ok(&wait, definitions).map(|_| ())
    }

    /// The objects of a kind of OpenShift's that belongs to no namespace.
    pub fn platform_objects(&self, group: &str, kind: &str) -> Api<DynamicObject> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        Api::all_with(self.client(), &kind)
    }

    /// The objects of a kind of OpenShift's in a namespace.
    pub fn platform_objects_in(
        &self,
        namespace: &str,
        group: &str,
        kind: &str,
    ) -> Api<DynamicObject> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        Api::namespaced_with(self.client(), namespace, &kind)
    }
}
