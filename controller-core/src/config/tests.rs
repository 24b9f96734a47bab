use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn class(name: &str) -> StorageClass {
    serde_json::from_value(json!({ "metadata": { "name": name }, "provisioner": "p" })).unwrap()
}

fn status_of(spec: Value) -> Value {
    let spec: CdiConfigSpec = serde_json::from_value(spec).unwrap();
    let facts = Facts {
        spec: &spec,
        present: &CdiConfigStatus::default(),
        classes: &[class("fast"), class("nfs")],
        endpoint: &ProxyEndpoint::Closed,
        platform_proxy: None,
    };
    serde_json::to_value(status(&facts, now())).unwrap()
}

#[test]
fn empty_spec_has_defaults() {
    assert_eq!(
        status_of(json!({})),
        json!({
            "importProxy": { "HTTPProxy": "", "HTTPSProxy": "", "noProxy": "", "trustedCAProxy": "" },
            "scratchSpaceStorageClass": "",
            "defaultPodResourceRequirements": {
                "limits": { "cpu": "750m", "memory": "600M" },
                "requests": { "cpu": "100m", "memory": "60M" },
            },
            "filesystemOverhead": {
                "global": "0.055", "storageClass": { "fast": "0.055", "nfs": "0.055" },
            },
            "preallocation": false,
        })
    );
}

#[test]
fn every_setting_is_in_the_status() {
    let status = status_of(json!({
        "scratchSpaceStorageClass": "fast",
        "filesystemOverhead": { "global": "0.1", "storageClass": { "nfs": "0", "gone": "0.5" } },
        "podResourceRequirements": {
            "limits": { "cpu": "500m", "example.test/gpu": "1" }, "requests": { "memory": "1Gi" },
        },
        "preallocation": true,
        "importProxy": { "HTTPProxy": "http://proxy", "noProxy": ".svc" },
        "imagePullSecrets": [{ "name": "pull" }],
        "uploadProxyURLOverride": "https://up",
        "dataVolumeTTLSeconds": -1,
    }));
    assert_eq!(status["scratchSpaceStorageClass"], "fast");
    assert_eq!(
        status["filesystemOverhead"],
        json!({ "global": "0.1", "storageClass": { "fast": "0.1", "nfs": "0" } })
    );
    assert_eq!(
        status["defaultPodResourceRequirements"],
        json!({
            "limits": { "cpu": "500m", "memory": "600M" },
            "requests": { "cpu": "100m", "memory": "1Gi" },
        })
    );
    assert_eq!(status["preallocation"], true);
    assert_eq!(status["importProxy"]["HTTPProxy"], "http://proxy");
    assert_eq!(status["importProxy"]["HTTPSProxy"], "");
    assert_eq!(status["imagePullSecrets"], json!([{ "name": "pull" }]));
    assert_eq!(status["uploadProxyURL"], "https://up");
}

#[test]
fn invalid_settings_count_as_unset() {
    let status = status_of(json!({
        "scratchSpaceStorageClass": "gone",
        "filesystemOverhead": { "global": "7", "storageClass": { "nfs": "x" } },
    }));
    assert_eq!(status["scratchSpaceStorageClass"], "");
    assert_eq!(
        status["filesystemOverhead"],
        json!({ "global": "0.055", "storageClass": { "fast": "0.055", "nfs": "0.055" } })
    );
}

#[test]
fn overhead_of_a_pvc_is_looked_up_by_its_class() {
    let mut fast = class("fast");
    let spec = serde_json::from_value(
        json!({ "filesystemOverhead": { "global": "0.1", "storageClass": { "nfs": "0", "fast": "0.2" } } }),
    )
    .unwrap();
    let present = CdiConfigStatus::default();
    let all = [fast.clone(), class("nfs")];
    let facts = Facts {
        spec: &spec,
        present: &present,
        classes: &all,
        endpoint: &ProxyEndpoint::Closed,
        platform_proxy: None,
    };
    let status = status(&facts, now());
    let of = |classes: &[StorageClass], name| overhead_of(Some(&status), classes, name).to_string();
    assert_eq!(of(&all, Some("nfs")), "0");
    assert_eq!(of(&all, Some("fast")), "0.2");
    assert_eq!(of(&all, Some("")), "0");
    assert_eq!(of(&all, Some("gone")), "0.1");
    assert_eq!(of(&all, None), "0.1");
    let mark = meta::Pairs::from([(request::DEFAULT_CLASS.into(), "true".into())]);
    fast.metadata.annotations = Some(mark);
    let all = [fast, class("nfs")];
    assert_eq!(of(&all, Some("gone")), "0.2");
    assert_eq!(of(&all, None), "0.2");
    assert_eq!(overhead_of(None, &all, Some("fast")), Overhead::ZERO);
}

