//! Names of objects that other components look up, and derived names.

/// Group of most kinds.
pub const GROUP: &str = "cdi.kubevirt.io";
/// Group of the kinds that forklift uses.
pub const FORKLIFT_GROUP: &str = "forklift.cdi.kubevirt.io";
/// Group of the upload tokens.
pub const UPLOAD_GROUP: &str = "upload.cdi.kubevirt.io";
/// Version of all of them.
pub const VERSION: &str = "v1beta1";
/// The one CDIConfig.
pub const CDI_CONFIG: &str = "config";
/// The service of the upload proxy.
pub const UPLOAD_PROXY_SERVICE: &str = "cdi-uploadproxy";
/// Copy of the CA of the platform's proxies, in the namespace of the installation.
pub const PLATFORM_CA_CONFIG_MAP: &str = "cdi-platform-proxy-ca";
/// The ConfigMap that every namespace has, with the cluster's CA under [`ROOT_CA_KEY`].
pub const ROOT_CA_CONFIG_MAP: &str = "kube-root-ca.crt";
/// Key in [`ROOT_CA_CONFIG_MAP`].
pub const ROOT_CA_KEY: &str = "ca.crt";
/// The ConfigMap that names the image with VMware's library under [`VDDK_CONFIG_MAP_KEY`].
pub const VDDK_CONFIG_MAP: &str = "v2v-vmware";
/// Key in [`VDDK_CONFIG_MAP`].
pub const VDDK_CONFIG_MAP_KEY: &str = "vddk-init-image";

/// The Secret with the key that tokens are signed with, under [`SIGNING_KEY_PRIVATE`] and [`SIGNING_KEY_PUBLIC`].
pub const SIGNING_KEY_SECRET: &str = "cdi-api-signing-key";
/// Key in [`SIGNING_KEY_SECRET`]: PKCS#1, as PEM.
pub const SIGNING_KEY_PRIVATE: &str = "id_rsa";
/// Key in [`SIGNING_KEY_SECRET`]: PKIX, as PEM.
pub const SIGNING_KEY_PUBLIC: &str = "id_rsa.pub";
/// Key of the certificates in the ConfigMap of a CA.
pub const CA_BUNDLE_KEY: &str = "ca-bundle.crt";
/// The service of the API server.
pub const API_SERVICE: &str = "cdi-api";
/// Common name of the upload proxy's client certificate, which upload servers check.
pub const UPLOAD_CLIENT: &str = "client.upload-server.cdi.kubevirt.io";

/// The Lease of the controllers, the same as upstream CDI's: of two installations only one writes.
pub const CONTROLLER_LEASE: &str = "cdi-controller-leader-election-helper";
/// The Lease of the operators, the same as upstream CDI's: during a takeover only one of the two writes.
pub const OPERATOR_LEASE: &str = "cdi-operator-leader-election-helper";
/// The service account of the controller.
pub const CONTROLLER_ACCOUNT: &str = "cdi-sa";
/// The service accounts of the programs, in the namespace of the installation.
pub const SERVICE_ACCOUNTS: [&str; 6] = [
    "cdi-apiserver",
    "cdi-cronjob",
    "cdi-metrics-reader",
    "cdi-operator",
    CONTROLLER_ACCOUNT,
    "cdi-uploadproxy",
];

/// The user name of a service account.
pub fn service_account_user(namespace: &str, account: &str) -> String {
    format!("system:serviceaccount:{namespace}:{account}")
}

/// The groups of every service account of a namespace.
pub fn service_account_groups(namespace: &str) -> [String; 3] {
    [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ]
}

/// Feature gate: a PVC with WaitForFirstConsumer is filled only once it has a consumer.
pub const GATE_HONOR_WAIT_FOR_FIRST_CONSUMER: &str = "HonorWaitForFirstConsumer";
/// Feature gate: a DataVolume adopts an existing PVC of its name.
pub const GATE_CLAIM_ADOPTION: &str = "DataVolumeClaimAdoption";
/// Feature gate that is always on; named by older CDI objects.
pub const GATE_WEBHOOK_PVC_RENDERING: &str = "WebhookPvcRendering";
/// Feature gate of upstream CDI that is not supported here.
pub const GATE_BOOTC_IMAGE_IMPORT: &str = "BootcImageImport";

/// Length limit of an object's name.
pub const LENGTH_MAX: usize = 253;
/// Length limit of a label's value and of a service's name.
pub const LABEL_LENGTH_MAX: usize = 63;

/// `base-suffix`; shortened if too long for a name, with a hash that keeps it unique.
pub fn object_name(base: &str, suffix: &str) -> String {
    shortened(base, suffix, LENGTH_MAX)
}

/// `name` as the name of a Service or value of a label: no dots, at most 63 characters.
pub fn label_value(name: &str) -> String {
    let name = name.replace('.', "-");
    if name.len() <= LABEL_LENGTH_MAX { name } else { shortened(&name, "cdi", LABEL_LENGTH_MAX) }
}

