//! The third-party programs that tests, demo and benchmarks run, all of them packages of the distribution.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::shell;

/// A program, a module of qemu's or CNI's, or a file by its absolute path, and the Debian package that brings it.
#[derive(Clone, Copy)]
pub struct Tool {
    program: &'static str,
    package: &'static str,
}

const fn tool(program: &'static str, package: &'static str) -> Tool {
    Tool { program, package }
}

/// What compiles the workspace: some crates bring C code.
pub const BUILD: &[Tool] = &[tool("cc", "build-essential"), tool("make", "build-essential")];

/// What the demo needs.
pub const DEMO: &[Tool] = &[
    tool("cc", "build-essential"),
    tool("make", "build-essential"),
    tool("qemu-img", "qemu-utils"),
];

/// What container images are built with, and the certificate authorities that go into them.
pub const IMAGES: &[Tool] = &[
    tool("cc", "build-essential"),
    tool("make", "build-essential"),
    tool("musl-gcc", "musl-tools"),
    tool("strip", "binutils"),
    tool(AUTHORITIES, "ca-certificates"),
];

/// The certificate authorities that this machine trusts.
pub const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Everything: oracles and file systems of the tests, peers of the benchmarks.
pub const ALL: &[Tool] = &[
    tool("cc", "build-essential"),
    tool("make", "build-essential"),
    tool("qemu-img", "qemu-utils"),
    tool("qemu-io", "qemu-utils"),
    tool("qemu-nbd", "qemu-utils"),
    tool("block-curl.so", "qemu-block-extra"),
    tool("gzip", "gzip"),
    tool("bzip2", "bzip2"),
    tool("pigz", "pigz"),
    tool("igzip", "isal"),
    tool("xz", "xz-utils"),
    tool("pixz", "pixz"),
    tool("lz4", "lz4"),
    tool("zstd", "zstd"),
    tool("mkfs.ext4", "e2fsprogs"),
    tool("mkfs.xfs", "xfsprogs"),
    tool("mkfs.btrfs", "btrfs-progs"),
    tool("losetup", "mount"),
    tool("blkdiscard", "util-linux"),
    tool("debootstrap", "debootstrap"),
    tool("musl-gcc", "musl-tools"),
    tool("ip", "iproute2"),
    tool("unshare", "util-linux"),
    tool("setpriv", "util-linux"),
    tool("nsenter", "util-linux"),
    tool("curl", "curl"),
    tool("aria2c", "aria2"),
    tool("node", "nodejs"),
    tool("chromium-headless-shell", "chromium-headless-shell"),
    tool("nginx", "nginx-light"),
    tool("promtool", "prometheus"),
    tool("docker-registry", "docker-registry"),
    tool("skopeo", "skopeo"),
    tool("nbdkit", "nbdkit"),
    tool("nbdcopy", "libnbd-bin"),
    tool("tar", "tar"),
];

/// What the test cluster takes from the distribution.
pub const CLUSTER: &[Tool] = &[
    tool("cc", "build-essential"),
    tool("make", "build-essential"),
    tool("containerd", "containerd"),
    tool("runc", "runc"),
    tool("bridge.cni", "containernetworking-plugins"),
    tool("docker-registry", "docker-registry"),
    tool("iptables", "iptables"),
    tool("iptables-save", "iptables"),
    tool("lsns", "util-linux"),
    tool("ip", "iproute2"),
    tool("nsenter", "util-linux"),
    tool("losetup", "mount"),
    tool("mkfs.ext4", "e2fsprogs"),
    tool("openssl", "openssl"),
    tool("curl", "curl"),
    tool("qemu-img", "qemu-utils"),
    tool("nbdkit", "nbdkit"),
    tool("/usr/include/nbdkit-plugin.h", "nbdkit-plugin-dev"),
    tool("gzip", "gzip"),
    tool("xz", "xz-utils"),
    tool("dpkg-deb", "dpkg"),
    tool("tar", "tar"),
    tool("mcopy", "mtools"),
    tool("syslinux", "syslinux"),
    tool("/usr/lib/syslinux/mbr/mbr.bin", "syslinux-common"),
];

/// What any command needs.
pub fn everything() -> Vec<Tool> {
    [BUILD, DEMO, IMAGES, ALL, CLUSTER].concat()
}

/// Prints what is missing.
///
/// # Errors
/// When something is.
pub fn check(tools: &[Tool]) -> Result<()> {
    let packages = missing(tools);
    if packages.is_empty() {
        eprintln!("all third-party programs are here");
        return Ok(());
    }
    bail!("missing: install with\n  {}", by_hand(&packages))
}

