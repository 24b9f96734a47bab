//! Grants that no test on the cluster uses, each with the reason why the program has it all the same.

use std::fmt;

use super::Grant;

/// Grants that may stay unused, or be used in the installation's namespace only.
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// The service account.
    pub account: &'static str,
    /// `get`, `list` …
    pub verbs: &'static [&'static str],
    /// `GROUP/RESOURCE`, the group empty for that of pods.
    pub objects: &'static [&'static str],
    /// Why.
    pub reason: &'static str,
}

impl Exception {
    /// Whether this is the reason for a grant.
    pub fn is_for(&self, grant: &Grant) -> bool {
        let Self { account, verbs, objects, reason: _ } = self;
        *account == grant.account
            && verbs.contains(&grant.verb.as_str())
            && objects.contains(&grant.object().as_str())
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { account, verbs, objects, reason } = self;
        write!(formatter, "{account}: {} on {} ({reason})", verbs.join(", "), objects.join(", "))
    }
}

const CONTROLLER: &str = "cdi-sa";
const API_SERVER: &str = "cdi-apiserver";
const CHECKED_ONLY: &str =
    "OwnerReferencesPermissionEnforcement looks whether it is granted; nothing is requested";

/// All of them.
pub const EXCEPTIONS: &[Exception] = &[
    Exception {
        account: CONTROLLER,
        verbs: &["update"],
        objects: &[
            "/persistentvolumeclaims/finalizers",
            "/pods/finalizers",
            "cdi.kubevirt.io/cdis/finalizers",
            "cdi.kubevirt.io/dataimportcrons/finalizers",
            "cdi.kubevirt.io/datavolumes/finalizers",
            "cdi.kubevirt.io/objecttransfers/finalizers",
            "kubevirt.io/virtualmachines/finalizers",
        ],
        reason: CHECKED_ONLY,
    },
    Exception {
        account: CONTROLLER,
        verbs: &["get"],
        objects: &["/configmaps"],
        reason: "extra arguments for VDDK, in the namespace of a DataVolume; the tests have no VMware API",
    },
    Exception {
        account: CONTROLLER,
        verbs: &["get"],
        objects: &["/secrets"],
        reason: "Secrets of DataImportCrons and of the Ingress: cdi-controller/src/tests/golden_tenants.rs, settings.rs",
    },
    Exception {
        account: CONTROLLER,
        verbs: &["delete"],
        objects: &["cdi.kubevirt.io/objecttransfers"],
        reason: "a transfer that is deleted half-way: cdi-controller/src/tests/transfers.rs",
    },
    Exception {
        account: CONTROLLER,
        verbs: &["patch"],
        objects: &["cdi.kubevirt.io/volumeimportsources"],
        reason: "stages that are added to an import, whose sources need VMware: controller-core/src/import/stages.rs",
    },
    Exception {
        account: CONTROLLER,
        verbs: &["patch"],
        objects: &["cdi.kubevirt.io/storageprofiles"],
        reason: "sizes and access modes of drivers that the cluster of the tests does not have: controller-core/src/storage_profile",
    },
    Exception {
        account: API_SERVER,
        verbs: &["get", "list"],
        objects: &["cdi.kubevirt.io/dataimportcrons"],
        reason: "golden images that are reused: apiserver/tests/contract/golden_images.rs",
    },
    Exception {
        account: API_SERVER,
        verbs: &["get"],
        objects: &["snapshot.storage.k8s.io/volumesnapshots"],
        reason: "golden images that are reused, sizes of clones: apiserver/tests/contract/golden_images.rs",
    },
    Exception {
        account: API_SERVER,
        verbs: &["get"],
        objects: &["cdi.kubevirt.io/volumeclonesources"],
        reason: "the size of a PVC that names none: apiserver/tests/contract/admission.rs",
    },
    Exception {
        account: API_SERVER,
        verbs: &["list"],
        objects: &["cdi.kubevirt.io/datavolumes"],
        reason: "the CDI object is deleted, which would end the installation of the tests: apiserver/tests/contract/admission.rs",
    },
    Exception {
        account: "cdi-operator",
        verbs: &["update"],
        objects: &["/configmaps"],
        reason: "a CA that has a successor, after 24 hours: operator/tests, auth/src/rotation.rs",
    },
    Exception {
        account: CONTROLLER,
        verbs: &["update"],
        objects: &["batch/cronjobs"],
        reason: "a DataImportCron that is polled by jobs may get another schedule or address",
    },
];
