//! What the operator, and the check of an installation, may do.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod objects;

use k8s_openapi::api::rbac::v1::PolicyRule;
use objects::authorization::Installed;
use objects::name;
use objects::platforms::{desired, openshift};
use operator::manifests::{CHECK_FILE, OPERATOR_FILE, Settings, release};
use serde_json::{Value, json};

/// What a file of `deploy/operator` installs.
fn released(file: &str) -> Installed {
    let files = release(&Settings::default(), "1.2.3");
    Installed(files.into_iter().find(|(name, _)| *name == file).unwrap().1)
}

fn installer() -> Installed {
    released(OPERATOR_FILE)
}

/// All objects that the operator may have to create.
fn deployed() -> Vec<Value> {
    let spec = json!({
        "priorityClass": "system-cluster-critical",
        "infra": { "apiServerReplicas": 2 },
        "config": { "uploadProxyURLOverride": "https://uploads.example.test" },
        "customizeComponents": { "flags": { "controller": { "poll-from": "jobs" } } },
    });
    let mut all = desired(spec.clone(), &openshift()).objects;
    let mut ingress = openshift();
    ingress.apis.remove(&operator::desired::PlatformApi::Route);
    all.extend(desired(spec, &ingress).objects.into_iter().filter(|one| one["kind"] == "Ingress"));
    all
}

#[test]
fn operator_may_create_and_keep_every_object_of_an_installation() {
    let installer = installer();
    for object in deployed() {
        for verb in ["list", "watch", "create", "get", "update"] {
            let request = format!("{verb} {} {}", resource(&object), address(&object));
            assert!(installer.may("cdi-operator", &request), "{request}");
        }
    }
}

#[test]
fn check_reads_every_object_of_an_installation_and_writes_none() {
    let check = released(CHECK_FILE);
    let account = "cdi-operator-check";
    for object in deployed() {
        let request = format!("get {} {}", resource(&object), address(&object));
        assert!(check.may(account, &request), "{request}");
    }
    for request in [
        "list cdi.kubevirt.io/cdis",
        "get /configmaps cdi/cdi-config",
        "get /configmaps cdi/cdi-uploadproxy-signer-bundle",
        "list route.openshift.io/routes cdi",
    ] {
        assert!(check.may(account, request), "{request}");
    }
    let own = check.0.iter().filter(|role| role["rules"].is_array());
    let rules = own.flat_map(|role| role["rules"].as_array().unwrap());
    for rule in rules {
        let verbs = rule["verbs"].as_array().unwrap();
        assert!(verbs.iter().all(|verb| verb == "get" || verb == "list"), "{rule}");
    }
    assert!(!check.may(account, "get /secrets cdi/cdi-apiserver-signer"));
    // Deleting the check deletes nothing that others use.
    for object in &check.0 {
        assert_eq!(name(object), account);
    }
}

/// `GROUP/RESOURCE`
fn resource(object: &Value) -> String {
    let (group, _) = object["apiVersion"].as_str().unwrap().rsplit_once('/').unwrap_or_default();
    let kind = object["kind"].as_str().unwrap().to_lowercase();
    let plural = match kind.as_str() {
        "ingress" => "ingresses".to_owned(),
        "networkpolicy" => "networkpolicies".to_owned(),
        "securitycontextconstraints" => kind,
        _ => format!("{kind}s"),
    };
    format!("{group}/{plural}")
}

/// `NAMESPACE/NAME`
fn address(object: &Value) -> String {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    format!("{namespace}/{}", name(object))
}

/// Kubernetes refuses a role with permissions that its author does not have.
#[test]
fn operator_has_every_permission_that_it_grants() {
    let installer = installer();
    let held = installer.rules_of("cdi-operator");
    let mut checked = 0;
    for role in deployed() {
        let Some(rules) = role["rules"].as_array() else { continue };
        let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
        for rule in rules {
            let rule: PolicyRule = serde_json::from_value(rule.clone()).unwrap();
            let is_held = held.iter().any(|(place, held)| {
                (place.is_empty() || place == namespace)
                    && held.non_resource_urls == rule.non_resource_urls
                    && covers(held.api_groups.as_ref(), rule.api_groups.as_ref())
                    && covers(held.resources.as_ref(), rule.resources.as_ref())
                    && covers(Some(&held.verbs), Some(&rule.verbs))
                    && (held.resource_names.is_none() || held.resource_names == rule.resource_names)
            });
            assert!(is_held, "{}: {rule:?}", name(&role));
            checked += 1;
        }
    }
    assert!(checked > 40, "{checked}");
}

fn covers(held: Option<&Vec<String>>, granted: Option<&Vec<String>>) -> bool {
    let held = held.map(Vec::as_slice).unwrap_or_default();
    granted.into_iter().flatten().all(|one| held.contains(one))
}