#[test]
fn endpoint_is_the_host_of_the_upload_proxy() {
    let ingress =
        |spec: Value| -> Ingress { serde_json::from_value(json!({ "spec": spec })).unwrap() };
    let backend = |name: &str| json!({ "service": { "name": name, "port": { "number": 443 } } });
    let rule = |host: &str, name: &str| json!({ "host": host, "http": { "paths": [{ "pathType": "Prefix", "backend": backend(name) }] } });
    let by_rule = ingress(json!({
        "rules": [rule("other.test", "other"), rule("", "cdi-uploadproxy"), rule("up.test", "cdi-uploadproxy")],
        "tls": [{ "secretName": "up-tls" }],
    }));
    let by_default = ingress(
        json!({ "defaultBackend": backend("cdi-uploadproxy"), "rules": [{ "host": "all.test" }] }),
    );
    let none = ingress(json!({ "rules": [rule("other.test", "other")] }));
    let found = ingress_endpoint(&[none.clone(), by_rule]);
    assert_eq!(found, Some(("up.test".into(), vec!["up-tls".into()])));
    assert_eq!(ingress_endpoint(&[by_default]), Some(("all.test".into(), vec![])));
    assert_eq!(ingress_endpoint(&[none]), None);
}

#[test]
fn upload_proxy_url_is_the_override_or_the_endpoint() {
    let open = ProxyEndpoint::Open(OpenEndpoint {
        host: "up.test".into(),
        certificates: Some(vec![Certificate {
            pem: "PEM".into(),
            subject: "s".into(),
            issuer: "s".into(),
            names: vec!["up.test".into()],
            not_before: Timestamp::MIN,
            not_after: Timestamp::MAX,
        }]),
    });
    let text = |text: &str| Some(text.to_owned());
    let present = CdiConfigStatus {
        upload_proxy_url: text("before.test"),
        upload_proxy_ca: text("before"),
        ..CdiConfigStatus::default()
    };
    let of = |url: Option<&str>, endpoint: &ProxyEndpoint| {
        let spec = CdiConfigSpec {
            upload_proxy_url_override: url.map(str::to_owned),
            ..CdiConfigSpec::default()
        };
        let facts =
            Facts { spec: &spec, present: &present, classes: &[], endpoint, platform_proxy: None };
        let status = status(&facts, now());
        (status.upload_proxy_url, status.upload_proxy_ca)
    };
    assert_eq!(of(None, &ProxyEndpoint::Closed), (None, None));
    assert_eq!(of(None, &ProxyEndpoint::NotKnownYet), (text("before.test"), text("before")));
    assert_eq!(of(None, &open), (text("up.test"), text("PEM\n")));
    assert_eq!(of(Some("https://o"), &open), (text("https://o"), text("before")));
    let without = ProxyEndpoint::Open(OpenEndpoint { host: "up.test".into(), certificates: None });
    assert_eq!(of(None, &without), (text("up.test"), None));
}

#[test]
fn one_cdi_object_counts_and_its_settings_apply_if_it_claims_authority() {
    let cdi = |phase: &str, annotations: Value| -> Cdi {
        serde_json::from_value(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDI",
            "metadata": { "name": "cdi", "annotations": annotations },
            "spec": { "config": { "logVerbosity": 3 } }, "status": { "phase": phase },
        }))
        .unwrap()
    };
    let (good, bad) = (cdi("Deployed", json!({})), cdi("Error", json!({})));
    assert_eq!(active(&[]), Ok(None));
    assert_eq!(active(std::slice::from_ref(&bad)), Ok(Some(&bad)));
    assert_eq!(active(&[bad.clone(), good.clone()]), Ok(Some(&good)));
    assert_eq!(active(&[good.clone(), good.clone()]), Err(SeveralInstallations { working: 2 }));
    assert_eq!(active(&[bad.clone(), bad]), Err(SeveralInstallations { working: 0 }));

    let own = CdiConfig {
        metadata: Default::default(),
        spec: CdiConfigSpec { log_verbosity: Some(1), ..CdiConfigSpec::default() },
        status: None,
    };
    let master = cdi("Deployed", json!({ request::CONFIG_AUTHORITY: "" }));
    assert_eq!(authoritative(Some(&master), &own).log_verbosity, Some(3));
    assert_eq!(authoritative(Some(&good), &own).log_verbosity, Some(1));
    assert_eq!(authoritative(None, &own).log_verbosity, Some(1));
}

#[test]
fn feature_gates_are_looked_up_by_name() {
    let spec = CdiConfigSpec {
        feature_gates: Some(vec!["HonorWaitForFirstConsumer".into(), "Unheard".into()]),
        ..CdiConfigSpec::default()
    };
    assert!(honors_waiting(&spec) && !has_gate(&spec, names::GATE_CLAIM_ADOPTION));
    assert!(!honors_waiting(&CdiConfigSpec::default()));
}
