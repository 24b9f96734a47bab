//! The bundle of the Operator Lifecycle Manager: that it is complete, and the same as the other manifests.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod objects;

use std::collections::{BTreeMap, BTreeSet};

use api::v1beta1::Cdi;
use k8s_openapi::api::apps::v1::DeploymentSpec;
use k8s_openapi::api::rbac::v1::PolicyRule;
use objects::name;
use objects::typed::read_typed;
use operator::desired::OperatorEnvironment;
use operator::manifests::{OPERATOR_FILE, Settings, files, olm, release};
use serde_json::{Value, json};

const VERSION: &str = "1.2.3";

fn settings() -> Settings {
    Settings::tagged("registry.example/cdi", "v1.2.3")
}

fn bundle(file: &str) -> Value {
    let files = olm(&settings(), VERSION);
    files.into_iter().find(|(name, _)| name.ends_with(file)).unwrap().1
}

fn service_version() -> Value {
    bundle("clusterserviceversion.yaml")
}

fn strategy() -> Value {
    service_version()["spec"]["install"]["spec"].clone()
}

/// `deploy/operator/cdi-operator.yaml` of the same release.
fn operator_objects() -> Vec<Value> {
    let files = release(&settings(), VERSION);
    files.into_iter().find(|(file, _)| *file == OPERATOR_FILE).unwrap().1
}

fn operator(kind: &str) -> Value {
    operator_objects().into_iter().find(|object| object["kind"] == kind).unwrap()
}

/// Those that the CRD of the ClusterServiceVersion requires, and those without which a catalog does not show or install it.
#[test]
fn service_version_has_the_fields_that_olm_requires() {
    let version = service_version();
    assert_eq!(version["apiVersion"], "operators.coreos.com/v1alpha1");
    assert_eq!(version["kind"], "ClusterServiceVersion");
    assert_eq!(name(&version), "cdioperator.v1.2.3");
    assert_eq!(version["spec"]["version"], VERSION);
    assert_eq!(version["spec"]["install"]["strategy"], "deployment");
    for pointer in [
        "/spec/displayName",
        "/spec/description",
        "/spec/maturity",
        "/spec/minKubeVersion",
        "/spec/provider/name",
        "/spec/maintainers/0/name",
        "/spec/maintainers/0/email",
        "/spec/links/0/url",
        "/spec/keywords/0",
        "/metadata/annotations/description",
        "/metadata/annotations/categories",
        "/metadata/annotations/containerImage",
        "/metadata/annotations/capabilities",
    ] {
        let text = version.pointer(pointer).and_then(Value::as_str);
        assert!(text.is_some_and(|text| !text.is_empty()), "{pointer}");
    }
    let levels =
        ["Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"];
    let level = version["metadata"]["annotations"]["capabilities"].as_str().unwrap();
    assert!(levels.contains(&level), "{level}");
    let numbers = version["spec"]["minKubeVersion"].as_str().unwrap().split('.');
    assert_eq!(numbers.filter(|number| number.parse::<u32>().is_ok()).count(), 3);
    // OLM rejects members that it does not know.
    let known = BTreeSet::from([
        "customresourcedefinitions",
        "description",
        "displayName",
        "install",
        "installModes",
        "keywords",
        "links",
        "maintainers",
        "maturity",
        "minKubeVersion",
        "provider",
        "relatedImages",
        "version",
    ]);
    let found = version["spec"].as_object().unwrap().keys().map(String::as_str);
    assert_eq!(found.collect::<BTreeSet<_>>(), known);
}

