//! Settings that apply to every kind of worker: the required sandbox, and the TLS profile.

use api::v1beta1::{DataImportCron, OvirtVolumePopulatorSpec};
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Value, json};

use super::*;
use crate::data_import_cron::{PollFrom, jobs};
use crate::{copy, forklift, upload};

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// The pods of all kinds of workers.
fn pods(config: &CdiConfig) -> Vec<(&'static str, PodSpec)> {
    let claim: PersistentVolumeClaim = read(json!({
        "metadata": { "name": "disk", "namespace": "vms", "uid": "uid", "annotations": {
            import::SOURCE: "http", import::ENDPOINT: "http://host/disk.img",
            request::CLONE_REQUEST: "vms/disk",
        } },
        "spec": { "volumeMode": "Block", "resources": { "requests": { "storage": "1Gi" } } },
    }));
    let (image, installation) = (Image::default(), Installation::default());
    let importer = pod(&Facts {
        claim: &claim,
        target: &claim,
        config: Some(config),
        classes: &[],
        placement: None,
        image: &image,
        vddk_image: None,
        vddk_node_selector: None,
        installation: &installation,
        metrics_key: None,
    });
    let server = upload::pod(&upload::Facts {
        claim: &claim,
        config: Some(config),
        classes: &[],
        placement: None,
        image: &image,
        upload_server: "upload:1",
        secret: "upload-server-keys",
        deadline: "2026-11-21T20:00:00Z".parse().unwrap(),
        installation: &installation,
    });
    let cloner = copy::pod(&copy::Facts {
        claim: &claim,
        source: &claim,
        authority: Some("PEM"),
        config: Some(config),
        placement: None,
        image: &image,
        cloner: "cloner:1",
        secret: "cloner-keys",
        metrics_key: "key",
        installation: &installation,
    });
    let spec = forklift::PopulatorSpec::from(&OvirtVolumePopulatorSpec {
        engine_url: "https://engine/api".into(),
        secret_ref: "keys".into(),
        disk_id: "d-1".into(),
        transfer_network: None,
    });
    let populator = forklift::pod(&forklift::Facts {
        prime: &claim,
        target: &claim,
        spec: &spec,
        config: Some(config),
        placement: None,
        image: &image,
        ovirt_image: "ovirt:1",
        installation: &installation,
        metrics_key: "key",
    });
    let cron: DataImportCron = read(json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron",
        "metadata": { "name": "cron", "namespace": "images", "uid": "0a1b2c3d-0a1b" },
        "spec": { "schedule": "55 8/12 * * *", "managedDataSource": "fedora", "template": { "spec": {
            "source": { "registry": { "url": "docker://r/i" } },
        } } },
    }));
    let poll = jobs::Facts {
        cron: &cron,
        config: Some(config),
        placement: None,
        image: &image,
        installation: &installation,
        owner: None,
        networks: &jobs::PollNetworks::default(),
    };
    let jobs::Plan::Poll { first, .. } = jobs::plan(&poll, PollFrom::Jobs) else {
        panic!("no job")
    };
    let poller = first.spec.unwrap().template.spec.unwrap();
    let spec = |pod: Pod| pod.spec.unwrap();
    vec![
        ("importer", spec(importer.unwrap())),
        ("upload server", spec(server)),
        ("cloner", spec(cloner)),
        ("populator", spec(populator)),
        ("poller", poller),
    ]
}

fn variable_of<'a>(pod: &'a PodSpec, name: &str) -> Option<&'a str> {
    let found = pod.containers[0].env.iter().flatten().find(|one| one.name == name)?;
    found.value.as_deref()
}

#[test]
fn every_worker_requires_its_sandbox_if_the_settings_do() {
    for (spec, expected) in [
        (json!({}), None),
        (json!({ "requireSandbox": false }), None),
        (json!({ "requireSandbox": true }), Some("true")),
    ] {
        let config: CdiConfig = read(json!({
            "apiVersion": "v", "kind": "CDIConfig", "metadata": {}, "spec": spec, "status": {},
        }));
        for (name, pod) in pods(&config) {
            assert_eq!(variable_of(&pod, "REQUIRE_SANDBOX"), expected, "{name} with {spec}");
        }
    }
}

#[test]
fn every_worker_with_a_server_has_the_tls_profile() {
    let custom = json!({
        "minTLSVersion": "VersionTLS12",
        "ciphers": ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"],
    });
    let of_custom = ("VersionTLS12", "ECDHE-ECDSA-AES128-GCM-SHA256,ECDHE-RSA-AES128-GCM-SHA256");
    let modern = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256";
    for (profile, expected) in [
        (json!({ "type": "Modern", "modern": {} }), Some(("VersionTLS13", modern))),
        (json!({ "type": "Custom", "custom": custom }), Some(of_custom)),
        (Value::Null, None),
    ] {
        let config: CdiConfig = read(json!({
            "apiVersion": "v", "kind": "CDIConfig", "metadata": {},
            "spec": { "tlsSecurityProfile": profile }, "status": {},
        }));
        for (name, pod) in pods(&config) {
            let version = variable_of(&pod, "TLS_MIN_VERSION");
            let found = version.zip(variable_of(&pod, "TLS_CIPHERS"));
            let expected = match name {
                "poller" => None,                                 // it has no server
                "upload server" if profile.is_null() => continue, // has the default profile
                _ => expected,
            };
            assert_eq!(found, expected, "{name} with {profile}");
        }
    }
}