/// The prime PVC of the target PVC with this UID.
pub fn prime_pvc(target_uid: &str) -> String {
    format!("prime-{target_uid}")
}

/// The VolumeImportSource of a DataVolume.
pub fn import_source(volume_uid: &str) -> String {
    format!("volume-import-source-{volume_uid}")
}

/// The VolumeUploadSource of a DataVolume.
pub fn upload_source(volume_uid: &str) -> String {
    format!("volume-upload-source-{volume_uid}")
}

/// The VolumeCloneSource of a DataVolume.
pub fn clone_source(volume_uid: &str) -> String {
    format!("volume-clone-source-{volume_uid}")
}

/// The PVC restored from a snapshot, for pods to copy to the PVC of the DataVolume with this UID.
pub fn restored_pvc(volume_uid: &str) -> String {
    format!("{volume_uid}-host-assisted-source-pvc")
}

/// The importer pod of a PVC, for one checkpoint or the whole import.
pub fn importer_pod(claim: &str, checkpoint: Option<&str>) -> String {
    match checkpoint {
        Some(checkpoint) => object_name("importer", &format!("{claim}-checkpoint-{checkpoint}")),
        None => object_name("importer", claim),
    }
}

/// The upload server pod of a PVC.
pub fn upload_server(claim: &str) -> String {
    object_name("cdi-upload", claim)
}

/// The scratch PVC of a PVC.
pub fn scratch_pvc(claim: &str) -> String {
    object_name(claim, "scratch")
}

fn shortened(base: &str, suffix: &str, length_max: usize) -> String {
    let whole = format!("{base}-{suffix}");
    if whole.len() <= length_max {
        return whole;
    }
    // `-`, eight digits and another `-` separate the rest of `base` from `suffix`.
    match length_max.checked_sub(10 + suffix.len()).filter(|len| *len > 0) {
        Some(len) => format!("{}-{:08x}-{suffix}", cut(base, len), fnv1a(base)),
        None => format!("{}-{:08x}", cut(base, length_max - 9), fnv1a(&whole)),
    }
}

/// The first `length_max` bytes of a text. Without a dot at the end, which no hyphen may follow.
fn cut(text: &str, length_max: usize) -> &str {
    let mut end = text.len().min(length_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].trim_end_matches('.')
}

/// FNV-1a, 32 bits.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_joined() {
        assert_eq!(importer_pod("disk", None), "importer-disk");
        assert_eq!(importer_pod("disk", Some("snap-1")), "importer-disk-checkpoint-snap-1");
        assert_eq!(scratch_pvc("disk"), "disk-scratch");
        assert_eq!(upload_server("a.b"), "cdi-upload-a.b");
        assert_eq!(label_value("cdi-upload-a.b"), "cdi-upload-a-b");
    }

    #[test]
    fn hash_is_fnv1a() {
        for (text, hash) in [("", 0x811c_9dc5), ("a", 0xe40c_292c), ("foobar", 0xbf9c_f968)] {
            assert_eq!(fnv1a(text), hash);
        }
    }

    #[test]
    fn long_names_are_cut_and_stay_unique() {
        let claim = "x".repeat(245);
        assert_eq!(scratch_pvc(&claim), format!("{claim}-scratch"));
        let claim = "x".repeat(246);
        let hash = format!("{:08x}", fnv1a(&claim));
        assert_eq!(scratch_pvc(&claim), format!("{}-{hash}-scratch", "x".repeat(236)));
        assert_eq!(scratch_pvc(&claim).len(), LENGTH_MAX);

        // The suffix alone may be too long: then the hash is of all of it.
        let (first, second) =
            (importer_pod(&"a".repeat(253), None), importer_pod(&"b".repeat(253), None));
        assert!(first.starts_with("importer-") && first.len() <= LENGTH_MAX);
        assert_ne!(first, second);

        // A cut behind a dot would make a name that begins a label with a hyphen.
        let dots = scratch_pvc(&format!("{}.{}", "x".repeat(235), "y".repeat(17)));
        assert!(dots.starts_with(&format!("{}-", "x".repeat(235))), "{dots}");

        let service = label_value(&"cdi-upload.".repeat(20));
        assert_eq!(service.len(), LABEL_LENGTH_MAX);
        assert!(service.ends_with("-cdi") && !service.contains('.'));
    }

    #[test]
    fn names_fit_for_every_length_of_base_and_suffix() {
        for base in (1..=260).step_by(7) {
            for suffix in (1..=260).step_by(3) {
                let name = object_name(&"b".repeat(base), &"s".repeat(suffix));
                assert!(name.len() <= LENGTH_MAX, "{base} {suffix}: {}", name.len());
                assert!(crate::metadata::is_object_name(&name));
            }
        }
    }
}
