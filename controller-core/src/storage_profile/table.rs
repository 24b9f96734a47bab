//! The capabilities of each kind of storage.

use api::v1beta1::ClaimVolumeMode::{self, Block, Filesystem};

/// The modes that PVCs on some storage support, and further advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capabilities {
    /// In the order of preference.
    pub sets: &'static [Set],
    /// The best strategy for clones.
    pub clone_strategy: Option<&'static str>,
    /// Golden images are best kept as snapshots.
    pub cron_snapshots: bool,
    /// The storage provisions no smaller volume.
    pub minimum_size: Option<&'static str>,
    /// Golden images are best imported into ReadWriteOnce PVCs.
    pub cron_read_write_once: bool,
}

/// Access mode and volume mode of a PVC.
pub(super) type Set = (&'static str, ClaimVolumeMode);

const RWO_BLOCK: Set = ("ReadWriteOnce", Block);
const RWO_FS: Set = ("ReadWriteOnce", Filesystem);
const RWX_BLOCK: Set = ("ReadWriteMany", Block);
const RWX_FS: Set = ("ReadWriteMany", Filesystem);
const ROX_BLOCK: Set = ("ReadOnlyMany", Block);
const ROX_FS: Set = ("ReadOnlyMany", Filesystem);

const FILE: &[Set] = &[RWO_FS];
const SHARED_FILE: &[Set] = &[RWX_FS];
const ANY_FILE: &[Set] = &[RWX_FS, RWO_FS];
const EVERY_FILE: &[Set] = &[RWX_FS, RWO_FS, ROX_FS];
const BLOCK: &[Set] = &[RWO_BLOCK];
const BLOCK_OR_FILE: &[Set] = &[RWO_BLOCK, RWO_FS];
const SHARED_BLOCK_OR_FILE: &[Set] = &[RWX_BLOCK, RWO_BLOCK, RWO_FS];
const EVERY: &[Set] = &[RWX_BLOCK, RWO_BLOCK, RWO_FS, ROX_BLOCK, ROX_FS];
const EVERY_BLOCK_OR_FILE: &[Set] = &[RWX_BLOCK, RWO_BLOCK, RWO_FS, ROX_BLOCK];

const COPY: &str = "copy";
const SNAPSHOT: &str = "snapshot";
const CSI_CLONE: &str = "csi-clone";

/// The capabilities of the storage with this key, which [`super::key::storage_profile_key`] returns.
pub(super) fn capabilities(key: &str) -> Option<Capabilities> {
    let row = TABLE.iter().find(|(name, ..)| *name == key)?;
    let (_, sets, clone_strategy, cron_snapshots, minimum_size, cron_read_write_once) = *row;
    Some(Capabilities { sets, clone_strategy, cron_snapshots, minimum_size, cron_read_write_once })
}

/// Key, sets, clone strategy, snapshots of golden images, least size, ReadWriteOnce for golden images.
pub(super) type Row =
    (&'static str, &'static [Set], Option<&'static str>, bool, Option<&'static str>, bool);

#[rustfmt::skip] // one row a line
pub(super) const TABLE: &[Row] = &[
    ("kubevirt.io.hostpath-provisioner", FILE, None, false, None, false),
    ("kubevirt.io.hostpath-provisioner/overlay", SHARED_FILE, None, false, None, false),
    ("kubevirt.io/hostpath-provisioner", FILE, None, false, None, false),
    ("k8s.io/minikube-hostpath", FILE, None, false, None, false),
    ("nfs.csi.k8s.io", SHARED_FILE, None, false, None, false),
    ("k8s-sigs.io/nfs-subdir-external-provisioner", SHARED_FILE, None, false, None, false),
    ("kubernetes.io/rbd", SHARED_BLOCK_OR_FILE, None, false, None, false),
    ("rbd.csi.ceph.com", SHARED_BLOCK_OR_FILE, Some(CSI_CLONE), false, None, false),
    ("rook-ceph.rbd.csi.ceph.com", SHARED_BLOCK_OR_FILE, Some(CSI_CLONE), true, None, false),
    ("openshift-storage.rbd.csi.ceph.com", SHARED_BLOCK_OR_FILE, Some(CSI_CLONE), true, None, false),
    ("cephfs.csi.ceph.com", ANY_FILE, Some(CSI_CLONE), false, None, false),
    ("rook-ceph.cephfs.csi.ceph.com", ANY_FILE, Some(CSI_CLONE), false, None, false),
    ("openshift-storage.cephfs.csi.ceph.com", ANY_FILE, Some(CSI_CLONE), false, None, false),
    ("linstor.csi.linbit.com", EVERY, None, false, None, false),
    ("csi-unity.dellemc.com", EVERY, None, false, None, false),
    ("csi-unity.dellemc.com/nfs", EVERY_FILE, None, false, None, false),
    ("csi-vxflexos.dellemc.com", EVERY, Some(CSI_CLONE), false, None, false),
    ("csi-vxflexos.dellemc.com/nfs", EVERY_FILE, None, false, None, false),
    ("csi-isilon.dellemc.com", EVERY_FILE, Some(CSI_CLONE), false, None, false),
    ("csi-powermax.dellemc.com", EVERY_BLOCK_OR_FILE, Some(CSI_CLONE), false, None, false),
    ("csi-powermax.dellemc.com/nfs", EVERY_FILE, None, false, None, false),
    ("csi-powerstore.dellemc.com", EVERY_BLOCK_OR_FILE, Some(COPY), false, None, false),
    ("csi-powerstore.dellemc.com/nfs", EVERY_FILE, None, false, None, false),
    ("kubernetes.io/storageos", FILE, None, false, None, false),
    ("storageos", FILE, None, false, None, false),
    ("kubernetes.io/aws-ebs", BLOCK, None, false, None, false),
    ("ebs.csi.aws.com", BLOCK, None, false, None, false),
    ("ebs.csi.aws.com/io1", BLOCK, None, false, Some("4Gi"), false),
    ("ebs.csi.aws.com/io2", SHARED_BLOCK_OR_FILE, None, false, Some("4Gi"), false),
    ("ebs.csi.aws.com/gp", BLOCK, None, false, Some("1Gi"), false),
    ("efs.csi.aws.com", ANY_FILE, None, false, None, false),
    ("kubernetes.io/azure-disk", BLOCK, None, false, None, false),
    ("disk.csi.azure.com", BLOCK, None, false, None, false),
    ("kubernetes.io/azure-file", SHARED_FILE, None, false, None, false),
    ("file.csi.azure.com", SHARED_FILE, None, false, None, false),
    ("kubernetes.io/gce-pd", BLOCK_OR_FILE, None, false, None, false),
    ("pd.csi.storage.gke.io", BLOCK_OR_FILE, Some(SNAPSHOT), true, None, true),
    ("pd.csi.storage.gke.io/hyperdisk", SHARED_BLOCK_OR_FILE, Some(SNAPSHOT), true, Some("4Gi"), true),
    ("hspc.csi.hitachi.com", SHARED_BLOCK_OR_FILE, Some(CSI_CLONE), false, Some("1Gi"), false),
    ("csi.hpe.com", SHARED_BLOCK_OR_FILE, Some(CSI_CLONE), false, None, false),
    ("spectrumscale.csi.ibm.com", ANY_FILE, Some(CSI_CLONE), false, None, false),
    ("block.csi.ibm.com", SHARED_BLOCK_OR_FILE, Some(CSI_CLONE), false, None, false),
    ("vpc.block.csi.ibm.io", BLOCK_OR_FILE, Some(COPY), false, None, false),
    ("vpc.file.csi.ibm.io", ANY_FILE, Some(SNAPSHOT), true, None, false),
    ("vpc.file.csi.ibm.io/dp2", ANY_FILE, Some(SNAPSHOT), true, Some("10Gi"), false),
    ("vpc.file.csi.ibm.io/dp2-rwo", FILE, Some(SNAPSHOT), true, Some("10Gi"), false),
    ("vpc.file.csi.ibm.io/rfs", ANY_FILE, Some(SNAPSHOT), true, Some("1Gi"), false),
    ("vpc.file.csi.ibm.io/rfs-rwo", FILE, Some(SNAPSHOT), true, Some("1Gi"), false),
    ("kubernetes.io/portworx-volume/nfs", ANY_FILE, None, false, None, false),
    ("kubernetes.io/portworx-volume", &[RWX_BLOCK, RWX_FS, RWO_BLOCK, RWO_FS], None, false, None, false),
    ("pxd.portworx.com/nfs", ANY_FILE, Some(CSI_CLONE), false, None, false),
    ("pxd.portworx.com", &[RWX_BLOCK, RWX_FS, RWO_BLOCK, RWO_FS], Some(CSI_CLONE), false, None, false),
    ("pxd.portworx.com/pure_block", SHARED_BLOCK_OR_FILE, Some(CSI_CLONE), false, None, false),
    ("pxd.portworx.com/pure_fa_file", ANY_FILE, Some(CSI_CLONE), false, None, false),
    ("csi.trident.netapp.io/ontap-nas", ANY_FILE, Some(SNAPSHOT), true, None, false),
    ("csi.trident.netapp.io/ontap-san", &[RWX_BLOCK], Some(SNAPSHOT), true, None, false),
    ("csi.trident.netapp.io/gcnv-flex", ANY_FILE, Some(SNAPSHOT), true, Some("1Gi"), false),
    ("topolvm.cybozu.com", BLOCK_OR_FILE, Some(COPY), false, None, false),
    ("topolvm.io", BLOCK_OR_FILE, Some(COPY), false, None, false),
    ("cinder.csi.openstack.org", BLOCK_OR_FILE, None, false, None, false),
    ("manila.csi.openstack.org", SHARED_FILE, None, false, None, false),
    ("csi.ovirt.org", BLOCK_OR_FILE, None, false, None, false),
    ("infinibox-csi-driver/iscsiorfibrechannel", SHARED_BLOCK_OR_FILE, Some(CSI_CLONE), false, None, false),
    ("infinibox-csi-driver/nvme", SHARED_BLOCK_OR_FILE, Some(CSI_CLONE), false, None, false),
    ("infinibox-csi-driver/nfs", ANY_FILE, Some(CSI_CLONE), false, None, false),
    ("csi.vsphere.vmware.com", BLOCK_OR_FILE, None, false, None, false),
    ("csi.vsphere.vmware.com/nfs", &[RWX_FS, RWO_BLOCK, RWO_FS], None, false, None, false),
    ("csi.huawei.com", EVERY, None, false, None, false),
    ("csi.huawei.com/nfs", EVERY_FILE, None, false, None, false),
    ("kubesan.gitlab.io", &[RWX_BLOCK, ROX_BLOCK, RWO_BLOCK, RWO_FS], Some(CSI_CLONE), false, None, false),
    ("driver.longhorn.io", BLOCK, None, false, None, false),
    ("driver.longhorn.io/migratable", &[RWX_BLOCK, RWO_BLOCK], None, false, None, false),
    ("driver.longhorn.io/nfs", ANY_FILE, None, false, None, false),
    ("driver.longhorn.io/fs", FILE, None, false, None, false),
    ("blockvolume.csi.oraclecloud.com", SHARED_BLOCK_OR_FILE, Some(CSI_CLONE), false, None, false),
    ("csi.san.synology.com/iscsi", SHARED_BLOCK_OR_FILE, Some(CSI_CLONE), false, Some("1Gi"), false),
    ("csi.san.synology.com/nfs", ANY_FILE, Some(CSI_CLONE), false, Some("1Gi"), false),
    ("csi.san.synology.com/smb", ANY_FILE, Some(CSI_CLONE), false, Some("1Gi"), false),
    ("directpv-min-io", FILE, None, false, None, false),
    ("xspc.csi.hpe.com", &[], None, false, Some("1Gi"), false),
];
