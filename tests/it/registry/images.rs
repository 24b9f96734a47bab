//! Layouts of images, and the disk that each contains.

use testkit::{MIB, Qcow2Options, QemuImg, SparseDisk, pattern};
use tests::container::{Blob, ContainerImage, Packing, Tar, index};
use tests::registry::{DockerRegistry, Reply, Setup, StandIn};
use tests::{Import, Target};

use super::{INDEX, LAYER, expect, import, refusal};
use crate::each;

#[test]
fn container_disk_of_every_format_and_compression_is_imported() {
    let storage = tempfile::tempdir().unwrap();
    let Some(registry) = DockerRegistry::start(storage.path(), &Setup::default()) else { return };
    let disk = SparseDisk::mixed(8 * MIB, 11);
    let mut formats = vec![("raw", disk.bytes())];
    if let Some(qemu_img) = QemuImg::require() {
        let compressed = Qcow2Options { compressed: true, ..Qcow2Options::default() };
        formats.push(("qcow2", qemu_img.qcow2(&disk, &Qcow2Options::default()).bytes()));
        formats.push(("qcow2-c", qemu_img.qcow2(&disk, &compressed).bytes()));
    }
    let packings = [Packing::Plain, Packing::Gzip, Packing::DockerGzip, Packing::Zstd, Packing::Xz];
    let cells: Vec<_> = formats
        .iter()
        .flat_map(|(name, bytes)| packings.map(|packing| (*name, bytes, packing)))
        .collect();
    each(&cells, |(name, bytes, packing)| {
        let case = format!("{name} {packing:?}");
        let tar = Tar::default().folder("./").folder("./disk/").file("./disk/vm.img", bytes);
        let Some(layer) = Blob::layer(tar.file("./etc/after", b"x").finish(), *packing) else {
            return;
        };
        let image = ContainerImage::new("amd64", &[], vec![layer]);
        let tag = format!("{name}-{packing:?}");
        registry.push("vms/disk", &tag, &image);
        let target = Target::file();
        let import = import(&registry.host(), &format!("vms/disk:{tag}"), &target);
        let report = expect(&import, &target, &disk.bytes(), &case);
        assert_eq!(report["format"], if *name == "raw" { "raw" } else { "qcow2" }, "{case}");
        assert_eq!(report["scratchBytes"], 0, "{case}");
    });
    // By its digest too, which is then that of the manifest.
    let image = ContainerImage::disk(&disk.bytes());
    registry.push("vms/disk", "latest", &image);
    let target = Target::file();
    let by_digest = format!("vms/disk@{}", image.digest());
    expect(&import(&registry.host(), &by_digest, &target), &target, &disk.bytes(), "digest");
    let target = Target::file();
    expect(&import(&registry.host(), "vms/disk", &target), &target, &disk.bytes(), "latest");
}

#[test]
fn image_for_the_architecture_is_chosen() {
    let (one, other) = (pattern(MIB), vec![7; 1 << 20]);
    let tar = |disk: &[u8]| Blob::plain(Tar::default().file("disk/d", disk));
    let amd64 = ContainerImage::new("amd64", &[], vec![tar(&one)]);
    let arm64 = ContainerImage::new("arm64", &[], vec![tar(&other)]);
    let list = index(&[arm64.descriptor("arm64"), amd64.descriptor("amd64")]);
    let registry = StandIn::start()
        .image("a", "amd64", &amd64)
        .image("a", "arm64", &arm64)
        .document("a", "all", INDEX, &list);
    let import = |tag: &str, architecture: &str, target: &Target| {
        Import::new(format!("docker://{}/a:{tag}", registry.host()), target.path())
            .option("--insecure-registry", registry.host())
            .option("--architecture", architecture)
    };
    for (architecture, disk) in [("amd64", &one), ("arm64", &other)] {
        let target = Target::file();
        expect(&import("all", architecture, &target), &target, disk, architecture);
    }
    let target = Target::file();
    let message = import("all", "absent", &target).refusal();
    let words = "Failed to read registry image";
    let more = "Error retrieving image: choosing image instance: no image found in image index for \
                architecture \"absent\", variant \"\", OS \"linux\"";
    assert!(message.contains(words) && message.contains(more), "{message}");
    let message = import("arm64", "amd64", &target).refusal();
    let words = "Error validating architecture: manifest image architecture: \"arm64\" doesn't match \
                 requested architecture: \"amd64\"";
    assert!(message.contains(words), "{message}");
}

