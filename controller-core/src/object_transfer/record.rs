//! What a transfer records of its source, and the objects that it creates from the record.

use std::collections::BTreeMap;

use api::annotations::{request, state};
use api::labels;
use api::v1beta1::{
    DataVolume, ObjectTransfer, ObjectTransferSpec, TransferSource, TransferTarget,
};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Moved, TransferFacts, moved, source, target};
use crate::meta;
use crate::object::Key;

const SOURCE: &str = "source";
const VOLUME_NAME: &str = "pvName";
const RECLAIM_POLICY: &str = "pvReclaim";
const CLAIM_NAME: &str = "pvcName";

/// Set by the controller that binds a PVC, and not valid for another PVC.
const OF_BINDING: [&str; 2] =
    ["pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller"];
/// Valid for the source only, and secret.
const TOKENS: [&str; 2] = [request::CLONE_TOKEN, state::EXTENDED_CLONE_TOKEN];

/// The state of the source when the transfer started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The source, as JSON.
    pub source: String,
    /// The volume of its PVC.
    pub volume_name: String,
    /// The reclaim policy of that volume. `None`: another transfer moves the PVC.
    pub reclaim_policy: Option<String>,
    pub claim_name: String,
    uid: String,
}

impl Record {
    /// `None`: the source does not exist.
    pub fn from_facts(spec: &ObjectTransferSpec, facts: &TransferFacts) -> Option<Self> {
        let volume = facts.volume.as_ref()?;
        let claim = facts.claim.as_ref()?;
        let mut record = Self {
            volume_name: volume.metadata.name.clone()?,
            claim_name: claim.metadata.name.clone()?,
            ..Self::default()
        };
        record.source = match moved(spec)? {
            Moved::Claim => {
                let policy = volume.spec.as_ref()?.persistent_volume_reclaim_policy.clone();
                record.reclaim_policy = Some(policy.unwrap_or_else(|| super::RETAIN.to_owned()));
                record.uid = claim.metadata.uid.clone()?;
                let metadata = without_tokens(&claim.metadata);
                let kept =
                    PersistentVolumeClaim { metadata, spec: claim.spec.clone(), status: None };
                serde_json::to_string(&kept).ok()?
            }
            Moved::DataVolume => {
                let data_volume = facts.data_volume.as_ref()?;
                record.uid = data_volume.metadata.uid.clone()?;
                let (metadata, spec) =
                    (without_tokens(&data_volume.metadata), data_volume.spec.clone());
                serde_json::to_string(&DataVolume { metadata, spec, status: None }).ok()?
            }
        };
        Some(record)
    }

    /// As [`Record::to_data`] wrote it. `None`: nothing, or nothing that can be read.
    pub fn from_status(transfer: &ObjectTransfer) -> Option<Self> {
        let data = transfer.status.as_ref()?.data.as_ref()?;
        let source = data.get(SOURCE)?.clone();
        let object: Value = serde_json::from_str(&source).ok()?;
        Some(Self {
            uid: object.pointer("/metadata/uid")?.as_str()?.to_owned(),
            source,
            volume_name: data.get(VOLUME_NAME)?.clone(),
            reclaim_policy: data.get(RECLAIM_POLICY).cloned(),
            claim_name: data.get(CLAIM_NAME)?.clone(),
        })
    }

    /// As the status of the transfer keeps it.
    pub fn to_data(&self) -> BTreeMap<String, String> {
        let pairs = [
            (SOURCE, Some(&self.source)),
            (VOLUME_NAME, Some(&self.volume_name)),
            (RECLAIM_POLICY, self.reclaim_policy.as_ref()),
            (CLAIM_NAME, Some(&self.claim_name)),
        ];
        pairs
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?.clone())))
            .collect()
    }

    /// UID of the source.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    fn read<K: DeserializeOwned>(&self) -> Option<K> {
        serde_json::from_str(&self.source).ok()
    }
}

