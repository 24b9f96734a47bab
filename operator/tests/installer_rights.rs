//! The requests of the operator, compared with the roles of its manifest.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod memory_api;

use k8s_openapi::api::rbac::v1::PolicyRule;
use memory_api::scenario::{CDI, Operator, cluster};
use memory_api::{MemoryApi, SeenRequest};
use operator::manifests::{OPERATOR_FILE, Settings, release};
use serde_json::{Value, json};

/// Where a rule holds: everywhere if the namespace is empty.
struct GrantedRule {
    namespace: String,
    rule: PolicyRule,
}

fn granted_rules() -> Vec<GrantedRule> {
    let files = release(&Settings::default(), "1.0.0");
    let (_, objects) = files.into_iter().find(|(file, _)| *file == OPERATOR_FILE).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let bindings = objects.iter().filter(|object| object["roleRef"].is_object());
    let mut all = Vec::new();
    for binding in bindings {
        let role = &binding["roleRef"];
        let is_bound = |object: &&Value| {
            object["kind"] == role["kind"] && object["metadata"]["name"] == role["name"]
        };
        let rules = objects.iter().find(is_bound).map(|role| role["rules"].clone());
        let Some(rules) = rules else { continue };
        let rules: Vec<PolicyRule> = serde_json::from_value(rules).unwrap();
        let namespace = text(&binding["metadata"]["namespace"]);
        all.extend(
            rules.into_iter().map(|rule| GrantedRule { namespace: namespace.clone(), rule }),
        );
    }
    all
}

fn is_allowed(request: &SeenRequest, granted: &GrantedRule) -> bool {
    let GrantedRule { namespace, rule } = granted;
    let has = |all: Option<&Vec<String>>, wanted: &str| {
        all.is_some_and(|all| all.iter().any(|one| one == wanted || one == "*"))
    };
    let names = rule.resource_names.as_deref().unwrap_or_default();
    (namespace.is_empty() || *namespace == request.namespace)
        && has(Some(&rule.verbs), request.verb)
        && has(rule.api_groups.as_ref(), &request.group)
        && has(rule.resources.as_ref(), &request.resource)
        && (names.is_empty() || names.contains(&request.name))
}

async fn run_everything(api: &MemoryApi) {
    api.serve("cdi.kubevirt.io/cdiconfigs");
    api.serve_platforms();
    Operator::new(api, "1.0.0").converge().await;
    let crd = "apiextensions.k8s.io/customresourcedefinitions//datavolumes.cdi.kubevirt.io";
    api.put("cdi.kubevirt.io/datavolumes/vms/a", json!({}));
    api.edit(crd, |crd| crd["status"]["storedVersions"] = json!(["v1alpha1", "v1beta1"]));
    api.put("/configmaps/cdi/cdi-insecure-registries", json!({}));
    api.edit(CDI, |cdi| {
        cdi["metadata"]["labels"]["app.kubernetes.io/version"] = "2".into();
        cdi["spec"]["config"] = json!({ "webhookPvcRendering": "Disabled" });
    });
    for deployment in ["cdi-apiserver", "cdi-deployment", "cdi-uploadproxy"] {
        api.edit(&format!("apps/deployments/cdi/{deployment}"), |object| {
            object["spec"]["selector"]["matchLabels"]["other"] = "".into();
        });
    }
    Operator::new(api, "1.1.0").converge().await;
    for (key, label) in
        [("/pods/vms/importer-a", "importer"), ("/services/vms/a", "cdi-upload-server")]
    {
        api.put(key, json!({ "metadata": { "labels": { "cdi.kubevirt.io": label } } }));
    }
    api.put("coordination.k8s.io/leases/cdi/cdi-controller-leader-election-helper", json!({}));
    api.delete(CDI);
    Operator::new(api, "1.1.0").converge().await;
    assert!(api.get(CDI).is_none());
}

#[test]
fn watched_kinds_may_be_listed_and_watched() {
    let granted = granted_rules();
    for (group, resource, namespace) in [
        ("cdi.kubevirt.io", "cdis", ""),
        ("apiregistration.k8s.io", "apiservices", ""),
        ("rbac.authorization.k8s.io", "clusterroles", ""),
        ("rbac.authorization.k8s.io", "clusterrolebindings", ""),
        ("apiextensions.k8s.io", "customresourcedefinitions", ""),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", ""),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations", ""),
        ("security.openshift.io", "securitycontextconstraints", ""),
        ("populator.storage.k8s.io", "volumepopulators", ""),
        ("", "configmaps", "cdi"),
        ("", "resourcequotas", "cdi"),
        ("", "secrets", "cdi"),
        ("", "services", "cdi"),
        ("", "serviceaccounts", "cdi"),
        ("apps", "deployments", "cdi"),
        ("monitoring.coreos.com", "prometheusrules", "cdi"),
        ("monitoring.coreos.com", "servicemonitors", "cdi"),
        ("networking.k8s.io", "ingresses", "cdi"),
        ("networking.k8s.io", "networkpolicies", "cdi"),
        ("policy", "poddisruptionbudgets", "cdi"),
        ("rbac.authorization.k8s.io", "roles", "cdi"),
        ("rbac.authorization.k8s.io", "rolebindings", "cdi"),
        ("route.openshift.io", "routes", "cdi"),
    ] {
        for verb in ["list", "watch"] {
            let request = SeenRequest {
                verb,
                group: group.to_owned(),
                resource: resource.to_owned(),
                namespace: namespace.to_owned(),
                name: String::new(),
            };
            let is_allowed = granted.iter().any(|granted| is_allowed(&request, granted));
            assert!(is_allowed, "{verb} {group}/{resource} {namespace}");
        }
    }
}

#[tokio::test]
async fn each_request_of_the_operator_is_allowed_by_its_role() {
    let api = cluster();
    run_everything(&api).await;
    let granted = granted_rules();
    let mut requests = api.0.lock().unwrap().requests.clone();
    requests.sort();
    requests.dedup();
    assert!(requests.len() > 150, "{}", requests.len());
    let refused: Vec<_> = requests
        .iter()
        .filter(|request| !granted.iter().any(|granted| is_allowed(request, granted)))
        .map(|request| {
            let SeenRequest { verb, group, resource, namespace, name } = request;
            format!("{verb} {group}/{resource} {namespace}/{name}")
        })
        .collect();
    assert_eq!(refused, Vec::<String>::new());
}
