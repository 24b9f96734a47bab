use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};

use super::*;

fn claim(annotations: Value, block: bool) -> PersistentVolumeClaim {
    serde_json::from_value(json!({
        "metadata": {
            "name": "disk", "namespace": "vms", "uid": "claim-uid", "annotations": annotations,
            "labels": { "team": "a", labels::FILLING_UP_ALERT: "disabled" },
            "ownerReferences": [{ "apiVersion": "v", "kind": "DataVolume", "name": "disk", "uid": "dv-uid" }],
        },
        "spec": {
            "storageClassName": "fast", "volumeMode": if block { "Block" } else { "Filesystem" },
            "resources": { "requests": { "storage": "11327976244" } },
        },
    }))
    .unwrap()
}

fn config(spec: Value, status: Value) -> CdiConfig {
    let mut all = json!({
        "filesystemOverhead": { "global": "0.055" },
        "defaultPodResourceRequirements": { "limits": { "cpu": "1" } },
    });
    all.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "apiVersion": "v", "kind": "CDIConfig", "metadata": { "name": "config" },
        "spec": spec, "status": all,
    }))
    .unwrap()
}

struct Case {
    claim: PersistentVolumeClaim,
    config: CdiConfig,
    placement: Option<NodePlacement>,
    vddk_image: Option<&'static str>,
    importer_vddk: Option<String>,
}

impl Case {
    fn new(annotations: Value) -> Self {
        Self {
            claim: claim(annotations, false),
            config: config(json!({}), json!({})),
            placement: None,
            vddk_image: None,
            importer_vddk: None,
        }
    }

    fn with<T>(&self, use_it: impl FnOnce(&Facts) -> T) -> T {
        let image = Image {
            importer: "cdi-importer:1".into(),
            importer_vddk: self.importer_vddk.clone(),
            verbosity: 3,
            ..Image::default()
        };
        let class: StorageClass =
            serde_json::from_value(json!({ "metadata": { "name": "fast" }, "provisioner": "p" }))
                .unwrap();
        use_it(&Facts {
            claim: &self.claim,
            target: &self.claim,
            config: Some(&self.config),
            classes: &[class],
            placement: self.placement.as_ref(),
            image: &image,
            vddk_image: self.vddk_image,
            vddk_node_selector: None,
            installation: &Installation::default(),
            metrics_key: None,
        })
    }

    fn pod(&self) -> Pod {
        self.with(pod).unwrap()
    }

    fn env(&self) -> Pairs {
        let pod = self.pod();
        let env = pod.spec.unwrap().containers.remove(0).env.unwrap();
        env.into_iter().filter_map(|one| Some((one.name, one.value?))).collect()
    }
}

/// The variables that every worker has, be they empty.
const ALWAYS: [&str; 24] = [
    "IMPORTER_SOURCE",
    "IMPORTER_ENDPOINT",
    "IMPORTER_CONTENTTYPE",
    "IMPORTER_IMAGE_SIZE",
    "OWNER_UID",
    "FILESYSTEM_OVERHEAD",
    "INSECURE_TLS",
    "IMPORTER_DISK_ID",
    "IMPORTER_UUID",
    "IMPORTER_PULL_METHOD",
    "IMPORTER_READY_FILE",
    "IMPORTER_DONE_FILE",
    "IMPORTER_BACKING_FILE",
    "IMPORTER_THUMBPRINT",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "IMPORTER_CURRENT_CHECKPOINT",
    "IMPORTER_PREVIOUS_CHECKPOINT",
    "IMPORTER_FINAL_CHECKPOINT",
    "PREALLOCATION",
    "CACHE_MODE",
    "IMPORTER_REGISTRY_IMAGE_ARCHITECTURE",
    "IMPORTER_CHECKSUM",
];

#[test]
fn every_documented_variable_is_there_and_no_other() {
    let env = Case::new(json!({ import::SOURCE: "none" })).env();
    let mut expected = ALWAYS.map(str::to_owned).to_vec();
    expected.sort();
    assert_eq!(env.keys().cloned().collect::<Vec<_>>(), expected);
}

