//! The address of the upload proxy outside of the cluster: a Route, or an Ingress where there are no Routes.

use serde_json::{Value, json};

use super::{DesiredFacts, PlatformApi};
use crate::manifests::object;

/// Uploads last long, and what follows them longer.
const ROUTE_TIMEOUT: (&str, &str) = ("haproxy.router.openshift.io/timeout", "60m");
/// For ingress-nginx: TLS to the proxy, no limit and no copy of a body, and the same timeout in seconds.
const INGRESS_ANNOTATIONS: [(&str, &str); 5] = [
    ("nginx.ingress.kubernetes.io/backend-protocol", "HTTPS"),
    ("nginx.ingress.kubernetes.io/proxy-body-size", "0"),
    ("nginx.ingress.kubernetes.io/proxy-request-buffering", "off"),
    ("nginx.ingress.kubernetes.io/proxy-read-timeout", "3600"),
    ("nginx.ingress.kubernetes.io/proxy-send-timeout", "3600"),
];

pub(super) fn objects(facts: &DesiredFacts<'_>) -> Option<Value> {
    let platform = facts.platform;
    let config = facts.cdi.spec.config.as_ref();
    let address = config.and_then(|config| config.upload_proxy_url_override.as_deref());
    let host = address.and_then(host).filter(|host| !platform.foreign_hosts.contains(host));
    let namespace = &facts.environment.namespace;
    if platform.serves(PlatformApi::Route) {
        platform.upload_proxy_ca.as_deref().map(|ca| route(namespace, host.as_deref(), ca))
    } else if platform.serves(PlatformApi::Ingress) {
        // Without a host it would serve every host of the cluster.
        host.map(|host| ingress(namespace, &host))
    } else {
        None
    }
}

/// The host of `https://HOST` with nothing but the default port and path: what a Route or an Ingress can serve.
fn host(address: &str) -> Option<String> {
    let host = address.strip_prefix("https://").unwrap_or(address);
    let host = host.strip_suffix('/').unwrap_or(host);
    let host = host.strip_suffix(":443").unwrap_or(host).to_ascii_lowercase();
    let label = |label: &str| {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(word)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // An address of digits and dots is no host of these kinds.
    let is_name = host.contains('.') && host.bytes().any(|byte| byte.is_ascii_alphabetic());
    (is_name && host.len() <= 253 && host.split('.').all(label)).then_some(host)
}

/// Without `host` the platform assigns one.
fn route(namespace: &str, host: Option<&str>, ca: &str) -> Value {
    let service = api::names::UPLOAD_PROXY_SERVICE;
    let mut spec = json!({
        "to": { "kind": "Service", "name": service },
        "tls": {
            "termination": "reencrypt",
            "insecureEdgeTerminationPolicy": "Redirect",
            "destinationCACertificate": ca,
        },
    });
    if let Some(host) = host {
        spec["host"] = host.into();
    }
    let rest = json!({ "spec": spec });
    let api_version = PlatformApi::Route.api_version();
    let mut route = object(api_version, "Route", service, Some(namespace), "", rest);
    route["metadata"]["annotations"] = json!({ ROUTE_TIMEOUT.0: ROUTE_TIMEOUT.1 });
    route
}

/// With the certificate that the ingress controller has for the host.
fn ingress(namespace: &str, host: &str) -> Value {
    let service = api::names::UPLOAD_PROXY_SERVICE;
    let backend = json!({ "service": { "name": service, "port": { "number": 443 } } });
    let path = json!({ "path": "/", "pathType": "Prefix", "backend": backend });
    let spec = json!({
        "tls": [{ "hosts": [host] }],
        "rules": [{ "host": host, "http": { "paths": [path] } }],
    });
    let rest = json!({ "spec": spec });
    let api_version = PlatformApi::Ingress.api_version();
    let mut ingress = object(api_version, "Ingress", service, Some(namespace), "", rest);
    for (key, value) in INGRESS_ANNOTATIONS {
        ingress["metadata"]["annotations"][key] = value.into();
    }
    ingress
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_that_of_an_address_without_port_and_path() {
        let long = format!("https://{}.example", "a".repeat(64));
        for (address, expected) in [
            ("https://uploads.example.test", Some("uploads.example.test")),
            ("https://Uploads.example.test/", Some("uploads.example.test")),
            ("https://uploads.example.test:443", Some("uploads.example.test")),
            ("uploads.example.test", Some("uploads.example.test")),
            ("https://uploads.example.test:8443", None),
            ("https://uploads.example.test/path", None),
            ("http://uploads.example.test", None),
            ("https://user@uploads.example.test", None),
            ("https://192.0.2.1", None),
            ("https://[2001:db8::1]", None),
            ("https://localhost", None),
            ("https://-a.example", None),
            ("https://a..example", None),
            (long.as_str(), None),
            ("", None),
        ] {
            assert_eq!(host(address).as_deref(), expected, "{address}");
        }
    }
}
