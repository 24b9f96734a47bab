//! The images of KubeVirt's programs: built from its Go module, with libvirt and QEMU from packages of this machine's distribution,
//! and the few files that the scripts of these packages would have made.

mod layout;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::XattrFlags;
use sha2::{Digest, Sha256};

use crate::cache;
use crate::debian;
use crate::tools::{KUBEVIRT, KUBEVIRT_ALL, Tools};
use layout::{CAPABILITY, ImageConfig, digits};

/// The name of the image that runs one virtual machine in a pod, without the rest of KubeVirt.
pub const IMAGE: &str = "localhost/virt-launcher:dev";
/// The image of all that runs as root on a node, and of the pods of virtual machines.
pub const NODE_IMAGE: &str = "localhost/kubevirt-node:dev";
/// The image of all other programs of KubeVirt; its content is the same.
pub const SERVICES_IMAGE: &str = "localhost/kubevirt-services:dev";
/// The first process of the pods of virtual machines.
const MONITOR: &str = "virt-launcher-monitor";
/// KubeVirt requires that its programs do not run as root, and leaves the user to the images.
const SERVICES_USER: u32 = 1001;
const PACKAGES: &[&str] = &[
    "base-files",
    "bash",
    "coreutils",
    "grep",
    "libc-bin",
    "libvirt-clients",
    "libvirt-daemon",
    "libvirt-daemon-driver-qemu",
    "mount",
    "procps",
    "qemu-system-x86",
    "qemu-utils",
    "seabios",
    "sed",
    "util-linux",
];
/// What virt-handler, the export server, and machines with settings for cloud-init run in addition.
const MORE_PACKAGES: &[&str] = &["nftables", "tar", "xorriso"];
/// Path in the image, mode, content.
const FILES: &[(&str, u32, &str)] = &[
    ("etc/group", 0o644, include_str!("group")),
    ("etc/libvirt/qemu.conf", 0o644, include_str!("qemu.conf")),
    ("etc/libvirt/virtlogd.conf", 0o644, ""),
    ("etc/libvirt/virtqemud.conf", 0o644, include_str!("virtqemud.conf")),
    ("etc/nsswitch.conf", 0o644, include_str!("nsswitch.conf")),
    ("etc/passwd", 0o644, include_str!("passwd")),
    ("usr/sbin/virtqemud", 0o755, include_str!("virtqemud.sh")),
];
const MORE_FILES: &[(&str, u32, &str)] =
    &[("usr/bin/node-labeller.sh", 0o755, include_str!("node-labeller.sh"))];
const FOLDERS: &[&str] = &["dev", "proc", "root", "run", "sys", "tmp", "var/log/libvirt"];
/// `cap_net_bind_service=ep`: the monitor, which has no other permissions, passes it on to the launcher.
const NET_BIND_SERVICE: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// What an archive of images is made from.
struct Recipe {
    /// Begins the name of the archive.
    name: &'static str,
    packages: Vec<&'static str>,
    files: Vec<(&'static str, u32, &'static str)>,
    programs: Vec<&'static str>,
    images: Vec<ImageConfig>,
}

/// The archive of the image [`IMAGE`], for `cluster load`, made once.
///
/// # Errors
/// When a package or a program is missing.
pub fn launcher_image() -> Result<PathBuf> {
    let recipe = Recipe {
        name: "virt-launcher",
        packages: PACKAGES.to_vec(),
        files: FILES.to_vec(),
        programs: KUBEVIRT.programs().collect(),
        images: vec![ImageConfig { reference: IMAGE, program: MONITOR, user: None }],
    };
    recipe.archive(&Tools::ready(&[KUBEVIRT])?)
}

/// The archive of the two images of all of KubeVirt, made once. They share one layer, so that a node unpacks it once.
///
/// # Errors
/// When a package or a program is missing.
pub fn kubevirt_images() -> Result<PathBuf> {
    let services = ImageConfig {
        reference: SERVICES_IMAGE,
        program: "virt-exportserver", // the only one whose pods name no command
        user: Some(SERVICES_USER),
    };
    let recipe = Recipe {
        name: "kubevirt",
        packages: [PACKAGES, MORE_PACKAGES].concat(),
        files: [FILES, MORE_FILES].concat(),
        programs: KUBEVIRT.programs().chain(KUBEVIRT_ALL.programs()).collect(),
        images: vec![ImageConfig { reference: NODE_IMAGE, program: MONITOR, user: None }, services],
    };
    recipe.archive(&Tools::ready(&[KUBEVIRT, KUBEVIRT_ALL])?)
}

impl Recipe {
    /// Changes with anything that the images depend on, but for the versions of packages.
    fn key(&self, programs: &Tools) -> Result<String> {
        let mut key = Sha256::new();
        for name in &self.programs {
            key.update(programs.path(name)?);
        }
        let sources =
            [include_str!("mod.rs"), include_str!("layout.rs"), include_str!("../debian.rs")];
        sources.iter().for_each(|text| key.update(text));
        for (path, _, content) in &self.files {
            key.update(path);
            key.update(content);
        }
        Ok(digits(key)[..16].to_owned())
    }

    fn archive(&self, programs: &Tools) -> Result<PathBuf> {
        let folder = cache()?.join("images");
        let name = format!("{}-{}", self.name, self.key(programs)?);
        let archive = folder.join(format!("{name}.tar"));
        if archive.exists() {
            return Ok(archive);
        }
        let work = folder.join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
        let root = work.join("root");
        let downloaded = debian::download(&self.packages, &work)?;
        debian::unpack(downloaded.iter().map(PathBuf::as_path), &root)?;
        self.add_files(&root, programs)?;
        layout::pack(&root, &work, &self.images)?;
        fs::rename(work.join("image.tar"), &archive).context("cannot rename the image")?;
        fs::remove_dir_all(&work).context("cannot remove what the image was made from")?;
        Ok(archive)
    }

    fn add_files(&self, root: &Path, programs: &Tools) -> Result<()> {
        for folder in FOLDERS {
            fs::create_dir_all(root.join(folder))?;
        }
        fs::set_permissions(root.join("tmp"), Permissions::from_mode(0o1777))?;
        for (path, mode, content) in &self.files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap_or(root))?;
            fs::write(&path, content)
                .with_context(|| format!("cannot write {}", path.display()))?;
            fs::set_permissions(&path, Permissions::from_mode(*mode))?;
        }
        let programs_folder = root.join("usr/bin");
        for name in &self.programs {
            fs::copy(programs.path(name)?, programs_folder.join(name))
                .with_context(|| format!("cannot copy {name}"))?;
        }
        rustix::fs::setxattr(
            programs_folder.join(MONITOR),
            CAPABILITY,
            &NET_BIND_SERVICE,
            XattrFlags::empty(),
        )
        .context("cannot set the capabilities of a file")?;
        link("bash", &programs_folder.join("sh"))?;
        // Relative: virt-handler goes through `/proc/PID/root`.
        let runtime = root.join("var/run");
        if runtime.is_dir() && !runtime.is_symlink() {
            fs::remove_dir_all(&runtime)?;
        }
        link("../run", &runtime)
    }
}

/// Makes a link, unless there is one.
fn link(to: &str, path: &Path) -> Result<()> {
    if path.is_symlink() {
        return Ok(());
    }
    symlink(to, path).with_context(|| format!("cannot make {}", path.display()))
}
