//! A small virtual machine of the tests: Debian's kernel, busybox and an init program that prints the sizes and checksums of the
//! disks that it finds. It boots from a disk or a CD image by BIOS, within seconds without hardware virtualization.

mod initramfs;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use crate::cache;
use crate::debian;
use crate::shell::{find, output, program};
use initramfs::Initramfs;

const INIT: &str = include_str!("init.sh");
const BOOT: &str = include_str!("boot.cfg");
/// Depends on the current kernel for virtual machines, and a shell with its commands in one static program.
const PACKAGES: &[&str] = &["linux-image-cloud-amd64", "busybox-static"];
/// Of the kernel, in the order in which they can be loaded, below `kernel/drivers`.
const MODULES: &[&str] = &[
    "virtio/virtio_ring.ko",
    "virtio/virtio.ko",
    "virtio/virtio_pci_modern_dev.ko",
    "virtio/virtio_pci_legacy_dev.ko",
    "virtio/virtio_pci.ko",
    "block/virtio_blk.ko",
];
const MIB: u64 = 1 << 20;
/// Of the disk, in bytes.
pub const DISK_SIZE: u64 = 48 * MIB;
/// Where the only partition begins, in bytes.
const PARTITION: u64 = MIB;
/// Bytes per sector.
const SECTOR: u64 = 512;
/// The first sector: code, and at these offsets the table of partitions and the signature.
const CODE_LEN: usize = 440;
const TABLE_AT: u64 = 446;
const SIGNATURE_AT: u64 = 510;
/// FAT with 32 bits, in logical blocks.
const FAT32: u8 = 0x0c;
const ACTIVE: u8 = 0x80;
/// Where Debian's package syslinux-common has the code of the first sector.
const MBR_CODE: &str = "/usr/lib/syslinux/mbr/mbr.bin";

/// What the guest prints after its last line about a disk. It prints all again when a disk has been added, removed or resized.
pub const DONE: &str = "guest: done";
/// How a disk begins whose second sector holds the number of boots with it, see [`boots_sector`].
pub const COUNT_BOOTS: &str = "guest: count boots\n";
/// How a line begins that the guest keeps in its memory, if a disk begins with it.
pub const REMEMBER: &str = "guest: remember ";

/// A disk as the guest sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSeen {
    /// In bytes.
    pub size: u64,
    /// SHA-256 of its first and of its last MiB, in hexadecimal digits.
    pub sums: [String; 2],
}

impl DiskSeen {
    /// As the guest prints a disk with this content, of one MiB at least.
    pub fn with_content(disk: &[u8]) -> Self {
        let sum = |bytes: &[u8]| {
            Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let (first, last) = (&disk[..MIB as usize], &disk[disk.len() - MIB as usize..]);
        Self { size: disk.len() as u64, sums: [sum(first), sum(last)] }
    }
}

/// The disks in the order in which the guest found them, from the text of its console: those of the last complete report.
pub fn disks_seen(console: &str) -> Vec<DiskSeen> {
    let disk = |line: &str| {
        let (_, rest) = line.split_once("guest: disk ")?;
        let mut words = rest.split_whitespace().skip(1);
        let size = words.next()?.parse().ok()?;
        Some(DiskSeen { size, sums: [words.next()?.to_owned(), words.next()?.to_owned()] })
    };
    let mut reports: Vec<&str> = console.split(DONE).collect();
    reports.pop(); // what follows the last complete one
    reports.last().map(|report| report.lines().filter_map(disk).collect()).unwrap_or_default()
}

/// The processors and the memory that the guest has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineSeen {
    pub processors: u32,
    /// In bytes, without what the kernel keeps for itself.
    pub memory: u64,
}

impl MachineSeen {
    /// From the text of the console, once the guest has printed it.
    pub fn find(console: &str) -> Option<Self> {
        let mut words = rest_of_line(console, "guest: machine ")?.split_whitespace();
        let processors = words.next()?.parse().ok()?;
        let memory: u64 = words.next()?.parse().ok()?;
        Some(Self { processors, memory: memory * 1024 })
    }
}

/// The line of settings for cloud-init that begins with `# guest: `, as the guest has read it from the disk with them.
pub fn cloud_init_seen(console: &str) -> Option<&str> {
    rest_of_line(console, "guest: cloud-init ")?.split_once(' ').map(|(_, text)| text)
}

/// What follows a prefix on the first complete line with it.
fn rest_of_line<'a>(console: &'a str, prefix: &str) -> Option<&'a str> {
    let mut lines = console.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    lines.find_map(|line| Some(line.trim_end().split_once(prefix)?.1))
}

/// The second sector of a disk that begins with [`COUNT_BOOTS`], after so many boots.
pub fn boots_sector(boots: u32) -> Vec<u8> {
    format!("{boots:<511}\n").into_bytes()
}

/// The raw disk that the guest boots from, made once.
///
/// # Errors
/// When a package or a program is missing.
pub fn disk() -> Result<PathBuf> {
    let mut key = Sha256::new();
    for text in [INIT, BOOT, include_str!("mod.rs"), include_str!("initramfs.rs")] {
        key.update(text);
    }
    let key: String = key.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let folder = cache()?.join("guests");
    let disk = folder.join(format!("{key}.img"));
    if disk.exists() {
        return Ok(disk);
    }
    // Under another name first: an interrupted build must not be taken for a complete one.
    let work = folder.join(format!("{key}-{}", std::process::id()));
    fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    let coming = make(&work)?;
    fs::rename(&coming, &disk).context("cannot rename the disk of the guest")?;
    fs::remove_dir_all(&work).context("cannot remove what the guest was made from")?;
    Ok(disk)
}

