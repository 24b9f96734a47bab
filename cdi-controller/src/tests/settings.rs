//! The status of CDIConfig, from its spec and from other objects of the cluster.

use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};

use super::world::TestCluster;
use super::{DONE, blank, reasons};
use crate::engine::metrics::page;
use crate::wake;

const CONFIG: &str = "cdiconfigs//config";

fn status(world: &TestCluster) -> Value {
    world.fake.get("cdiconfigs", "", "config").unwrap()["status"].clone()
}

/// URL and CA of the upload proxy.
fn upload_proxy_status(world: &TestCluster) -> (Value, Value) {
    let status = status(world);
    (status["uploadProxyURL"].clone(), status["uploadProxyCA"].clone())
}

/// A certificate for this host, as PEM.
fn certificate(host: &str) -> String {
    let (now, day) = (SystemTime::now(), Duration::from_secs(86_400));
    let authority = auth::CertificateAuthority::create("router", day, now).unwrap();
    let authority = auth::CertificateAuthority::from_identity(&authority).unwrap();
    authority.server(&[host.to_owned()], day, now).unwrap().certificate
}

fn add_route(world: &TestCluster, service: &str, host: &str) {
    world.fake.put(
        "routes",
        json!({
            "metadata": { "name": service, "namespace": "cdi" },
            "spec": { "host": "asked.test", "to": { "kind": "Service", "name": service } },
            "status": { "ingress": [{ "host": host }] },
        }),
    );
}

fn add_ingress(world: &TestCluster, tls: Value) {
    let backend = json!({ "service": { "name": "cdi-uploadproxy", "port": { "number": 443 } } });
    world.fake.put(
        "ingresses",
        json!({
            "metadata": { "name": "up", "namespace": "cdi" },
            "spec": { "defaultBackend": backend, "rules": [{ "host": "in.test" }], "tls": tls },
        }),
    );
}

fn add_root(world: &TestCluster) -> String {
    let pem = certificate("*.route.test");
    world.fake.put(
        "configmaps",
        json!({ "metadata": { "name": "kube-root-ca.crt", "namespace": "cdi" }, "data": { "ca.crt": pem } }),
    );
    pem
}

#[tokio::test(start_paused = true)]
async fn upload_proxy_url_is_its_route_with_the_ca_of_the_cluster() {
    let mut world = TestCluster::new("Immediate", true);
    let pem = add_root(&world);
    add_route(&world, "other", "other.route.test");
    world.work().await;
    assert_eq!(upload_proxy_status(&world), (Value::Null, Value::Null));
    add_route(&world, "cdi-uploadproxy", "up.route.test");
    world.work().await;
    let (url, ca) = upload_proxy_status(&world);
    assert_eq!(url, "up.route.test");
    assert_eq!(ca.as_str().unwrap().trim_end(), pem.trim_end());
    world.fake.0.lock().unwrap().objects.remove("routes/cdi/cdi-uploadproxy");
    world.work().await;
    assert_eq!(upload_proxy_status(&world), (Value::Null, Value::Null));
}

#[tokio::test(start_paused = true)]
async fn ingress_precedes_a_route_and_without_a_secret_has_no_ca() {
    let mut world = TestCluster::new("Immediate", true);
    add_root(&world);
    add_route(&world, "cdi-uploadproxy", "up.route.test");
    add_ingress(&world, json!([]));
    world.work().await;
    assert_eq!(upload_proxy_status(&world), ("in.test".into(), Value::Null));
}

#[tokio::test(start_paused = true)]
async fn missing_ingress_secret_delays_only_the_upload_proxy_status() {
    let mut world = TestCluster::new("Immediate", true);
    add_ingress(&world, json!([{ "secretName": "up-tls" }]));
    world.fake.change(CONFIG, |config| {
        config["spec"]["preallocation"] = true.into();
        config["status"]["uploadProxyURL"] = "before.test".into();
    });
    world.work().await;
    assert_eq!(status(&world)["preallocation"], true);
    assert_eq!(upload_proxy_status(&world), ("before.test".into(), Value::Null));
    let pem = certificate("in.test");
    let bytes = ByteString(pem.clone().into_bytes());
    world.fake.put(
        "secrets",
        json!({ "metadata": { "name": "up-tls", "namespace": "cdi" }, "data": { "tls.crt": bytes } }),
    );
    // It is retried with increasing delays.
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.work().await;
    let (url, ca) = upload_proxy_status(&world);
    assert_eq!(url, "in.test");
    assert_eq!(ca.as_str().unwrap().trim_end(), pem.trim_end());
}

