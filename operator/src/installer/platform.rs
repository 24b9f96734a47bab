//! Reads what the desired objects depend on besides the CDI object.

use std::collections::{BTreeMap, BTreeSet};

use api::names;
use api::v1beta1::Cdi;
use serde_json::Value;

use crate::api_client::ApiClient;
use crate::desired::{Platform, PlatformApi, priority_class};
use crate::error::Error;
use crate::kinds::{self, ObjectId};
use crate::metadata::{self, CREATE_VERSION};

/// The ConfigMap with the CAs of the upload proxy.
const UPLOAD_PROXY_BUNDLE: &str = "cdi-uploadproxy-signer-bundle";

/// # Errors
/// When a request fails other than by "not found".
pub async fn read_platform(api: &ApiClient, namespace: &str, cdi: &Cdi) -> Result<Platform, Error> {
    let apis = read_apis(api).await?;
    let class = ObjectId::new(&kinds::PRIORITY_CLASS, "", priority_class(cdi));
    let bundle = ObjectId::new(&kinds::CONFIG_MAP, namespace, UPLOAD_PROXY_BUNDLE);
    let bundle = api.get(&bundle).await?;
    let bundle = bundle.as_ref().and_then(|bundle| bundle["data"][names::CA_BUNDLE_KEY].as_str());
    let mut foreign_hosts = BTreeSet::new();
    for (platform_api, kind) in
        [(PlatformApi::Ingress, &kinds::INGRESS), (PlatformApi::Route, &kinds::ROUTE)]
    {
        if apis.contains(&platform_api) {
            let all = api.list(kind, namespace, None).await?;
            foreign_hosts.extend(all.iter().filter(is_foreign).flat_map(hosts));
        }
    }
    let endpoints = ObjectId::new(&kinds::ENDPOINT_SLICE, "default", "kubernetes");
    let endpoints = api.get(&endpoints).await?;
    Ok(Platform {
        apis,
        has_priority_class: api.get(&class).await?.is_some(),
        upload_proxy_ca: bundle.map(str::to_owned),
        foreign_hosts,
        api_server_ports: endpoints.as_ref().map(ports).unwrap_or_default(),
    })
}

async fn read_apis(api: &ApiClient) -> Result<BTreeSet<PlatformApi>, Error> {
    let mut served = BTreeMap::new();
    let mut apis = BTreeSet::new();
    for one in PlatformApi::ALL {
        let (group, version) = one.api_version().split_once('/').unwrap_or_default();
        let kinds = match served.get(group) {
            Some(kinds) => kinds,
            None => {
                let kinds = api.served_kinds(group, version).await?;
                served.entry(group).or_insert(kinds)
            }
        };
        if kinds.iter().any(|kind| kind == one.kind()) {
            apis.insert(one);
        }
    }
    Ok(apis)
}

/// The operator's own is called as the service, also when upstream CDI's operator has created it.
fn is_foreign(object: &&Value) -> bool {
    metadata::label(object, CREATE_VERSION).is_none()
        && metadata::name(object) != names::UPLOAD_PROXY_SERVICE
}

/// Of a Route or an Ingress.
fn hosts(object: &Value) -> Vec<String> {
    let rules = object["spec"]["rules"].as_array().into_iter().flatten();
    let hosts = rules.map(|rule| &rule["host"]).chain([&object["spec"]["host"]]);
    hosts.filter_map(Value::as_str).map(str::to_ascii_lowercase).collect()
}

/// Of an EndpointSlice.
fn ports(endpoints: &Value) -> BTreeSet<u16> {
    let ports = endpoints["ports"].as_array().into_iter().flatten();
    ports.filter_map(|port| u16::try_from(port["port"].as_u64()?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hosts_and_ports_are_read_leniently() {
        let ingress = json!({ "spec": { "rules": [{ "host": "A.example" }, {}] } });
        assert_eq!(hosts(&ingress), ["a.example"]);
        assert_eq!(hosts(&json!({ "spec": { "host": "b" } })), ["b"]);
        assert_eq!(
            ports(&json!({ "ports": [{ "port": 6443 }, { "port": 70000 }, {}] })),
            [6443].into()
        );
    }

    #[test]
    fn own_route_is_not_foreign() {
        for (labels, name, expected) in [
            (json!({}), "cdi-uploadproxy", false),
            (json!({ CREATE_VERSION: "1" }), "a", false),
            (json!({}), "a", true),
        ] {
            let object = json!({ "metadata": { "name": name, "labels": labels } });
            assert_eq!(is_foreign(&&object), expected);
        }
    }
}
