//! The desired objects of CDI objects and platforms: snapshots in `tests/desired`, and what holds for all of them.
//!
//! `CDI_BLESS=1 cargo test -p operator --test desired` writes the snapshots.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use api::v1beta1::Cdi;
use objects::name;
use objects::platforms::{cdi, desired, environment, kubernetes, openshift};
use objects::typed::read_typed;
use operator::desired::{
    DesiredFacts, DesiredSet, OperatorEnvironment, Platform, PlatformApi, desired_objects,
};
use operator::manifests::{OPERATOR_FILE, Settings, Viewers, release};
use serde_json::{Value, json};

struct Variant {
    name: &'static str,
    cdi: Cdi,
    environment: OperatorEnvironment,
    platform: Platform,
}

impl Variant {
    fn new(name: &'static str, spec: Value, platform: Platform) -> Self {
        Self { name, cdi: cdi(spec), environment: environment(), platform }
    }

    fn desired(&self) -> DesiredSet {
        let Self { cdi, environment, platform, .. } = self;
        desired_objects(&DesiredFacts { cdi, environment, platform })
    }
}

/// All settings that change deployed objects.
fn all_fields() -> Value {
    json!({
        "imagePullPolicy": "Always",
        "priorityClass": "storage-critical",
        "infra": {
            "nodeSelector": { "nodeType": "infra" },
            "tolerations": [{ "key": "infra", "operator": "Exists", "effect": "NoSchedule" }],
            "affinity": { "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 50,
                "podAffinityTerm": {
                    "labelSelector": { "matchLabels": { "app": "other" } },
                    "topologyKey": "topology.kubernetes.io/zone",
                },
            }] } },
            "deploymentReplicas": 2,
            "apiServerReplicas": 3,
            "uploadProxyReplicas": 1,
        },
        "workload": { "nodeSelector": { "nodeType": "workload" } },
        "config": {
            "logVerbosity": 3,
            "imagePullSecrets": [{ "name": "registry" }],
            "uploadProxyURLOverride": "https://uploads.example.test",
            "webhookPvcRendering": "Disabled",
        },
    })
}

fn customized() -> Value {
    let patch = |kind: &str, name: &str, type_: &str, patch: Value| json!({ "resourceType": kind, "resourceName": name, "type": type_, "patch": patch.to_string() });
    let container = json!([{ "name": "cdi-apiserver", "env": [{ "name": "HTTP_PROXY", "value": "http://proxy" }] }]);
    json!({ "customizeComponents": {
        "patches": [
            patch("Deployment", "cdi-apiserver", "strategic", json!({ "spec": { "template": { "spec": { "containers": container } } } })),
            patch("deployment", "*", "merge", json!({ "metadata": { "labels": { "team": "storage" } } })),
            patch("Service", "cdi-uploadproxy", "json", json!([{ "op": "replace", "path": "/spec/type", "value": "NodePort" }])),
            patch("Service", "cdi-api", "json", json!([{ "op": "replace", "path": "/none", "value": 1 }])),
        ],
        "flags": { "controller": { "v": "4", "poll-from": "jobs" } },
    } })
}