/// Without fields that are not needed later, and without tokens, which users who can read the transfer may not read.
fn without_tokens(metadata: &ObjectMeta) -> ObjectMeta {
    let mut kept = metadata.clone();
    kept.managed_fields = None;
    kept.resource_version = None;
    if let Some(annotations) = &mut kept.annotations {
        annotations.retain(|key, _| !TOKENS.contains(&key.as_str()));
    }
    kept
}

/// The metadata of the target, with the mark of the transfer. Owners are kept only in the same namespace.
fn metadata_of_target(from: &ObjectMeta, place: &Key) -> ObjectMeta {
    let is_near = from.namespace.as_deref() == Some(&place.namespace);
    let mut annotations = from.annotations.clone().unwrap_or_default();
    let is_kept = |key: &str| {
        !OF_BINDING.contains(&key) && !TOKENS.contains(&key) && key != state::OBJECT_TRANSFER_NAME
    };
    annotations.retain(|key, _| is_kept(key));
    ObjectMeta {
        name: Some(place.name.clone()),
        namespace: Some(place.namespace.clone()),
        labels: from.labels.clone(),
        annotations: Some(annotations),
        owner_references: from.owner_references.clone().filter(|_| is_near),
        ..ObjectMeta::default()
    }
}

/// The PVC that the volume is rebound to. No controller may fill it or change its spec, as it is filled and bound
/// already.
pub fn target_claim(transfer: &ObjectTransfer, record: &Record) -> Option<PersistentVolumeClaim> {
    let from: PersistentVolumeClaim = record.read()?;
    let mut metadata = metadata_of_target(&from.metadata, &target(&transfer.spec));
    let annotations = metadata.annotations.get_or_insert_default();
    let mark = transfer.metadata.name.clone()?;
    annotations.insert(state::OBJECT_TRANSFER_NAME.to_owned(), mark);
    if let Some(all) = &mut metadata.labels {
        all.remove(labels::APPLY_STORAGE_PROFILE);
    }
    let mut spec = from.spec.unwrap_or_default();
    spec.volume_name = Some(record.volume_name.clone());
    spec.data_source = None;
    spec.data_source_ref = None;
    Some(PersistentVolumeClaim { metadata, spec: Some(spec), status: None })
}

/// The DataVolume of the target. It declares that its PVC is filled, so that no permission for its former source is
/// required.
pub fn target_data_volume(transfer: &ObjectTransfer, record: &Record) -> Option<DataVolume> {
    let from: DataVolume = record.read()?;
    let mut metadata = metadata_of_target(&from.metadata, &target(&transfer.spec));
    let name = metadata.name.clone()?;
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(request::PRE_POPULATED.to_owned(), name);
    Some(DataVolume { metadata, spec: from.spec, status: None })
}

/// The transfer of a DataVolume's PVC, owned by that of the DataVolume.
pub fn transfer_of_claim(transfer: &ObjectTransfer, record: &Record) -> ObjectTransfer {
    let metadata = &transfer.metadata;
    let place = target(&transfer.spec);
    let spec = ObjectTransferSpec {
        source: TransferSource {
            api_version: Some("v1".into()),
            kind: "PersistentVolumeClaim".into(),
            namespace: source(&transfer.spec).namespace,
            name: record.claim_name.clone(),
            required_annotations: None,
        },
        target: TransferTarget { namespace: Some(place.namespace), name: Some(place.name) },
        parent_name: metadata.name.clone(),
    };
    let name = format!("pvc-transfer-{}", meta::uid(metadata));
    let mut child = ObjectTransfer::new(&name, spec);
    let owner = meta::owned_by("cdi.kubevirt.io/v1beta1", "ObjectTransfer", metadata);
    child.metadata.owner_references = Some(vec![owner]);
    child.metadata.labels = metadata.labels.clone();
    child
}

/// A patch of a volume: it is reserved for the PVC of this name, whose UID is not known yet.
pub fn rebind_to_name(place: &Key) -> Value {
    json!({ "spec": { "claimRef": {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "namespace": place.namespace, "name": place.name,
        "uid": null, "resourceVersion": null,
    } } })
}
