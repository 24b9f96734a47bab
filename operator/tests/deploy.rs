//! The objects of an installation: that the files are what is generated, and that a cluster can read them.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use k8s_openapi::api::apps::v1::Deployment;
use objects::typed::read_typed;
use objects::{all, name, of_kind};
use operator::chains::InstallationChains;
use operator::manifests::{Settings, files, objects as files_of, options, populators, release};
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[test]
fn the_files_are_what_is_generated() {
    let folder = Path::new(ROOT).join("deploy");
    let files = files(&Settings::default(), env!("CARGO_PKG_VERSION"));
    for (name, text) in &files {
        let found = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        // Not `assert_eq!`, which would print both files in full.
        assert!(found == *text, "deploy/{name} is out of date: run `cargo xtask manifests`");
    }
    let names: BTreeSet<_> = files.iter().map(|(name, _)| (*name).to_owned()).collect();
    let folders = [
        "",
        "options/",
        "monitoring/",
        "populators/",
        "operator/",
        "olm/manifests/",
        "olm/metadata/",
    ];
    for sub in folders {
        for entry in std::fs::read_dir(folder.join(sub)).unwrap() {
            let name = format!("{sub}{}", entry.unwrap().file_name().into_string().unwrap());
            let is_ours = !name.ends_with(".yaml") || names.contains(&name);
            assert!(is_ours, "deploy/{name} is not a generated file");
        }
    }
}

#[test]
fn what_comes_first_is_applied_first() {
    let names: Vec<_> = files_of(&Settings::default()).into_iter().map(|(name, _)| name).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(names, sorted); // as `kubectl apply -f deploy` goes
    assert_eq!(all()[0]["kind"], "Namespace");
    let mut keys = BTreeSet::new();
    for object in all() {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let key =
            (object["kind"].as_str().unwrap().to_owned(), namespace, name(&object).to_owned());
        assert!(keys.insert(key.clone()), "{key:?} comes twice");
    }
}

#[test]
fn a_cluster_reads_every_field() {
    let settings = Settings::default();
    let options = options(&settings).into_iter().flat_map(|(_, objects)| objects);
    let release = release(&settings, "1.2.3").into_iter().flat_map(|(_, objects)| objects);
    for object in all().into_iter().chain(options).chain(release) {
        read_typed(&object);
    }
}

#[test]
fn every_binding_binds_what_is_there() {
    let mut there = BTreeSet::new();
    for object in all() {
        there.insert((object["kind"].as_str().unwrap().to_owned(), name(&object).to_owned()));
    }
    for binding in of_kind("ClusterRoleBinding").into_iter().chain(of_kind("RoleBinding")) {
        let role = &binding["roleRef"];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let is_ours = binding["metadata"]["namespace"] != "kube-system";
        assert!(
            !is_ours || there.contains(&(text(&role["kind"]), text(&role["name"]))),
            "{binding}"
        );
        for subject in binding["subjects"].as_array().unwrap() {
            let key = (text(&subject["kind"]), text(&subject["name"]));
            assert!(subject["kind"] == "Group" || there.contains(&key), "{binding}");
        }
    }
    for deployment in of_kind("Deployment") {
        let account =
            deployment["spec"]["template"]["spec"]["serviceAccountName"].as_str().unwrap();
        assert!(there.contains(&("ServiceAccount".to_owned(), account.to_owned())), "{account}");
    }
}

#[test]
fn programs_are_restricted_and_find_their_files() {
    let chains = InstallationChains::new("cdi");
    let mut made: BTreeSet<&str> = chains.secrets().into_iter().chain(chains.bundles()).collect();
    made.insert("cdi-api-signing-key");
    for object in of_kind("Deployment") {
        let deployment: Deployment = serde_json::from_value(object.clone()).unwrap();
        let spec = deployment.spec.unwrap();
        let pod = spec.template.spec.unwrap();
        let labels = spec.template.metadata.unwrap().labels.unwrap();
        for (key, value) in spec.selector.match_labels.unwrap() {
            assert_eq!(labels.get(&key), Some(&value));
        }
        let context = pod.security_context.unwrap();
        assert_eq!(context.run_as_non_root, Some(true));
        assert_eq!(context.seccomp_profile.unwrap().type_, "RuntimeDefault");
        let container = &pod.containers[0];
        let context = container.security_context.as_ref().unwrap();
        assert_eq!(context.allow_privilege_escalation, Some(false));
        assert_eq!(context.read_only_root_filesystem, Some(true));
        assert_eq!(context.capabilities.as_ref().unwrap().drop, Some(vec!["ALL".to_owned()]));
        assert!(container.readiness_probe.is_some() && container.liveness_probe.is_some());
        let requests = container.resources.as_ref().unwrap().requests.as_ref().unwrap();
        assert_eq!((requests["cpu"].0.as_str(), requests["memory"].0.as_str()), ("100m", "150Mi"));
        for volume in pod.volumes.unwrap_or_default() {
            let secret = volume.secret.and_then(|secret| secret.secret_name);
            let source = secret.or_else(|| volume.config_map.map(|config| config.name));
            assert!(source.is_none_or(|name| made.contains(name.as_str())), "{}", volume.name);
        }
    }
}

