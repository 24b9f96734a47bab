//! Which user may clone which volume, and the clone token.

use std::time::SystemTime;

use api::annotations::request;
use api::data_volume::Source;
use api::v1beta1::{DataSource, DataSourceSource, ObjectSource};
use auth::token::{Claims, ISSUER_API_SERVER, LIFETIME, Operation, Resource, SigningKey};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use serde_json::{Value, json};

use super::data_volume::Volume;
use crate::admission_result::{AdmissionResult, Patch};
use crate::review::Request;

/// What a DataVolume clones, as far as permissions matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloneRequest {
    /// No volume.
    Nothing,
    Copy(Original),
    /// What this DataSource refers to: namespace and name.
    DataSource(String, String),
}

/// A volume to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Original {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Claim,
    Snapshot,
}

/// What a new or changed DataVolume clones.
pub fn clone_request(volume: &Volume, namespace: &str) -> CloneRequest {
    if let Some(reference) = &volume.spec.source_ref {
        let place = reference.namespace.clone().filter(|name| !name.is_empty());
        return CloneRequest::DataSource(
            place.unwrap_or_else(|| namespace.to_owned()),
            reference.name.clone(),
        );
    }
    let members = volume.spec.source.as_ref().map(|source| source.members()).unwrap_or_default();
    let (kind, source) = match members[..] {
        [Source::Pvc(source)] => (Kind::Claim, source),
        [Source::Snapshot(source)] => (Kind::Snapshot, source),
        _ => return CloneRequest::Nothing,
    };
    if source.namespace.is_empty() || source.name.is_empty() {
        return CloneRequest::Nothing; // the validating webhook reports the rule
    }
    let (namespace, name) = (source.namespace.clone(), source.name.clone());
    CloneRequest::Copy(Original { kind, namespace, name })
}

/// What a DataSource refers to. A reference to another DataSource of its namespace is returned; if that one refers to a
/// third, it is not followed.
pub fn resolve_data_source(source: &DataSource, followed: bool) -> CloneRequest {
    let resolved = source.status.as_ref().and_then(|status| status.source.as_ref());
    let named = |source: &DataSourceSource| original(source).map(CloneRequest::Copy);
    let spec = &source.spec.source;
    if let Some(clone) = named(spec) {
        return clone;
    }
    if spec.data_source.is_some()
        && let Some(clone) = resolved.and_then(named)
    {
        return clone;
    }
    match &spec.data_source {
        Some(next) if !followed && Some(&next.namespace) == source.metadata.namespace.as_ref() => {
            CloneRequest::DataSource(next.namespace.clone(), next.name.clone())
        }
        _ => CloneRequest::Nothing,
    }
}

/// The volume that a DataSource itself refers to.
pub fn original(source: &DataSourceSource) -> Option<Original> {
    let original = |kind, ObjectSource { namespace, name }: &ObjectSource| Original {
        kind,
        namespace: namespace.clone(),
        name: name.clone(),
    };
    let claim = source.pvc.as_ref().map(|claim| original(Kind::Claim, claim));
    claim.or_else(|| source.snapshot.as_ref().map(|one| original(Kind::Snapshot, one)))
}

/// Whether the DataVolume states that its data exist, or may find them on a static volume. A missing source or missing
/// permissions are no reason to refuse it then.
pub fn is_tolerant(volume: &Volume) -> bool {
    [request::PRE_POPULATED, request::CHECK_STATIC_VOLUME]
        .iter()
        .any(|key| volume.annotation(key).is_some())
}

impl Original {
    /// Whether permissions have to be checked. Within a namespace, none are needed.
    pub fn is_elsewhere(&self, target_namespace: &str) -> bool {
        self.namespace != target_namespace
    }

    /// The user needs every permission of at least one of these lists.
    pub fn permissions(&self) -> Vec<Vec<ResourceAttributes>> {
        let may_create =
            |group: &str, resource: &str, subresource: Option<&str>, name: Option<&str>| {
                ResourceAttributes {
                    namespace: Some(self.namespace.clone()),
                    verb: Some("create".into()),
                    group: Some(group.into()),
                    resource: Some(resource.into()),
                    subresource: subresource.map(str::to_owned),
                    name: name.map(str::to_owned),
                    ..ResourceAttributes::default()
                }
            };
        let name = Some(self.name.as_str());
        let source = may_create(super::GROUP, "datavolumes", Some("source"), name);
        match self.kind {
            Kind::Claim => vec![vec![source], vec![may_create("", "pods", None, name)]],
            // `pvcs`, as existing roles of upstream CDI name the resource.
            Kind::Snapshot => vec![
                vec![source],
                vec![may_create("", "pods", None, None), may_create("", "pvcs", None, None)],
            ],
        }
    }

