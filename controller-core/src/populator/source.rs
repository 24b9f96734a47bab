//! The object that the PVC of a DataVolume refers to.

use api::names;
use api::v1beta1::{
    DataVolume, VolumeImportSource, VolumeImportSourceSpec, VolumeUploadSource,
    VolumeUploadSourceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::meta;
use crate::operation::Operation;

/// A source of a populator.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceObject {
    Import(Box<VolumeImportSource>),
    Upload(Box<VolumeUploadSource>),
}

/// The source that the PVC of a DataVolume refers to, created before the PVC. `None`: another controller creates it, or
/// there is none.
pub fn source_object(volume: &DataVolume, operation: &Operation) -> Option<SourceObject> {
    let spec = &volume.spec;
    let metadata = |name: String| ObjectMeta {
        name: Some(name),
        namespace: volume.metadata.namespace.clone(),
        owner_references: Some(vec![meta::owned_by(
            api::data_volume::API_VERSION,
            "DataVolume",
            &volume.metadata,
        )]),
        ..ObjectMeta::default()
    };
    let uid = meta::uid(&volume.metadata);
    match operation {
        Operation::Import(source) => {
            // Checkpoints are of one disk: no other PVC may be filled from them.
            let knows_stages = source.imageio.is_some() || source.vddk.is_some();
            let stages = spec.checkpoints.clone().filter(|all| knows_stages && !all.is_empty());
            let in_stages = stages.is_some();
            let name = volume.metadata.name.clone();
            Some(SourceObject::Import(Box::new(VolumeImportSource {
                metadata: metadata(names::import_source(uid)),
                spec: VolumeImportSourceSpec {
                    source: Some(source.as_ref().clone()),
                    preallocation: spec.preallocation,
                    content_type: spec.content_type,
                    target_claim: name.filter(|_| in_stages),
                    checkpoints: stages,
                    final_checkpoint: spec.final_checkpoint.filter(|_| in_stages),
                },
                status: None,
            })))
        }
        Operation::Upload => Some(SourceObject::Upload(Box::new(VolumeUploadSource {
            metadata: metadata(names::upload_source(uid)),
            spec: VolumeUploadSourceSpec {
                content_type: spec.content_type,
                preallocation: spec.preallocation,
            },
            status: None,
        }))),
        Operation::Clone | Operation::External | Operation::Undecided => None,
    }
}
