//! Which row of the table a storage class belongs to.

use std::collections::BTreeMap;

/// The row for a class: its provisioner, and for some of them a suffix that depends on the parameters. `None`: the
/// provisioner is known, but its parameters are not.
pub(super) fn storage_profile_key(
    provisioner: &str,
    parameters: &BTreeMap<String, String>,
) -> Option<String> {
    let text = |name: &str| parameters.get(name).map(String::as_str).unwrap_or_default();
    let lower = |name: &str| text(name).to_lowercase();
    let is_set = |name: &str| !text(name).is_empty();
    let fstype = || lower("csi.storage.k8s.io/fstype");

    let variant = match provisioner {
        "kubevirt.io.hostpath-provisioner" if parameters.contains_key("overlayCSI") => "/overlay",
        "kubernetes.io/portworx-volume" if mounted_as_nfs(text("sharedv4_mount_options")) => "/nfs",
        "pxd.portworx.com" => match text("backend") {
            "pure_block" => "/pure_block",
            "pure_fa_file" => "/pure_fa_file",
            "" if mounted_as_nfs(text("sharedv4_mount_options")) => "/nfs",
            _ => "",
        },
        "csi.trident.netapp.io" => match text("backendType") {
            backend if backend.starts_with("ontap-nas") => "/ontap-nas",
            backend if backend.starts_with("ontap-san") => "/ontap-san",
            "google-cloud-netapp-volumes" if is_flexible(text("selector")) => "/gcnv-flex",
            _ => return None,
        },
        "infinibox-csi-driver" => match text("storage_protocol") {
            "iscsi" | "fc" => "/iscsiorfibrechannel",
            "nvme" => "/nvme",
            "nfs" | "nfs_treeq" => "/nfs",
            _ => return None,
        },
        "csi.vsphere.vmware.com" if fstype().contains("nfs") => "/nfs",
        "csi-unity.dellemc.com" if lower("protocol") == "nfs" => "/nfs",
        "csi-powerstore.dellemc.com" | "csi-vxflexos.dellemc.com" | "csi-powermax.dellemc.com"
            if fstype() == "nfs" =>
        {
            "/nfs"
        }
        "csi.huawei.com" if text("protocol") == "nfs" => "/nfs",
        "driver.longhorn.io" if text("migratable") == "true" => "/migratable",
        "driver.longhorn.io" if is_set("nfsOptions") => "/nfs",
        "driver.longhorn.io" if is_set("fsType") => "/fs",
        "ebs.csi.aws.com" => match text("type") {
            "io1" => "/io1",
            "io2" => "/io2",
            "gp2" | "gp3" => "/gp",
            _ => "",
        },
        "pd.csi.storage.gke.io" => match text("type") {
            "hyperdisk-balanced" | "hyperdisk-balanced-high-availability" => "/hyperdisk",
            _ => "",
        },
        "csi.san.synology.com" => match text("protocol") {
            "iscsi" | "" => "/iscsi",
            "smb" => "/smb",
            "nfs" | "nfs_treeq" => "/nfs",
            _ => return None,
        },
        "vpc.file.csi.ibm.io" => match (text("profile"), text("vmState")) {
            ("rfs", "true") => "/rfs-rwo",
            ("rfs", _) => "/rfs",
            ("dp2", "true") => "/dp2-rwo",
            ("dp2", _) => "/dp2",
            _ => "",
        },
        _ => "",
    };
    Some(format!("{provisioner}{variant}"))
}

fn mounted_as_nfs(options: &str) -> bool {
    let has = |wanted| options.split(',').any(|option| option.trim() == wanted);
    has("vers=3.0") && has("nolock")
}

