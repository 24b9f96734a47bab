//! Rules on `spec.pvc` and `spec.storage`.

use contract::ByteCount;

use super::Invalid;
use crate::claim::ClaimSpec;
use crate::data_volume::{DataVolumeSpec, Source};
use crate::metadata::NAME_LENGTH_MAX;

pub(super) fn check(spec: &DataVolumeSpec) -> Result<(), Invalid> {
    let invalid = |field: &str, message: &str| Err(Invalid::new(field, message));
    let (claim, field) = match (&spec.pvc, &spec.storage) {
        (None, None) => return invalid("spec.PVC", "Missing Data volume PVC"),
        (Some(_), Some(_)) => {
            let message =
                "Duplicate storage definition, both target storage and target pvc defined";
            return invalid("spec.PVC.Storage", message);
        }
        (Some(claim), None) => (claim, VolumeField::Pvc),
        (None, Some(claim)) => (claim, VolumeField::Storage),
    };
    size(spec, claim, field)?;
    if claim.storage_class_name.as_ref().is_some_and(|name| name.len() > NAME_LENGTH_MAX) {
        let message = format!("Name cannot be longer than {NAME_LENGTH_MAX} characters");
        return invalid(&format!("spec.{}.storageClassName", field.name()), &message);
    }
    if field == VolumeField::Storage && claim.volume_attributes_class_name.is_some() {
        let field = "spec.storage.volumeAttributesClassName";
        return invalid(field, "volumeAttributesClassName belongs to spec.pvc");
    }
    access_modes(claim, field)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum VolumeField {
    Pvc,
    Storage,
}

impl VolumeField {
    fn name(self) -> &'static str {
        match self {
            Self::Pvc => "PVC",
            Self::Storage => "Storage",
        }
    }
}

fn size(spec: &DataVolumeSpec, claim: &ClaimSpec, field: VolumeField) -> Result<(), Invalid> {
    let name = field.name();
    let invalid = |message: String| {
        Err(Invalid::new(format!("spec.{name}.resources.requests.size"), message))
    };
    match claim.requested() {
        None if field == VolumeField::Storage && is_clone(spec) => Ok(()),
        // Go clients write an absent quantity as zero.
        Some(size)
            if size.bytes() == Some(ByteCount::default())
                && field == VolumeField::Storage
                && is_clone(spec) =>
        {
            Ok(())
        }
        None => invalid(format!("{name} size is missing")),
        Some(size) if !size.is_positive() => {
            invalid(format!("{name} size can't be equal or less than zero"))
        }
        Some(size) if size.bytes().is_none_or(|bytes| bytes < ByteCount::MIB) => {
            invalid(format!("{name} size should be at least 1MiB"))
        }
        Some(_) => Ok(()),
    }
}

/// The source has a size of its own.
fn is_clone(spec: &DataVolumeSpec) -> bool {
    let members = spec.source.as_ref().map(|source| source.members()).unwrap_or_default();
    spec.source_ref.is_some()
        || members.iter().any(|member| matches!(member, Source::Pvc(_) | Source::Snapshot(_)))
}

const ACCESS_MODES: [&str; 4] =
    ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