fn variants() -> Vec<Variant> {
    let served = |apis: &[PlatformApi]| {
        let mut platform = kubernetes();
        platform.apis.extend(apis);
        platform
    };
    let mut labelled = Variant::new("labelled", json!({}), kubernetes());
    let labels = [
        ("app.kubernetes.io/part-of", "hco"),
        ("app.kubernetes.io/version", "4.20"),
        ("other", "x"),
    ];
    labelled.cdi.metadata.labels =
        Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    let mut namespaced = Variant::new("namespaced", json!({}), kubernetes());
    namespaced.environment.deploys_cluster_resources = false;
    let mut strict = Variant::new("strict-view", json!({}), kubernetes());
    strict.environment.viewers = Viewers::MayRead;
    let monitored = [PlatformApi::PrometheusRule, PlatformApi::ServiceMonitor];
    let mut elsewhere = Variant::new("monitoring-elsewhere", json!({}), served(&monitored));
    elsewhere.environment.monitoring_namespace = Some("observability".into());
    elsewhere.environment.runbook_url_template = Some("https://runbooks.example/%s.md".into());
    let classless = Platform { has_priority_class: false, ..kubernetes() };
    let ports = Platform { api_server_ports: [16443].into(), ..kubernetes() };
    let system = json!({ "priorityClass": "system-cluster-critical" });
    vec![
        Variant::new("empty", json!({}), kubernetes()),
        Variant::new("all-fields", all_fields(), kubernetes()),
        Variant::new("openshift", json!({}), openshift()),
        Variant::new("openshift-all-fields", all_fields(), openshift()),
        Variant::new("monitoring", json!({}), served(&monitored)),
        Variant::new("populators", json!({}), served(&[PlatformApi::VolumePopulator])),
        Variant::new("customized", customized(), kubernetes()),
        Variant::new("two-replicas", json!({ "infra": { "apiServerReplicas": 2 } }), kubernetes()),
        Variant::new("no-priority-class", json!({}), classless),
        Variant::new("system-priority-class", system, kubernetes()),
        Variant::new("other-api-server-port", json!({}), ports),
        elsewhere,
        labelled,
        namespaced,
        strict,
    ]
}

type Key = (String, String, String);

fn key(object: &Value) -> Key {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    (text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]))
}

/// The schemas of CRDs are compared by tests of `api`.
fn without_schemas(mut object: Value) -> Value {
    if object["kind"] == "CustomResourceDefinition" {
        for version in object["spec"]["versions"].as_array_mut().unwrap() {
            version["schema"] = "…".into();
        }
    }
    object
}

/// All objects of the first variant; of the others those that differ from it, and the names of those that are missing.
fn snapshot(variant: &Variant, base: &BTreeMap<Key, Value>) -> String {
    let DesiredSet { objects, errors } = variant.desired();
    let keys: BTreeSet<_> = objects.iter().map(key).collect();
    let mut text = String::new();
    for error in &errors {
        text.push_str(&format!("# error: {error}: {}\n", error.cause));
    }
    for (kind, namespace, name) in base.keys().filter(|key| !keys.contains(key)) {
        text.push_str(&format!("# not desired: {kind} {namespace}/{name}\n"));
    }
    for object in objects.into_iter().map(without_schemas) {
        if base.get(&key(&object)) != Some(&object) {
            text.push_str("---\n");
            text.push_str(&yaml_serde::to_string(&object).unwrap());
        }
    }
    text
}

#[test]
fn desired_objects_are_the_recorded_ones() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/desired");
    let mut base = BTreeMap::new();
    let mut names = BTreeSet::new();
    for variant in variants() {
        let text = snapshot(&variant, &base);
        let name = format!("{}.yaml", variant.name);
        let path = folder.join(&name);
        if std::env::var_os("CDI_BLESS").is_some_and(|value| value == "1") {
            std::fs::write(&path, &text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        let differs = found.lines().zip(text.lines()).position(|(a, b)| a != b);
        assert!(found == text, "tests/desired/{name} differs, line {differs:?} after others");
        if base.is_empty() {
            let objects = variant.desired().objects.into_iter().map(without_schemas);
            base = objects.map(|object| (key(&object), object)).collect();
        }
        names.insert(name);
    }
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(names.contains(&name), "tests/desired/{name} is of no variant");
    }
}

#[test]
fn objects_of_every_variant_have_kubernetes_types_without_loss() {
    for variant in variants() {
        variant.desired().objects.iter().for_each(read_typed);
    }
}

