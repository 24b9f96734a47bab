//! What a DataVolume requests, and whether a populator or a worker fills its PVC.

use api::annotations::request;
use api::names;
use api::v1beta1::{DataVolume, DataVolumeSource, DataVolumeSpec, ImportSource};
use k8s_openapi::api::core::v1::TypedObjectReference;
use k8s_openapi::api::storage::v1::StorageClass;

use crate::{classes, meta};

/// What a DataVolume requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A worker fetches the content.
    Import(Box<ImportSource>),
    /// A client sends the content.
    Upload,
    /// The content is that of another PVC or of a snapshot.
    Clone,
    /// Another controller fills the PVC.
    External,
    /// The spec requests none of these.
    Undecided,
}

impl Operation {
    pub fn from_spec(spec: &DataVolumeSpec) -> Self {
        let Some(source) = &spec.source else {
            return match spec {
                DataVolumeSpec { source_ref: Some(_), .. } => Self::Clone,
                _ if is_filled_by_others(spec) => Self::External,
                _ => Self::Undecided,
            };
        };
        if spec.source_ref.is_some() || source.pvc.is_some() || source.snapshot.is_some() {
            Self::Clone
        } else if source.upload.is_some() {
            Self::Upload
        } else {
            import_source(source).map_or(Self::Undecided, |source| Self::Import(Box::new(source)))
        }
    }

    /// Its size may come from its source.
    pub fn is_clone(&self) -> bool {
        matches!(self, Self::Clone)
    }

    /// The `dataSourceRef` for the PVC of the DataVolume with this UID, if a populator fills it.
    pub fn populator(&self, volume_uid: &str) -> Option<TypedObjectReference> {
        match self {
            Self::Import(_) => {
                Some(source_reference("VolumeImportSource", names::import_source(volume_uid)))
            }
            Self::Upload => {
                Some(source_reference("VolumeUploadSource", names::upload_source(volume_uid)))
            }
            Self::Clone => {
                Some(source_reference("VolumeCloneSource", names::clone_source(volume_uid)))
            }
            Self::External | Self::Undecided => None,
        }
    }
}

/// The members of a DataVolume's source that are imported; `None` for the others.
pub fn import_source(source: &DataVolumeSource) -> Option<ImportSource> {
    let DataVolumeSource {
        http,
        s3,
        gcs,
        registry,
        blank,
        imageio,
        vddk,
        pvc: _,
        snapshot: _,
        upload: _,
    } = source.clone();
    let source = ImportSource { http, s3, registry, gcs, blank, imageio, vddk };
    (source != ImportSource::default()).then_some(source)
}

/// A reference of a PVC to one of the sources of this project.
fn source_reference(kind: &str, name: String) -> TypedObjectReference {
    TypedObjectReference {
        api_group: Some(names::GROUP.into()),
        kind: kind.into(),
        name,
        namespace: None,
    }
}

fn is_filled_by_others(spec: &DataVolumeSpec) -> bool {
    let pvc = spec
        .pvc
        .as_ref()
        .is_some_and(|pvc| pvc.data_source.is_some() || pvc.data_source_ref.is_some());
    let storage = spec
        .storage
        .as_ref()
        .is_some_and(|storage| storage.data_source.is_some() || storage.data_source_ref.is_some());
    pvc || storage
}

/// How the PVC is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PopulationMode {
    /// A worker fills a prime PVC, whose volume is then rebound to the PVC. So pods cannot mount it before it is
    /// complete.
    Populator,
    /// A worker fills the PVC itself.
    Legacy,
}

impl PopulationMode {
    /// Value of the annotation that records it.
    pub const fn annotation(self) -> &'static str {
        match self {
            Self::Populator => "true",
            Self::Legacy => "false",
        }
    }
}

/// The annotation is neither true nor false.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the annotation {} has to be true or false, not {got:?}", request::USE_POPULATOR)]
pub struct InvalidPopulationMode {
    pub got: String,
}

