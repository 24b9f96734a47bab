//! Kinds of OpenShift and Multus: Routes, Proxies, and networks of pods. The tests create the CRDs, and simulate the
//! router and the operators that write these objects.

use anyhow::{Context, Result, ensure};
use api::names::PLATFORM_CA_CONFIG_MAP;
use api::v1beta1::CdiConfig;
use e2e::{
    MULTUS, NAMESPACE, OPENSHIFT, Test, imported, manifest, run_installed, run_installed_alone,
    volume,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testkit::{Fault, MIB, ServerCertificate, pattern};

use crate::uploader::{PROXY_HOST, Uploader, expect};
use crate::world::{SIZE, annotated, disk, example, name, server, small, worker};

/// Where OpenShift keeps the CAs of its proxies.
const PLATFORM_NAMESPACE: &str = "openshift-config";
const PROXY_CA: &str = "user-ca-bundle";

/// Creates an object and then its status, as the controllers of a platform do.
async fn create(all: &Api<DynamicObject>, object: Value) -> Result<()> {
    let status = json!({ "status": object["status"] });
    let made = all.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    let merge = Patch::Merge(status);
    all.patch_status(&made.name_any(), &PatchParams::default(), &merge).await?;
    Ok(())
}

/// Removes an object that the test may not have created.
async fn remove(all: &Api<DynamicObject>, name: &str) -> Result<()> {
    match all.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        outcome => outcome.map(drop).with_context(|| format!("cannot remove {name}")),
    }
}

/// The address of the upload proxy in the CDIConfig.
fn published(config: &CdiConfig) -> Option<&str> {
    let url = config.status.as_ref()?.upload_proxy_url.as_deref();
    url.filter(|url| !url.is_empty())
}

async fn upload_by_route(test: &Test, routes: &Api<DynamicObject>) -> Result<()> {
    create(
        routes,
        json!({
            "apiVersion": "route.openshift.io/v1", "kind": "Route",
            "metadata": { "name": "cdi-uploadproxy" },
            "spec": {
                "host": "asked.test",
                "to": { "kind": "Service", "name": "cdi-uploadproxy", "weight": 100 },
                "tls": { "termination": "reencrypt" },
            },
            "status": { "ingress": [{ "host": PROXY_HOST, "routerName": "default" }] },
        }),
    )
    .await?;
    let configs = Api::<CdiConfig>::all(test.client());
    let is_published = |config: &CdiConfig| published(config) == Some(PROXY_HOST);
    test.wait_among(&configs, "config", "published", is_published).await?;
    // virtctl does not get the URL of the proxy.
    let uploader = Uploader::new(test).await?;
    let proxy = uploader.http_proxy();
    let authority = uploader.authority().await?;
    let path = format!("--image-path={}", uploader.image("disk.img.gz")?.display());
    let size = format!("--size={SIZE}");
    let words = ["dv", "by-route", &path, &size, "--storage-class=csi"];
    expect(&uploader.verifying(&words, &proxy, &authority)?.wait_with_output()?, "by-route")?;
    test.succeeded("by-route").await?;
    test.holds("by-route", &disk()).await
}

#[test]
fn route_to_the_upload_proxy_is_published_and_used() {
    run_installed_alone("route", async |test| {
        test.define_kinds(OPENSHIFT)?;
        let routes = test.platform_objects_in(NAMESPACE, "route.openshift.io", "Route");
        let outcome = upload_by_route(&test, &routes).await;
        remove(&routes, "cdi-uploadproxy").await?;
        outcome?;
        let configs = Api::<CdiConfig>::all(test.client());
        let is_withdrawn = |config: &CdiConfig| published(config).is_none();
        test.wait_among(&configs, "config", "without an address", is_withdrawn).await.map(|_| ())
    });
}