#[test]
fn job_follows_the_annotations() {
    let digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let table: Vec<(Value, Vec<(&str, &str)>)> = vec![
        (
            json!({
                import::SOURCE: "http", import::ENDPOINT: "http://h/a", import::CHECKSUM: digest,
                import::INSECURE_SKIP_VERIFY: "true", import::CERT_CONFIG_MAP: "ca",
                "cdi.kubevirt.io/storage.import.extraHeaders.10": "K: 10",
                "cdi.kubevirt.io/storage.import.extraHeaders.2": "C: 2",
            }),
            vec![
                ("IMPORTER_SOURCE", "http"),
                ("IMPORTER_ENDPOINT", "http://h/a"),
                ("IMPORTER_CHECKSUM", digest),
                ("INSECURE_TLS", "true"),
                ("IMPORTER_CERT_DIR", "/certs"),
                ("IMPORTER_EXTRA_HEADER_0", "C: 2"),
                ("IMPORTER_EXTRA_HEADER_1", "K: 10"),
                ("OWNER_UID", "dv-uid"),
                ("IMPORTER_IMAGE_SIZE", "11327976244"),
                ("FILESYSTEM_OVERHEAD", "0.055"),
                ("PREALLOCATION", "false"),
            ],
        ),
        (json!({ import::ENDPOINT: "http://h/a" }), vec![("IMPORTER_SOURCE", "http")]),
        (json!({ import::SOURCE: "odd" }), vec![("IMPORTER_SOURCE", "http")]),
        (
            json!({ import::ENDPOINT: "http://h/a", request::SOURCE_FORMAT: "raw" }),
            vec![("IMPORTER_SOURCE_FORMAT", "raw")],
        ),
        (
            json!({
                import::SOURCE: "registry", import::ENDPOINT: "docker://r:5000/i",
                import::REGISTRY_ARCHITECTURE: "arm64", state::PREALLOCATION_REQUESTED: "true",
            }),
            vec![
                ("IMPORTER_SOURCE", "registry"),
                ("INSECURE_TLS", "true"),
                ("IMPORTER_REGISTRY_IMAGE_ARCHITECTURE", "arm64"),
                ("PREALLOCATION", "true"),
            ],
        ),
        (
            json!({ import::SOURCE: "registry", import::ENDPOINT: "docker://r:5001/i" }),
            vec![("INSECURE_TLS", "false")],
        ),
        (
            json!({
                import::SOURCE: "gcs", import::ENDPOINT: "gs://b/o", import::SECRET_NAME: "key",
                request::CONTENT_TYPE: "archive",
            }),
            vec![
                ("GOOGLE_APPLICATION_CREDENTIALS", "/google/credentials.json"),
                ("IMPORTER_CONTENTTYPE", "archive"),
            ],
        ),
        (
            json!({
                import::SOURCE: "imageio", import::DISK_ID: "d", state::CHECKPOINT_CURRENT: "s2",
                state::CHECKPOINT_PREVIOUS: "s1", state::CHECKPOINT_FINAL: "true",
                import::REQUIRES_DIRECT_IO: "true",
            }),
            vec![
                ("IMPORTER_DISK_ID", "d"),
                ("IMPORTER_CURRENT_CHECKPOINT", "s2"),
                ("IMPORTER_PREVIOUS_CHECKPOINT", "s1"),
                ("IMPORTER_FINAL_CHECKPOINT", "true"),
                ("CACHE_MODE", "TRYNONE"),
            ],
        ),
    ];
    for (annotations, expected) in table {
        let mut case = Case::new(annotations.clone());
        case.config = config(json!({ "insecureRegistries": ["r:5000"] }), json!({}));
        let env = case.env();
        for (name, value) in expected {
            assert_eq!(env.get(name).map(String::as_str), Some(value), "{name} {annotations}");
        }
    }
}

#[test]
fn a_device_has_no_overhead_and_no_mount() {
    let mut case = Case::new(json!({ import::SOURCE: "none" }));
    case.claim = claim(json!({ import::SOURCE: "none" }), true);
    assert_eq!(case.env()["FILESYSTEM_OVERHEAD"], "0");
    let container = case.pod().spec.unwrap().containers.remove(0);
    assert_eq!(container.volume_devices.unwrap()[0].device_path, "/dev/cdi-block-volume");
    assert_eq!(container.volume_mounts, Some(vec![]));
}

#[test]
fn restarted_worker_has_its_journal() {
    let mounts = |source: &str, is_block: bool| {
        let mut case = Case::new(json!({ import::SOURCE: source }));
        case.claim = claim(json!({ import::SOURCE: source }), is_block);
        let container = case.pod().spec.unwrap().containers.remove(0);
        let mounts = container.volume_mounts.unwrap();
        mounts.iter().map(|mount| mount.mount_path.clone()).collect::<Vec<_>>()
    };
    assert_eq!(mounts("http", true), ["/journal"]);
    assert_eq!(mounts("http", false), ["/data"]);
    assert_eq!(mounts("none", true), [""; 0]);
}

#[test]
fn credentials_are_references_to_secrets() {
    let of = |source: &str| {
        let case = Case::new(json!({ import::SOURCE: source, import::SECRET_NAME: "creds" }));
        let env = case.pod().spec.unwrap().containers.remove(0).env.unwrap();
        let reference = |one: EnvVar| {
            let key = one.value_from?.secret_key_ref?;
            Some(format!("{}={}/{}", one.name, key.name, key.key))
        };
        env.into_iter().filter_map(reference).collect::<Vec<_>>()
    };
    assert_eq!(
        of("http"),
        ["IMPORTER_ACCESS_KEY_ID=creds/accessKeyId", "IMPORTER_SECRET_KEY=creds/secretKey"]
    );
    assert_eq!(of("gcs"), [""; 0]);
}