/// The mode that the annotation records or the user requests; else it depends on whether the storage has a CSI driver.
///
/// # Errors
/// [`InvalidPopulationMode`].
pub fn population_mode(
    volume: &DataVolume,
    classes: &[StorageClass],
    drivers: &[String],
) -> Result<PopulationMode, InvalidPopulationMode> {
    if let Some(text) = meta::annotation(&volume.metadata, request::USE_POPULATOR) {
        return match meta::go_bool(text) {
            Some(true) => Ok(PopulationMode::Populator),
            Some(false) => Ok(PopulationMode::Legacy),
            None => Err(InvalidPopulationMode { got: text.chars().take(40).collect() }),
        };
    }
    let DataVolumeSpec { pvc, storage, .. } = &volume.spec;
    let of_pvc = pvc.as_ref().and_then(|pvc| pvc.storage_class_name.as_deref());
    let of_storage = storage.as_ref().and_then(|storage| storage.storage_class_name.as_deref());
    let class = match of_pvc.or(of_storage) {
        Some(name) => classes::named(classes, name),
        // The same default class as the PVC will get.
        None if storage.is_some() => {
            classes::default_for(classes, volume.spec.content_type.unwrap_or_default())
        }
        None => classes::default(classes),
    };
    let driven = class.is_some_and(|class| drivers.contains(&class.provisioner));
    Ok(if driven { PopulationMode::Populator } else { PopulationMode::Legacy })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(value: Value) -> DataVolumeSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn operation_depends_on_the_source() {
        let name = |value: Value| match Operation::from_spec(&spec(value)) {
            Operation::Import(_) => "import",
            Operation::Upload => "upload",
            Operation::Clone => "clone",
            Operation::External => "external",
            Operation::Undecided => "undecided",
        };
        let object = json!({ "namespace": "a", "name": "b" });
        let reference = json!({ "kind": "K", "name": "n", "apiGroup": "g" });
        for (value, expected) in [
            (json!({ "source": { "http": { "url": "http://h" } } }), "import"),
            (json!({ "source": { "s3": { "url": "http://h" } } }), "import"),
            (json!({ "source": { "gcs": { "url": "gs://h" } } }), "import"),
            (json!({ "source": { "registry": { "url": "docker://h" } } }), "import"),
            (json!({ "source": { "blank": {} } }), "import"),
            (json!({ "source": { "imageio": { "url": "http://h", "diskId": "d" } } }), "import"),
            (json!({ "source": { "vddk": {} } }), "import"),
            (json!({ "source": { "upload": {} } }), "upload"),
            (json!({ "source": { "pvc": object } }), "clone"),
            (json!({ "source": { "snapshot": object } }), "clone"),
            (json!({ "sourceRef": { "kind": "DataSource", "name": "n" } }), "clone"),
            (json!({ "pvc": { "dataSource": reference } }), "external"),
            (json!({ "storage": { "dataSourceRef": reference } }), "external"),
            (json!({ "source": {} }), "undecided"),
            (json!({ "storage": {} }), "undecided"),
        ] {
            assert_eq!(name(value.clone()), expected, "{value}");
        }
    }

    #[test]
    fn pvc_refers_to_the_source_of_its_data_volume() {
        let upload = Operation::Upload.populator("1-2").unwrap();
        assert_eq!(upload.api_group.as_deref(), Some("cdi.kubevirt.io"));
        assert_eq!(
            (upload.kind.as_str(), upload.name.as_str()),
            ("VolumeUploadSource", "volume-upload-source-1-2")
        );
        assert_eq!(Operation::External.populator("1-2"), None);
    }

    #[test]
    fn population_mode_depends_on_the_driver() {
        let classes: Vec<StorageClass> = serde_json::from_value(json!([
            { "metadata": { "name": "csi", "annotations": { request::DEFAULT_VIRT_CLASS: "true" } },
              "provisioner": "csi.example" },
            { "metadata": { "name": "tree", "annotations": { request::DEFAULT_CLASS: "true" } },
              "provisioner": "kubernetes.io/rbd" },
        ]))
        .unwrap();
        let drivers = ["csi.example".to_owned()];
        let chosen = |annotation: Option<&str>, spec: Value| {
            let annotations = annotation.map(|value| json!({ request::USE_POPULATOR: value }));
            let volume: DataVolume = serde_json::from_value(json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
                "metadata": { "name": "d", "annotations": annotations }, "spec": spec,
            }))
            .unwrap();
            population_mode(&volume, &classes, &drivers)
        };
        let (populator, legacy) = (Ok(PopulationMode::Populator), Ok(PopulationMode::Legacy));
        assert_eq!(chosen(None, json!({ "storage": { "storageClassName": "csi" } })), populator);
        assert_eq!(chosen(None, json!({ "storage": { "storageClassName": "tree" } })), legacy);
        assert_eq!(chosen(None, json!({ "storage": { "storageClassName": "gone" } })), legacy);
        assert_eq!(chosen(None, json!({ "storage": {} })), populator);
        assert_eq!(chosen(None, json!({ "storage": {}, "contentType": "archive" })), legacy);
        assert_eq!(chosen(None, json!({ "pvc": {} })), legacy);
        assert_eq!(chosen(Some("false"), json!({ "storage": {} })), legacy);
        assert_eq!(chosen(Some("True"), json!({ "pvc": {} })), populator);
        assert_eq!(
            chosen(Some("maybe"), json!({ "pvc": {} })),
            Err(InvalidPopulationMode { got: "maybe".into() })
        );
    }
}
