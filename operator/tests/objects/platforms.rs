//! Facts of desired sets: CDI objects, environments and platforms.

use std::collections::BTreeSet;

use api::v1beta1::Cdi;
use operator::desired::{
    DesiredFacts, DesiredSet, OperatorEnvironment, Platform, PlatformApi, desired_objects,
};
use operator::manifests::{Images, Viewers};
use serde_json::{Value, json};

pub fn environment() -> OperatorEnvironment {
    OperatorEnvironment {
        namespace: "cdi".into(),
        version: "1.2.3".into(),
        images: Images::tagged("registry.example", "v1.2.3"),
        pull_policy: "IfNotPresent".into(),
        verbosity: 1,
        monitoring_namespace: None,
        runbook_url_template: None,
        deploys_cluster_resources: true,
        viewers: Viewers::MayClone,
        dumps_objects: false,
    }
}

/// What every cluster serves.
pub fn kubernetes() -> Platform {
    Platform {
        apis: [PlatformApi::Ingress, PlatformApi::NetworkPolicy].into(),
        has_priority_class: true,
        ..Platform::default()
    }
}

/// Everything but Ingresses, which are there and not used.
pub fn openshift() -> Platform {
    Platform {
        apis: BTreeSet::from(PlatformApi::ALL),
        upload_proxy_ca: Some("-----BEGIN CERTIFICATE-----\n".into()),
        ..kubernetes()
    }
}

pub fn cdi(spec: Value) -> Cdi {
    let metadata = json!({ "name": "cdi", "uid": "u" });
    serde_json::from_value(json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDI", "metadata": metadata, "spec": spec,
    }))
    .unwrap()
}

pub fn desired(spec: Value, platform: &Platform) -> DesiredSet {
    let environment = environment();
    desired_objects(&DesiredFacts { cdi: &cdi(spec), environment: &environment, platform })
}
