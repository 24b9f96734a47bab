//! The input: one disk, made once and kept outside the tree.

use std::fs::{self, File};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::shell;

const MIB: u64 = 1 << 20;

/// Which disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Size {
    /// A Debian root file system of about 1.15 GiB in a disk of 4 GiB. Takes minutes, the network and root to make.
    Real,
    /// 256 MiB with 80 MiB of made-up data: to try the benchmark itself. Its figures mean little.
    Small,
}

impl Size {
    fn name(self) -> &'static str {
        match self {
            Self::Real => "real",
            Self::Small => "small",
        }
    }
}

/// The folder of the disk and its images, with `disk.raw` in it.
///
/// # Errors
/// When it has to be made and cannot.
pub fn folder(size: Size, cache: &Path) -> Result<PathBuf> {
    let folder = cache.join("bench").join(size.name());
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let disk = folder.join("disk.raw");
    if !disk.is_file() {
        let unfinished = folder.join("disk.unfinished");
        match size {
            Size::Real => make_real(&folder, &unfinished)?,
            Size::Small => make_small(&unfinished)
                .with_context(|| format!("cannot write {}", unfinished.display()))?,
        }
        fs::rename(&unfinished, &disk)
            .with_context(|| format!("cannot name {}", disk.display()))?;
    }
    Ok(folder)
}

/// The mounts that debootstrap leaves behind when it is interrupted go away with its mount namespace. Fixed identities
/// keep the file system's layout the same for the same tree.
const REAL: &str = r#"
rm -rf --one-file-system "$TREE"
unshare --mount debootstrap --include="$PACKAGES" bookworm "$TREE"
rm -rf "$TREE"/var/cache/apt/archives/*.deb
mke2fs -q -t ext4 -L debian -U "$ID" -E "hash_seed=$ID,lazy_itable_init=0" -d "$TREE" "$OUT" 4G
rm -rf --one-file-system "$TREE"
"#;

/// A kernel, compilers, interpreters, servers: what a used virtual machine has, programs and text alike.
const PACKAGES: &str = "linux-image-amd64,build-essential,git,python3,openssh-server,vim,curl,\
                        tcpdump,rsync,perl-doc";

fn make_real(folder: &Path, out: &Path) -> Result<()> {
    eprintln!("making a Debian disk in {}, once; this takes minutes", folder.display());
    let (tree, out) = (folder.join("tree").display().to_string(), out.display().to_string());
    let id = "4c64e2b3-0b1f-4f1d-9c5e-2f4f7f0e6a01";
    shell::script(REAL, &[("TREE", &tree), ("OUT", &out), ("PACKAGES", PACKAGES), ("ID", id)])
}

/// Half of each line is noise, so that it compresses like programs do.
fn make_small(path: &Path) -> std::io::Result<()> {
    let mut disk = BufWriter::with_capacity(MIB as usize, File::create(path)?);
    disk.get_ref().set_len(256 * MIB)?;
    for (at, len) in [(0, 4), (32, 48), (150, 24), (252, 4)].map(|(at, len)| (at * MIB, len * MIB))
    {
        disk.seek(SeekFrom::Start(at))?;
        for line in (at / 64)..((at + len) / 64) {
            let noise = line.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let more = noise.rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            writeln!(disk, "line {line:016} {noise:016x} {more:016x} bench..")?;
        }
    }
    disk.flush()
}