#[test]
fn each_object_is_desired_once_and_after_what_it_needs() {
    for variant in variants() {
        let objects = variant.desired().objects;
        let mut earlier = BTreeSet::new();
        for object in &objects {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            let needs = |kind: &str, namespace: &str, name: &Value| {
                let key =
                    (kind.to_owned(), namespace.to_owned(), name.as_str().unwrap().to_owned());
                let is_cluster_wide = namespace.is_empty();
                let is_left_out = is_cluster_wide && variant.name == "namespaced";
                assert!(is_left_out || earlier.contains(&key), "{}: {key:?}", variant.name);
            };
            if object["roleRef"].is_object() {
                let role = &object["roleRef"];
                let kind = role["kind"].as_str().unwrap();
                needs(kind, if kind == "Role" { namespace } else { "" }, &role["name"]);
            }
            if object["kind"] == "Deployment" {
                let pod = &object["spec"]["template"]["spec"];
                needs("ServiceAccount", namespace, &pod["serviceAccountName"]);
            }
            assert!(earlier.insert(key(object)), "{}: {:?} twice", variant.name, key(object));
        }
    }
}

#[test]
fn same_facts_give_the_same_objects() {
    for variant in variants() {
        assert_eq!(variant.desired(), variant.desired(), "{}", variant.name);
    }
}

#[test]
fn every_object_has_the_common_labels() {
    for variant in variants() {
        for object in variant.desired().objects {
            let labels = &object["metadata"]["labels"];
            assert_eq!(labels["app"], "containerized-data-importer", "{}", name(&object));
            assert_eq!(labels["app.kubernetes.io/managed-by"], "cdi-operator", "{}", name(&object));
            assert_eq!(labels["app.kubernetes.io/component"], "storage", "{}", name(&object));
            let is_own = name(&object) == "cdis.cdi.kubevirt.io";
            assert!(labels["cdi.kubevirt.io"].is_string(), "{}", name(&object));
            assert_eq!(labels["operator.cdi.kubevirt.io"].is_string(), is_own, "{}", name(&object));
        }
    }
}

/// What Kubernetes does not let change, as upstream CDI has deployed it.
#[test]
fn immutable_fields_are_those_of_upstream() {
    let objects = desired(json!({}), &kubernetes()).objects;
    let of_kind = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
    let selectors: BTreeMap<_, _> =
        of_kind("Deployment").map(|one| (name(one), one["spec"]["selector"].clone())).collect();
    let component = |name: &str| json!({ "matchLabels": { "cdi.kubevirt.io": name } });
    let programs = ["cdi-apiserver", "cdi-deployment", "cdi-uploadproxy"];
    assert_eq!(selectors, programs.map(|name| (name, component(name))).into());
    let roles: BTreeMap<_, _> = of_kind("ClusterRoleBinding")
        .chain(of_kind("RoleBinding"))
        .map(|one| {
            ((one["kind"].as_str().unwrap(), name(one)), one["roleRef"]["name"].as_str().unwrap())
        })
        .collect();
    let expected = [
        (("ClusterRoleBinding", "cdi-apiserver"), "cdi-apiserver"),
        (("ClusterRoleBinding", "cdi-metrics-reader"), "cdi-metrics-reader"),
        (("ClusterRoleBinding", "cdi-sa"), "cdi"),
        (("ClusterRoleBinding", "cdi-uploadproxy"), "cdi-uploadproxy"),
        (("ClusterRoleBinding", "cdi.kubevirt.io:config-reader"), "cdi.kubevirt.io:config-reader"),
        (("RoleBinding", "cdi-apiserver"), "cdi-apiserver"),
        (("RoleBinding", "cdi-deployment"), "cdi-deployment"),
        (("RoleBinding", "cdi-uploadproxy"), "cdi-uploadproxy"),
    ];
    assert_eq!(roles, expected.into());
    let services: BTreeMap<_, _> = of_kind("Service")
        .map(|one| {
            let port = &one["spec"]["ports"][0];
            (name(one), (port["port"].as_u64().unwrap(), port["targetPort"].clone()))
        })
        .collect();
    let expected = [
        ("cdi-api", (443, json!(8443))),
        ("cdi-prometheus-metrics", (8443, json!(8443))),
        ("cdi-uploadproxy", (443, json!(8443))),
    ];
    assert_eq!(services, expected.into());
}