    /// `spec.source` of a DataVolume.
    fn source(&self) -> Value {
        let place = json!({ "namespace": self.namespace, "name": self.name });
        match self.kind {
            Kind::Claim => json!({ "pvc": place }),
            Kind::Snapshot => json!({ "snapshot": place }),
        }
    }

    /// The resource in a clone token.
    pub fn resource(&self) -> Resource {
        match self.kind {
            Kind::Claim => Resource::pvcs(),
            Kind::Snapshot => Resource::snapshots(),
        }
    }
}

/// Upstream CDI's text, which KubeVirt and tests match.
pub fn deny(user: &str, original: &Original) -> AdmissionResult {
    let namespace = &original.namespace;
    let message =
        format!("User {user} has insufficient permissions in clone source namespace {namespace}");
    AdmissionResult::invalid("spec.source.PVC.namespace", message)
}

/// Allows the DataVolume and adds a clone token, in place of any other. `suffix` completes a name that the API server would
/// otherwise generate later, as the token contains the name.
///
/// # Errors
/// When the key does not sign.
pub fn allow_with_token(
    request: &Request,
    volume: &Volume,
    original: &Original,
    key: &SigningKey,
    (suffix, now): (&str, SystemTime),
) -> Result<AdmissionResult, auth::token::TokenError> {
    let mut patch = Vec::new();
    let meta = &volume.metadata;
    let name = match &meta.generate_name {
        Some(prefix) if meta.name.is_empty() => {
            let name = generated(prefix, suffix);
            patch.push(Patch::add("/metadata/name", json!(name)));
            name
        }
        _ => meta.name.clone(),
    };
    let params = [("targetNamespace", request.namespace.clone()), ("targetName", name)];
    let claims = Claims {
        operation: Operation::Clone,
        name: original.name.clone(),
        namespace: original.namespace.clone(),
        resource: original.resource(),
        params: params.map(|(key, value)| (key.to_owned(), value)).into(),
    };
    let token = key.sign(&claims, ISSUER_API_SERVER, LIFETIME, now)?;
    patch.push(if meta.annotations.is_empty() {
        Patch::add("/metadata/annotations", json!({ request::CLONE_TOKEN: token }))
    } else {
        Patch::add(token_path(), json!(token))
    });
    // An import of an image that exists in the namespace becomes a clone.
    if clone_request(volume, &request.namespace) == CloneRequest::Nothing {
        patch.push(Patch::add("/spec/source", original.source()));
    }
    Ok(AdmissionResult::Allowed { patch, warning: None })
}

/// Allows the DataVolume without a new token. Any client that can reach the webhook could obtain a token, so
/// a token that the request adds is removed, and an existing one stays. `old` is the existing DataVolume,
/// if any.
pub fn allow_without_token(volume: &Volume, old: Option<&Volume>) -> AdmissionResult {
    let is = volume.annotation(request::CLONE_TOKEN);
    let was = old.and_then(|old| old.annotation(request::CLONE_TOKEN));
    let patch = match (is, was) {
        (Some(is), Some(was)) if is != was => vec![Patch::add(token_path(), json!(was))],
        (Some(_), None) => vec![Patch::remove(token_path())],
        (Some(_), Some(_)) | (None, _) => return AdmissionResult::ALLOWED,
    };
    AdmissionResult::Allowed { patch, warning: None }
}

/// JSON pointer of the annotation.
fn token_path() -> String {
    format!("/metadata/annotations/{}", request::CLONE_TOKEN.replace('/', "~1"))
}

