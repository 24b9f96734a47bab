//! What the settings of the whole cluster come to, with what the cluster has besides.

use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};

use super::world::World;
use super::{DONE, blank, reasons};
use crate::engine::metrics::page;
use crate::wake;

const CONFIG: &str = "cdiconfigs//config";

fn status(world: &World) -> Value {
    world.fake.get("cdiconfigs", "", "config").unwrap()["status"].clone()
}

/// Address and authority of the upload proxy.
fn told(world: &World) -> (Value, Value) {
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

fn add_route(world: &World, service: &str, host: &str) {
    world.fake.put(
        "routes",
        json!({
            "metadata": { "name": service, "namespace": "cdi" },
            "spec": { "host": "asked.test", "to": { "kind": "Service", "name": service } },
            "status": { "ingress": [{ "host": host }] },
        }),
    );
}

fn add_ingress(world: &World, tls: Value) {
    let backend = json!({ "service": { "name": "cdi-uploadproxy", "port": { "number": 443 } } });
    world.fake.put(
        "ingresses",
        json!({
            "metadata": { "name": "up", "namespace": "cdi" },
            "spec": { "defaultBackend": backend, "rules": [{ "host": "in.test" }], "tls": tls },
        }),
    );
}

fn add_root(world: &World) -> String {
    let pem = certificate("*.route.test");
    world.fake.put(
        "configmaps",
        json!({ "metadata": { "name": "kube-root-ca.crt", "namespace": "cdi" }, "data": { "ca.crt": pem } }),
    );
    pem
}

#[tokio::test(start_paused = true)]
async fn clients_come_by_a_route_where_there_is_one_and_trust_whom_the_cluster_does() {
    let mut world = World::new("Immediate", true);
    let pem = add_root(&world);
    add_route(&world, "other", "other.route.test");
    world.work().await;
    assert_eq!(told(&world), (Value::Null, Value::Null));
    add_route(&world, "cdi-uploadproxy", "up.route.test");
    world.work().await;
    let (url, ca) = told(&world);
    assert_eq!(url, "up.route.test");
    assert_eq!(ca.as_str().unwrap().trim_end(), pem.trim_end());
    world.fake.0.lock().unwrap().objects.remove("routes/cdi/cdi-uploadproxy");
    world.work().await;
    assert_eq!(told(&world), (Value::Null, Value::Null));
}

#[tokio::test(start_paused = true)]
async fn an_ingress_comes_first_and_without_a_secret_nobody_says_what_it_shows() {
    let mut world = World::new("Immediate", true);
    add_root(&world);
    add_route(&world, "cdi-uploadproxy", "up.route.test");
    add_ingress(&world, json!([]));
    world.work().await;
    assert_eq!(told(&world), ("in.test".into(), Value::Null));
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_not_there_holds_up_nothing_but_what_it_is_for() {
    let mut world = World::new("Immediate", true);
    add_ingress(&world, json!([{ "secretName": "up-tls" }]));
    world.fake.change(CONFIG, |config| {
        config["spec"]["preallocation"] = true.into();
        config["status"]["uploadProxyURL"] = "before.test".into();
    });
    world.work().await;
    assert_eq!(status(&world)["preallocation"], true);
    assert_eq!(told(&world), ("before.test".into(), Value::Null));
    let pem = certificate("in.test");
    let bytes = ByteString(pem.clone().into_bytes());
    world.fake.put(
        "secrets",
        json!({ "metadata": { "name": "up-tls", "namespace": "cdi" }, "data": { "tls.crt": bytes } }),
    );
    // It is tried again, later and later.
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.work().await;
    let (url, ca) = told(&world);
    assert_eq!(url, "in.test");
    assert_eq!(ca.as_str().unwrap().trim_end(), pem.trim_end());
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_tls_that_nobody_speaks_is_told_once() {
    let mut world = World::new("Immediate", true);
    world.work().await;
    let count = |world: &World| {
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
async fn storage_that_one_node_reaches_is_good_enough_for_a_cluster_of_one_node() {
    let mut world = World::new("Immediate", true);
    world.work().await;
    world.fake.change("storageprofiles//fast", |profile| {
        profile["spec"] = json!({
            "cloneStrategy": "csi-clone",
            "claimPropertySets": [{ "accessModes": ["ReadWriteOnce"], "volumeMode": "Block" }],
        });
    });
    world.work().await;
    let is_degraded = |world: &World| page(&world.engine).contains("degraded=\"true\"");
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
async fn that_nobody_has_registered_our_sources_keeps_no_claim_from_being_filled() {
    let mut world = World::new("Immediate", true);
    world.volume("disk", blank());
    while world.engine.api.caches.claims.get("vms", "disk").is_none() {
        world.work().await;
    }
    let uid =
        world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap()["metadata"]["uid"].clone();
    let complain = |world: &World, reason: &str| {
        let event: Event = serde_json::from_value(json!({
            "metadata": { "name": reason, "namespace": "vms" }, "type": "Warning", "reason": reason,
            "involvedObject": { "kind": "PersistentVolumeClaim", "namespace": "vms", "name": "disk", "uid": uid },
            "message": "says it", "lastTimestamp": "2026-01-01T00:00:01Z",
        }))
        .unwrap();
        wake::warning(&world.engine, &event);
        world.engine.pvc_warnings.of("vms", "disk").len()
    };
    assert_eq!(complain(&world, "UnrecognizedDataSourceKind"), 0);
    assert_eq!(complain(&world, "ProvisioningFailed"), 1);
    world.until("disk", "Succeeded", DONE).await;
}

#[tokio::test(start_paused = true)]
async fn claims_wait_for_their_pods_where_nobody_has_said_otherwise() {
    let mut world = World::new("Immediate", true);
    world.fake.delete(CONFIG);
    world.work().await;
    let config = || world.fake.0.lock().unwrap().objects[CONFIG].clone();
    assert_eq!(config()["spec"], json!({ "featureGates": ["HonorWaitForFirstConsumer"] }));
    // Whoever takes it away has said so.
    world.fake.change(CONFIG, |config| config["spec"] = json!({}));
    world.work().await;
    assert_eq!(world.fake.0.lock().unwrap().objects[CONFIG]["spec"], json!({}));
}

/// What the platform is configured with.
fn set_proxy(world: &World, authority: &str) {
    world.fake.put(
        "proxies",
        json!({
            "apiVersion": "config.openshift.io/v1", "kind": "Proxy", "metadata": { "name": "cluster" },
            "spec": { "httpProxy": "http://asked", "trustedCA": { "name": authority } },
            "status": { "httpProxy": "http://p:3128", "httpsProxy": "https://p:3129", "noProxy": ".svc" },
        }),
    );
}

fn set_map(world: &World, namespace: &str, name: &str, key: &str, text: &str) {
    let metadata = json!({ "name": name, "namespace": namespace });
    world.fake.put("configmaps", json!({ "metadata": metadata, "data": { key: text } }));
}

/// The name of the copy of the platform's authority: always the same.
const COPY: &str = "cdi-platform-proxy-ca";

fn copied(world: &World, name: &str) -> Value {
    world.fake.get("configmaps", "cdi", name).unwrap_or_default()["data"]["ca.crt"].clone()
}

#[tokio::test(start_paused = true)]
async fn imports_go_through_the_proxies_of_the_platform_unless_others_are_set() {
    let mut world = World::new("Immediate", true);
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

    // It is changed there, which nobody tells.
    set_map(&world, "openshift-config", "user-ca", "ca-bundle.crt", "second");
    tokio::time::sleep(Duration::from_secs(301)).await;
    world.work().await;
    assert_eq!(copied(&world, COPY), "second");

    // Another one: the same copy holds it.
    set_map(&world, "openshift-config", "new-ca", "ca-bundle.crt", "third");
    set_proxy(&world, "new-ca");
    world.work().await;
    assert_eq!(status(&world)["importProxy"], of_platform);
    assert_eq!(copied(&world, COPY), "third");
    let copy = world.fake.get("configmaps", "cdi", COPY).unwrap();
    let source = &copy["metadata"]["annotations"]["cdi.kubevirt.io/copyOf"];
    assert_eq!(source, "openshift-config/new-ca");

    // Somebody sets others.
    let own = json!({ "HTTPProxy": "http://own", "trustedCAProxy": "own-ca" });
    set_map(&world, "cdi", "own-ca", "ca.crt", "own");
    world.fake.change(CONFIG, |config| config["spec"]["importProxy"] = own);
    world.work().await;
    assert_eq!(status(&world)["importProxy"]["HTTPProxy"], "http://own");
    assert_eq!(status(&world)["importProxy"]["trustedCAProxy"], "own-ca");
    assert_eq!((copied(&world, COPY), copied(&world, "own-ca")), (Value::Null, "own".into()));

    // And takes that back: what was not ours is not taken away.
    world.fake.change(CONFIG, |config| config["spec"]["importProxy"] = Value::Null);
    world.work().await;
    assert_eq!(status(&world)["importProxy"], of_platform);
    assert_eq!((copied(&world, COPY), copied(&world, "own-ca")), ("third".into(), "own".into()));
}

#[tokio::test(start_paused = true)]
async fn of_all_config_maps_of_the_installation_one_name_is_changed_or_deleted() {
    let mut world = World::new("Immediate", true);
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
async fn an_authority_that_cannot_be_copied_is_told_of_on_the_proxy() {
    let mut world = World::new("Immediate", true);
    set_proxy(&world, "user-ca");
    world.work().await;
    assert_eq!(status(&world)["importProxy"]["HTTPProxy"], "http://p:3128");
    assert_eq!(status(&world)["importProxy"]["trustedCAProxy"], "");
    let told = |world: &World| {
        let events = &world.fake.0.lock().unwrap().events;
        let of_proxy = events.iter().filter(|event| event["involvedObject"]["kind"] == "Proxy");
        let words = of_proxy.map(|event| event["message"].as_str().unwrap().to_owned());
        words.collect::<Vec<_>>()
    };
    assert_eq!(told(&world).len(), 1);
    assert!(told(&world)[0].contains("openshift-config/user-ca"), "{:?}", told(&world));
    // Somebody's own ConfigMap is in the way, and stays as it is.
    set_map(&world, "openshift-config", "user-ca", "ca-bundle.crt", "theirs");
    set_map(&world, "cdi", COPY, "ca.crt", "own");
    tokio::time::sleep(Duration::from_secs(301)).await;
    world.work().await;
    assert_eq!(copied(&world, COPY), "own");
    assert_eq!(status(&world)["importProxy"]["trustedCAProxy"], "");
    assert!(told(&world)[1].contains("another ConfigMap"), "{:?}", told(&world));
}

#[tokio::test(start_paused = true)]
async fn an_authority_that_may_not_be_read_keeps_no_other_setting_from_being_in_force() {
    let mut world = World::new("Immediate", true);
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
    assert_eq!(status(&world)["importProxy"], before, "as it was told last");
    world.fake.0.lock().unwrap().forbids = None;
    set_map(&world, "openshift-config", "user-ca", "ca-bundle.crt", "second");
    tokio::time::sleep(Duration::from_secs(121)).await;
    world.work().await;
    assert_eq!(copied(&world, COPY), "second", "it is tried again");
}

#[tokio::test(start_paused = true)]
async fn nobody_looks_at_an_authority_again_and_again_that_is_not_in_force() {
    let mut world = World::new("Immediate", true);
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
async fn a_cdi_object_whose_settings_are_ignored_has_one_event_about_it() {
    let mut world = World::new("Immediate", true);
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
