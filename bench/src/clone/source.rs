//! What is cloned, and the file system that clones share blocks on.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::disk::{self, Size};
use crate::shell;
use crate::work::Mounted;

/// Twice the disk of the other benchmarks, a quarter of it data: what it has, and then its first half once more. It lies in a
/// folder with nothing else.
pub(super) fn disk(size: Size, cache: &Path) -> Result<PathBuf> {
    let folder = disk::folder(size, cache)?;
    let out = folder.join("clone/disk.img");
    if !out.is_file() {
        fs::create_dir_all(folder.join("clone")).context("cannot make a folder")?;
        let unfinished = folder.join("clone.unfinished");
        let (from, to) = (folder.join("disk.raw"), unfinished.display().to_string());
        let script = r#"
cp --sparse=always "$FROM" "$OUT"
size=$(stat --format=%s "$FROM")
truncate --size=$((2 * size)) "$OUT"
mib=$((size >> 20))
dd if="$FROM" of="$OUT" bs=1M count=$((mib / 2)) seek=$mib conv=notrunc,sparse status=none
"#;
        shell::script(script, &[("FROM", &from.display().to_string()), ("OUT", &to)])?;
        fs::rename(&unfinished, &out).with_context(|| format!("cannot name {}", out.display()))?;
    }
    let mut file = File::open(&out).with_context(|| format!("cannot read {}", out.display()))?;
    std::io::copy(&mut file, &mut std::io::sink()).context("cannot read the disk")?;
    Ok(out)
}

/// A mounted XFS in an image file, large enough for a disk and its copies. Unmounted when dropped.
pub(super) struct Xfs(Mounted);

impl Xfs {
    /// Creates it below `work`, with a copy of `disk` in it.
    ///
    /// # Errors
    /// When it cannot be mounted, which takes root.
    pub(super) fn with(disk: &Path, work: &Path) -> Result<Self> {
        let image = work.join("xfs.image").display().to_string();
        let script = r#"
truncate --size=$((3 * $(stat --format=%s "$DISK") + (1 << 30))) "$IMAGE"
mkfs.xfs -q -m reflink=1 "$IMAGE"
mount -o loop "$IMAGE" "$FOLDER"
"#;
        let from = disk.display().to_string();
        let mounted = Self(Mounted::new(work, |folder| {
            shell::script(script, &[("IMAGE", &image), ("DISK", &from), ("FOLDER", folder)])
        })?);
        for name in ["source", "data"] {
            fs::create_dir(mounted.0.path().join(name)).context("cannot make a folder")?;
        }
        let to = mounted.disk().display().to_string();
        shell::output("cp", &["--sparse=always", &from, &to])?;
        shell::output("sync", &["--file-system", &to])?;
        Ok(mounted)
    }

    /// The disk to clone, in a folder with nothing else.
    pub(super) fn disk(&self) -> PathBuf {
        self.0.path().join("source/disk.img")
    }

    /// The folder of the clones.
    pub(super) fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }
}