/// `kubectl apply` of either operator's manifest updates the objects of the other.
#[test]
fn operator_has_the_immutable_fields_of_upstreams_operator() {
    let settings = Settings::default();
    let files = release(&settings, "1.2.3");
    let (_, objects) = files.into_iter().find(|(file, _)| *file == OPERATOR_FILE).unwrap();
    let found = |kind: &str| {
        let mut found = objects.iter().filter(|object| object["kind"] == kind);
        let first = found.next().unwrap();
        // Another role is one of ours alone.
        assert!(found.all(|other| name(other) == "cdi-operator-granted"), "{kind}");
        (name(first).to_owned(), first.clone())
    };
    let (operator, deployment) = found("Deployment");
    assert_eq!(operator, "cdi-operator");
    let selector = json!({ "name": "cdi-operator", "operator.cdi.kubevirt.io": "" });
    assert_eq!(deployment["spec"]["selector"], json!({ "matchLabels": selector }));
    for (kind, binding, role) in [
        ("ClusterRoleBinding", "cdi-operator", "cdi-operator-cluster"),
        ("RoleBinding", "cdi-operator", "cdi-operator"),
    ] {
        let (name, object) = found(kind);
        assert_eq!((name.as_str(), object["roleRef"]["name"].as_str().unwrap()), (binding, role));
    }
    assert_eq!(found("CustomResourceDefinition").0, "cdis.cdi.kubevirt.io");
    assert_eq!(found("Namespace").0, "cdi");
}

/// In an update and while a node is drained.
#[test]
fn webhooks_are_served_while_pods_are_replaced() {
    for variant in variants() {
        for object in variant.desired().objects {
            if object["kind"] != "Deployment" {
                continue;
            }
            let rolling = &object["spec"]["strategy"]["rollingUpdate"];
            assert_eq!(
                *rolling,
                json!({ "maxSurge": 1, "maxUnavailable": 0 }),
                "{}",
                name(&object)
            );
            let container = &object["spec"]["template"]["spec"]["containers"][0];
            let seconds = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64();
            let serves = name(&object) != "cdi-deployment";
            assert_eq!(seconds.is_some_and(|seconds| seconds > 0), serves, "{}", name(&object));
        }
    }
    let budgets = |spec: Value| {
        let objects = desired(spec, &kubernetes()).objects;
        let budgets = objects.iter().filter(|object| object["kind"] == "PodDisruptionBudget");
        budgets.map(|object| name(object).to_owned()).collect::<Vec<_>>()
    };
    let none: [&str; 0] = [];
    assert_eq!(budgets(json!({})), none);
    assert_eq!(budgets(json!({ "infra": { "apiServerReplicas": 2 } })), ["cdi-apiserver"]);
}

#[test]
fn replicas_count_only_above_one() {
    for (count, expected) in [(-1, 1), (0, 1), (1, 1), (2, 2), (100, 100)] {
        let set = desired(json!({ "infra": { "deploymentReplicas": count } }), &kubernetes());
        let controller = set
            .objects
            .iter()
            .find(|object| object["kind"] == "Deployment" && name(object) == "cdi-deployment");
        assert_eq!(controller.unwrap()["spec"]["replicas"], expected, "{count}");
    }
}

/// Some platforms admit pods of these classes only within the quota.
#[test]
fn quota_of_critical_pods_admits_all_replicas_in_an_update() {
    for (count, expected) in [(1, "20"), (10, "26"), (100, "206"), (i32::MAX, "4294967295")] {
        let spec = json!({
            "priorityClass": "system-cluster-critical", "infra": { "apiServerReplicas": count },
        });
        let objects = desired(spec, &kubernetes()).objects;
        let quota = objects.iter().find(|object| object["kind"] == "ResourceQuota").unwrap();
        assert_eq!(quota["spec"]["hard"]["pods"], expected, "{count}");
    }
}

