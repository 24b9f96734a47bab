//! Archives: unpacked completely and inside the directory, or not at all.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use testkit::{Compressor, Fault, FaultServer, MIB, compress, pattern, require_tool};
use tests::Import;
use tests::container::Tar;

use crate::each;

fn unpack(source: &str, folder: &Path) -> Import {
    Import::new(source, folder).flag("--archive")
}

/// The content of a directory: names with modes, sizes and link targets, sorted.
fn listing(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            let facts = path.symlink_metadata().unwrap();
            let mode = facts.permissions().mode();
            if facts.is_symlink() {
                found.push(format!("{name} -> {}", path.read_link().unwrap().display()));
            } else if facts.is_dir() {
                found.push(format!("{name}/ {mode:o}"));
                folders.push(path);
            } else {
                let content = sum(&std::fs::read(&path).unwrap());
                found.push(format!("{name} {mode:o} {content} links {}", facts.nlink()));
            }
        }
    }
    found.sort();
    found
}

fn sum(bytes: &[u8]) -> String {
    tests::container::digest(bytes)
}

/// A typical directory tree, and its tar by GNU tar.
fn sample() -> Option<(tempfile::TempDir, Vec<u8>)> {
    let tar = require_tool("tar")?;
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    let make = |path: &str, bytes: &[u8], mode: u32| {
        let path = tree.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    make("a.img", &pattern(3 * MIB), 0o640);
    make("empty", b"", 0o600);
    make("bin/tool", b"#!/bin/sh\n", 0o755);
    let long = format!("deep/{}/{}/file", "x".repeat(120), "y".repeat(120));
    make(&long, b"far down", 0o444);
    make("locked/inside", b"read only", 0o400);
    std::fs::hard_link(tree.join("a.img"), tree.join("bin/same.img")).unwrap();
    std::os::unix::fs::symlink("../a.img", tree.join("bin/link")).unwrap();
    std::os::unix::fs::symlink("bin", tree.join("programs")).unwrap();
    let locked = std::fs::Permissions::from_mode(0o555);
    std::fs::set_permissions(tree.join("locked"), locked).unwrap();
    let bytes = tar.run(testkit::arguments!["-C", tree, "-cf", "-", "."]);
    Some((folder, bytes))
}

#[test]
fn archive_of_every_compression_unpacks_to_the_same_directory() {
    let Some((folder, tar)) = sample() else { return };
    let expected = listing(&folder.path().join("tree"));
    let packed = [
        ("tar", Some(tar.clone())),
        ("gz", compress(Compressor::GZIP, &tar)),
        ("xz", compress(Compressor::XZ, &tar)),
        ("zst", compress(Compressor::ZSTD, &tar)),
        ("bz2", compress(Compressor::BZIP2, &tar)),
        ("lz4", compress(Compressor::LZ4, &tar)),
    ];
    each(&packed, |(case, bytes)| {
        let Some(bytes) = bytes else { return };
        let server = FaultServer::in_memory(bytes).once(Fault::CloseAt(4096));
        let file = folder.path().join(format!("archive.{case}"));
        std::fs::write(&file, bytes).unwrap();
        for source in [server.url(), file.display().to_string()] {
            let target = tempfile::tempdir().unwrap();
            let new = target.path().join("files");
            let checksum = tests::container::digest(bytes);
            let report = unpack(&source, &new).option("--checksum", checksum).report();
            assert_eq!(listing(&new), expected, "{case} of {source}");
            assert_eq!(report["files"], 6, "{case}: {report}");
            let names = std::fs::read_dir(target.path()).unwrap().count();
            assert_eq!(names, 1, "{case}: something is left next to the directory");
        }
    });
}

#[test]
fn target_directory_may_hold_only_lost_and_found() {
    let tar = Tar::default().file("lost+found/x", b"never").file("a", b"content").finish();
    let folder = tempfile::tempdir().unwrap();
    let (file, target) = (folder.path().join("a.tar"), folder.path().join("files"));
    std::fs::write(&file, tar).unwrap();
    std::fs::create_dir_all(target.join("lost+found")).unwrap();
    let file = file.display().to_string();
    unpack(&file, &target).report();
    let names: Vec<_> = listing(&target).iter().map(|line| line[..4].to_owned()).collect();
    assert_eq!(names, ["a 10", "lost"]);
    let message = unpack(&file, &target).refusal();
    assert!(message.contains("cannot unpack into"), "{message}");
    assert!(target.join("a").exists(), "what was there stays");
}

#[test]
fn wrong_archive_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let tar = Tar::default().folder("d/").file("d/a", &pattern(MIB)).file("b", b"x").finish();
    let server = FaultServer::in_memory(&tar);
    let target = folder.path().join("files");
    std::fs::create_dir_all(target.join("lost+found")).unwrap();
    let wrong = format!("sha256:{}", "0".repeat(64));
    let message = unpack(&server.url(), &target).option("--checksum", wrong).refusal();
    assert!(
        message.contains("checksum validation failed: checksum mismatch: expected"),
        "{message}"
    );
    assert_eq!(listing(&target).len(), 1, "only lost+found: {:?}", listing(&target));
    // Cut short, and something else altogether.
    for (case, bytes) in [("cut", &tar[..tar.len() / 2]), ("no tar", &pattern(MIB)[..])] {
        let server = FaultServer::in_memory(bytes);
        let message = unpack(&server.url(), &target).refusal();
        assert!(message.contains("unable to untar files from endpoint"), "{case}: {message}");
        assert_eq!(listing(&target).len(), 1, "{case}: {:?}", listing(&target));
        let new = folder.path().join("new");
        unpack(&server.url(), &new).refusal();
        assert!(!new.exists(), "{case}");
    }
    let names = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(names, 1, "something is left next to the directory");
}