async fn import_by_proxy(test: &Test, proxies: &Api<DynamicObject>) -> Result<()> {
    let ca = ServerCertificate::for_names(&["proxy.test"]).ca;
    let maps = Api::<ConfigMap>::namespaced(test.client(), PLATFORM_NAMESPACE);
    let map = json!({ "metadata": { "name": PROXY_CA }, "data": { "ca-bundle.crt": ca } });
    maps.create(&PostParams::default(), &serde_json::from_value(map)?).await?;
    // It responds to each request, for any host.
    let proxy = server(&disk());
    let url = proxy.url_of("/").trim_end_matches('/').to_owned();
    create(
        proxies,
        json!({
            "apiVersion": "config.openshift.io/v1", "kind": "Proxy", "metadata": { "name": "cluster" },
            "spec": { "httpProxy": "http://not.in.force:1", "trustedCA": { "name": PROXY_CA } },
            "status": { "httpProxy": url, "noProxy": ".svc,.cluster.local,10.0.0.0/8" },
        }),
    )
    .await?;
    let configs = Api::<CdiConfig>::all(test.client());
    let is_taken = |config: &CdiConfig| {
        let shown = config.status.as_ref().and_then(|status| status.import_proxy.as_ref());
        shown.is_some_and(|shown| {
            shown.http_proxy.as_deref() == Some(&url)
                && shown.trusted_ca_proxy.as_deref() == Some(PLATFORM_CA_CONFIG_MAP)
        })
    };
    test.wait_among(&configs, "config", "taken over", is_taken).await?;
    let copies = Api::<ConfigMap>::namespaced(test.client(), NAMESPACE);
    let copy = copies.get(PLATFORM_CA_CONFIG_MAP).await?.data.unwrap_or_default();
    ensure!(copy.values().any(|pem| *pem == ca), "the copy of the CA is {copy:?}");
    // Another CA replaces the first.
    let renewed = ServerCertificate::for_names(&["proxy.test"]).ca;
    let patch = Patch::Merge(json!({ "data": { "ca-bundle.crt": renewed } }));
    maps.patch(PROXY_CA, &PatchParams::default(), &patch).await?;
    // Saves the wait for the controller's next periodic reconcile.
    let touch = Patch::Merge(json!({ "metadata": { "annotations": { "touched": "" } } }));
    proxies.patch("cluster", &PatchParams::default(), &touch).await?;
    let is_renewed = |map: &ConfigMap| map.data.iter().flatten().any(|(_, pem)| *pem == renewed);
    test.wait_among(&copies, PLATFORM_CA_CONFIG_MAP, "renewed", is_renewed).await?;
    // No name server resolves this host.
    let source = json!({ "http": { "url": "http://images.elsewhere.test/disk.img" } });
    test.apply(volume("disk", "csi", "Block", source)).await?;
    test.succeeded("disk").await?;
    let asked = proxy.requests();
    ensure!(!asked.is_empty(), "the proxy was not used");
    test.holds("disk", &disk()).await
}

#[test]
fn imports_use_the_platforms_proxy() {
    run_installed_alone("platform-proxy", async |test| {
        test.define_kinds(OPENSHIFT)?;
        let namespace = json!({ "metadata": { "name": PLATFORM_NAMESPACE } });
        test.create_global::<Namespace>(namespace).await?;
        let proxies = test.platform_objects("config.openshift.io", "Proxy");
        let outcome = import_by_proxy(&test, &proxies).await;
        remove(&proxies, "cluster").await?;
        test.remove_global::<Namespace>(PLATFORM_NAMESPACE).await?;
        outcome?;
        let configs = Api::<CdiConfig>::all(test.client());
        let is_gone = |config: &CdiConfig| {
            let shown = config.status.as_ref().and_then(|status| status.import_proxy.as_ref());
            shown.and_then(|shown| shown.http_proxy.as_deref()).unwrap_or_default().is_empty()
        };
        test.wait_among(&configs, "config", "without a proxy", is_gone).await?;
        let copies = Api::<ConfigMap>::namespaced(test.client(), NAMESPACE);
        test.wait_until_gone(&copies, PLATFORM_CA_CONFIG_MAP).await
    });
}

