//! One line of the API server's audit log.

use serde_json::Value;

/// The decision of the authorizer for a request that it did not allow.
const FORBIDDEN: &str = "forbid";
const DECISION: &str = "authorization.k8s.io/decision";

/// A request of one of the installation's service accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditedRequest {
    /// The service account, without its namespace.
    pub account: String,
    /// `get`, `list` …
    pub verb: String,
    /// Empty for that of pods.
    pub group: String,
    /// `pods`, `pods/status`; the path of the URL where the request is for no resource.
    pub resource: String,
    /// Empty for kinds that are in none, and for requests of all namespaces.
    pub namespace: String,
    /// Empty where the request names no object.
    pub name: String,
    /// The authorizer refused it. Admission plugins and webhooks respond with the same status code.
    pub is_refused: bool,
}

/// The request in a line of the log. `None`: it is of no service account of `namespace`, or for no resource and not refused.
///
/// # Errors
/// When the line is no JSON: a line is written by one call, so a log has no halves.
pub fn parse(line: &str, namespace: &str) -> serde_json::Result<Option<AuditedRequest>> {
    let event: Value = serde_json::from_str(line)?;
    let text = |pointer: &str| {
        event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let prefix = format!("system:serviceaccount:{namespace}:");
    let user = text("/user/username");
    let Some(account) = user.strip_prefix(&prefix) else { return Ok(None) };
    let is_refused = event["annotations"][DECISION] == FORBIDDEN;
    let mut resource = text("/objectRef/resource");
    let subresource = text("/objectRef/subresource");
    if resource.is_empty() {
        let path = text("/requestURI");
        resource = path.split('?').next().unwrap_or_default().to_owned();
        if !is_refused {
            return Ok(None);
        }
    }
    if !subresource.is_empty() {
        resource = format!("{resource}/{subresource}");
    }
    let verb = text("/verb");
    // The authorizer sees no name in a request that creates: the log takes it from the object.
    let name = if verb == "create" { String::new() } else { text("/objectRef/name") };
    Ok(Some(AuditedRequest {
        account: account.to_owned(),
        verb,
        group: text("/objectRef/apiGroup"),
        resource,
        namespace: text("/objectRef/namespace"),
        name,
        is_refused,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Option<String> {
        let request = parse(line, "cdi").unwrap()?;
        let AuditedRequest { account, verb, group, resource, namespace, name, is_refused } =
            request;
        let outcome = if is_refused { " refused" } else { "" };
        Some(format!("{account} {verb} {group}|{resource}|{namespace}|{name}{outcome}"))
    }

    /// As Kubernetes 1.36 writes them, with fewer members.
    #[test]
    fn lines_of_the_log_are_read() {
        for (line, expected) in [
            (
                r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete",
                    "requestURI":"/apis/cdi.kubevirt.io/v1beta1/namespaces/vms/datavolumes/disk/status?fieldManager=cdi-controller",
                    "verb":"patch","user":{"username":"system:serviceaccount:cdi:cdi-sa","uid":"u",
                    "groups":["system:serviceaccounts","system:serviceaccounts:cdi","system:authenticated"]},
                    "objectRef":{"resource":"datavolumes","namespace":"vms","name":"disk",
                    "apiGroup":"cdi.kubevirt.io","apiVersion":"v1beta1","subresource":"status"},
                    "responseStatus":{"metadata":{},"code":200},
                    "annotations":{"authorization.k8s.io/decision":"allow"}}"#,
                Some("cdi-sa patch cdi.kubevirt.io|datavolumes/status|vms|disk"),
            ),
            (
                r#"{"stage":"ResponseStarted","verb":"watch","requestURI":"/api/v1/pods?watch=true",
                    "user":{"username":"system:serviceaccount:cdi:cdi-sa"},
                    "objectRef":{"resource":"pods","apiVersion":"v1"},"responseStatus":{"code":200},
                    "annotations":{"authorization.k8s.io/decision":"allow"}}"#,
                Some("cdi-sa watch |pods||"),
            ),
            (
                r#"{"stage":"ResponseComplete","verb":"create","requestURI":"/api/v1/namespaces/vms/pods",
                    "user":{"username":"system:serviceaccount:cdi:cdi-sa"},
                    "objectRef":{"resource":"pods","namespace":"vms","name":"importer","apiVersion":"v1"},
                    "responseStatus":{"code":403,"reason":"Forbidden","message":"exceeded quota"},
                    "annotations":{"authorization.k8s.io/decision":"allow"}}"#,
                Some("cdi-sa create |pods|vms|"),
            ),
            (
                r#"{"stage":"ResponseComplete","verb":"delete","requestURI":"/api/v1/namespaces/vms/secrets/s",
                    "user":{"username":"system:serviceaccount:cdi:cdi-sa"},
                    "objectRef":{"resource":"secrets","namespace":"vms","name":"s","apiVersion":"v1"},
                    "responseStatus":{"code":403,"reason":"Forbidden"},
                    "annotations":{"authorization.k8s.io/decision":"forbid","authorization.k8s.io/reason":""}}"#,
                Some("cdi-sa delete |secrets|vms|s refused"),
            ),
            (
                r#"{"verb":"get","requestURI":"/debug/pprof?seconds=1",
                    "user":{"username":"system:serviceaccount:cdi:cdi-operator"},
                    "annotations":{"authorization.k8s.io/decision":"forbid"}}"#,
                Some("cdi-operator get |/debug/pprof|| refused"),
            ),
            (
                r#"{"verb":"get","requestURI":"/version","user":{"username":"system:serviceaccount:cdi:cdi-sa"},
                    "annotations":{"authorization.k8s.io/decision":"allow"}}"#,
                None,
            ),
            (r#"{"verb":"get","user":{"username":"system:serviceaccount:cdi2:cdi-sa"}}"#, None),
            (r#"{"verb":"get","user":{"username":"system:admin"}}"#, None),
        ] {
            assert_eq!(request(line).as_deref(), expected, "{line}");
        }
        assert!(parse(r#"{"verb":"get","user":{"#, "cdi").is_err());
    }
}