#[test]
fn programs_are_bounded_and_the_webhooks_have_a_spare() {
    let mut found = BTreeMap::new();
    for object in of_kind("Deployment") {
        let pod = &object["spec"]["template"]["spec"];
        assert_eq!(pod["priorityClassName"], "system-cluster-critical", "{}", name(&object));
        let limit = pod["containers"][0]["resources"]["limits"]["memory"].as_str().unwrap();
        let replicas = object["spec"]["replicas"].as_u64().unwrap();
        found.insert(name(&object).to_owned(), (replicas, limit.to_owned()));
    }
    let expected = [
        ("cdi-apiserver", 2, "1Gi"),
        ("cdi-deployment", 1, "2Gi"),
        ("cdi-operator", 1, "512Mi"),
        ("cdi-uploadproxy", 1, "1Gi"),
    ];
    let expected = expected.map(|(name, replicas, limit)| (name.into(), (replicas, limit.into())));
    assert_eq!(found, expected.into());
    let [budget] = &of_kind("PodDisruptionBudget")[..] else { panic!("one budget") };
    assert_eq!(budget["spec"]["minAvailable"], 1);
    let mut programs = of_kind("Deployment").into_iter();
    let apiserver = programs.find(|object| name(object) == "cdi-apiserver").unwrap();
    let labels = &apiserver["spec"]["template"]["metadata"]["labels"];
    for (key, value) in budget["spec"]["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(&labels[key], value);
    }
    let operator = of_kind("Deployment").into_iter().find(|one| name(one) == "cdi-operator");
    let labels = operator.unwrap()["spec"]["template"]["metadata"]["labels"].clone();
    assert_eq!(labels["name"], "cdi-operator");
    assert_eq!(labels["operator.cdi.kubevirt.io"], "");
    let [quota] = &of_kind("ResourceQuota")[..] else { panic!("one quota") };
    // Twice as many in an update.
    let pods: u64 = found.values().map(|(replicas, _)| replicas * 2).sum();
    assert!(quota["spec"]["hard"]["pods"].as_str().unwrap().parse::<u64>().unwrap() >= pods);
}

#[test]
fn validator_is_granted_every_kind_that_pvcs_can_name() {
    let registered: BTreeMap<_, _> = populators()
        .iter()
        .map(|object| {
            assert_eq!(object["apiVersion"], "populator.storage.k8s.io/v1beta1");
            assert_eq!(object["kind"], "VolumePopulator");
            let source = &object["sourceKind"];
            let text = |member: &str| source[member].as_str().unwrap().to_owned();
            (name(object).to_owned(), format!("{}/{}", text("group"), text("kind")))
        })
        .collect();
    let expected = [
        ("openstackvolumepopulator", "forklift.cdi.kubevirt.io/OpenstackVolumePopulator"),
        ("ovirtvolumepopulator", "forklift.cdi.kubevirt.io/OvirtVolumePopulator"),
        ("volumeclonesource", "cdi.kubevirt.io/VolumeCloneSource"),
        ("volumeimportsource", "cdi.kubevirt.io/VolumeImportSource"),
        ("volumeuploadsource", "cdi.kubevirt.io/VolumeUploadSource"),
    ];
    assert_eq!(registered, expected.map(|(name, kind)| (name.into(), kind.into())).into());
    // Where `kubectl apply -f deploy` does not look: most clusters know no such kind.
    let files = files(&Settings::default(), env!("CARGO_PKG_VERSION"));
    let (file, _) = files.iter().find(|(_, text)| text.contains("kind: VolumePopulator")).unwrap();
    assert_eq!(*file, "populators/volumepopulators.yaml");
}

#[test]
fn webhooks_are_the_documented_ones() {
    let metrics_state = |object: &Value| {
        let hook = &object["webhooks"][0];
        let rule = &hook["rules"][0];
        format!(
            "{} {} {} {} {}{} {} {}",
            name(object),
            hook["name"].as_str().unwrap(),
            hook["clientConfig"]["service"]["path"].as_str().unwrap(),
            rule["operations"],
            rule["apiGroups"][0].as_str().unwrap(),
            rule["resources"],
            hook["failurePolicy"].as_str().unwrap(),
            hook["timeoutSeconds"]
        )
    };
    let kinds = ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"];
    let found: Vec<_> =
        kinds.into_iter().flat_map(of_kind).map(|object| metrics_state(&object)).collect();
    let both = r#"["CREATE","UPDATE"]"#;
    let group = "cdi.kubevirt.io";
    assert_eq!(
        found,
        [
            format!(
                "cdi-api-dataimportcron-validate dataimportcron-validate.{group} /dataimportcron-validate {both} {group}[\"dataimportcrons\"] Fail 30"
            ),
            format!(
                "cdi-api-datavolume-validate datavolume-validate.{group} /datavolume-validate {both} {group}[\"datavolumes\"] Fail 30"
            ),
            format!(
                "cdi-api-populator-validate populator-validate.{group} /populator-validate {both} {group}[\"volumeimportsources\",\"volumeuploadsources\"] Fail 30"
            ),
            format!(
                "cdi-api-validate cdi-validate.{group} /cdi-validate [\"DELETE\"] {group}[\"cdis\"] Ignore 30"
            ),
            format!(
                "objecttransfer-api-validate objecttransfer-validate.{group} /objecttransfer-validate {both} {group}[\"objecttransfers\"] Fail 30"
            ),
            format!(
                "cdi-api-datavolume-mutate datavolume-mutate.{group} /datavolume-mutate {both} {group}[\"datavolumes\"] Fail 30"
            ),
            format!(
                "cdi-api-pvc-mutate pvc-mutate.{group} /pvc-mutate [\"CREATE\"] [\"persistentvolumeclaims\"] Fail 10"
            ),
        ]
    );
}