/// The other modes would grant the permissions of the operator's namespace in all namespaces.
#[test]
fn operator_is_installed_for_its_own_namespace_only() {
    let version = service_version();
    let modes: BTreeMap<_, _> = version["spec"]["installModes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mode| (mode["type"].as_str().unwrap(), mode["supported"].as_bool().unwrap()))
        .collect();
    let expected = [
        ("AllNamespaces", false),
        ("MultiNamespace", false),
        ("OwnNamespace", true),
        ("SingleNamespace", false),
    ];
    assert_eq!(modes, expected.into());
}

#[test]
fn permissions_are_those_of_the_roles() {
    let strategy = strategy();
    for (member, kind) in [("clusterPermissions", "ClusterRole"), ("permissions", "Role")] {
        let [permissions] = strategy[member].as_array().unwrap().as_slice() else {
            panic!("{member}");
        };
        assert_eq!(permissions["serviceAccountName"], "cdi-operator");
        let roles = operator_objects().into_iter().filter(|role| role["kind"] == kind);
        let rules: Vec<Value> =
            roles.flat_map(|role| role["rules"].as_array().unwrap().clone()).collect();
        assert_eq!(permissions["rules"], json!(rules), "{member}");
        let rules: Vec<PolicyRule> = serde_json::from_value(permissions["rules"].clone()).unwrap();
        assert!(rules.len() > 20, "{member}");
    }
}

#[test]
fn deployment_is_that_of_the_manifest() {
    let strategy = strategy();
    let [deployment] = strategy["deployments"].as_array().unwrap().as_slice() else {
        panic!("one Deployment");
    };
    assert_eq!(deployment["name"], "cdi-operator");
    assert_eq!(deployment["spec"], operator("Deployment")["spec"]);
    let spec: DeploymentSpec = serde_json::from_value(deployment["spec"].clone()).unwrap();
    let account = spec.template.spec.unwrap().service_account_name;
    assert_eq!(account.as_deref(), Some("cdi-operator"));
}

/// The image of the container, and those in its environment: a mirror of the catalog copies the related ones.
#[test]
fn all_images_are_related() {
    let container =
        strategy()["deployments"][0]["spec"]["template"]["spec"]["containers"][0].clone();
    let env = container["env"].as_array().unwrap();
    let of_env = env.iter().filter(|one| one["name"].as_str().unwrap().ends_with("_IMAGE"));
    let mut used: BTreeSet<_> =
        of_env.map(|one| one["value"].as_str().unwrap().to_owned()).collect();
    used.insert(container["image"].as_str().unwrap().to_owned());
    assert_eq!(used.len(), 8);
    let version = service_version();
    let related = version["spec"]["relatedImages"].as_array().unwrap().clone();
    let images: Vec<_> =
        related.iter().map(|one| one["image"].as_str().unwrap().to_owned()).collect();
    assert_eq!(images.iter().cloned().collect::<BTreeSet<_>>(), used);
    assert_eq!(images.len(), used.len(), "each once");
    assert!(
        images.iter().all(|image| image.starts_with("registry.example/cdi/cdi-")),
        "{images:?}"
    );
    let names: BTreeSet<_> = related.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), images.len());
    assert_eq!(version["metadata"]["annotations"]["containerImage"], container["image"]);
}

#[test]
fn environment_of_the_operator_can_be_read() {
    let container =
        strategy()["deployments"][0]["spec"]["template"]["spec"]["containers"][0].clone();
    let env: BTreeMap<_, _> = container["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["name"].as_str().unwrap(), one["value"].as_str().unwrap().to_owned()))
        .collect();
    let environment = OperatorEnvironment::from_environment(|name| env.get(name).cloned(), "cdi")
        .unwrap()
        .unwrap();
    assert_eq!(environment.version, VERSION);
    assert_eq!(environment.images, settings().images);
    assert_eq!(environment.pull_policy, settings().pull_policy);
    assert!(environment.deploys_cluster_resources);
}

#[test]
fn examples_are_cdi_objects() {
    let version = service_version();
    let text = version["metadata"]["annotations"]["alm-examples"].as_str().unwrap();
    let examples: Vec<Value> = serde_json::from_str(text).unwrap();
    assert!(!examples.is_empty());
    for example in examples {
        let cdi: Cdi = serde_json::from_value(example.clone()).unwrap();
        let back = serde_json::to_value(&cdi).unwrap();
        assert_eq!(back["spec"], example["spec"]);
    }
}

#[test]
fn owned_kind_is_that_of_the_bundled_crd() {
    let crd = bundle("crd.yaml");
    read_typed(&crd);
    assert_eq!(crd, operator("CustomResourceDefinition"));
    let version = service_version();
    let [owned] =
        version["spec"]["customresourcedefinitions"]["owned"].as_array().unwrap().as_slice()
    else {
        panic!("one kind");
    };
    assert_eq!(owned["name"], crd["metadata"]["name"]);
    assert_eq!(owned["kind"], crd["spec"]["names"]["kind"]);
    let versions = crd["spec"]["versions"].as_array().unwrap();
    assert!(versions.iter().any(|version| version["name"] == owned["version"]));
    let schema = &versions[0]["schema"]["openAPIV3Schema"]["properties"];
    for (descriptors, part) in [("specDescriptors", "spec"), ("statusDescriptors", "status")] {
        for descriptor in owned[descriptors].as_array().unwrap() {
            let path = descriptor["path"].as_str().unwrap();
            assert!(schema[part]["properties"][path].is_object(), "{path}");
        }
    }
}

#[test]
fn image_has_the_annotations_as_labels() {
    let annotations = bundle("annotations.yaml")["annotations"].clone();
    let package = "operators.operatorframework.io.bundle.package.v1";
    assert_eq!(annotations[package], "containerized-data-importer");
    let files = files(&settings(), VERSION);
    let (_, text) = files.iter().find(|(name, _)| *name == "olm/bundle.Dockerfile").unwrap();
    let labels: serde_json::Map<String, Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("LABEL ")?.split_once('='))
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect();
    assert_eq!(Value::Object(labels), annotations);
}
