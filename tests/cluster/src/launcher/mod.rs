//! The image of KubeVirt's virt-launcher, which runs one virtual machine in a pod: built from its Go module, with libvirt and
//! QEMU from packages of this machine's distribution, and the few files that the scripts of these packages would have made.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::XattrFlags;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::cache;
use crate::debian;
use crate::shell::{output, program};
use crate::tools::{KUBEVIRT, Tools};

/// The name of the image.
pub const IMAGE: &str = "localhost/virt-launcher:dev";
/// The first process of its pods.
const MONITOR: &str = "virt-launcher-monitor";
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
const FOLDERS: &[&str] = &["dev", "proc", "root", "run", "sys", "tmp", "var/log/libvirt"];
/// `cap_net_bind_service=ep`: the monitor, which has no other permissions, passes it on to the launcher.
const CAPABILITY: &str = "security.capability";
const NET_BIND_SERVICE: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// The archive of the image, for `cluster load`, made once.
///
/// # Errors
/// When a package or a program is missing.
pub fn launcher_image() -> Result<PathBuf> {
    let programs = Tools::ready(&[KUBEVIRT])?;
    let mut key = Sha256::new();
    key.update(programs.path("virt-launcher")?);
    key.update(include_str!("mod.rs"));
    key.update(include_str!("../debian.rs"));
    for (path, _, content) in FILES {
        key.update(path);
        key.update(content);
    }
    let folder = cache()?.join("images");
    let name = format!("virt-launcher-{}", &digits(key)[..16]);
    let archive = folder.join(format!("{name}.tar"));
    if archive.exists() {
        return Ok(archive);
    }
    let work = folder.join(format!("{name}-{}", std::process::id()));
    fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    let root = work.join("root");
    let downloaded = debian::download(PACKAGES, &work)?;
    debian::unpack(downloaded.iter().map(PathBuf::as_path), &root)?;
    add_files(&root, &programs)?;
    pack(&root, &work)?;
    fs::rename(work.join("image.tar"), &archive).context("cannot rename the image")?;
    fs::remove_dir_all(&work).context("cannot remove what the image was made from")?;
    Ok(archive)
}

fn add_files(root: &Path, programs: &Tools) -> Result<()> {
    for folder in FOLDERS {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::set_permissions(root.join("tmp"), Permissions::from_mode(0o1777))?;
    for (path, mode, content) in FILES {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap_or(root))?;
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        fs::set_permissions(&path, Permissions::from_mode(*mode))?;
    }
    let programs_folder = root.join("usr/bin");
    for name in ["virt-launcher", MONITOR] {
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

/// Makes a link, unless there is one.
fn link(to: &str, path: &Path) -> Result<()> {
    if path.is_symlink() {
        return Ok(());
    }
    symlink(to, path).with_context(|| format!("cannot make {}", path.display()))
}

/// Packs the tree as an image of one layer, `image.tar`.
fn pack(root: &Path, work: &Path) -> Result<()> {
    let layout = work.join("layout");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let layer = work.join("layer.tar");
    let tar = ["--create", "--sort=name", "--mtime=@0", "--numeric-owner", "--format=pax"];
    let mut pack = program("tar", &tar);
    pack.args(["--xattrs", &format!("--xattrs-include={CAPABILITY}"), "--file"]).arg(&layer);
    output(pack.arg("--directory").arg(root).arg("."))?;
    let (layer_digest, layer_size) = (digest_of(&layer)?, fs::metadata(&layer)?.len());
    fs::rename(&layer, blobs.join(&layer_digest))?;

    let keep = |value: &Value| -> Result<(String, usize)> {
        let text = value.to_string();
        let digest = digits(Sha256::new_with_prefix(&text));
        fs::write(blobs.join(&digest), &text)?;
        Ok((digest, text.len()))
    };
    let (config, config_size) = keep(&json!({
        "architecture": "amd64", "os": "linux",
        "config": {
            "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
            "Entrypoint": [format!("/usr/bin/{MONITOR}")],
            "WorkingDir": "/",
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer_digest}")] },
    }))?;
    let descriptor = |kind: &str, digest: &str, size: u64| {
        json!({
            "mediaType": format!("application/vnd.oci.image.{kind}"),
            "digest": format!("sha256:{digest}"), "size": size,
        })
    };
    let (manifest, manifest_size) = keep(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("config.v1+json", &config, config_size as u64),
        "layers": [descriptor("layer.v1.tar", &layer_digest, layer_size)],
    }))?;
    let mut described = descriptor("manifest.v1+json", &manifest, manifest_size as u64);
    described["annotations"] = json!({ "io.containerd.image.name": IMAGE });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [described],
    });
    fs::write(layout.join("index.json"), index.to_string())?;
    fs::write(layout.join("oci-layout"), json!({ "imageLayoutVersion": "1.0.0" }).to_string())?;
    let mut archive = program("tar", &["--create", "--file"]);
    archive.arg(work.join("image.tar")).arg("--directory").arg(&layout).arg(".");
    output(&mut archive).map(drop)
}

fn digest_of(path: &Path) -> Result<String> {
    let mut file = fs::File::open(path)?;
    let mut sum = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(digits(sum)),
            n => sum.update(&buffer[..n]),
        }
    }
}

fn digits(sum: Sha256) -> String {
    sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
