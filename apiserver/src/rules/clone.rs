//! Who may copy which volume, and the token that says so.

use std::time::SystemTime;

use api::annotations::request as ask;
use api::data_volume::Source;
use api::v1beta1::{DataSource, DataSourceSource, ObjectSource};
use auth::token::{Claims, ISSUER_API_SERVER, LIFETIME, Operation, Resource, SigningKey};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use serde_json::{Value, json};

use super::data_volume::Volume;
use crate::review::Request;
use crate::verdict::{Patch, Verdict};

/// Where a DataVolume's content comes from, as far as rights are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// From nobody's volume.
    Nothing,
    /// From this volume.
    Copy(Original),
    /// From whatever this DataSource stands for: namespace and name.
    Behind(String, String),
}

/// A volume to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Original {
    /// What it is.
    pub kind: Kind,
    /// Where it is.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What can be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A claim.
    Claim,
    /// A snapshot.
    Snapshot,
}

/// What a new or changed DataVolume wants to be a copy of.
pub fn wish(volume: &Volume, namespace: &str) -> Wish {
    if let Some(reference) = &volume.spec.source_ref {
        let place = reference.namespace.clone().filter(|name| !name.is_empty());
        return Wish::Behind(place.unwrap_or_else(|| namespace.to_owned()), reference.name.clone());
    }
    let members = volume.spec.source.as_ref().map(|source| source.members()).unwrap_or_default();
    let (kind, source) = match members[..] {
        [Source::Pvc(source)] => (Kind::Claim, source),
        [Source::Snapshot(source)] => (Kind::Snapshot, source),
        _ => return Wish::Nothing,
    };
    if source.namespace.is_empty() || source.name.is_empty() {
        return Wish::Nothing; // the validation has better words for it
    }
    let (namespace, name) = (source.namespace.clone(), source.name.clone());
    Wish::Copy(Original { kind, namespace, name })
}

/// What a DataSource stands for. One that stands for another in its namespace tells which; where that one stands for a
/// third, nobody follows.
pub fn behind(source: &DataSource, followed: bool) -> Wish {
    let resolved = source.status.as_ref().and_then(|status| status.source.as_ref());
    let named = |source: &DataSourceSource| original(source).map(Wish::Copy);
    let spec = &source.spec.source;
    if let Some(wish) = named(spec) {
        return wish;
    }
    if spec.data_source.is_some()
        && let Some(wish) = resolved.and_then(named)
    {
        return wish;
    }
    match &spec.data_source {
        Some(next) if !followed && Some(&next.namespace) == source.metadata.namespace.as_ref() => {
            Wish::Behind(next.namespace.clone(), next.name.clone())
        }
        _ => Wish::Nothing,
    }
}

/// The volume that a DataSource stands for itself.
pub fn original(source: &DataSourceSource) -> Option<Original> {
    let original = |kind, ObjectSource { namespace, name }: &ObjectSource| Original {
        kind,
        namespace: namespace.clone(),
        name: name.clone(),
    };
    let claim = source.pvc.as_ref().map(|claim| original(Kind::Claim, claim));
    claim.or_else(|| source.snapshot.as_ref().map(|one| original(Kind::Snapshot, one)))
}

/// Whether the DataVolume is known to hold its data, or may find them on a volume: then a source that is gone, or rights
/// that are missing, are no reason to refuse it.
pub fn is_tolerant(volume: &Volume) -> bool {
    [ask::PRE_POPULATED, ask::CHECK_STATIC_VOLUME]
        .iter()
        .any(|key| volume.annotation(key).is_some())
}

impl Original {
    /// Whether anybody has to be asked. Within a namespace there is nothing to protect.
    pub fn is_elsewhere(&self, target_namespace: &str) -> bool {
        self.namespace != target_namespace
    }

    /// What whoever copies has to be allowed: all of one of these lists.
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
            // Clusters have roles that name the resource `pvcs`, because that is what was always asked for.
            Kind::Snapshot => vec![
                vec![source],
                vec![may_create("", "pods", None, None), may_create("", "pvcs", None, None)],
            ],
        }
    }

    /// As the source of a DataVolume.
    fn source(&self) -> Value {
        let place = json!({ "namespace": self.namespace, "name": self.name });
        match self.kind {
            Kind::Claim => json!({ "pvc": place }),
            Kind::Snapshot => json!({ "snapshot": place }),
        }
    }

    /// What a token calls its kind.
    pub fn resource(&self) -> Resource {
        match self.kind {
            Kind::Claim => Resource::claims(),
            Kind::Snapshot => Resource::snapshots(),
        }
    }
}

/// Whoever asks may not copy from there.
pub fn denied(user: &str, original: &Original) -> Verdict {
    let namespace = &original.namespace;
    let message =
        format!("User {user} has insufficient permissions in clone source namespace {namespace}");
    Verdict::invalid("spec.source.PVC.namespace", message)
}

/// Lets the DataVolume through with a token, whatever token it had. `suffix` completes a name that the cluster would
/// otherwise make later: the token names it.
///
/// # Errors
/// When the key does not sign.
pub fn granted(
    request: &Request,
    volume: &Volume,
    original: &Original,
    key: &SigningKey,
    (suffix, now): (&str, SystemTime),
) -> Result<Verdict, auth::token::TokenError> {
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
        Patch::add("/metadata/annotations", json!({ ask::CLONE_TOKEN: token }))
    } else {
        Patch::add(token_path(), json!(token))
    });
    // One that would fetch what is there already becomes a clone of it.
    if wish(volume, &request.namespace) == Wish::Nothing {
        patch.push(Patch::add("/spec/source", original.source()));
    }
    Ok(Verdict::Allowed { patch, warning: None })
}