fn make(work: &Path) -> Result<PathBuf> {
    let downloaded = debian::download(PACKAGES, work)?;
    let kernel = debian::package(&downloaded, "linux-image-6")?;
    let busybox = debian::package(&downloaded, "busybox-static_")?;
    let root = work.join("root");
    debian::unpack([kernel, busybox], &root)?;
    let initrd = work.join("initrd");
    fs::write(&initrd, initramfs(&root)?)?;
    output(program("gzip", &["--no-name", "--force"]).arg(&initrd))?;
    fs::write(work.join("syslinux.cfg"), BOOT)?;
    let kernel = only_file(&root.join("boot"), "vmlinuz-")?;
    fs::rename(kernel, work.join("vmlinuz"))?;

    let disk = work.join("disk.img");
    partition(&disk)?;
    let volume = format!("{}@@{PARTITION}", disk.display());
    let sectors = (DISK_SIZE - PARTITION) / SECTOR;
    let mtools = |name: &str, words: &[&str]| -> Result<String> {
        let mut command = program(find(name, "mtools")?, &["-i", &volume]);
        output(command.args(words).env("MTOOLS_SKIP_CHECK", "1").current_dir(work))
    };
    mtools("mformat", &["-F", "-T", &sectors.to_string(), "::"])?;
    for name in ["vmlinuz", "initrd.gz", "syslinux.cfg"] {
        mtools("mcopy", &[name, &format!("::{name}")])?;
    }
    let offset = PARTITION.to_string();
    let mut install = program(find("syslinux", "syslinux")?, &["--install", "--offset", &offset]);
    output(install.arg(&disk))?;
    Ok(disk)
}

fn initramfs(root: &Path) -> Result<Vec<u8>> {
    let mut initramfs = Initramfs::new();
    let read =
        |path: PathBuf| fs::read(&path).with_context(|| format!("cannot read {}", path.display()));
    initramfs.file("bin/busybox", &read(root.join("usr/bin/busybox"))?);
    let modules = only_file(&root.join("usr/lib/modules"), "")?;
    let mut order = String::new();
    for module in MODULES {
        let (_, name) = module.rsplit_once('/').context("a module lies in a folder")?;
        initramfs
            .file(&format!("modules/{name}"), &read(modules.join("kernel/drivers").join(module))?);
        order += &format!("{name}\n");
    }
    initramfs.file("modules/order", order.as_bytes());
    initramfs.file("init", INIT.as_bytes());
    Ok(initramfs.finish())
}

/// Creates the disk with one partition, and the code that starts what is in it.
fn partition(disk: &Path) -> Result<()> {
    let code = fs::read(MBR_CODE).with_context(|| {
        format!("cannot read {MBR_CODE}; `cargo xtask deps` installs the package syslinux-common")
    })?;
    ensure!(code.len() <= CODE_LEN, "{MBR_CODE} is too long");
    let file = File::create(disk).with_context(|| format!("cannot create {}", disk.display()))?;
    file.set_len(DISK_SIZE)?;
    file.write_all_at(&code, 0)?;
    // Cylinders, heads and sectors are of no use to this code.
    let mut entry = vec![ACTIVE, 0, 0, 0, FAT32, 0xfe, 0xff, 0xff];
    for number in [PARTITION / SECTOR, (DISK_SIZE - PARTITION) / SECTOR] {
        let number = u32::try_from(number).context("the disk is too large")?;
        entry.extend_from_slice(&number.to_le_bytes());
    }
    file.write_all_at(&entry, TABLE_AT)?;
    file.write_all_at(&[0x55, 0xaa], SIGNATURE_AT)?;
    Ok(())
}

/// The only file of a folder whose name begins with `prefix`.
fn only_file(folder: &Path, prefix: &str) -> Result<PathBuf> {
    let mut found = Vec::new();
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            found.push(entry.path());
        }
    }
    let [only] = found.as_slice() else {
        anyhow::bail!("{} has {} files {prefix}*", folder.display(), found.len());
    };
    Ok(only.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_read_from_the_console() {
        let console = "SYSLINUX 6.04\r\n[    1.8] ACPI: x\r\nguest: disk vda 512 aa bb\r\nguest: disk vdb 7 c d\r\nguest: done\r\n";
        let disk = |size, sums: [&str; 2]| DiskSeen { size, sums: sums.map(str::to_owned) };
        assert_eq!(disks_seen(console), [disk(512, ["aa", "bb"]), disk(7, ["c", "d"])]);
        let more = format!("{console}guest: disk vda 512 aa bb\r\n");
        assert_eq!(disks_seen(&more).len(), 2, "the second report is not complete yet");
        assert_eq!(disks_seen(&format!("{more}guest: done\r\n")), [disk(512, ["aa", "bb"])]);
        assert_eq!(disks_seen("guest: disk vda 512 a"), [], "a line that is not complete yet");
    }

    #[test]
    fn machine_and_cloud_init_are_read_from_the_console() {
        let console =
            "SYSLINUX 6.04\r\nguest: machine 2 100\r\nguest: cloud-init vdb hello guest\r\n";
        let machine = MachineSeen { processors: 2, memory: 102_400 };
        assert_eq!(MachineSeen::find(console), Some(machine));
        assert_eq!(cloud_init_seen(console), Some("hello guest"));
        assert_eq!(MachineSeen::find("guest: machine 2 1"), None, "the line is not complete yet");
        assert_eq!(cloud_init_seen("guest: done\r\n"), None);
    }
}
