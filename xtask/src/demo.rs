//! `cargo xtask demo`: one import from the beginning, on a machine that has only the Rust toolchain.

use std::env;
use std::fs::{self, File};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::{deps, serve, shell};

const MIB: u64 = 1 << 20;
const VIRTUAL_SIZE: u64 = 1016 * MIB;
/// Where the disk holds something, in MiB: a boot area, a file system, and a backup table at the very end.
const DATA_MIB: [(u64, u64); 4] = [(0, 4), (64, 96), (512, 64), (1020, 4)];
/// Slow enough to see the progress bar, fast enough not to wait for it.
const BYTES_PER_SECOND: u64 = 16 * MIB;

/// Builds the program, creates an image, serves it, applies a manifest, verifies the volume.
///
/// # Errors
/// Of the first step that fails. The folder it worked in is removed all the same.
pub fn run() -> Result<()> {
    deps::install(deps::DEMO)?;
    shell::headline("build the program `cdi`");
    shell::run(&mut shell::cargo(&["build", "--locked", "--package", "cli"]))?;
    let folder = Folder::new()?;
    show(&built_program("cdi")?, &folder.0)
}

fn show(cdi: &Path, folder: &Path) -> Result<()> {
    shell::headline("create a small qcow2: 1 GiB of disk, 168 MiB of data, clusters compressed");
    let (disk, image) = (folder.join("guest.raw"), folder.join("guest.qcow2"));
    make_disk(&disk).with_context(|| format!("cannot write {}", disk.display()))?;
    let convert = ["convert", "-f", "raw", "-O", "qcow2", "-c"];
    shell::run(shell::program("qemu-img", &convert).args([&disk, &image]))?;

    let address = serve::start(&image, BYTES_PER_SECOND)?;
    let manifest = folder.join("datavolume.yaml");
    let text = manifest_of(&format!("http://{address}/guest.qcow2"));
    fs::write(&manifest, &text).with_context(|| format!("cannot write {}", manifest.display()))?;
    shell::headline("the manifest, as for a cluster");
    eprint!("{text}");

    shell::headline("apply it to a local folder of volumes");
    let volumes = folder.join("volumes");
    let begin = Instant::now();
    let mut apply = process::Command::new(cdi);
    apply.arg("apply").arg("-f").arg(&manifest).arg("--volumes").arg(&volumes);
    shell::run(&mut apply)?;
    let seconds = begin.elapsed().as_secs_f64();

    shell::headline("compare the volume with the image, byte by byte, by qemu-img");
    let volume = volumes.join("demo/guest/disk.img");
    let compare = ["compare", "-f", "qcow2", "-F", "raw"];
    shell::run(shell::program("qemu-img", &compare).args([&image, &volume]))?;

    let found = volume.metadata().with_context(|| format!("cannot read {}", volume.display()))?;
    let wire = image.metadata().with_context(|| format!("cannot read {}", image.display()))?.len();
    println!(
        "\nThe DataVolume demo/guest is complete and verified.\n  \
         {:7} MiB over the wire, in {seconds:.1} s (the demo's server limits its speed)\n  \
         {:7} MiB of disk, of which\n  \
         {:7} MiB are allocated: zeroes are holes, and no scratch space was used",
        wire / MIB,
        found.len() / MIB,
        found.blocks() * 512 / MIB,
    );
    println!("\nTry it yourself:\n  {} import URL-OR-FILE --to disk.img", cdi.display());
    Ok(())
}

fn manifest_of(url: &str) -> String {
    format!(
        "apiVersion: cdi.kubevirt.io/v1beta1
kind: DataVolume
metadata:
  name: guest
  namespace: demo
spec:
  source:
    http:
      url: {url}
  storage:
    accessModes: [ReadWriteOnce]
    resources:
      requests:
        storage: 1Gi
"
    )
}

/// Text that compresses by about a half, each line with its own number, so that a shifted byte shows.
fn make_disk(path: &Path) -> std::io::Result<()> {
    let mut disk = BufWriter::with_capacity(MIB as usize, File::create(path)?);
    disk.get_ref().set_len(VIRTUAL_SIZE)?;
    for (at, len) in DATA_MIB.map(|(at, len)| (at * MIB, len * MIB)) {
        disk.seek(SeekFrom::Start(at))?;
        for line in (at / 64)..((at + len) / 64) {
            let noise = line.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let more = noise.rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            writeln!(disk, "line {line:016} {noise:016x} {more:016x} demo...")?;
        }
    }
    disk.flush()
}

/// A program that cargo built, in the folder of this one.
fn built_program(name: &str) -> Result<PathBuf> {
    Ok(shell::own_program()?.with_file_name(name))
}

/// A folder that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let path = env::temp_dir().join(format!("cdi-demo-{}", process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("xtask: cannot remove {}: {error}", self.0.display());
        }
    }
}