#[test]
fn volumes_are_mounted_at_the_paths_of_the_worker() {
    let mut case = Case::new(json!({
        import::SOURCE: "gcs", import::SECRET_NAME: "key", import::CERT_CONFIG_MAP: "ca",
        "cdi.kubevirt.io/storage.import.secretExtraHeaders.0": "h0",
        "cdi.kubevirt.io/storage.import.secretExtraHeaders.1": "h1",
        import::REQUIRES_SCRATCH: "true",
    }));
    case.config = config(json!({}), json!({ "importProxy": { "trustedCAProxy": "proxy-ca" } }));
    let spec = case.pod().spec.unwrap();
    let mounts = spec.containers[0].volume_mounts.as_ref().unwrap().iter();
    let mounts: Vec<_> = mounts.map(|m| format!("{}:{}", m.name, m.mount_path)).collect();
    assert_eq!(
        mounts,
        [
            "cdi-data-vol:/data",
            "cdi-scratch-vol:/scratch",
            "cdi-cert-vol:/certs",
            "cdi-proxy-cert-vol:/proxycerts",
            "cdi-secret-vol:/google",
            "cdi-secret-extra-headers-vol-0:/extraheaders/0",
            "cdi-secret-extra-headers-vol-1:/extraheaders/1",
        ]
    );
    let volumes = spec.volumes.unwrap();
    assert_eq!(volumes.len(), mounts.len());
    let copy = volumes[3].config_map.as_ref().unwrap();
    assert_eq!(copy.name, "import-proxy-cm-disk");
    assert_eq!(case.env()["IMPORTER_PROXY_CERT_DIR"], "/proxycerts/");
}

#[test]
fn the_node_pulls_an_image_and_serves_it_to_the_worker() {
    let case = Case::new(json!({
        import::SOURCE: "registry", import::REGISTRY_METHOD: "node",
        import::ENDPOINT: "docker://r/fedora:40", import::REGISTRY_ARCHITECTURE: "arm64",
    }));
    let env = case.env();
    for (name, value) in [
        ("IMPORTER_SOURCE", "http"),
        ("IMPORTER_ENDPOINT", "http://localhost:8100/disk.img"),
        ("IMPORTER_PULL_METHOD", "node"),
        ("IMPORTER_READY_FILE", "/shared/ready"),
        ("IMPORTER_DONE_FILE", "/shared/done"),
    ] {
        assert_eq!(env[name], value);
    }
    let pod = case.pod();
    assert!(pod.metadata.owner_references.is_some());
    let spec = pod.spec.unwrap();
    assert_eq!(spec.node_selector.unwrap()["kubernetes.io/arch"], "arm64");
    let server = &spec.containers[1];
    assert_eq!((server.name.as_str(), server.image.as_deref()), ("server", Some("r/fedora:40")));
    assert_eq!(
        server.command.as_ref().unwrap().join(" "),
        "/shared/server -p 8100 -image-dir /disk -ready-file /shared/ready -done-file /shared/done"
    );
    let init = &spec.init_containers.unwrap()[0];
    assert!(
        init.command.as_ref().unwrap()[2]
            .contains("/usr/bin/cdi-containerimage-server /shared/server")
    );

    let case = Case::new(json!({
        import::SOURCE: "registry", import::REGISTRY_METHOD: "node", import::ENDPOINT: "stream:tag",
        import::REGISTRY_IMAGE_STREAM: "true",
    }));
    let pod = case.pod();
    assert_eq!(pod.metadata.owner_references, None);
    assert_eq!(meta::annotation(&pod.metadata, state::RESOLVE_NAMES), Some("*"));
    assert_eq!(pod.spec.unwrap().containers[1].image.as_deref(), Some("stream:tag"));
}

#[test]
fn only_vddk_sources_have_the_image_with_nbdkit() {
    let image_of = |source: &str, vddk: Option<&str>| {
        let mut case =
            Case::new(json!({ import::SOURCE: source, import::ENDPOINT: "https://a/b" }));
        case.vddk_image = Some("vddk:8");
        case.importer_vddk = vddk.map(str::to_owned);
        case.pod().spec.unwrap().containers[0].image.clone().unwrap()
    };
    for (source, vddk, expected) in [
        ("vddk", Some("cdi-importer-vddk:1"), "cdi-importer-vddk:1"),
        ("vddk", None, "cdi-importer:1"),
        ("http", Some("cdi-importer-vddk:1"), "cdi-importer:1"),
        ("none", Some("cdi-importer-vddk:1"), "cdi-importer:1"),
    ] {
        assert_eq!(image_of(source, vddk), expected, "{source} {vddk:?}");
    }
}

