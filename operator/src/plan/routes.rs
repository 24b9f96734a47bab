//! Users' Routes to the upload proxy that ask for its CA.

use serde_json::Value;

use crate::metadata;

pub const INJECT_CERTIFICATE: &str = "operator.cdi.kubevirt.io/injectUploadProxyCert";
pub const INJECTED: &str = "UploadProxyRouteInjectSuccess";
pub const INJECTED_MESSAGE: &str = "Successfully updated Route destination CA certificate";

/// The Route with the CA, if it asks for that, has TLS, and has another one.
pub fn with_destination_ca(route: &Value, bundle: &str) -> Option<Value> {
    let tls = &route["spec"]["tls"];
    let needs_it = metadata::annotation(route, INJECT_CERTIFICATE) == Some("true")
        && tls.is_object()
        && tls["destinationCACertificate"] != bundle
        && !metadata::is_terminating(route);
    needs_it.then(|| {
        let mut route = route.clone();
        route["spec"]["tls"]["destinationCACertificate"] = bundle.into();
        route
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_annotated_routes_with_tls_receive_the_ca() {
        let route = |inject: &str, tls: Value| {
            json!({
                "metadata": { "annotations": { INJECT_CERTIFICATE: inject } },
                "spec": { "host": "uploads", "tls": tls },
            })
        };
        let ca = || json!({ "destinationCACertificate": "new" });
        for (case, route, expected) in [
            ("missing", route("true", json!({})), true),
            ("old", route("true", json!({ "destinationCACertificate": "old" })), true),
            ("current", route("true", ca()), false),
            ("without TLS", route("true", Value::Null), false),
            ("not asked for", route("false", json!({})), false),
        ] {
            let changed = with_destination_ca(&route, "new");
            assert_eq!(changed.is_some(), expected, "{case}");
            if let Some(changed) = changed {
                assert_eq!(
                    (&changed["spec"]["tls"], &changed["spec"]["host"]),
                    (&ca(), &json!("uploads"))
                );
            }
        }
    }
}