#[tokio::test(start_paused = true)]
async fn unsupported_tls_profile_is_reported_once() {
    let mut world = TestCluster::new("Immediate", true);
    world.work().await;
    let count = |world: &TestCluster| {
        reasons(world).iter().filter(|reason| *reason == "TLSProfileNotMet").count()
    };
    assert_eq!(count(&world), 0);
    world.fake.change(CONFIG, |config| {
        config["spec"]["tlsSecurityProfile"] = json!({ "type": "Old", "old": {} });
    });
    world.work().await;
    world.fake.change(CONFIG, |config| config["spec"]["preallocation"] = true.into());
    world.work().await;
    assert_eq!(count(&world), 1);
    let events = world.fake.0.lock().unwrap().events.clone();
    let event = events.iter().find(|event| event["reason"] == "TLSProfileNotMet").unwrap();
    assert_eq!(event["involvedObject"]["kind"], "CDIConfig");
    assert_eq!(
        (&event["type"], &event["metadata"]["namespace"]),
        (&json!("Warning"), &json!("default"))
    );
    assert!(event["message"].as_str().unwrap().contains("VersionTLS10"), "{event}");
}

#[tokio::test(start_paused = true)]
async fn read_write_once_storage_is_not_degraded_on_a_single_node() {
    let mut world = TestCluster::new("Immediate", true);
    world.work().await;
    world.fake.change("storageprofiles//fast", |profile| {
        profile["spec"] = json!({
            "cloneStrategy": "csi-clone",
            "claimPropertySets": [{ "accessModes": ["ReadWriteOnce"], "volumeMode": "Block" }],
        });
    });
    world.work().await;
    let is_degraded = |world: &TestCluster| page(&world.engine).contains("degraded=\"true\"");
    assert!(is_degraded(&world));
    for (nodes, expected) in [("SingleReplica", false), ("HighlyAvailable", true)] {
        world.fake.put(
            "infrastructures",
            json!({ "metadata": { "name": "cluster" }, "status": {
                "controlPlaneTopology": "SingleReplica", "infrastructureTopology": nodes,
            } }),
        );
        world.work().await;
        assert_eq!(is_degraded(&world), expected, "{nodes}");
    }
}

#[tokio::test(start_paused = true)]
async fn warning_about_an_unregistered_source_kind_is_ignored() {
    let mut world = TestCluster::new("Immediate", true);
    world.volume("disk", blank());
    while world.engine.api.caches.claims.get("vms", "disk").is_none() {
        world.work().await;
    }
    let uid =
        world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap()["metadata"]["uid"].clone();
    let warn = |world: &TestCluster, reason: &str| {
        let event: Event = serde_json::from_value(json!({
            "metadata": { "name": reason, "namespace": "vms" }, "type": "Warning", "reason": reason,
            "involvedObject": { "kind": "PersistentVolumeClaim", "namespace": "vms", "name": "disk", "uid": uid },
            "message": "text", "lastTimestamp": "2026-01-01T00:00:01Z",
        }))
        .unwrap();
        wake::warning(&world.engine, &event);
        world.engine.pvc_warnings.for_pvc("vms", "disk").len()
    };
    assert_eq!(warn(&world, "UnrecognizedDataSourceKind"), 0);
    assert_eq!(warn(&world, "ProvisioningFailed"), 1);
    world.until("disk", "Succeeded", DONE).await;
}

#[tokio::test(start_paused = true)]
async fn new_cdi_config_honors_wait_for_first_consumer() {
    let mut world = TestCluster::new("Immediate", true);
    world.fake.delete(CONFIG);
    world.work().await;
    let config = || world.fake.0.lock().unwrap().objects[CONFIG].clone();
    assert_eq!(config()["spec"], json!({ "featureGates": ["HonorWaitForFirstConsumer"] }));
    // A removed feature gate is not added again.
    world.fake.change(CONFIG, |config| config["spec"] = json!({}));
    world.work().await;
    assert_eq!(world.fake.0.lock().unwrap().objects[CONFIG]["spec"], json!({}));
}

/// The proxy configuration of the platform.
fn set_proxy(world: &TestCluster, authority: &str) {
    world.fake.put(
        "proxies",
        json!({
            "apiVersion": "config.openshift.io/v1", "kind": "Proxy", "metadata": { "name": "cluster" },
            "spec": { "httpProxy": "http://asked", "trustedCA": { "name": authority } },
            "status": { "httpProxy": "http://p:3128", "httpsProxy": "https://p:3129", "noProxy": ".svc" },
        }),
    );
}