/// A generated name as the API server builds it: at most 63 characters, the last five random.
fn generated(prefix: &str, suffix: &str) -> String {
    let prefix_max = api::names::LABEL_LENGTH_MAX.saturating_sub(suffix.len());
    let prefix: String = prefix.chars().take(prefix_max).collect();
    format!("{prefix}{suffix}")
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;
    use std::time::Duration;

    use auth::token::{KeyTexts, VerifyingKey};
    use base64::Engine as _;

    use super::*;

    // Generating a key takes a tenth of a second.
    static KEYS: LazyLock<(SigningKey, VerifyingKey)> = LazyLock::new(|| {
        let texts = KeyTexts::generate().unwrap();
        let signing = SigningKey::from_pem(texts.private.as_bytes()).unwrap();
        (signing, VerifyingKey::from_pem(texts.public.as_bytes()).unwrap())
    });

    fn volume(value: Value) -> Volume {
        serde_json::from_value(value).unwrap()
    }

    fn original(kind: Kind, namespace: &str, name: &str) -> Original {
        Original { kind, namespace: namespace.into(), name: name.into() }
    }

    #[test]
    fn clone_request_comes_from_the_only_source() {
        let place = json!({ "namespace": "a", "name": "b" });
        for (spec, expected) in [
            (
                json!({ "source": { "pvc": place } }),
                CloneRequest::Copy(original(Kind::Claim, "a", "b")),
            ),
            (
                json!({ "source": { "snapshot": place } }),
                CloneRequest::Copy(original(Kind::Snapshot, "a", "b")),
            ),
            (json!({ "source": { "blank": {} } }), CloneRequest::Nothing),
            (json!({ "source": { "blank": {}, "pvc": place } }), CloneRequest::Nothing),
            (
                json!({ "source": { "pvc": { "namespace": "", "name": "b" } } }),
                CloneRequest::Nothing,
            ),
            (json!({}), CloneRequest::Nothing),
            (
                json!({ "sourceRef": { "kind": "DataSource", "name": "d" } }),
                CloneRequest::DataSource("ns".into(), "d".into()),
            ),
            (
                json!({ "sourceRef": { "kind": "DataSource", "name": "d", "namespace": "e" } }),
                CloneRequest::DataSource("e".into(), "d".into()),
            ),
        ] {
            assert_eq!(clone_request(&volume(json!({ "spec": spec })), "ns"), expected, "{spec}");
        }
    }

    #[test]
    fn data_source_is_followed_once() {
        let claim = json!({ "pvc": { "namespace": "a", "name": "b" } });
        let pointer =
            |namespace: &str| json!({ "dataSource": { "namespace": namespace, "name": "other" } });
        let copy = CloneRequest::Copy(original(Kind::Claim, "a", "b"));
        let next = CloneRequest::DataSource("here".into(), "other".into());
        for (spec, status, followed, expected) in [
            (claim.clone(), json!({}), false, copy.clone()),
            (claim.clone(), json!({}), true, copy.clone()),
            (pointer("here"), claim.clone(), false, copy.clone()),
            (pointer("here"), claim, true, copy),
            (pointer("here"), json!({}), false, next),
            (pointer("here"), json!({}), true, CloneRequest::Nothing),
            (pointer("there"), json!({}), false, CloneRequest::Nothing),
            (json!({}), json!({}), false, CloneRequest::Nothing),
        ] {
            let source: DataSource = serde_json::from_value(json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1",
                "kind": "DataSource",
                "metadata": { "name": "d", "namespace": "here" },
                "spec": { "source": spec },
                "status": { "source": status },
            }))
            .unwrap();
            assert_eq!(
                resolve_data_source(&source, followed),
                expected,
                "{spec} {status} {followed}"
            );
        }
    }

    #[test]
    fn permissions_match_upstream_cdis_roles() {
        let shown = |kind| {
            let show = |one: &ResourceAttributes| {
                let text = |field: &Option<String>| field.clone().unwrap_or_default();
                format!(
                    "{} {}/{}/{} {} in {}",
                    text(&one.verb),
                    text(&one.group),
                    text(&one.resource),
                    text(&one.subresource),
                    text(&one.name),
                    text(&one.namespace)
                )
            };
            let lists = original(kind, "a", "b").permissions();
            lists.iter().map(|all| all.iter().map(show).collect()).collect::<Vec<Vec<_>>>()
        };
        let source = "create cdi.kubevirt.io/datavolumes/source b in a";
        assert_eq!(shown(Kind::Claim), [vec![source], vec!["create /pods/ b in a"]]);
        let both = vec!["create /pods/  in a", "create /pvcs/  in a"];
        assert_eq!(shown(Kind::Snapshot), [vec![source], both]);
        assert!(!original(Kind::Claim, "a", "b").is_elsewhere("a"));
        assert!(original(Kind::Claim, "a", "b").is_elsewhere("c"));
    }

    fn patched(metadata: Value) -> Vec<Value> {
        let request = Request { namespace: "target".into(), ..Request::default() };
        let spec = json!({ "source": { "snapshot": { "namespace": "a", "name": "b" } } });
        let volume = volume(json!({ "metadata": metadata, "spec": spec }));
        let source = original(Kind::Snapshot, "a", "b");
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let result = allow_with_token(&request, &volume, &source, &KEYS.0, ("x7x7x", now)).unwrap();
        let patch = result.response("1")["patch"].as_str().unwrap().to_owned();
        let patch = base64::engine::general_purpose::STANDARD.decode(patch).unwrap();
        serde_json::from_slice(&patch).unwrap()
    }

    fn claims(token: &str) -> Claims {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        KEYS.1.verify(token, ISSUER_API_SERVER, now).unwrap()
    }

    #[test]
    fn token_names_source_and_target_and_replaces_any_other() {
        let key = "cdi.kubevirt.io/storage.clone.token";
        let patch = patched(json!({ "name": "disk", "annotations": { key: "forged" } }));
        assert_eq!(patch.len(), 1);
        assert_eq!(patch[0]["path"], "/metadata/annotations/cdi.kubevirt.io~1storage.clone.token");
        let found = claims(patch[0]["value"].as_str().unwrap());
        assert_eq!((found.operation, found.resource), (Operation::Clone, Resource::snapshots()));
        assert_eq!((found.namespace.as_str(), found.name.as_str()), ("a", "b"));
        assert_eq!(
            (found.params["targetNamespace"].as_str(), found.params["targetName"].as_str()),
            ("target", "disk")
        );
        let patch = patched(json!({ "name": "disk" }));
        assert_eq!(patch[0]["path"], "/metadata/annotations");
        assert!(patch[0]["value"][key].is_string());
    }

    #[test]
    fn token_in_the_request_is_removed() {
        let key = "cdi.kubevirt.io/storage.clone.token";
        let with = |token: Option<&str>| {
            let annotations = token.map(|token| json!({ key: token, "other": "stays" }));
            volume(json!({ "metadata": { "annotations": annotations.unwrap_or(json!({})) } }))
        };
        let path = "/metadata/annotations/cdi.kubevirt.io~1storage.clone.token";
        for (is, was, expected) in [
            (None, None, json!([])),
            (Some("forged"), None, json!([{ "op": "remove", "path": path }])),
            (Some("granted"), Some(Some("granted")), json!([])),
            (None, Some(Some("granted")), json!([])),
            (Some("forged"), Some(None), json!([{ "op": "remove", "path": path }])),
            (
                Some("forged"),
                Some(Some("granted")),
                json!([{ "op": "add", "path": path, "value": "granted" }]),
            ),
        ] {
            let old = was.map(with);
            let result = allow_without_token(&with(is), old.as_ref());
            let AdmissionResult::Allowed { patch, warning: None } = result else {
                panic!("{result:?}")
            };
            assert_eq!(serde_json::to_value(patch).unwrap(), expected, "{is:?} {was:?}");
        }
    }

    #[test]
    fn generated_name_is_completed_for_the_token() {
        let patch = patched(json!({ "generateName": "disk-" }));
        assert_eq!(
            (patch[0]["path"].as_str(), patch[0]["value"].as_str()),
            (Some("/metadata/name"), Some("disk-x7x7x"))
        );
        let token = &patch[1]["value"]["cdi.kubevirt.io/storage.clone.token"];
        assert_eq!(claims(token.as_str().unwrap()).params["targetName"], "disk-x7x7x");
        assert_eq!(generated(&"a".repeat(100), "x7x7x").len(), 63);
    }

    #[test]
    fn populated_volumes_tolerate_a_missing_source() {
        for (annotation, expected) in
            [(request::PRE_POPULATED, true), (request::CHECK_STATIC_VOLUME, true), ("other", false)]
        {
            let volume = volume(json!({ "metadata": { "annotations": { annotation: "" } } }));
            assert_eq!(is_tolerant(&volume), expected, "{annotation}");
        }
        let AdmissionResult::Invalid(causes) = deny("anna", &original(Kind::Claim, "a", "b"))
        else {
            panic!("not refused");
        };
        assert_eq!(causes[0].field, "spec.source.PVC.namespace");
        assert_eq!(
            causes[0].message,
            "User anna has insufficient permissions in clone source namespace a"
        );
    }
}