/// The administrator's network, of which the annotations of pods name the definition.
fn network() -> Value {
    json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": { "name": "bridge-network" },
        "spec": { "config": r#"{ "cniVersion": "1.0.0", "type": "bridge", "bridge": "br1" }"# },
    })
}

#[test]
fn worker_gets_the_data_volumes_networks() {
    run_installed("multus", async |test| {
        test.define_kinds(MULTUS)?;
        test.kubectl_ok(&["apply", "-f", "-"], &manifest(&[network()]))?;
        let image = pattern(16 * MIB);
        for (example, key) in [
            ("dv-multus-default-network", "v1.multus-cni.io/default-network"),
            ("dv-multus-secondary-network", "k8s.v1.cni.cncf.io/networks"),
        ] {
            let server = server(&image).once(Fault::StallAt(8 * MIB));
            let objects = small(example)?;
            let claim = name(objects.last().context("an example has objects")?);
            let network = &objects[0]["metadata"]["annotations"][key];
            let network = network.as_str().context("an example has a network")?.to_owned();
            test.apply(annotated(imported(&claim, "csi", "Block", &server), key, &network)).await?;
            let pod = worker(&test).await?;
            let found = pod.annotations().get(key).map(String::as_str);
            ensure!(found == Some(&*network), "{:?}", pod.annotations());
            server.heal();
            test.succeeded(&claim).await?;
            test.holds(&claim, &image).await?;
            test.only_these_are_left(&[&claim]).await?;
            test.all::<api::v1beta1::DataVolume>()
                .delete(&claim, &DeleteParams::background())
                .await?;
            let claims = test.all::<k8s_openapi::api::core::v1::PersistentVolumeClaim>();
            test.wait_until_gone(&claims, &claim).await?;
        }
        Ok(())
    });
}

/// Where the network plugin enforces policies, they decide; the API server accepts the documented ones everywhere.
#[test]
fn import_succeeds_with_default_deny_and_the_documented_policy() {
    run_installed("denied", async |test| {
        test.apply(json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": { "name": "deny-all" },
            "spec": { "podSelector": {}, "policyTypes": ["Ingress", "Egress"] },
        }))
        .await?;
        for object in example("networkpolicy-workers")? {
            test.apply(object).await?;
        }
        let server = server(&disk());
        test.apply(imported("disk", "csi", "Block", &server)).await?;
        test.succeeded("disk").await?;
        test.holds("disk", &disk()).await
    });
}

/// The CRD of the test enforces nothing: the test compares the constraints with a worker's pod.
#[test]
fn worker_constraints_match_the_workers() {
    run_installed("constraints", async |test| {
        test.define_kinds(OPENSHIFT)?;
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../deploy/options/openshift.yaml");
        let text = std::fs::read_to_string(path)?;
        for _ in 0..2 {
            test.kubectl_ok(&["apply", "--server-side", "-f", "-"], &text)?;
        }
        let read =
            ["get", "securitycontextconstraints", "containerized-data-importer", "-o", "json"];
        let constraints = test.kubectl_ok(&read, "")?.json()?;
        let stalled = server(&pattern(16 * MIB)).once(Fault::StallAt(8 * MIB));
        test.apply(imported("disk", "csi", "Filesystem", &stalled)).await?;
        let pod = serde_json::to_value(worker(&test).await?)?;
        let context = &pod["spec"]["containers"][0]["securityContext"];
        ensure!(context["runAsNonRoot"] == true && context["runAsUser"] != 0, "{context}");
        let dropped = &context["capabilities"]["drop"];
        ensure!(*dropped == constraints["requiredDropCapabilities"], "{dropped}");
        ensure!(context["seccompProfile"]["type"] == "RuntimeDefault", "{context}");
        for volume in pod["spec"]["volumes"].as_array().context("a worker has volumes")? {
            let kinds = constraints["volumes"].as_array().context("volumes are constrained")?;
            let is_admitted =
                kinds.iter().filter_map(Value::as_str).any(|kind| !volume[kind].is_null());
            ensure!(is_admitted, "{volume}");
        }
        stalled.heal();
        test.succeeded("disk").await.map(|_| ())
    });
}