fn set_map(world: &TestCluster, namespace: &str, name: &str, key: &str, text: &str) {
    let metadata = json!({ "name": name, "namespace": namespace });
    world.fake.put("configmaps", json!({ "metadata": metadata, "data": { key: text } }));
}

/// The name of the copy of the platform's CA: always the same.
const COPY: &str = "cdi-platform-proxy-ca";

fn copied(world: &TestCluster, name: &str) -> Value {
    world.fake.get("configmaps", "cdi", name).unwrap_or_default()["data"]["ca.crt"].clone()
}

#[tokio::test(start_paused = true)]
async fn imports_use_the_platform_proxies_unless_others_are_set() {
    let mut world = TestCluster::new("Immediate", true);
    world.work().await;
    let none = json!({ "HTTPProxy": "", "HTTPSProxy": "", "noProxy": "", "trustedCAProxy": "" });
    assert_eq!(status(&world)["importProxy"], none);
    set_map(&world, "openshift-config", "user-ca", "ca-bundle.crt", "first");
    set_proxy(&world, "user-ca");
    world.work().await;
    let of_platform = json!({
        "HTTPProxy": "http://p:3128", "HTTPSProxy": "https://p:3129", "noProxy": ".svc",
        "trustedCAProxy": COPY,
    });
    assert_eq!(status(&world)["importProxy"], of_platform);
    assert_eq!(copied(&world, COPY), "first");

    // The source changes, and no watch reports it.
    set_map(&world, "openshift-config", "user-ca", "ca-bundle.crt", "second");
    tokio::time::sleep(Duration::from_secs(301)).await;
    world.work().await;
    assert_eq!(copied(&world, COPY), "second");

    // Another source uses the same copy.
    set_map(&world, "openshift-config", "new-ca", "ca-bundle.crt", "third");
    set_proxy(&world, "new-ca");
    world.work().await;
    assert_eq!(status(&world)["importProxy"], of_platform);
    assert_eq!(copied(&world, COPY), "third");
    let copy = world.fake.get("configmaps", "cdi", COPY).unwrap();
    let source = &copy["metadata"]["annotations"]["cdi.kubevirt.io/copyOf"];
    assert_eq!(source, "openshift-config/new-ca");

    // An administrator sets others.
    let own = json!({ "HTTPProxy": "http://own", "trustedCAProxy": "own-ca" });
    set_map(&world, "cdi", "own-ca", "ca.crt", "own");
    world.fake.change(CONFIG, |config| config["spec"]["importProxy"] = own);
    world.work().await;
    assert_eq!(status(&world)["importProxy"]["HTTPProxy"], "http://own");
    assert_eq!(status(&world)["importProxy"]["trustedCAProxy"], "own-ca");
    assert_eq!((copied(&world, COPY), copied(&world, "own-ca")), (Value::Null, "own".into()));

    // And removes them: the administrator's ConfigMap is kept.
    world.fake.change(CONFIG, |config| config["spec"]["importProxy"] = Value::Null);
    world.work().await;
    assert_eq!(status(&world)["importProxy"], of_platform);
    assert_eq!((copied(&world, COPY), copied(&world, "own-ca")), ("third".into(), "own".into()));
}

#[tokio::test(start_paused = true)]
async fn only_the_platform_ca_config_map_is_changed_or_deleted() {
    let mut world = TestCluster::new("Immediate", true);
    world.work().await;
    // As an earlier version left it: the copy had the name of its source.
    set_map(&world, "cdi", "user-ca", "ca.crt", "first");
    world.fake.change("configmaps/cdi/user-ca", |map| {
        map["metadata"]["annotations"] =
            json!({ "cdi.kubevirt.io/copyOf": "openshift-config/user-ca" });
    });
    set_map(&world, "openshift-config", "user-ca", "ca-bundle.crt", "second");
    set_proxy(&world, "user-ca");
    world.fake.change(CONFIG, |config| {
        config["status"]["importProxy"] = json!({ "trustedCAProxy": "user-ca" });
    });
    world.work().await;
    assert_eq!(status(&world)["importProxy"]["trustedCAProxy"], COPY);
    assert_eq!(
        (copied(&world, "user-ca"), copied(&world, COPY)),
        ("first".into(), "second".into())
    );
    set_map(&world, "openshift-config", "user-ca", "ca-bundle.crt", "third");
    tokio::time::sleep(Duration::from_secs(301)).await;
    world.work().await;
    world.fake.delete("proxies//cluster");
    world.fake.change(CONFIG, |config| {
        config["spec"]["importProxy"] = json!({ "HTTPProxy": "http://own" });
    });
    world.work().await;
    assert_eq!(copied(&world, COPY), Value::Null);
    let writes = world.fake.0.lock().unwrap().writes.clone();
    let of_maps: Vec<_> = writes.iter().filter(|write| write.contains(" configmaps/")).collect();
    assert!(of_maps.iter().all(|write| write.ends_with(COPY)) && of_maps.len() == 3, "{of_maps:?}");
}

