//! Class, volume mode and access modes of a PVC.

use api::v1beta1::{ClaimPropertySet, ContentType, StorageProfile, StorageSpec};
use k8s_openapi::api::storage::v1::StorageClass;

use super::{Error, Facts};
use crate::volume::PersistentVolume;
use crate::{classes, meta};

/// The class and modes that `spec.storage` resolves to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Modes {
    pub class_name: Option<String>,
    pub volume_mode: Option<String>,
    pub access_modes: Vec<String>,
}

pub(super) const BLOCK: &str = "Block";
pub(super) const FILESYSTEM: &str = "Filesystem";
/// Left to the PVC webhook.
pub(super) const FROM_PROFILE: &str = "FromStorageProfile";

/// The DataVolume's own modes, else those of the class's profile, else none.
pub(super) fn complete(
    facts: &Facts,
    storage: &StorageSpec,
    content: ContentType,
) -> Result<Modes, Error> {
    let mut modes = Modes {
        class_name: storage.storage_class_name.clone(),
        volume_mode: storage
            .volume_mode
            .clone()
            .filter(|mode| mode != FROM_PROFILE && !mode.is_empty()),
        access_modes: storage.access_modes.clone().unwrap_or_default(),
    };
    if content == ContentType::Archive {
        if modes.volume_mode.as_deref() == Some(BLOCK) {
            return Err(Error::ArchiveOnBlock);
        }
        modes.volume_mode = Some(FILESYSTEM.to_owned());
    }
    let class = match modes.class_name.as_deref() {
        Some(name) => classes::named(facts.classes, name),
        None => classes::default_for(facts.classes, content),
    };
    match class {
        Some(class) => from_profile(facts, class, modes),
        None => from_volume(facts, storage, modes),
    }
}

fn from_profile(facts: &Facts, class: &StorageClass, mut modes: Modes) -> Result<Modes, Error> {
    let name = meta::name(&class.metadata);
    modes.class_name = Some(name.to_owned());
    let profile = profile(facts.profiles, name);
    let status = profile.and_then(|profile| profile.status.as_ref());
    let sets = status.and_then(|status| status.claim_property_sets.as_deref()).unwrap_or_default();
    let adopt = |modes: &mut Modes, set: &ClaimPropertySet| {
        modes.volume_mode = Some(set.volume_mode.as_str().to_owned());
        modes.access_modes.clone_from(&set.access_modes);
    };
    match (modes.volume_mode.as_deref(), modes.access_modes.is_empty()) {
        (None, true) => match sets.first() {
            Some(set) => adopt(&mut modes, set),
            None => return Err(Error::NoModes { profile: name.to_owned() }),
        },
        (Some(mode), true) => match sets.iter().find(|set| set.volume_mode.as_str() == mode) {
            Some(set) => adopt(&mut modes, set),
            None => return Err(Error::NoAccessMode { profile: name.to_owned() }),
        },
        (None, false) => {
            let wanted = |set: &&ClaimPropertySet| {
                set.access_modes.iter().any(|mode| modes.access_modes.contains(mode))
            };
            let found = sets.iter().find(wanted);
            modes.volume_mode = found.map(|set| set.volume_mode.as_str().to_owned());
        }
        (Some(_), false) => {}
    }
    Ok(modes)
}

/// Without the named class, a volume may exist that an administrator created for it.
fn from_volume(facts: &Facts, storage: &StorageSpec, mut modes: Modes) -> Result<Modes, Error> {
    let volume = modes.class_name.as_deref().and_then(|name| {
        let of_class = |volume: &&PersistentVolume| volume.class_name() == name;
        let mut volumes = facts.volumes.iter().filter(of_class);
        volumes.find(|volume| satisfies(volume, storage, &modes))
    });
    if let Some(spec) = volume.and_then(|volume| volume.spec.as_ref()) {
        modes.volume_mode.clone_from(&spec.volume_mode);
        if modes.access_modes.is_empty() {
            modes.access_modes = spec.access_modes.clone().unwrap_or_default();
        }
    }
    if modes.access_modes.is_empty() {
        return Err(Error::NoClass);
    }
    Ok(modes)
}

/// Whether a volume is available and satisfies the request.
fn satisfies(volume: &PersistentVolume, storage: &StorageSpec, modes: &Modes) -> bool {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let Some(spec) = volume.spec.as_ref() else { return false };
    let capacity = spec.capacity.as_ref().and_then(|capacity| capacity.get("storage"));
    let wanted = storage.resources.as_ref().and_then(|all| all.requests.as_ref()?.get("storage"));
    let large_enough = match (capacity.and_then(meta::bytes), wanted.and_then(meta::bytes)) {
        (Some(capacity), Some(wanted)) => capacity >= wanted,
        (_, None) => true,
        (None, Some(_)) => false,
    };
    let mode = spec.volume_mode.as_deref().unwrap_or(FILESYSTEM);
    let offers = spec.access_modes.as_deref().unwrap_or_default();
    phase == Some("Available")
        && volume.metadata.deletion_timestamp.is_none()
        && large_enough
        && modes.volume_mode.as_deref().is_none_or(|wanted| wanted == mode)
        && modes.access_modes.iter().all(|wanted| offers.contains(wanted))
}

/// The profile of a class.
pub(super) fn profile<'a>(
    profiles: &'a [StorageProfile],
    class: &str,
) -> Option<&'a StorageProfile> {
    profiles.iter().find(|profile| meta::name(&profile.metadata) == class)
}
