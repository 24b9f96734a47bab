//! Parts of the installation that only some platforms have: they are created once their APIs are served, and repaired. The kinds
//! are stand-ins, and so are their controllers.

use anyhow::Result;
use e2e::{NAMESPACE, Test};
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind};
use serde_json::json;

use crate::installation::{STAND_INS, available, delete};
use crate::settings::patch;

/// Group, version, kind, name. A kind of OpenShift's or of another operator's.
const PARTS: [(&str, &str, &str, &str); 8] = [
    ("route.openshift.io", "v1", "Route", "cdi-uploadproxy"),
    ("monitoring.coreos.com", "v1", "PrometheusRule", "prometheus-cdi-rules"),
    ("monitoring.coreos.com", "v1", "ServiceMonitor", "service-monitor-cdi"),
    ("security.openshift.io", "v1", "SecurityContextConstraints", "containerized-data-importer"),
    ("populator.storage.k8s.io", "v1beta1", "VolumePopulator", "volumeimportsource"),
    ("populator.storage.k8s.io", "v1beta1", "VolumePopulator", "volumeuploadsource"),
    ("populator.storage.k8s.io", "v1beta1", "VolumePopulator", "volumeclonesource"),
    ("populator.storage.k8s.io", "v1beta1", "VolumePopulator", "ovirtvolumepopulator"),
];
const HOST: &str = "upload.cdi.test";

fn objects(test: &Test, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let plural = match kind {
        "SecurityContextConstraints" => kind.to_lowercase(),
        _ => format!("{}s", kind.to_lowercase()),
    };
    let kind_of_group = GroupVersionKind::gvk(group, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&kind_of_group, &plural);
    match kind {
        "SecurityContextConstraints" | "VolumePopulator" => Api::all_with(test.client(), &resource),
        _ => Api::namespaced_with(test.client(), NAMESPACE, &resource),
    }
}

/// The CRDs are created in a running installation, and deleted in the end.
pub async fn parts_follow_their_apis(test: &Test) -> Result<()> {
    ingress_follows_the_address(test).await?;
    for definitions in STAND_INS {
        test.define_kinds(definitions)?;
    }
    for (group, version, kind, name) in PARTS {
        let all = objects(test, group, version, kind);
        test.wait_among(&all, name, "there", |_| true).await?;
    }
    route_is_as_the_cdi_object_specifies(test).await?;
    let (group, version, kind, name) = PARTS[1];
    let rules = objects(test, group, version, kind);
    rules.delete(name, &DeleteParams::default()).await?;
    test.wait_among(&rules, name, "there again", |_| true).await?;
    for definitions in STAND_INS {
        delete(test, definitions)?;
    }
    available(test, None).await.map(drop)
}

/// Where there are no Routes, an Ingress for the address of the upload proxy, if one is set.
async fn ingress_follows_the_address(test: &Test) -> Result<()> {
    let all = Api::<Ingress>::namespaced(test.client(), NAMESPACE);
    for host in [HOST, "other.cdi.test"] {
        patch(test, json!({ "config": { "uploadProxyURLOverride": host } })).await?;
        let has_host = |ingress: &Ingress| {
            let rules = ingress.spec.as_ref().and_then(|spec| spec.rules.as_deref());
            rules.unwrap_or_default().iter().any(|rule| rule.host.as_deref() == Some(host))
        };
        test.wait_among(&all, "cdi-uploadproxy", &format!("for {host}"), has_host).await?;
    }
    patch(test, json!({ "config": { "uploadProxyURLOverride": null } })).await?;
    test.wait_until_gone(&all, "cdi-uploadproxy").await
}

async fn route_is_as_the_cdi_object_specifies(test: &Test) -> Result<()> {
    let (group, version, kind, name) = PARTS[0];
    let routes = objects(test, group, version, kind);
    let is_secure = |route: &DynamicObject| {
        let tls = &route.data["spec"]["tls"];
        let authority = tls["destinationCACertificate"].as_str().unwrap_or_default();
        tls["termination"] == "reencrypt" && authority.contains("BEGIN CERTIFICATE")
    };
    test.wait_among(&routes, name, "re-encrypted to the upload proxy", is_secure).await?;
    for host in [json!(HOST), json!(null)] {
        patch(test, json!({ "config": { "uploadProxyURLOverride": host } })).await?;
        let has_host = |route: &DynamicObject| route.data["spec"]["host"] == host;
        test.wait_among(&routes, name, &format!("with the host {host}"), has_host).await?;
    }
    Ok(())
}