#[test]
fn worker_of_a_pvc_with_a_volume_prefers_the_selected_node_and_does_not_require_it() {
    let claim = |volume: Option<&str>| -> PersistentVolumeClaim {
        serde_json::from_value(json!({
            "metadata": { "name": "disk", "annotations": { request::SELECTED_NODE: "node-1" } },
            "spec": { "volumeName": volume },
        }))
        .unwrap()
    };
    let term = json!({ "matchFields": [
        { "key": "metadata.name", "operator": "In", "values": ["node-1"] },
    ] });
    let required = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [term],
    } } });
    let preferred = json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
        { "weight": 100, "preference": term },
    ] } });
    for (volume, expected) in [(None, required), (Some("pvc-1"), preferred)] {
        let found = affinity(&claim(volume), None).unwrap();
        assert_eq!(serde_json::to_value(found).unwrap(), expected, "{volume:?}");
    }
}

#[test]
fn worker_pod_meets_the_restricted_standard_and_has_the_placement() {
    let mut case = Case::new(json!({
        import::SOURCE: "vddk", request::SELECTED_NODE: "node-1", request::PRIORITY_CLASS: "high",
    }));
    case.vddk_image = Some("vddk:8");
    case.placement = serde_json::from_value(json!({
        "nodeSelector": { "disk": "yes" },
        "tolerations": [{ "key": "a", "operator": "Exists" }],
        "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "x", "operator": "Exists" }] }],
        } } },
    }))
    .unwrap();
    let spec = case.pod().spec.unwrap();
    assert_eq!(spec.node_name, None, "the scheduler is not passed by");
    let affinity = serde_json::to_value(spec.affinity.as_ref().unwrap()).unwrap();
    let terms = &affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    assert_eq!(terms[0]["matchFields"][0]["values"], json!(["node-1"]));
    assert_eq!(terms[0]["matchExpressions"][0]["key"], "x");
    assert_eq!(spec.node_selector.unwrap()["disk"], "yes");
    assert_eq!(spec.tolerations.unwrap().len(), 1);
    assert_eq!(spec.priority_class_name.as_deref(), Some("high"));
    assert_eq!(spec.security_context.unwrap().fs_group, Some(107));
    let before = spec.init_containers.unwrap();
    assert_eq!(before[0].name, "vddk-side-car");
    for container in spec.containers.iter().chain(&before) {
        let context = container.security_context.as_ref().unwrap();
        assert_eq!(context.run_as_user, Some(107));
        assert_eq!(context.run_as_non_root, Some(true));
        assert_eq!(context.allow_privilege_escalation, Some(false));
        assert_eq!(context.capabilities.as_ref().unwrap().drop, Some(vec!["ALL".into()]));
        assert_eq!(context.seccomp_profile.as_ref().unwrap().type_, "RuntimeDefault");
        assert!(container.resources.is_some());
    }

    case.vddk_image = None;
    assert_eq!(
        case.with(pod).unwrap_err().to_string(),
        "waiting for v2v-vmware configmap or cdi.kubevirt.io/storage.pod.vddk.initimageurl annotation for VDDK image"
    );
}

#[test]
fn worker_pod_has_the_labels_of_the_pvc_except_those_for_pvcs() {
    let pod = Case::new(json!({ import::SOURCE: "none", request::ISTIO_INJECT: "true" })).pod();
    let label = |key| meta::label(&pod.metadata, key);
    assert_eq!(label("team"), Some("a"));
    assert_eq!(label(labels::COMPONENT), Some("importer"));
    assert_eq!(label(labels::PROMETHEUS), Some("true"));
    assert_eq!(label(labels::FILLING_UP_ALERT), None);
    assert_eq!(meta::annotation(&pod.metadata, request::ISTIO_INJECT), Some("true"));
    assert_eq!(meta::annotation(&pod.metadata, request::LINKERD_INJECT), Some("disabled"));
    assert_eq!(meta::annotation(&pod.metadata, state::CREATED_BY_CONTROLLER), Some("yes"));
    assert_eq!(pod.metadata.name.as_deref(), Some("importer-disk"));
}

#[test]
fn invalid_job_is_refused_before_the_pod_is_created() {
    let case = Case::new(json!({ import::SOURCE: "http", import::CHECKSUM: "md5" }));
    let error = case.with(pod).unwrap_err();
    assert!(matches!(error, Error::Job(BadImportJob::Checksum { .. })), "{error:?}");
    let nameless = Case::new(json!({
        import::SOURCE: "registry", import::REGISTRY_METHOD: "node", import::ENDPOINT: "docker://",
    }));
    assert_eq!(nameless.with(pod), Err(Error::NoImageName));
}
