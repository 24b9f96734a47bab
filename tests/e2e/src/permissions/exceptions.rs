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
const CHECKED_ONLY: &str =
    "OwnerReferencesPermissionEnforcement looks whether it is granted; nothing is requested";
const OPENSHIFT: &str = "the cluster of the tests is no OpenShift";

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
        verbs: &["list", "watch"],
        objects: &[
            "config.openshift.io/infrastructures",
            "config.openshift.io/proxies",
            "route.openshift.io/routes",
        ],
        reason: OPENSHIFT,
    },
    Exception {
        account: CONTROLLER,
        verbs: &["get"],
        objects: &["image.openshift.io/imagestreams"],
        reason: OPENSHIFT,
    },
    Exception {
        account: CONTROLLER,
        verbs: &["update", "delete"],
        objects: &["/configmaps"],
        reason: "the copy of the authority of OpenShift's proxies",
    },
    Exception {
        account: CONTROLLER,
        verbs: &["update"],
        objects: &["batch/cronjobs"],
        reason: "a DataImportCron that is polled by jobs may get another schedule or address",
    },
];