fn is_flexible(selector: &str) -> bool {
    selector.split([';', ',']).any(|part| part.trim() == "performance=flex")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_depends_on_the_parameters() {
        let nfs = ("sharedv4_mount_options", "vers=3.0, nolock");
        type Parameters<'a> = &'a [(&'a str, &'a str)];
        let table: &[(&str, Parameters, Option<&str>)] = &[
            ("anything.example", &[("type", "io1")], Some("")),
            ("kubevirt.io.hostpath-provisioner", &[], Some("")),
            ("kubevirt.io.hostpath-provisioner", &[("overlayCSI", "")], Some("/overlay")),
            ("kubernetes.io/portworx-volume", &[nfs], Some("/nfs")),
            ("kubernetes.io/portworx-volume", &[("sharedv4_mount_options", "nolock")], Some("")),
            ("pxd.portworx.com", &[nfs], Some("/nfs")),
            ("pxd.portworx.com", &[nfs, ("backend", "pure_block")], Some("/pure_block")),
            ("pxd.portworx.com", &[("backend", "pure_fa_file")], Some("/pure_fa_file")),
            ("pxd.portworx.com", &[nfs, ("backend", "other")], Some("")),
            (
                "csi.trident.netapp.io",
                &[("backendType", "ontap-nas-flexgroup")],
                Some("/ontap-nas"),
            ),
            ("csi.trident.netapp.io", &[("backendType", "ontap-san")], Some("/ontap-san")),
            (
                "csi.trident.netapp.io",
                &[
                    ("backendType", "google-cloud-netapp-volumes"),
                    ("selector", "a=b;performance=flex"),
                ],
                Some("/gcnv-flex"),
            ),
            ("csi.trident.netapp.io", &[("backendType", "google-cloud-netapp-volumes")], None),
            ("csi.trident.netapp.io", &[], None),
            ("infinibox-csi-driver", &[("storage_protocol", "fc")], Some("/iscsiorfibrechannel")),
            ("infinibox-csi-driver", &[("storage_protocol", "nfs_treeq")], Some("/nfs")),
            ("infinibox-csi-driver", &[("storage_protocol", "nvme")], Some("/nvme")),
            ("infinibox-csi-driver", &[], None),
            ("csi.vsphere.vmware.com", &[("csi.storage.k8s.io/fstype", "NFS4")], Some("/nfs")),
            ("csi.vsphere.vmware.com", &[("csi.storage.k8s.io/fstype", "ext4")], Some("")),
            ("csi-unity.dellemc.com", &[("protocol", "NFS")], Some("/nfs")),
            ("csi-powermax.dellemc.com", &[("csi.storage.k8s.io/fstype", "nfs")], Some("/nfs")),
            ("csi-powermax.dellemc.com", &[("csi.storage.k8s.io/fstype", "nfs4")], Some("")),
            ("csi.huawei.com", &[("protocol", "nfs")], Some("/nfs")),
            (
                "driver.longhorn.io",
                &[("migratable", "true"), ("fsType", "ext4")],
                Some("/migratable"),
            ),
            ("driver.longhorn.io", &[("nfsOptions", "vers=4"), ("fsType", "x")], Some("/nfs")),
            ("driver.longhorn.io", &[("fsType", "ext4")], Some("/fs")),
            ("driver.longhorn.io", &[], Some("")),
            ("ebs.csi.aws.com", &[("type", "gp3")], Some("/gp")),
            ("ebs.csi.aws.com", &[("type", "st1")], Some("")),
            ("pd.csi.storage.gke.io", &[("type", "hyperdisk-balanced")], Some("/hyperdisk")),
            ("pd.csi.storage.gke.io", &[("type", "pd-ssd")], Some("")),
            ("csi.san.synology.com", &[], Some("/iscsi")),
            ("csi.san.synology.com", &[("protocol", "afp")], None),
            ("vpc.file.csi.ibm.io", &[("profile", "rfs"), ("vmState", "true")], Some("/rfs-rwo")),
            ("vpc.file.csi.ibm.io", &[("profile", "dp2")], Some("/dp2")),
            ("vpc.file.csi.ibm.io", &[], Some("")),
        ];
        for (provisioner, parameters, variant) in table {
            let map = parameters.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
            let expected = variant.map(|variant| format!("{provisioner}{variant}"));
            assert_eq!(
                storage_profile_key(provisioner, &map),
                expected,
                "{provisioner} {parameters:?}"
            );
        }
    }
}