#[test]
fn operator_may_do_its_work_and_no_more() {
    let installer = installer();
    for request in [
        "update cdi.kubevirt.io/cdis /cdi",
        "update cdi.kubevirt.io/cdis/finalizers /cdi",
        "list cdi.kubevirt.io/datavolumes",
        "delete /pods vms/importer",
        "delete /services vms/cdi-upload-disk",
        "update apiextensions.k8s.io/customresourcedefinitions/status /datavolumes.cdi.kubevirt.io",
        "update /configmaps cdi/cdi-config",
        "delete /configmaps cdi/cdi-insecure-registries",
        "delete apps/deployments cdi/cdi-deployment",
        "delete networking.k8s.io/ingresses cdi/cdi-uploadproxy",
        "delete admissionregistration.k8s.io/mutatingwebhookconfigurations /cdi-api-pvc-mutate",
        "update /secrets cdi/cdi-apiserver-signer",
        "get scheduling.k8s.io/priorityclasses /kubevirt-cluster-critical",
        "get discovery.k8s.io/endpointslices default/kubernetes",
        "create route.openshift.io/routes/custom-host cdi",
        "update coordination.k8s.io/leases cdi/cdi-operator-leader-election-helper",
        "create /events default",
        "delete admissionregistration.k8s.io/mutatingwebhookconfigurations /cdi-api-dataimportcron-mutate",
    ] {
        assert!(installer.may("cdi-operator", request), "{request}");
    }
    for request in [
        "get /secrets vms/any",
        "list /secrets vms",
        "update /secrets cdi/registry",
        "delete /secrets cdi/registry",
        "delete /secrets cdi/cdi-api-signing-key",
        "delete /configmaps cdi/cdi-config",
        "delete security.openshift.io/securitycontextconstraints /containerized-data-importer",
        "update /configmaps cdi/any",
        "list /configmaps vms",
        "update rbac.authorization.k8s.io/clusterroles /cluster-admin",
        "delete rbac.authorization.k8s.io/clusterroles /any",
        "update rbac.authorization.k8s.io/clusterrolebindings /any",
        "create rbac.authorization.k8s.io/roles vms",
        "create rbac.authorization.k8s.io/rolebindings kube-system",
        "escalate rbac.authorization.k8s.io/clusterroles /cdi",
        "bind rbac.authorization.k8s.io/clusterroles /cluster-admin",
        "impersonate /users /admin",
        "delete apiextensions.k8s.io/customresourcedefinitions /virtualmachines.kubevirt.io",
        "update admissionregistration.k8s.io/validatingwebhookconfigurations /any",
        "update apiregistration.k8s.io/apiservices /v1beta1.metrics.k8s.io",
        "update security.openshift.io/securitycontextconstraints /restricted-v2",
        "create apps/deployments vms",
        "create /pods/exec cdi/any",
        "create /serviceaccounts/token cdi/cdi-sa",
        "delete cdi.kubevirt.io/cdis /cdi",
        "delete /namespaces /cdi",
        "get discovery.k8s.io/endpointslices vms/any",
    ] {
        assert!(!installer.may("cdi-operator", request), "{request}");
    }
}

/// Those that it has only to grant them are in roles of their own.
#[test]
fn operator_works_without_the_permissions_that_it_grants() {
    let mut own = installer();
    own.0.retain(|object| name(object) != "cdi-operator-granted");
    for object in deployed() {
        for verb in ["list", "watch", "create", "get", "update"] {
            let request = format!("{verb} {} {}", resource(&object), address(&object));
            assert!(own.may("cdi-operator", &request), "{request}");
        }
    }
    for request in [
        "get cdi.kubevirt.io/cdiconfigs /config",
        "list cdi.kubevirt.io/datavolumes",
        "update cdi.kubevirt.io/datavolumes vms/disk",
        "list /pods vms",
        "delete /services vms/cdi-upload-disk",
        "create /events default",
        "create authentication.k8s.io/tokenreviews",
    ] {
        assert!(own.may("cdi-operator", request), "{request}");
    }
    for request in [
        "create /persistentvolumeclaims vms",
        "create /pods vms",
        "create cdi.kubevirt.io/datavolumes vms",
        "create /secrets vms",
        "get /secrets cdi/registry",
        "list batch/cronjobs cdi",
    ] {
        assert!(!own.may("cdi-operator", request), "{request}");
        assert!(installer().may("cdi-operator", request), "{request}");
    }
}

/// A wildcard is in those rules only that the roles of users have.
#[test]
fn operator_has_wildcards_only_to_grant_them_to_users() {
    let of_users: Vec<PolicyRule> = deployed()
        .iter()
        .filter(|role| role["kind"] == "ClusterRole" && name(role).starts_with("cdi.kubevirt.io:"))
        .flat_map(|role| serde_json::from_value::<Vec<PolicyRule>>(role["rules"].clone()).unwrap())
        .collect();
    for (_, rule) in installer().rules_of("cdi-operator") {
        let groups = rule.api_groups.iter().flatten();
        let words = rule.verbs.iter().chain(rule.resources.iter().flatten()).chain(groups);
        let words: Vec<_> = words.map(String::as_str).collect();
        assert!(!words.contains(&"*") || of_users.contains(&rule), "{rule:?}");
        for verb in ["escalate", "bind", "impersonate", "deletecollection"] {
            assert!(!words.contains(&verb), "{rule:?}");
        }
        let names = rule.resource_names.is_some();
        assert!(!(names && rule.verbs.iter().any(|verb| verb == "create")), "{rule:?}");
    }
}
