//! A real Debian image, created once, in every format: it is imported byte for byte, passes fsck and mounts.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use testkit::{
    FileSystem, FileSystemKind, GIB, Image, LoopDevice, QemuImg, Tool, arguments, require_tool,
    skip,
};
use tests::{Import, LIMIT, Target};

/// An ext4 file system with a minimal Debian in it, 1 GiB long and a fifth full. Kept outside the tree, because
/// making it takes minutes and a mirror. `None`, with a message, if it is missing.
fn debian() -> Option<&'static Path> {
    static MADE: OnceLock<Option<PathBuf>> = OnceLock::new();
    MADE.get_or_init(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
        let folder = cache.unwrap_or_else(std::env::temp_dir).join("cdi-tests");
        let image = folder.join("debian-bookworm-minbase.ext4");
        if !image.exists() {
            std::fs::create_dir_all(&folder).expect("cannot make the cache folder");
            make_debian(&image)?;
        }
        Some(image)
    })
    .as_deref()
}

fn make_debian(image: &Path) -> Option<()> {
    let (debootstrap, mkfs) = (require_tool("debootstrap")?, require_tool("mkfs.ext4")?);
    // Under another name until it is whole.
    let unfinished = image.with_extension(format!("{}.unfinished", std::process::id()));
    File::create(&unfinished).and_then(|file| file.set_len(GIB)).expect("cannot make a file");
    mkfs.run(arguments!["-q", "-F", "-L", "debian", unfinished]);
    let made = {
        let mounted = FileSystem::of_image(&unfinished)?;
        let mut command =
            debootstrap.command(arguments!["--variant=minbase", "bookworm", mounted.path()]);
        command.output().expect("cannot run debootstrap")
    };
    if !made.status.success() {
        std::fs::remove_file(&unfinished).expect("cannot remove a file");
        skip(&format!("no Debian can be had: {}", String::from_utf8_lossy(&made.stdout)));
        return None;
    }
    std::fs::rename(&unfinished, image).expect("cannot rename a file");
    Some(())
}

/// The disk is the same, and a file system that is sound and mounts.
fn check(found: &Path, debian: &Path, case: &str) {
    let Some((cmp, fsck)) = require_tool("cmp").zip(require_tool("e2fsck")) else { return };
    // A device may be longer.
    cmp.run(arguments![
        "-n",
        std::fs::metadata(debian).expect("cannot look").len().to_string(),
        found,
        debian
    ]);
    fsck.run(arguments!["-fn", found]);
    let Some(mounted) = FileSystem::read_only(found) else { return };
    let release = std::fs::read_to_string(mounted.path().join("etc/os-release"));
    assert!(release.expect("no os-release").contains("ID=debian"), "{case}");
}

/// The disk in another format, converted by the system's programs.
fn dressed(dress: &str, debian: &Path) -> Option<Image> {
    let qemu = QemuImg::require()?;
    let image = |flags: &[&str]| Some(qemu.convert(debian, "raw", "qcow2", flags));
    let packed = |tool: Option<Tool>, arguments: &[&str]| {
        let image = Image::from_bytes(&[]);
        let mut command = tool?.command(arguments);
        command.stdin(File::open(debian).ok()?).stdout(File::create(image.path()).ok()?);
        assert!(command.status().ok()?.success(), "{command:?}");
        Some(image)
    };
    match dress {
        "qcow2" => image(&[]),
        "qcow2 -c" => image(&["-c", "-W", "-m", "2"]),
        "qcow2 -c zstd" => image(&["-c", "-o", "compression_type=zstd"]),
        "raw.xz" => packed(require_tool("xz"), &["-0", "-T2", "--block-size=16MiB", "-c"]),
        "raw.gz" => packed(require_tool("pigz"), &["-1", "-c"]),
        "raw.zst" => packed(require_tool("zstd"), &["-1", "-q", "-c"]),
        other => panic!("there is no dress {other}"),
    }
}

fn import(image: &Path, target: &Path) {
    Import::new(image, target).start().wait(LIMIT).expect_success();
}

#[test]
fn debian_image_is_imported_in_every_format_to_every_target() {
    let Some(debian) = debian() else { return };
    let file = Target::file();
    import(debian, file.path());
    check(file.path(), debian, "raw");
    for dress in ["qcow2", "qcow2 -c", "qcow2 -c zstd", "raw.xz", "raw.gz", "raw.zst"] {
        let Some(image) = dressed(dress, debian) else { return };
        match dress {
            "qcow2 -c" | "raw.zst" => {
                let Some(device) = LoopDevice::filled_with(0xaa, GIB) else { return };
                import(image.path(), device.path());
                check(device.path(), debian, dress);
            }
            "qcow2" | "raw.gz" => {
                let Some(xfs) = FileSystem::new(FileSystemKind::Xfs, 4 * GIB) else { return };
                let target = xfs.path().join("disk.img");
                import(image.path(), &target);
                check(&target, debian, dress);
            }
            _ => {
                let target = Target::file();
                import(image.path(), target.path());
                check(target.path(), debian, dress);
            }
        }
    }
}
