//! The input: one disk, made once and kept outside the tree.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::shell;

/// Which disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Size {
    /// A Debian root file system of about 1.15 GiB in a disk of 4 GiB. Takes minutes, the network and root to make.
    Real,
    /// 256 MiB with 75 MiB of made-up data: to try the benchmark itself. Its figures mean little.
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
/// When it has to be created and cannot.
pub fn folder(size: Size, cache: &Path) -> Result<PathBuf> {
    let folder = cache.join("bench").join(size.name());
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let disk = folder.join("disk.raw");
    if !disk.is_file() {
        let unfinished = folder.join("disk.unfinished");
        match size {
            Size::Real => make_real(&folder, &unfinished)?,
            Size::Small => shell::script(SMALL, &[("OUT", &unfinished.display().to_string())])?,
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

/// Numbers in the middle, holes around them, and something near the end.
const SMALL: &str = r#"
rm -f "$OUT"
truncate --size=256M "$OUT"
seq 1 10000000 | dd of="$OUT" bs=1M seek=32 iflag=fullblock conv=notrunc status=none
seq 1 12000 | dd of="$OUT" bs=64K seek=4095 iflag=fullblock conv=notrunc status=none
"#;

fn make_real(folder: &Path, out: &Path) -> Result<()> {
    eprintln!("making a Debian disk in {}, once; this takes minutes", folder.display());
    let (tree, out) = (folder.join("tree").display().to_string(), out.display().to_string());
    let id = "4c64e2b3-0b1f-4f1d-9c5e-2f4f7f0e6a01";
    shell::script(REAL, &[("TREE", &tree), ("OUT", &out), ("PACKAGES", PACKAGES), ("ID", id)])
}
