//! The source of a clone, as the DataVolume, DataSource or PVC names it, and the token claims that allow its clone.

use std::fmt;

use api::annotations::{request, state};
use api::v1beta1::{DataSource, DataVolume, ObjectSource};
use auth::token::{Claims, Operation, Resource, TokenError};
use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::data_source::{self, Object};
use crate::{meta, snapshot};

/// Names of the token parameters with namespace, name and UID of the target.
const TARGET_NAMESPACE: &str = "targetNamespace";
const TARGET_NAME: &str = "targetName";
const TARGET_UID: &str = "uid";

/// Kinds of objects that can be cloned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginKind {
    Claim,
    Snapshot,
}

/// The source of a clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub kind: OriginKind,
    pub namespace: String,
    pub name: String,
}

impl Origin {
    /// The source that a DataVolume names, directly or by a DataSource, which may refer to another one. `None`: it
    /// names none, or its DataSource has no source yet.
    pub fn of_data_volume(
        volume: &DataVolume,
        source: Option<&DataSource>,
        pointed_to: Option<&DataSource>,
    ) -> Option<Self> {
        if volume.spec.source_ref.is_some() {
            let (kind, namespace, name) = match data_source::object(source?, pointed_to)? {
                Object::Claim { namespace, name } => (OriginKind::Claim, namespace, name),
                Object::Snapshot { namespace, name } => (OriginKind::Snapshot, namespace, name),
            };
            return Some(Self { kind, namespace: namespace.to_owned(), name: name.to_owned() });
        }
        let own = meta::namespace(&volume.metadata);
        let placed = |kind, object: &ObjectSource| Self {
            kind,
            namespace: match object.namespace.as_str() {
                "" => own.to_owned(),
                namespace => namespace.to_owned(),
            },
            name: object.name.clone(),
        };
        let source = volume.spec.source.as_ref()?;
        let claim = source.pvc.as_ref().map(|object| placed(OriginKind::Claim, object));
        claim
            .or_else(|| source.snapshot.as_ref().map(|object| placed(OriginKind::Snapshot, object)))
    }

    /// The source that a VolumeCloneSource of this namespace names. `None`: an object that cannot be cloned.
    pub fn referred_to(namespace: &str, reference: &TypedLocalObjectReference) -> Option<Self> {
        let group = reference.api_group.as_deref().unwrap_or_default();
        let kind = match (group, reference.kind.as_str()) {
            ("", "PersistentVolumeClaim") => OriginKind::Claim,
            ("snapshot.storage.k8s.io", snapshot::KIND) => OriginKind::Snapshot,
            _ => return None,
        };
        Some(Self { kind, namespace: namespace.to_owned(), name: reference.name.clone() })
    }

