//! The controller's rights.

use api::names;
use serde_json::Value;

use super::{CDI, FOLLOW, FORKLIFT, SNAPSHOT, asking, named, rule};

/// The lease of the leader, which the reference's controllers use too.
const LEASE: &str = "cdi-controller-leader-election-helper";
/// The name of each object of which OpenShift's API has one.
const OPENSHIFT: &str = "cluster";

/// In all namespaces.
pub(super) fn cluster_wide() -> Vec<Value> {
    let mut all = volumes();
    all.extend(own_kinds());
    all.extend(owners());
    all.extend([
        // Repeats are counted on the event that is there.
        rule("", &["events"], &["create", "patch", "list", "watch"]),
        // The authority of the platform's proxies, extra arguments for VDDK; the copy that a worker mounts.
        rule("", &["configmaps"], &["get", "create"]),
        // The certificate of a worker, which its pod owns: Secrets of users are neither read nor deleted.
        rule("", &["secrets"], &["create"]),
        rule("storage.k8s.io", &["storageclasses", "csidrivers"], FOLLOW),
        named("config.openshift.io", &["proxies", "infrastructures"], &[OPENSHIFT], FOLLOW),
        rule("image.openshift.io", &["imagestreams"], &["get"]),
    ]);
    all.extend(asking());
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

/// The kinds of this project. None of these rights is `create` on `datavolumes/source`: the controller copies nothing by its own
/// right.
fn own_kinds() -> Vec<Value> {
    let kept = ["list", "watch", "create", "patch", "delete"];
    let read_and_kept = ["get", "list", "watch", "create", "patch", "delete"];
    let statuses = ["datavolumes/status", "objecttransfers/status", "storageprofiles/status"];
    vec![
        rule(CDI, &["datavolumes", "objecttransfers"], &read_and_kept),
        rule(CDI, &["datasources", "storageprofiles", "volumeimportsources"], &kept),
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
        // Those that DataImportCrons and the Ingress of the upload proxy name.
        rule("", &["secrets"], &["get"]),
        // What is left of polling by jobs is deleted; making them is a role of its own.
        rule("batch", &["cronjobs"], &["list", "watch", "delete"]),
        rule("batch", &["jobs"], &["delete"]),
        rule("coordination.k8s.io", &["leases"], &["create"]),
        named("coordination.k8s.io", &["leases"], &[LEASE], &["get", "update"]),
        rule("networking.k8s.io", &["ingresses"], FOLLOW),
        rule("route.openshift.io", &["routes"], FOLLOW),
    ]
}
