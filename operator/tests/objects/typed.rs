//! Objects as a cluster reads them: into Kubernetes' types, without a loss.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Kinds of platforms, of which there is no type here; their fields are checked by name.
const OF_PLATFORMS: [(&str, &[&str]); 5] = [
    ("PrometheusRule", &["spec"]),
    ("Route", &["spec"]),
    ("ServiceMonitor", &["spec"]),
    ("VolumePopulator", &["sourceKind"]),
    ("CDI", &["spec"]),
];

/// Reads `object` by its kind and looks for what got lost.
pub fn read_typed(object: &Value) {
    match object["kind"].as_str().unwrap() {
        "APIService" => read::<APIService>(object),
        "ClusterRole" => read::<ClusterRole>(object),
        "ClusterRoleBinding" => read::<ClusterRoleBinding>(object),
        "CustomResourceDefinition" => read::<CustomResourceDefinition>(object),
        "Deployment" => read::<Deployment>(object),
        "Ingress" => read::<Ingress>(object),
        "Job" => read::<Job>(object),
        "MutatingWebhookConfiguration" => read::<MutatingWebhookConfiguration>(object),
        "Namespace" => read::<Namespace>(object),
        "NetworkPolicy" => read::<NetworkPolicy>(object),
        "PodDisruptionBudget" => read::<PodDisruptionBudget>(object),
        "ResourceQuota" => read::<ResourceQuota>(object),
        "Role" => read::<Role>(object),
        "RoleBinding" => read::<RoleBinding>(object),
        "Secret" => read::<Secret>(object),
        "Service" => read::<Service>(object),
        "ServiceAccount" => read::<ServiceAccount>(object),
        "ValidatingWebhookConfiguration" => read::<ValidatingWebhookConfiguration>(object),
        "SecurityContextConstraints" => check_constraints(object),
        other => {
            let known = OF_PLATFORMS.iter().find(|(kind, _)| *kind == other);
            let (_, fields) = known.unwrap_or_else(|| panic!("unknown kind {other}"));
            let common = ["apiVersion", "kind", "metadata"];
            let found: BTreeSet<_> =
                object.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(found, common.into_iter().chain(fields.iter().copied()).collect());
        }
    }
}

fn read<T: DeserializeOwned + Serialize>(object: &Value) {
    let typed: T =
        serde_json::from_value(object.clone()).unwrap_or_else(|e| panic!("{object}: {e}"));
    let mut back = serde_json::to_value(&typed).unwrap();
    let mut sent = object.clone();
    for value in [&mut back, &mut sent] {
        strip(value);
    }
    assert_eq!(back, sent);
}

/// What is empty may be written or not.
fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(strip);
            fields
                .retain(|_, value| *value != json!({}) && *value != json!([]) && !value.is_null());
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// They admit workers, and nothing that a worker is not.
fn check_constraints(constraints: &Value) {
    assert_eq!(constraints["runAsUser"]["type"], "MustRunAsNonRoot");
    assert_eq!(constraints["requiredDropCapabilities"], json!(["ALL"]));
    assert_eq!(constraints["seccompProfiles"], json!(["runtime/default"]));
    for (field, value) in constraints.as_object().unwrap() {
        assert!(!field.starts_with("allow") || *value == false, "{field}");
    }
    let volumes = constraints["volumes"].as_array().unwrap();
    assert!(!volumes.contains(&"hostPath".into()) && !volumes.contains(&"*".into()), "{volumes:?}");
    for user in constraints["users"].as_array().unwrap() {
        let account = user.as_str().unwrap().strip_prefix("system:serviceaccount:cdi:").unwrap();
        assert!(api::names::SERVICE_ACCOUNTS.contains(&account), "{account}");
    }
}