#[tokio::test(start_paused = true)]
async fn platform_ca_that_cannot_be_copied_is_reported_on_the_proxy() {
    let mut world = TestCluster::new("Immediate", true);
    set_proxy(&world, "user-ca");
    world.work().await;
    assert_eq!(status(&world)["importProxy"]["HTTPProxy"], "http://p:3128");
    assert_eq!(status(&world)["importProxy"]["trustedCAProxy"], "");
    let proxy_events = |world: &TestCluster| {
        let events = &world.fake.0.lock().unwrap().events;
        let of_proxy = events.iter().filter(|event| event["involvedObject"]["kind"] == "Proxy");
        let messages = of_proxy.map(|event| event["message"].as_str().unwrap().to_owned());
        messages.collect::<Vec<_>>()
    };
    assert_eq!(proxy_events(&world).len(), 1);
    assert!(
        proxy_events(&world)[0].contains("openshift-config/user-ca"),
        "{:?}",
        proxy_events(&world)
    );
    // A ConfigMap of the administrator has the name of the copy, and is not changed.
    set_map(&world, "openshift-config", "user-ca", "ca-bundle.crt", "theirs");
    set_map(&world, "cdi", COPY, "ca.crt", "own");
    tokio::time::sleep(Duration::from_secs(301)).await;
    world.work().await;
    assert_eq!(copied(&world, COPY), "own");
    assert_eq!(status(&world)["importProxy"]["trustedCAProxy"], "");
    assert!(proxy_events(&world)[1].contains("another ConfigMap"), "{:?}", proxy_events(&world));
}

#[tokio::test(start_paused = true)]
async fn unreadable_platform_ca_does_not_block_other_settings() {
    let mut world = TestCluster::new("Immediate", true);
    set_map(&world, "openshift-config", "user-ca", "ca-bundle.crt", "first");
    set_proxy(&world, "user-ca");
    world.work().await;
    let before = status(&world)["importProxy"].clone();
    world.fake.0.lock().unwrap().forbids = Some("configmaps/openshift-config/user-ca".into());
    world.fake.change(CONFIG, |config| {
        config["spec"]["filesystemOverhead"] = json!({ "global": "0.1" });
    });
    world.work().await;
    assert_eq!(status(&world)["filesystemOverhead"]["global"], "0.1");
    assert_eq!(status(&world)["importProxy"], before, "the last known value");
    world.fake.0.lock().unwrap().forbids = None;
    set_map(&world, "openshift-config", "user-ca", "ca-bundle.crt", "second");
    tokio::time::sleep(Duration::from_secs(121)).await;
    world.work().await;
    assert_eq!(copied(&world, COPY), "second", "it is tried again");
}

#[tokio::test(start_paused = true)]
async fn unused_platform_ca_is_not_polled() {
    let mut world = TestCluster::new("Immediate", true);
    set_proxy(&world, "user-ca");
    world.fake.change(CONFIG, |config| {
        config["spec"]["importProxy"] = json!({ "HTTPProxy": "http://own" });
    });
    world.work().await;
    let before = world.fake.0.lock().unwrap().requests;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    world.work().await;
    assert_eq!(world.fake.0.lock().unwrap().requests, before);
}

#[tokio::test(start_paused = true)]
async fn ignored_setting_of_the_cdi_object_is_reported_once() {
    let mut world = TestCluster::new("Immediate", true);
    world.work().await;
    world.fake.change(CONFIG, |config| config["spec"]["logVerbosity"] = 3.into());
    world.fake.put(
        "cdis",
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDI", "metadata": { "name": "cdi" },
            "spec": { "config": { "logVerbosity": 2 } },
        }),
    );
    world.work().await;
    world.fake.change("cdis//cdi", |cdi| cdi["metadata"]["labels"] = json!({ "a": "b" }));
    world.work().await;
    assert_eq!(reasons(&world), ["SettingIgnored"]);
}
