//! The driver of a volume, and the class for a snapshot of it.

use std::fmt;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;

use crate::event::Event;
use crate::meta;
use crate::volume::PersistentVolume;

/// A volume whose `claimRef` is not the PVC that names the volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("volume {volume:?} is not bound to the claim {claim:?}, which names it")]
pub struct NotItsVolume {
    pub volume: String,
    pub claim: String,
}

/// The driver of a PVC: that of its volume, else the provisioner of its class. `None`: unknown.
///
/// # Errors
/// [`NotItsVolume`].
pub fn driver_of(
    claim: &PersistentVolumeClaim,
    volume: Option<&PersistentVolume>,
    class: Option<&StorageClass>,
) -> Result<Option<String>, NotItsVolume> {
    let spec = volume.and_then(|volume| volume.spec.as_ref());
    if let (Some(volume), Some(spec)) = (volume, spec) {
        let owner = spec.claim_ref.as_ref();
        let is_its = owner.is_some_and(|owner| {
            owner.uid == claim.metadata.uid
                && owner.name == claim.metadata.name
                && owner.namespace == claim.metadata.namespace
        });
        if !is_its {
            return Err(NotItsVolume {
                volume: meta::name(&volume.metadata).to_owned(),
                claim: meta::name(&claim.metadata).to_owned(),
            });
        }
        if let Some(csi) = &spec.csi {
            return Ok(Some(csi.driver.clone()));
        }
    }
    Ok(class.map(|class| class.provisioner.clone()))
}

/// A VolumeSnapshotClass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotClass {
    pub name: String,
    /// The driver that takes the snapshots.
    pub driver: String,
    /// Whether it is used if no class is named.
    pub is_default: bool,
}

/// A snapshot class, and why it was selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenClass {
    pub name: String,
    pub because: Choice,
}

/// Why a snapshot class was selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The StorageProfiles of source and target name it.
    Profile,
    /// It is a default.
    Default,
    /// It is the first by name.
    First,
}

impl ChosenClass {
    /// The event that reports the selection.
    pub fn event(&self) -> Event {
        Event::normal("VolumeSnapshotClassSelected", self.to_string())
    }
}

impl fmt::Display for ChosenClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match self.because {
            Choice::Profile => {
                write!(formatter, "VolumeSnapshotClass selected according to StorageProfile {name}")
            }
            Choice::Default => write!(formatter, "Default VolumeSnapshotClass selected {name}"),
            Choice::First => write!(formatter, "First VolumeSnapshotClass selected {name}"),
        }
    }
}

/// The class for a snapshot of a volume of `driver`. `named` is the class in the StorageProfiles of source and target,
/// if both name the same: that one or none. Otherwise a default of the driver, else the first by name.
pub fn snapshot_class(
    classes: &[SnapshotClass],
    driver: &str,
    named: Option<&str>,
) -> Option<ChosenClass> {
    let mut fitting: Vec<_> = classes.iter().filter(|class| class.driver == driver).collect();
    fitting.sort_by(|a, b| a.name.cmp(&b.name));
    let (class, because) = match named {
        Some(name) => (fitting.iter().find(|class| class.name == name)?, Choice::Profile),
        None => match fitting.iter().find(|class| class.is_default) {
            Some(class) => (class, Choice::Default),
            None => (fitting.first()?, Choice::First),
        },
    };
    Some(ChosenClass { name: class.name.clone(), because })
}

/// The class in the profiles of source and target, if both name the same.
pub fn named_by_both<'a>(source: Option<&'a str>, target: Option<&str>) -> Option<&'a str> {
    source.filter(|name| !name.is_empty() && Some(*name) == target)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn classes() -> Vec<SnapshotClass> {
        let class = |name: &str, driver: &str, is_default| SnapshotClass {
            name: name.into(),
            driver: driver.into(),
            is_default,
        };
        vec![
            class("z", "ceph", true),
            class("b", "nfs", false),
            class("a", "nfs", false),
            class("c", "ceph", false),
        ]
    }

    #[test]
    fn the_class_named_by_both_profiles_wins_then_a_default_then_the_first() {
        let table: [(&str, Option<&str>, Option<&str>); 7] = [
            ("ceph", None, Some("Default VolumeSnapshotClass selected z")),
            ("nfs", None, Some("First VolumeSnapshotClass selected a")),
            ("ceph", Some("c"), Some("VolumeSnapshotClass selected according to StorageProfile c")),
            ("ceph", Some("a"), None),
            ("ceph", Some("gone"), None),
            ("lvm", None, None),
            ("", None, None),
        ];
        for (driver, named, expected) in table {
            let chosen = snapshot_class(&classes(), driver, named);
            let message = chosen.map(|class| class.event().message);
            assert_eq!(message.as_deref(), expected, "{driver} {named:?}");
        }
        assert_eq!(named_by_both(Some("a"), Some("a")), Some("a"));
        for (one, other) in [
            (None, None),
            (Some("a"), None),
            (Some("a"), Some("b")),
            (None, Some("a")),
            (Some(""), Some("")),
        ] {
            assert_eq!(named_by_both(one, other), None);
        }
    }

    #[test]
    fn driver_of_the_volume_takes_precedence_over_the_class() {
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": { "name": "disk", "namespace": "vms", "uid": "1" },
        }))
        .unwrap();
        let class: StorageClass =
            serde_json::from_value(json!({ "provisioner": "class" })).unwrap();
        let volume = |uid: &str, source: Value| -> PersistentVolume {
            let mut spec =
                json!({ "claimRef": { "name": "disk", "namespace": "vms", "uid": uid } });
            spec.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
            serde_json::from_value(json!({ "metadata": { "name": "v" }, "spec": spec })).unwrap()
        };
        let csi = volume("1", json!({ "csi": { "driver": "csi", "volumeHandle": "h" } }));
        let nfs = volume("1", json!({ "nfs": { "server": "s", "path": "/" } }));
        let driver = |volume, class| driver_of(&claim, volume, class).unwrap();
        assert_eq!(driver(Some(&csi), Some(&class)).as_deref(), Some("csi"));
        assert_eq!(driver(Some(&nfs), Some(&class)).as_deref(), Some("class"));
        assert_eq!(driver(None, Some(&class)).as_deref(), Some("class"));
        assert_eq!(driver(None, None), None);
        let foreign = volume("2", json!({}));
        assert!(driver_of(&claim, Some(&foreign), Some(&class)).is_err());
    }
}