/// Lets the DataVolume through without a token of today. Whoever reaches the webhook by themselves can have one made, so
/// one that somebody brings along is taken away, and one that is there stays as it is; `old` is the DataVolume as it is,
/// where there is one.
pub fn not_granted(volume: &Volume, old: Option<&Volume>) -> Verdict {
    let is = volume.annotation(ask::CLONE_TOKEN);
    let was = old.and_then(|old| old.annotation(ask::CLONE_TOKEN));
    let patch = match (is, was) {
        (Some(is), Some(was)) if is != was => vec![Patch::add(token_path(), json!(was))],
        (Some(_), None) => vec![Patch::remove(token_path())],
        (Some(_), Some(_)) | (None, _) => return Verdict::ALLOWED,
    };
    Verdict::Allowed { patch, warning: None }
}

/// Where the annotation is, as a JSON pointer.
fn token_path() -> String {
    format!("/metadata/annotations/{}", ask::CLONE_TOKEN.replace('/', "~1"))
}

/// As the cluster makes names: at most 63 characters, the last five at random.
fn generated(prefix: &str, suffix: &str) -> String {
    let room = api::names::LABEL_LENGTH_MAX.saturating_sub(suffix.len());
    let prefix: String = prefix.chars().take(room).collect();
    format!("{prefix}{suffix}")
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;
    use std::time::Duration;

    use auth::token::{KeyTexts, VerifyingKey};
    use base64::Engine as _;

    use super::*;

    /// A key takes a while to be made.
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
    fn a_wish_is_what_the_one_source_says() {
        let place = json!({ "namespace": "a", "name": "b" });
        for (spec, expected) in [
            (json!({ "source": { "pvc": place } }), Wish::Copy(original(Kind::Claim, "a", "b"))),
            (
                json!({ "source": { "snapshot": place } }),
                Wish::Copy(original(Kind::Snapshot, "a", "b")),
            ),
            (json!({ "source": { "blank": {} } }), Wish::Nothing),
            (json!({ "source": { "blank": {}, "pvc": place } }), Wish::Nothing),
            (json!({ "source": { "pvc": { "namespace": "", "name": "b" } } }), Wish::Nothing),
            (json!({}), Wish::Nothing),
            (
                json!({ "sourceRef": { "kind": "DataSource", "name": "d" } }),
                Wish::Behind("ns".into(), "d".into()),
            ),
            (
                json!({ "sourceRef": { "kind": "DataSource", "name": "d", "namespace": "e" } }),
                Wish::Behind("e".into(), "d".into()),
            ),
        ] {
            assert_eq!(wish(&volume(json!({ "spec": spec })), "ns"), expected, "{spec}");
        }
    }

    #[test]
    fn a_data_source_is_followed_once() {
        let claim = json!({ "pvc": { "namespace": "a", "name": "b" } });
        let pointer =
            |namespace: &str| json!({ "dataSource": { "namespace": namespace, "name": "other" } });
        let copy = Wish::Copy(original(Kind::Claim, "a", "b"));
        let next = Wish::Behind("here".into(), "other".into());
        for (spec, status, followed, expected) in [
            (claim.clone(), json!({}), false, copy.clone()),
            (claim.clone(), json!({}), true, copy.clone()),
            (pointer("here"), claim.clone(), false, copy.clone()),
            (pointer("here"), claim, true, copy),
            (pointer("here"), json!({}), false, next),
            (pointer("here"), json!({}), true, Wish::Nothing),
            (pointer("there"), json!({}), false, Wish::Nothing),
            (json!({}), json!({}), false, Wish::Nothing),
        ] {
            let source: DataSource = serde_json::from_value(json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1",
                "kind": "DataSource",
                "metadata": { "name": "d", "namespace": "here" },
                "spec": { "source": spec },
                "status": { "source": status },
            }))
            .unwrap();
            assert_eq!(behind(&source, followed), expected, "{spec} {status} {followed}");
        }
    }

    #[test]
    fn rights_are_asked_for_as_roles_name_them() {
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
        let verdict = granted(&request, &volume, &source, &KEYS.0, ("x7x7x", now)).unwrap();
        let patch = verdict.response("1")["patch"].as_str().unwrap().to_owned();
        let patch = base64::engine::general_purpose::STANDARD.decode(patch).unwrap();
        serde_json::from_slice(&patch).unwrap()
    }

    fn claims(token: &str) -> Claims {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        KEYS.1.verify(token, ISSUER_API_SERVER, now).unwrap()
    }

    #[test]
    fn a_token_names_source_and_target_and_replaces_any_other() {
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
    fn a_token_that_somebody_brings_along_is_taken_away() {
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
            let verdict = not_granted(&with(is), old.as_ref());
            let Verdict::Allowed { patch, warning: None } = verdict else { panic!("{verdict:?}") };
            assert_eq!(serde_json::to_value(patch).unwrap(), expected, "{is:?} {was:?}");
        }
    }

    #[test]
    fn a_name_that_is_still_to_be_made_is_made_first() {
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
    fn some_volumes_may_have_lost_their_source() {
        for (annotation, expected) in
            [(ask::PRE_POPULATED, true), (ask::CHECK_STATIC_VOLUME, true), ("other", false)]
        {
            let volume = volume(json!({ "metadata": { "annotations": { annotation: "" } } }));
            assert_eq!(is_tolerant(&volume), expected, "{annotation}");
        }
        let Verdict::Invalid(causes) = denied("anna", &original(Kind::Claim, "a", "b")) else {
            panic!("not refused");
        };
        assert_eq!(causes[0].field, "spec.source.PVC.namespace");
        assert_eq!(
            causes[0].message,
            "User anna has insufficient permissions in clone source namespace a"
        );
    }
}
