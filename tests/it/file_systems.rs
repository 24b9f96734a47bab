//! The disk that `spec.storage` requests fits the file system of the PVC that is created for it.

use std::ffi::OsString;
use std::path::Path;

use contract::{ByteCount, Overhead};
use pipeline::target::available;
use tempfile::NamedTempFile;
use testkit::{FileSystem, Fill, Image, MIB, SparseDisk, arguments, require_tool};
use tests::Import;

/// Disks in MiB: small ones, the steps of the journal of ext4 and its change of block size, and up to 2 TiB.
const DISKS: [u64; 24] = [
    1, 8, 24, 48, 64, 128, 200, 216, 217, 400, 512, 544, 768, 895, 1024, 1536, 1900, 2048, 2730,
    3001, 4096, 16384, 131_072, 2_097_152,
];
/// mkfs.xfs makes nothing smaller.
const XFS_MIN: u64 = 300 * MIB;

/// Formats an image file as the kubelet's mount library and CSI drivers do.
fn format(program: &str, options: &[&str], path: &Path) -> Option<()> {
    let options = options.iter().map(OsString::from).chain(arguments![path]);
    require_tool(program)?.run(options.collect::<Vec<_>>());
    Some(())
}

/// The free space of a new file system of `len` bytes.
fn free_space(program: &str, options: &[&str], len: u64) -> Option<u64> {
    let image = NamedTempFile::with_prefix("tests-fs-").expect("cannot create an image file");
    image.as_file().set_len(len).expect("cannot size an image file");
    format(program, options, image.path())?;
    let mounted = FileSystem::of_image(image.path())?;
    Some(available(&mounted.path().join("disk.img")).expect("cannot query the free space"))
}

#[test]
fn disk_of_the_requested_size_fits_the_file_system_of_its_pvc() {
    for disk in DISKS.map(|count| count * MIB) {
        let size = Overhead::default().pvc_for_disk(ByteCount::new(disk)).expect("no overflow");
        // As it is, and rounded up as drivers do.
        for len in [size.get(), size.get().next_multiple_of(1 << 30)] {
            let reverse_map = ["-q", "-f", "-m", "rmapbt=1", "-i", "nrext64=1"];
            for (program, options) in [
                ("mkfs.ext4", &["-q", "-F", "-m0"][..]),
                ("mkfs.xfs", &["-q", "-f"][..]),
                ("mkfs.xfs", &reverse_map[..]),
            ] {
                if program == "mkfs.xfs" && len < XFS_MIN {
                    continue;
                }
                let Some(free) = free_space(program, options, len) else { return };
                assert!(free >= disk, "{program} {options:?}: {disk} into {len}, free: {free}");
            }
        }
    }
}

#[test]
fn raw_disk_as_large_as_requested_is_imported_whole_to_ext4_and_xfs() {
    let disk = SparseDisk::new(240 * MIB).with(0, 240 * MIB, Fill::Pattern);
    let bytes = disk.bytes();
    let image = Image::from_bytes(&bytes);
    let size = Overhead::default().pvc_for_disk(ByteCount::new(240 * MIB)).expect("no overflow");
    for (program, options) in
        [("mkfs.ext4", &["-q", "-F", "-m0"][..]), ("mkfs.xfs", &["-q", "-f"][..])]
    {
        let volume = NamedTempFile::with_prefix("tests-fs-").expect("cannot create an image file");
        volume.as_file().set_len(size.get()).expect("cannot size an image file");
        let Some(()) = format(program, options, volume.path()) else { return };
        let Some(mounted) = FileSystem::of_image(volume.path()) else { return };
        let target = mounted.path().join("disk.img");
        Import::new(image.path(), &target).report();
        assert!(std::fs::read(&target).expect("cannot read the target") == bytes, "{program}");
    }
}