#[test]
fn upload_proxy_has_an_address_where_it_can_have_one() {
    let endpoint = |spec: &Value, platform: &Platform| {
        let objects = desired(spec.clone(), platform).objects;
        let is_it =
            |object: &&Value| ["Route", "Ingress"].iter().any(|kind| object["kind"] == *kind);
        objects.iter().find(is_it).map(|object| {
            let spec = &object["spec"];
            let host = spec["host"].as_str().or(spec["rules"][0]["host"].as_str());
            (object["kind"].as_str().unwrap().to_owned(), host.map(str::to_owned))
        })
    };
    let found = |kind: &str, host: Option<&str>| Some((kind.to_owned(), host.map(str::to_owned)));
    let address = |url: &str| json!({ "config": { "uploadProxyURLOverride": url } });
    let named = address("https://uploads.example.test");
    let taken = |platform: Platform| Platform {
        foreign_hosts: ["uploads.example.test".to_owned()].into(),
        ..platform
    };
    let bare = Platform { apis: [].into(), ..kubernetes() };
    let without_ca = Platform { upload_proxy_ca: None, ..openshift() };
    let port = address("https://uploads.example.test:8443");
    for (case, spec, platform, expected) in [
        ("route", &json!({}), openshift(), found("Route", None)),
        ("route with a host", &named, openshift(), found("Route", Some("uploads.example.test"))),
        ("host of another route", &named, taken(openshift()), found("Route", None)),
        ("CA not created yet", &named, without_ca, None),
        ("ingress without a host", &json!({}), kubernetes(), None),
        ("ingress", &named, kubernetes(), found("Ingress", Some("uploads.example.test"))),
        ("host of another ingress", &named, taken(kubernetes()), None),
        ("port that an ingress does not serve", &port, kubernetes(), None),
        ("no such API", &named, bare, None),
    ] {
        assert_eq!(endpoint(spec, &platform), expected, "{case}");
    }
}

#[test]
fn polling_jobs_have_permissions_only_with_their_flag() {
    let names = |spec: Value| {
        let objects = desired(spec, &kubernetes()).objects;
        objects.iter().map(|object| name(object).to_owned()).collect::<BTreeSet<_>>()
    };
    let flags = |name: &str, value: &str| json!({ "customizeComponents": { "flags": { "controller": { name: value } } } });
    assert!(names(flags("Poll-From", "jobs")).contains("cdi-polling-jobs"));
    assert!(!names(flags("poll-from", "controller")).contains("cdi-polling-jobs"));
    assert!(!names(json!({})).contains("cdi-polling-jobs"));
}

/// The example of the guide.
#[test]
fn documented_patch_raises_the_memory_limit() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/user-guide/install.md");
    let text = std::fs::read_to_string(guide).unwrap();
    let (_, rest) = text.split_once("```yaml\nspec:\n  customizeComponents:").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let spec: Value = yaml_serde::from_str(&format!("customizeComponents:{example}")).unwrap();
    let DesiredSet { objects, errors } = desired(spec, &kubernetes());
    assert_eq!(errors, []);
    let is_it =
        |object: &&Value| object["kind"] == "Deployment" && name(object) == "cdi-deployment";
    let controller = objects.iter().find(is_it).unwrap();
    let container = &controller["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["resources"]["limits"]["memory"], "4Gi");
    assert_eq!(container["args"], json!(["-v", "3"]));
}

#[test]
fn documented_cdi_objects_have_a_desired_set() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples");
    for file in ["cdi-full-config.yaml", "cdi-minimal.yaml"] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let cdi: Cdi = yaml_serde::from_str(&text).unwrap();
        let environment = environment();
        let platform = openshift();
        let facts = DesiredFacts { cdi: &cdi, environment: &environment, platform: &platform };
        let DesiredSet { objects, errors } = desired_objects(&facts);
        assert_eq!(errors, [], "{file}");
        objects.iter().for_each(read_typed);
    }
}