/// Installs what is missing: as root with the package manager; otherwise the error names the command.
///
/// # Errors
/// When something is still missing at the end.
pub fn install(tools: &[Tool]) -> Result<()> {
    let packages = missing(tools);
    if packages.is_empty() {
        return Ok(());
    }
    if !is_root()? || shell::find("apt-get").is_none() {
        bail!(
            "these programs of the distribution are missing; on Debian and Ubuntu:\n  {}",
            by_hand(&packages)
        );
    }
    let _quiet = DaemonsStayDown::new()?;
    // The list of packages on a fresh machine is empty or old.
    shell::run(apt_get(&["update", "--quiet"]).env("DEBIAN_FRONTEND", "noninteractive"))?;
    let mut install = apt_get(&["install", "--yes", "--quiet", "--no-install-recommends"]);
    shell::run(install.args(&packages).env("DEBIAN_FRONTEND", "noninteractive"))?;
    match missing(tools).as_slice() {
        [] => Ok(()),
        still => bail!("installed, but still not found: {}", still.join(" ")),
    }
}

/// Installs what can be installed, and prints what is still missing: tests that need it are skipped. In CI that is an error.
///
/// # Errors
/// In CI, when something is missing.
pub fn install_or_warn(tools: &[Tool]) -> Result<()> {
    match install(tools) {
        Err(error) if !shell::in_ci() => {
            eprintln!(
                "xtask: {error:#}\nxtask: continuing without them; tests that need them are skipped, and listed at the end"
            );
            Ok(())
        }
        result => result,
    }
}

fn missing(tools: &[Tool]) -> Vec<&'static str> {
    let absent = tools.iter().filter(|tool| !is_here(tool.program));
    let mut packages: Vec<_> = absent.map(|tool| tool.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn is_here(name: &str) -> bool {
    if name.starts_with('/') {
        return Path::new(name).is_file();
    }
    match name.rsplit_once('.') {
        Some((_, "so")) => is_qemu_module(name),
        Some((plugin, "cni")) => Path::new("/usr/lib/cni").join(plugin).is_file(),
        _ => shell::find(name).is_some(),
    }
}

/// QEMU's modules are in a directory below that of the architecture.
fn is_qemu_module(name: &str) -> bool {
    let Ok(architectures) = fs::read_dir("/usr/lib") else { return false };
    architectures.flatten().any(|folder| folder.path().join("qemu").join(name).is_file())
}

fn by_hand(packages: &[&str]) -> String {
    format!("sudo apt-get install --no-install-recommends {}", packages.join(" "))
}

fn apt_get(args: &[&str]) -> std::process::Command {
    let mut command = shell::program("apt-get", &["-o", "DPkg::Lock::Timeout=300"]);
    command.args(args);
    command
}

/// Whether this is the administrator.
///
/// # Errors
/// When `id` fails.
pub fn is_root() -> Result<bool> {
    Ok(shell::output(&mut shell::program("id", &["-u"]))?.trim() == "0")
}

/// Debian starts a daemon when its package is installed, unless this script forbids it. Tests start the daemons that they
/// need. A script that exists already is left alone.
struct DaemonsStayDown {
    ours: bool,
}

impl DaemonsStayDown {
    const SCRIPT: &'static str = "/usr/sbin/policy-rc.d";

    fn new() -> Result<Self> {
        let ours = !Path::new(Self::SCRIPT).exists();
        if ours {
            let written = fs::write(Self::SCRIPT, "#!/bin/sh\nexit 101\n").and_then(|()| {
                fs::set_permissions(Self::SCRIPT, fs::Permissions::from_mode(0o755))
            });
            written.with_context(|| format!("cannot write {}", Self::SCRIPT))?;
        }
        Ok(Self { ours })
    }
}

impl Drop for DaemonsStayDown {
    fn drop(&mut self) {
        if self.ours
            && let Err(error) = fs::remove_file(Self::SCRIPT)
        {
            eprintln!("xtask: cannot remove {}: {error}", Self::SCRIPT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_package_is_reported_once() {
        let tools = [
            tool("no-such-program", "b"),
            tool("/no/such/file", "a"),
            tool("no-such-module.so", "b"),
            tool("no-such-plugin.cni", "c"),
            tool("sh", "dash"),
            tool("/etc/passwd", "base-passwd"),
        ];
        assert_eq!(missing(&tools), ["a", "b", "c"]);
    }

    #[test]
    fn image_builds_bring_their_own_linker_and_certificates() {
        let packages: Vec<_> = IMAGES.iter().map(|tool| tool.package).collect();
        for package in ["build-essential", "musl-tools", "ca-certificates"] {
            assert!(packages.contains(&package), "{package}");
        }
    }
}