fn access_modes(claim: &ClaimSpec, field: VolumeField) -> Result<(), Invalid> {
    let invalid = |message: String| Err(Invalid::new("spec.PVC.accessModes", message));
    let modes = &claim.access_modes;
    match field {
        VolumeField::Pvc if modes.is_empty() => {
            return invalid("Required value: at least 1 access mode is required".into());
        }
        VolumeField::Pvc if modes.len() > 1 => return invalid("PVC multiple accessModes".into()),
        VolumeField::Pvc | VolumeField::Storage => {}
    }
    match modes.iter().find(|mode| !ACCESS_MODES.contains(&mode.as_str())) {
        Some(mode) => {
            let supported = ACCESS_MODES.map(|mode| format!("{mode:?}")).join(", ");
            invalid(format!("Unsupported value: {mode:?}: supported values: {supported}"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;

    #[test]
    fn pvc_is_defined_once_with_a_valid_size() {
        let size = "resources: {requests: {storage: ";
        let blank = "source: {blank: {}}";
        let clone = "source: {pvc: {name: a, namespace: b}}";
        for (spec, expected) in [
            (format!("{{{blank}}}"), "spec.PVC: Missing Data volume PVC"),
            (
                format!("{{{blank}, pvc: {{}}, storage: {{}}}}"),
                "spec.PVC.Storage: Duplicate storage definition, both target storage and target pvc defined",
            ),
            (format!("{{{blank}, storage: {{{size}1Gi}}}}}}}}"), ""),
            (
                format!("{{{blank}, storage: {{}}}}"),
                "spec.Storage.resources.requests.size: Storage size is missing",
            ),
            (
                format!("{{{blank}, storage: {{{size}0}}}}}}}}"),
                "spec.Storage.resources.requests.size: Storage size can't be equal or less than zero",
            ),
            (
                format!("{{{blank}, pvc: {{{size}-1Gi}}}}}}}}"),
                "spec.PVC.resources.requests.size: PVC size can't be equal or less than zero",
            ),
            (
                format!("{{{blank}, storage: {{{size}1M}}}}}}}}"),
                "spec.Storage.resources.requests.size: Storage size should be at least 1MiB",
            ),
            (format!("{{{blank}, storage: {{{size}1Mi}}}}}}}}"), ""),
            (format!("{{{clone}, storage: {{}}}}"), ""),
            (format!("{{{clone}, storage: {{{size}0}}}}}}}}"), ""),
            (
                format!("{{{clone}, pvc: {{{size}0}}}}}}}}"),
                "spec.PVC.resources.requests.size: PVC size can't be equal or less than zero",
            ),
            (
                format!("{{{clone}, storage: {{{size}-1}}}}}}}}"),
                "spec.Storage.resources.requests.size: Storage size can't be equal or less than zero",
            ),
            (
                format!("{{{clone}, pvc: {{}}}}"),
                "spec.PVC.resources.requests.size: PVC size is missing",
            ),
            ("{sourceRef: {kind: DataSource, name: a}, storage: {}}".into(), ""),
            (
                format!(
                    "{{{blank}, storage: {{storageClassName: {}, {size}1Gi}}}}}}}}",
                    "x".repeat(254)
                ),
                "spec.Storage.storageClassName: Name cannot be longer than 253 characters",
            ),
            (
                format!("{{{blank}, storage: {{volumeAttributesClassName: x, {size}1Gi}}}}}}}}"),
                "spec.storage.volumeAttributesClassName: volumeAttributesClassName belongs to spec.pvc",
            ),
        ] {
            assert_eq!(check(&spec), expected, "{spec}");
        }
    }

    #[test]
    fn spec_pvc_has_one_access_mode_and_spec_storage_any_number() {
        let check = |field, modes| {
            check(&format!(
                "{{source: {{blank: {{}}}}, {field}: {{accessModes: [{modes}], \
                 resources: {{requests: {{storage: 1Gi}}}}}}}}"
            ))
        };
        let supported = "supported values: \"ReadOnlyMany\", \"ReadWriteMany\", \"ReadWriteOnce\", \
                         \"ReadWriteOncePod\"";
        assert_eq!(check("pvc", "ReadWriteOnce"), "");
        assert_eq!(
            check("pvc", ""),
            "spec.PVC.accessModes: Required value: at least 1 access mode is required"
        );
        assert_eq!(
            check("pvc", "ReadWriteOnce, ReadOnlyMany"),
            "spec.PVC.accessModes: PVC multiple accessModes"
        );
        assert_eq!(check("storage", ""), "");
        assert_eq!(check("storage", "ReadWriteOnce, ReadOnlyMany"), "");
        for field in ["pvc", "storage"] {
            assert_eq!(
                check(field, "RWO"),
                format!("spec.PVC.accessModes: Unsupported value: \"RWO\": {supported}")
            );
        }
    }
}