#[test]
fn top_layer_takes_precedence_and_whiteouts_apply() {
    let (old, new) = (vec![1; 1 << 20], pattern(MIB));
    let layer = |tar: Tar| Blob::plain(tar);
    let lower = || layer(Tar::default().file("disk/old.img", &old));
    type Expected<'a> = Result<&'a [u8], &'a str>;
    let table: [(&str, Vec<Blob>, Expected); 7] = [
        ("upper", vec![lower(), layer(Tar::default().file("disk/new.img", &new))], Ok(&new)),
        ("lower", vec![lower(), layer(Tar::default().file("etc/x", b"x"))], Ok(&old)),
        (
            "hidden",
            vec![lower(), layer(Tar::default().file("disk/.wh.old.img", b""))],
            Err("Failed to find VM disk image file in the container image"),
        ),
        (
            "opaque",
            vec![lower(), layer(Tar::default().file("disk/.wh..wh..opq", b""))],
            Err("Failed to find VM disk image file in the container image"),
        ),
        (
            "replaced",
            vec![
                lower(),
                layer(Tar::default().file("disk/.wh.old.img", b"").file("disk/new.img", &new)),
            ],
            Ok(&new),
        ),
        ("other hidden", vec![lower(), layer(Tar::default().file("disk/.wh.x", b""))], Ok(&old)),
        ("none", vec![layer(Tar::default().folder("disk/"))], Err("Failed to find VM disk image")),
    ];
    each(&table, |(case, layers, expected)| {
        let image = ContainerImage::new("amd64", &[], layers.clone());
        let registry = StandIn::start().image("a", "v1", &image);
        match expected {
            Ok(disk) => {
                let target = Target::file();
                expect(&import(&registry.host(), "a:v1", &target), &target, disk, case);
            }
            Err(words) => {
                let message = refusal(&registry, "a:v1");
                assert!(message.contains(words), "{case}: {message}");
            }
        }
    });
}

#[test]
fn layer_must_be_a_tar_but_an_artifact_is_a_disk() {
    let disk = pattern(2 * MIB);
    let config =
        || Blob { media_type: "application/vnd.oci.empty.v1+json".into(), bytes: b"{}".to_vec() };
    let blob = |kind: &str| Blob { media_type: kind.into(), bytes: disk.clone() };
    let image = ContainerImage::from_blobs(config(), vec![blob("application/x-raw-disk")]);
    let registry = StandIn::start().image("a", "disk", &image);
    let target = Target::file();
    expect(&import(&registry.host(), "a:disk", &target), &target, &disk, "artifact");
    let image = ContainerImage::from_blobs(config(), vec![blob(LAYER)]);
    let registry = StandIn::start().image("a", "v1", &image);
    let message = refusal(&registry, "a:v1");
    assert!(message.contains("tar archive"), "{message}");
    // A damaged artifact is found out at its end.
    let image = ContainerImage::from_blobs(config(), vec![blob("application/x-raw-disk")]);
    let registry = StandIn::start().image("a", "v1", &image);
    let mut body = disk.clone();
    body[77] ^= 1;
    let path = format!("/v2/a/blobs/{}", image.blobs[1].digest());
    registry.put(&path, Reply { status: 200, body, ..Reply::default() });
    assert!(refusal(&registry, "a:v1").contains("the disk is not what the image names"));
}