    /// The PVC that a target requests pods to copy: `namespace/name`.
    pub fn requested(claim: &ObjectMeta) -> Option<Self> {
        let (namespace, name) = meta::annotation(claim, request::CLONE_REQUEST)?.split_once('/')?;
        let is_valid = !namespace.is_empty() && !name.is_empty() && !name.contains('/');
        is_valid.then(|| Self {
            kind: OriginKind::Claim,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }

    /// The source of a copy, as its DataVolume names it: the snapshot, if pods copy a PVC that was restored from one.
    /// The owner of the PVC may write these annotations, so they state what is requested, not what is allowed.
    pub fn copied(claim: &ObjectMeta) -> Option<Self> {
        let requested = Self::requested(claim)?;
        let noted = meta::annotation(claim, state::CLONE_SOURCE_SNAPSHOT);
        Some(match noted.filter(|name| !name.is_empty()) {
            Some(name) => Self { kind: OriginKind::Snapshot, name: name.to_owned(), ..requested },
            None => requested,
        })
    }

    /// `pvc name`, `snapshot name`: for messages to users who know the namespace.
    pub fn named(&self) -> String {
        format!("{} {}", self.word(), self.name)
    }

    const fn word(&self) -> &'static str {
        match self.kind {
            OriginKind::Claim => "pvc",
            OriginKind::Snapshot => "snapshot",
        }
    }

    /// As the source field of a VolumeCloneSource.
    pub fn reference(&self) -> TypedLocalObjectReference {
        let (api_group, kind) = match self.kind {
            OriginKind::Claim => (None, "PersistentVolumeClaim"),
            OriginKind::Snapshot => (Some("snapshot.storage.k8s.io".to_owned()), snapshot::KIND),
        };
        TypedLocalObjectReference { api_group, kind: kind.to_owned(), name: self.name.clone() }
    }

    /// The token claims that allow a clone to the object of this name. With `uid`, to no other object of that name.
    pub fn clone_claims(&self, target: &ObjectMeta, uid: Option<&str>) -> Claims {
        let place = [
            (TARGET_NAMESPACE, Some(meta::namespace(target))),
            (TARGET_NAME, Some(meta::name(target))),
            (TARGET_UID, uid),
        ];
        let params = place.into_iter().filter_map(|(key, value)| Some((key, value?)));
        Claims {
            operation: Operation::Clone,
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            resource: match self.kind {
                OriginKind::Claim => Resource::pvcs(),
                OriginKind::Snapshot => Resource::snapshots(),
            },
            params: params.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        }
    }

    /// Whether a token with these claims, which need not have a UID, allows the clone to `target`. Only for tokens that
    /// expire after minutes and that no user can set.
    pub fn is_allowed_by(&self, claims: &Claims, target: &ObjectMeta) -> bool {
        let uid = claims.params.get(TARGET_UID).map(|_| meta::uid(target));
        *claims == self.clone_claims(target, uid)
    }

    /// Whether a token with these claims allows the clone to `target` and to no other object of that name.
    ///
    /// # Errors
    /// [`TokenError::Unbound`] for a token without a UID, `None` for one of another clone.
    pub fn allows_object(
        &self,
        claims: &Claims,
        target: &ObjectMeta,
    ) -> Result<(), Option<TokenError>> {
        let uid = meta::uid(target);
        if !uid.is_empty() && *claims == self.clone_claims(target, Some(uid)) {
            return Ok(());
        }
        Err((*claims == self.clone_claims(target, None)).then_some(TokenError::Unbound))
    }
}

/// `pvc ns/name`, `snapshot ns/name`.
impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}/{}", self.word(), self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(spec: Value) -> DataVolume {
        serde_json::from_value(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
            "metadata": { "name": "disk", "namespace": "vms", "uid": "1" }, "spec": spec,
        }))
        .unwrap()
    }

    fn data_source(name: &str, source: Value) -> DataSource {
        serde_json::from_value(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
            "metadata": { "name": name, "namespace": "images" }, "spec": { "source": source },
        }))
        .unwrap()
    }

    #[test]
    fn origin_of_a_data_volume_is_its_source_or_that_of_its_data_source() {
        let text = |origin: Option<Origin>| origin.map(|origin| origin.to_string());
        let own = |source: Value| {
            text(Origin::of_data_volume(&volume(json!({ "source": source })), None, None))
        };
        let golden = json!({ "namespace": "images", "name": "golden" });
        assert_eq!(own(json!({ "pvc": golden })).as_deref(), Some("pvc images/golden"));
        assert_eq!(own(json!({ "snapshot": golden })).as_deref(), Some("snapshot images/golden"));
        let near = json!({ "namespace": "", "name": "golden" });
        assert_eq!(own(json!({ "pvc": near })).as_deref(), Some("pvc vms/golden"));
        assert_eq!(own(json!({ "blank": {} })), None);

        let through = volume(json!({ "sourceRef": { "kind": "DataSource", "name": "fedora" } }));
        let named = data_source("fedora", json!({ "pvc": golden }));
        let pointer = data_source(
            "fedora",
            json!({ "dataSource": { "namespace": "images", "name": "f40" } }),
        );
        let pointed_to = data_source("f40", json!({ "snapshot": golden }));
        let found = |source, pointed_to| text(Origin::of_data_volume(&through, source, pointed_to));
        assert_eq!(found(Some(&named), None).as_deref(), Some("pvc images/golden"));
        assert_eq!(
            found(Some(&pointer), Some(&pointed_to)).as_deref(),
            Some("snapshot images/golden")
        );
        assert_eq!(found(Some(&pointer), None), None);
        assert_eq!(found(None, None), None);
    }

    #[test]
    fn a_reference_is_read_as_it_was_written() {
        for kind in [OriginKind::Claim, OriginKind::Snapshot] {
            let origin = Origin { kind, namespace: "images".into(), name: "golden".into() };
            assert_eq!(Origin::referred_to("images", &origin.reference()), Some(origin));
        }
        let other = TypedLocalObjectReference {
            api_group: None,
            kind: snapshot::KIND.into(),
            name: "golden".into(),
        };
        assert_eq!(Origin::referred_to("images", &other), None);
    }

    #[test]
    fn clone_request_is_namespace_and_name() {
        for (text, expected) in [
            ("images/golden", Some("pvc images/golden")),
            ("golden", None),
            ("/golden", None),
            ("images/", None),
            ("a/b/c", None),
        ] {
            let annotations = [(request::CLONE_REQUEST.to_owned(), text.to_owned())];
            let claim =
                ObjectMeta { annotations: Some(annotations.into()), ..ObjectMeta::default() };
            let found = Origin::requested(&claim).map(|origin| origin.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn origin_of_a_copied_restored_pvc_is_the_snapshot() {
        for (request, snapshot, expected) in [
            ("images/golden", None, Some("pvc images/golden")),
            ("images/golden", Some(""), Some("pvc images/golden")),
            ("images/1-source", Some("golden"), Some("snapshot images/golden")),
            ("nonsense", Some("golden"), None),
        ] {
            let mut annotations =
                meta::Pairs::from([(request::CLONE_REQUEST.to_owned(), request.to_owned())]);
            annotations.extend(
                snapshot.map(|name| (state::CLONE_SOURCE_SNAPSHOT.to_owned(), name.to_owned())),
            );
            let claim = ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() };
            let found = Origin::copied(&claim).map(|origin| origin.to_string());
            assert_eq!(found.as_deref(), expected, "{request} {snapshot:?}");
        }
    }

    #[test]
    fn token_is_valid_for_one_source_and_one_target() {
        let golden =
            Origin { kind: OriginKind::Claim, namespace: "images".into(), name: "golden".into() };
        let target = |name: &str, uid: &str| ObjectMeta {
            name: Some(name.into()),
            namespace: Some("vms".into()),
            uid: Some(uid.into()),
            ..ObjectMeta::default()
        };
        let disk = target("disk", "1");
        let short = golden.clone_claims(&disk, None);
        assert!(golden.is_allowed_by(&short, &disk));
        assert!(golden.is_allowed_by(&short, &target("disk", "2")), "no UID in the token");
        let long = golden.clone_claims(&disk, Some("1"));
        assert!(golden.is_allowed_by(&long, &disk));
        assert!(!golden.is_allowed_by(&long, &target("disk", "2")));
        assert!(!golden.is_allowed_by(&short, &target("other", "1")));
        let others = [
            Origin { kind: OriginKind::Snapshot, ..golden.clone() },
            Origin { namespace: "secret".into(), ..golden.clone() },
            Origin { name: "other".into(), ..golden.clone() },
        ];
        for other in others {
            assert!(!other.is_allowed_by(&short, &disk), "{other}");
        }
        assert!(golden.allows_object(&long, &disk).is_ok());
        assert!(matches!(golden.allows_object(&short, &disk), Err(Some(TokenError::Unbound))));
        assert!(matches!(golden.allows_object(&long, &target("disk", "2")), Err(None)));
        assert!(golden.allows_object(&short, &target("disk", "")).is_err());
        let empty = golden.clone_claims(&disk, Some(""));
        assert!(
            golden.allows_object(&empty, &target("disk", "")).is_err(),
            "an empty UID matches no object"
        );
        let upload = Claims { operation: Operation::Upload, ..short };
        assert!(!golden.is_allowed_by(&upload, &disk));
    }
}