#[test]
fn entries_cannot_leave_the_target_directory() {
    let outside = tempfile::tempdir().unwrap();
    let witness = outside.path().join("witness");
    std::fs::write(&witness, "untouched").unwrap();
    let witness_path = witness.display().to_string();
    let out = outside.path().display().to_string();
    let up = format!("{}{}", "../".repeat(20), out.trim_start_matches('/'));
    let attacks = [
        Tar::default().file(&witness_path, b"evil"),
        Tar::default().file(&format!("{up}/witness"), b"evil"),
        Tar::default().file("a/../../witness", b"evil"),
        Tar::default().symlink("l", &out).file("l/witness", b"evil"),
        Tar::default().symlink("l", &up).file("l/witness", b"evil"),
        Tar::default().symlink("d", ".").symlink("d/l", "../x"),
        Tar::default().symlink("s", ".").symlink("y", "s/s/../../.."),
        Tar::default().folder("d/").symlink("d/l", "../ok").entry("h", b'1', "d/l", b""),
        Tar::default().entry("h", b'1', &witness_path, b""),
        Tar::default().entry("h", b'1', "../witness", b""),
        Tar::default().entry("h", b'1', "missing", b""),
        Tar::default().entry("null", b'3', "", b""),
        Tar::default().entry("block", b'4', "", b""),
        Tar::default().entry("pipe", b'6', "", b""),
        Tar::default().file("f", b"x").file("f/below", b"evil"),
        Tar::default().folder("d/").file("d", b"evil"),
        Tar::default().symlink("d", "e").folder("e/").file("d/through", b"x"),
    ];
    each(&attacks, |tar| {
        let folder = tempfile::tempdir().unwrap();
        let (file, target) = (folder.path().join("a.tar"), folder.path().join("files"));
        std::fs::write(&file, tar.clone().finish()).unwrap();
        let message = unpack(&file.display().to_string(), &target).refusal();
        assert!(message.contains("untar") || message.contains("cannot unpack"), "{message}");
        assert!(!target.exists(), "{message}");
        let names = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 1, "left behind: {message}");
    });
    assert_eq!(std::fs::read_to_string(&witness).unwrap(), "untouched");
    assert_eq!(witness.metadata().unwrap().nlink(), 1);
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn cdi_apply_unpacks_an_archive() {
    let tar = Tar::default().file("a/b", b"content").finish();
    let server = FaultServer::in_memory(&tar);
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("volume.yaml");
    let text = format!(
        "apiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume\nmetadata: {{name: files}}\nspec:\n  contentType: \
         archive\n  source: {{http: {{url: '{}', checksum: '{}'}}}}\n  \
         pvc: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 4Mi}}}}}}\n",
        server.url(),
        tests::container::digest(&tar)
    );
    std::fs::write(&manifest, text).unwrap();
    let apply = || {
        let mut command = std::process::Command::new(testkit::cdi());
        command.args(testkit::arguments!["apply", "-f", manifest, "--volumes", folder.path()]);
        testkit::process::run(&mut command, tests::LIMIT).expect_success().stdout
    };
    apply();
    let made = folder.path().join("default/files/data/a/b");
    assert_eq!(std::fs::read(made).unwrap(), b"content");
    assert!(apply().contains("was complete already"));
}
