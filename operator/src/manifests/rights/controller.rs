//! The controller's permissions.

use api::names;
use serde_json::Value;

use super::{CDI, FOLLOW, FORKLIFT, SNAPSHOT, named, review_rules, rule};

/// The name of OpenShift's singleton objects.
const OPENSHIFT: &str = "cluster";

/// In all namespaces.
pub(super) fn cluster_wide() -> Vec<Value> {
    let mut all = volumes();
    all.extend(own_kinds());
    all.extend(owners());
    all.extend([
        // A repeated event increments the existing one's count.
        rule("", &["events"], &["create", "patch", "list", "watch"]),
        // The CA of the platform's proxies, extra arguments for VDDK; the copy that a worker mounts.
        rule("", &["configmaps"], &["get", "create"]),
        // The certificate of a worker, which its pod owns: Secrets of users are neither read nor deleted.
        rule("", &["secrets"], &["create"]),
        rule("storage.k8s.io", &["storageclasses", "csidrivers"], FOLLOW),
        named("config.openshift.io", &["proxies", "infrastructures"], &[OPENSHIFT], FOLLOW),
        rule("image.openshift.io", &["imagestreams"], &["get"]),
    ]);
    all.extend(review_rules());
    all
}

/// Volumes, and the pods that fill them.
fn volumes() -> Vec<Value> {
    let claims = ["get", "list", "watch", "create", "patch", "delete"];
    vec![
        rule("", &["persistentvolumeclaims"], &claims),
        rule("", &["persistentvolumes"], &["get", "list", "watch", "patch"]),
        rule("", &["pods"], &["get", "list", "watch", "create", "delete"]),
        rule("", &["services"], &["create", "delete"]),
        rule(SNAPSHOT, &["volumesnapshots"], &["list", "watch", "create", "patch", "delete"]),
        rule(SNAPSHOT, &["volumesnapshotclasses"], FOLLOW),
        rule(SNAPSHOT, &["volumesnapshotcontents"], &["get"]),
    ]
}

/// CDI's kinds. No `create` on `datavolumes/source`: the controller clones nothing by its own
/// permission.
fn own_kinds() -> Vec<Value> {
    let managed = ["list", "watch", "create", "patch", "delete"];
    let read_and_kept = ["get", "list", "watch", "create", "patch", "delete"];
    let statuses = ["datavolumes/status", "objecttransfers/status", "storageprofiles/status"];
    vec![
        rule(CDI, &["datavolumes", "objecttransfers"], &read_and_kept),
        rule(CDI, &["datasources", "storageprofiles", "volumeimportsources"], &managed),
        rule(
            CDI,
            &["volumeclonesources", "volumeuploadsources"],
            &["list", "watch", "create", "delete"],
        ),
        rule(CDI, &["dataimportcrons"], &["get", "list", "watch", "patch"]),
        rule(CDI, &statuses, &["patch"]),
        rule(CDI, &["cdis"], FOLLOW),
        rule(CDI, &["cdiconfigs"], &["list", "watch", "create"]),
        named(CDI, &["cdiconfigs"], &[names::CDI_CONFIG], &["update"]),
        rule(FORKLIFT, &["openstackvolumepopulators", "ovirtvolumepopulators"], FOLLOW),
    ]
}

/// The kinds of the owners that the controller writes into what it makes. Each has `blockOwnerDeletion`, which the admission
/// plugin OwnerReferencesPermissionEnforcement (on in OpenShift) lets those write who may update the owner's finalizers.
fn owners() -> Vec<Value> {
    let own = [
        "cdis/finalizers",
        "dataimportcrons/finalizers",
        "datavolumes/finalizers",
        "objecttransfers/finalizers",
    ];
    vec![
        rule("", &["persistentvolumeclaims/finalizers", "pods/finalizers"], &["update"]),
        rule(CDI, &own, &["update"]),
        // A DataVolume that is renamed by an ObjectTransfer keeps its owner, which is the virtual machine.
        rule("kubevirt.io", &["virtualmachines/finalizers"], &["update"]),
    ]
}

/// In the namespace of the installation.
pub(super) fn in_namespace() -> Vec<Value> {
    vec![
        named("", &["configmaps"], &[names::PLATFORM_CA_CONFIG_MAP], &["update", "delete"]),
        // Secrets that DataImportCrons and the Ingress of the upload proxy name.
        rule("", &["secrets"], &["get"]),
        // Orphaned polling jobs are deleted; creating them is a role of its own.
        rule("batch", &["cronjobs"], &["list", "watch", "delete"]),
        rule("batch", &["jobs"], &["delete"]),
        rule("coordination.k8s.io", &["leases"], &["create"]),
        named("coordination.k8s.io", &["leases"], &[names::CONTROLLER_LEASE], &["get", "update"]),
        rule("networking.k8s.io", &["ingresses"], FOLLOW),
        rule("route.openshift.io", &["routes"], FOLLOW),
    ]
}