#[test]
fn image_metadata_is_reported() {
    let layer = Blob::plain(Tar::default().file("./disk/vm.img", &pattern(MIB)));
    let environment = [
        "PATH=/bin",
        "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small",
        "KUBEVIRT_IO_X=a b",
    ];
    let image = ContainerImage::new("amd64", &environment, vec![layer]);
    let registry = StandIn::start().image("a", "v1", &image);
    let options = importer::HttpOptions {
        insecure_hosts: vec![registry.host()],
        ..importer::HttpOptions::default()
    };
    let location = format!("docker://{}/a:v1", registry.host());
    let disk = importer::ContainerDisk::open(&location, &options).unwrap();
    let info = disk.info();
    assert_eq!(info.digest, image.digest());
    assert_eq!(info.architecture, "amd64");
    assert_eq!(info.file.as_deref(), Some("./disk/vm.img"));
    let labels = importer::labels(info.environment.iter().map(String::as_str));
    let labels: Vec<_> = labels.into_iter().collect();
    let expected = ("instancetype.kubevirt.io/default-instancetype".into(), "u1.small".into());
    assert_eq!(labels, [expected]);
    for (name, words) in [
        ("quay.io/a", "Invalid image name \"quay.io/a\", expected colon-separated"),
        ("ftp://quay.io/a", "Invalid image name \"ftp://quay.io/a\", unknown transport"),
    ] {
        let error = importer::ContainerDisk::open(name, &options).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.starts_with(words), "{cause}");
    }
}

#[test]
fn oci_archives_are_read_in_place() {
    let disk = pattern(2 * MIB);
    let image = ContainerImage::disk(&disk);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image.tar");
    let import = |reference: &str, target: &Target| {
        Import::new(format!("oci-archive:{}{reference}", path.display()), target.path())
            .option("--architecture", "amd64")
    };
    image.save(&path, &["v1"]);
    for reference in ["", ":v1"] {
        let target = Target::file();
        expect(&import(reference, &target), &target, &disk, reference);
    }
    let target = Target::file();
    assert!(import(":v2", &target).refusal().contains("it holds no image named \"v2\""));
    image.save(&path, &["v1", "v2"]);
    assert!(import("", &target).refusal().contains("it holds several images"));
    expect(&import(":v2", &target), &target, &disk, "one of two");
    // Damage anywhere is found out.
    let mut bytes = image.archive(&["v1"]);
    let at = bytes.len() - (1 << 20);
    bytes[at] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let target = Target::file();
    assert!(import("", &target).refusal().contains("Failed to read registry image"));
    bytes.truncate(1 << 20);
    std::fs::write(&path, &bytes).unwrap();
    assert!(import("", &target).refusal().contains("not a usable OCI archive"));
    std::fs::write(&path, b"no tar").unwrap();
    assert!(import("", &target).refusal().contains("not a usable OCI archive"));
    target.expect_unfinished(&[], "refused");
}

#[test]
fn image_pushed_by_skopeo_is_imported() {
    let Some(skopeo) = testkit::require_tool("skopeo") else { return };
    let storage = tempfile::tempdir().unwrap();
    let Some(registry) = DockerRegistry::start(storage.path(), &Setup::default()) else { return };
    let disk = SparseDisk::mixed(4 * MIB, 5).bytes();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image.tar");
    ContainerImage::disk(&disk).save(&path, &["v1"]);
    for format in ["oci", "v2s2"] {
        let to = format!("docker://{}/skopeo:{format}", registry.host());
        let from = format!("oci-archive:{}", path.display());
        skopeo.run([
            "--insecure-policy",
            "copy",
            "--dest-tls-verify=false",
            "--format",
            format,
            &from,
            &to,
        ]);
        let target = Target::file();
        let name = format!("skopeo:{format}");
        expect(&import(&registry.host(), &name, &target), &target, &disk, format);
    }
    let copied = folder.path().join("copied.tar");
    let from = format!("docker://{}/skopeo:oci", registry.host());
    let to = format!("oci-archive:{}:name", copied.display());
    skopeo.run(["--insecure-policy", "copy", "--src-tls-verify=false", &from, &to]);
    let target = Target::file();
    let import = Import::new(&to, target.path()).option("--architecture", "amd64");
    expect(&import, &target, &disk, "skopeo's archive");
}
