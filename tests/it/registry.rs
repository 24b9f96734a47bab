//! Container disks: what registries and archives hold, how it is asked for, and what is refused.

use testkit::{
    Fault, FaultServer, MIB, Qcow2Options, QemuImg, ServerCertificate, SparseDisk, pattern,
};
use tests::container::{Blob, ContainerImage, Packing, Tar, digest, index};
use tests::registry::{DockerRegistry, Reply, Setup, StandIn};
use tests::{Import, Target};

use crate::each;

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// An import of an image of a registry without TLS.
fn import(host: &str, name: &str, target: &Target) -> Import {
    Import::new(format!("docker://{host}/{name}"), target.path())
        .option("--insecure-registry", host)
        .option("--architecture", "amd64")
}

fn expect(import: &Import, target: &Target, disk: &[u8], case: &str) -> serde_json::Value {
    let report = import.report();
    target.expect(disk, case);
    report
}

/// What is said of an image of a stand-in; nothing looks finished then.
fn refusal(registry: &StandIn, name: &str) -> String {
    let target = Target::file();
    let said = import(&registry.host(), name, &target).refusal();
    target.expect_unfinished(&[], name);
    said
}

#[test]
fn every_packing_of_every_format_comes_out_of_a_registry() {
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
fn tls_and_a_password_are_asked_for_and_given() {
    let storage = tempfile::tempdir().unwrap();
    let disk = pattern(2 * MIB);
    {
        let Some(open) = DockerRegistry::start(storage.path(), &Setup::default()) else { return };
        open.push("private", "v1", &ContainerImage::disk(&disk));
    }
    let tls = ServerCertificate::new();
    let setup = Setup { tls: Some(tls.clone()), basic_auth: true };
    let Some(registry) = DockerRegistry::start(storage.path(), &setup) else { return };
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.crt");
    std::fs::write(&ca, &tls.ca).unwrap();
    let location = format!("docker://{}/private:v1", registry.host());
    let import = |target: &Target| {
        Import::new(&location, target.path()).option("--ca", &ca).option("--architecture", "amd64")
    };
    let target = Target::file();
    let named = import(&target).option("--user", "anna").variable("CDI_PASSWORD", "open sesame");
    expect(&named, &target, &disk, "user and password");
    let file = |password: &str| {
        let path = folder.path().join(format!("{}.json", password.len()));
        let entry = serde_json::json!({ "username": "anna", "password": password });
        let auths = serde_json::json!({ "auths": { registry.host(): entry } });
        std::fs::write(&path, auths.to_string()).unwrap();
        path
    };
    let target = Target::file();
    let configured = import(&target).option("--registry-config", file("open sesame"));
    expect(&configured, &target, &disk, "docker's file");

    let target = Target::file();
    let wrong = import(&target).option("--registry-config", file("wrongword")).flag("-vv");
    for (case, import) in [("none", import(&target)), ("wrong", wrong)] {
        let said = import.refusal();
        assert!(said.contains("401") && said.contains(&registry.host()), "{case}: {said}");
        assert!(said.contains("failed to pull image"), "{case}: {said}");
        assert!(!said.contains("wrongword"), "{case}: {said}");
    }
    // TLS is verified, unless this very registry is said to be insecure.
    let said = Import::new(&location, target.path()).refusal();
    assert!(said.contains("cannot verify the certificate"), "{said}");
    let elsewhere =
        Import::new(&location, target.path()).option("--insecure-registry", "127.0.0.1:1");
    assert!(elsewhere.refusal().contains("cannot verify the certificate"));
    let target = Target::file();
    let insecure = Import::new(&location, target.path())
        .option("--insecure-registry", registry.host())
        .option("--architecture", "amd64")
        .option("--user", "anna")
        .variable("CDI_PASSWORD", "open sesame");
    expect(&insecure, &target, &disk, "insecure");
}

#[test]
fn a_token_is_fetched_and_credentials_go_nowhere_else() {
    let disk = pattern(4 * MIB);
    let image = ContainerImage::disk(&disk);
    let layer = image.blobs[1].clone();
    let store = FaultServer::in_memory(&layer.bytes);
    let away = store.url_via("localhost", "/blob?sig=secret");
    let registry = StandIn::start().image("a", "v1", &image).redirect("a", &layer, &away);
    registry.guard("first-token", None);
    let target = Target::file();
    expect(&import(&registry.host(), "a:v1", &target), &target, &disk, "anonymous");
    registry.guard("second-token", Some("YW5uYTpvcGVuIHNlc2FtZQ=="));
    let target = Target::file();
    let said = import(&registry.host(), "a:v1", &target).refusal();
    assert!(said.contains("401") && said.contains("/token"), "{said}");
    let named = import(&registry.host(), "a:v1", &target)
        .option("--user", "anna")
        .variable("CDI_PASSWORD", "open sesame");
    expect(&named, &target, &disk, "with a password");
    for asked in registry.asked() {
        let password = asked.authorization.is_some_and(|sent| sent.starts_with("Basic "));
        assert!(!password || asked.target.starts_with("/token?"), "{}", asked.target);
        if asked.target.starts_with("/token") {
            assert!(asked.target.contains("scope=repository%3Aa%3Apull"), "{}", asked.target);
        }
    }
    assert!(!store.requests().is_empty());
    for request in store.requests() {
        assert_eq!(request.header("authorization"), None, "{request:?}");
    }
}

#[test]
fn a_challenge_of_a_blob_store_is_not_listened_to() {
    let image = ContainerImage::disk(&pattern(MIB));
    let (registry, thief) = (StandIn::start(), StandIn::start());
    thief.guard("token", None);
    let away = format!("http://{}/blob", thief.host().replace("127.0.0.1", "localhost"));
    let registry = registry.image("a", "v1", &image).redirect("a", &image.blobs[1], &away);
    registry.guard("token", Some("YW5uYTpvcGVuIHNlc2FtZQ=="));
    let target = Target::file();
    let said = import(&registry.host(), "a:v1", &target)
        .option("--user", "anna")
        .variable("CDI_PASSWORD", "open sesame")
        .refusal();
    assert!(said.contains("401"), "{said}");
    assert!(thief.asked().iter().all(|asked| asked.authorization.is_none()), "{:?}", thief.asked());
    assert!(thief.asked().iter().all(|asked| !asked.target.starts_with("/token")));
}

#[test]
fn the_image_for_the_architecture_is_chosen() {
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
    let said = import("all", "absent", &target).refusal();
    let words = "Failed to read registry image";
    let more = "Error retrieving image: choosing image instance: no image found in image index for \
                architecture \"absent\", variant \"\", OS \"linux\"";
    assert!(said.contains(words) && said.contains(more), "{said}");
    let said = import("arm64", "amd64", &target).refusal();
    let words = "Error validating architecture: manifest image architecture: \"arm64\" doesn't match \
                 requested architecture: \"amd64\"";
    assert!(said.contains(words), "{said}");
}

#[test]
fn the_top_layer_wins_and_whiteouts_count() {
    let (old, new) = (vec![1; 1 << 20], pattern(MIB));
    let layer = |tar: Tar| Blob::plain(tar);
    let lower = || layer(Tar::default().file("disk/old.img", &old));
    let table: [(&str, Vec<Blob>, Result<&[u8], &str>); 7] = [
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
                let said = refusal(&registry, "a:v1");
                assert!(said.contains(words), "{case}: {said}");
            }
        }
    });
}

#[test]
fn what_is_no_single_disk_is_refused_in_known_words() {
    let disk = pattern(MIB);
    let gzip = testkit::compress(testkit::Compressor::GZIP, &disk).unwrap_or_default();
    let several = "Cannot locate image file: image directory contains more than one file";
    let table = [
        (Tar::default().file("disk/a", &disk).file("disk/b", &disk), several),
        (Tar::default().file("disk/a", &disk).file("disk/a", &disk), several),
        (
            Tar::default().folder("disk/x/").file("disk/a", &disk),
            "Cannot locate image file: image directory contains another directory",
        ),
        (Tar::default().symlink("disk/a", "/etc/passwd"), "is a symbolic link"),
        (Tar::default().symlink("disk", "/etc"), "is a symbolic link"),
        (Tar::default().entry("disk/a", b'1', "etc/x", b""), "is a hard link"),
        (Tar::default().entry("disk/a", b'3', "", b""), "is a device"),
        (
            Tar::default().file("disk/../../etc/passwd", &disk),
            "content filepath is tainted: disk/../../etc/passwd",
        ),
        (Tar::default().file("disk/a.gz", &gzip), "is compressed (gzip)"),
        (Tar::default().file("/disk/a", &disk), "Failed to find VM disk image file"),
    ];
    each(&table, |(tar, words)| {
        let image = ContainerImage::new("amd64", &[], vec![Blob::plain(tar.clone())]);
        let registry = StandIn::start().image("a", "v1", &image);
        let said = refusal(&registry, "a:v1");
        assert!(said.contains(words), "{words}: {said}");
        assert!(said.contains("Failed to read registry image"), "{said}");
    });
}

#[test]
fn bytes_that_are_not_those_that_were_named_never_become_a_disk() {
    let disk = pattern(2 * MIB);
    let good = ContainerImage::disk(&disk);
    let forged = |index: usize, change: fn(&mut Vec<u8>)| {
        let registry = StandIn::start().image("a", "v1", &good);
        let blob = &good.blobs[index];
        let mut body = blob.bytes.clone();
        change(&mut body);
        let path = format!("/v2/a/blobs/{}", blob.digest());
        registry.with(&path, Reply { status: 200, body, ..Reply::default() })
    };
    let spaces: fn(&mut Vec<u8>) = |bytes| bytes.insert(0, b' ');
    let flip: fn(&mut Vec<u8>) = |bytes| bytes[1 << 20] ^= 1;
    let cut: fn(&mut Vec<u8>) = |bytes| bytes.truncate(1 << 20);
    let tail: fn(&mut Vec<u8>) = |bytes| *bytes.last_mut().unwrap() = 1;
    for (case, registry) in [
        ("another config", forged(0, spaces)),
        ("a changed layer", forged(1, flip)),
        ("a cut layer", forged(1, cut)),
        ("a changed end of a layer", forged(1, tail)),
    ] {
        let said = refusal(&registry, "a:v1");
        assert!(said.contains("Failed to read registry image"), "{case}: {said}");
    }
    // A manifest that is not the one that was asked for, by us or by its index.
    let other = ContainerImage::disk(&pattern(MIB));
    let headers = vec![format!("Content-Type: {}", good.media_type)];
    let reply = Reply { status: 200, headers, body: other.manifest.clone() };
    let list = index(&[good.descriptor("amd64")]);
    let registry = StandIn::start()
        .image("a", "v1", &other)
        .document("a", "list", INDEX, &list)
        .with(&format!("/v2/a/manifests/{}", good.digest()), reply);
    for name in [format!("a@{}", good.digest()), "a:list".to_owned()] {
        let said = refusal(&registry, &name);
        assert!(said.contains("the manifest is not what the image names"), "{name}: {said}");
    }
    // A tag whose digest the registry itself contradicts.
    let headers = vec![
        format!("Content-Type: {}", good.media_type),
        format!("Docker-Content-Digest: {}", digest(b"else")),
    ];
    let body = good.manifest.clone();
    let registry = StandIn::start()
        .image("a", "v1", &good)
        .with("/v2/a/manifests/v1", Reply { status: 200, headers, body });
    assert!(refusal(&registry, "a:v1").contains("the manifest is not what the image names"));
}

#[test]
fn hostile_documents_are_refused_and_their_addresses_never_followed() {
    let image = ContainerImage::disk(&pattern(MIB));
    let thief = StandIn::start();
    let with = |tag: &str, kind: &str, body: Vec<u8>| {
        StandIn::start().image("a", "good", &image).document("a", tag, kind, &body)
    };
    // Larger than any manifest has to be.
    let mut huge = image.manifest.clone();
    huge.resize(5 << 20, b' ');
    let said = refusal(&with("v1", &image.media_type, huge), "a:v1");
    assert!(said.contains("longer than 4194304 bytes"), "{said}");
    // Indexes in indexes in indexes.
    let mut registry = StandIn::start().image("a", "good", &image);
    let mut inner = index(&[image.descriptor("amd64")]);
    for depth in 0..5 {
        registry = registry.document("a", &format!("deep{depth}"), INDEX, &inner);
        inner = index(&[serde_json::json!({
            "mediaType": INDEX, "digest": digest(&inner), "size": inner.len(),
            "platform": { "os": "linux", "architecture": "amd64" },
        })]);
    }
    let said = refusal(&registry, "a:deep4");
    assert!(said.contains("deep"), "{said}");
    let target = Target::file();
    expect(&import(&registry.host(), "a:deep1", &target), &target, &pattern(MIB), "deep1");
    // Sizes and digests out of this world; two meanings at once; a schema of long ago.
    let config = image.blobs[0].descriptor();
    let layer = |size: u64| {
        serde_json::json!({
            "mediaType": LAYER, "digest": image.blobs[1].digest(), "size": size,
        })
    };
    let manifest = |layers: serde_json::Value| serde_json::json!({ "schemaVersion": 2, "config": config, "layers": layers });
    let mut ambiguous = manifest(serde_json::json!([layer(1)]));
    ambiguous["manifests"] = serde_json::json!([]);
    let mut large_config = manifest(serde_json::json!([layer(1)]));
    large_config["config"]["size"] = (1_u64 << 60).into();
    let many: Vec<_> = (0..2000).map(layer).collect();
    let documents = [
        manifest(serde_json::json!([layer(u64::MAX)])),
        manifest(serde_json::json!([layer(1)])),
        manifest(serde_json::json!([])),
        manifest(many.into()),
        manifest(serde_json::json!([{ "digest": "sha256:../../etc", "size": 1 }])),
        manifest(serde_json::json!([{ "digest": digest(b""), "size": -1 }])),
        manifest(
            serde_json::json!([layer(1), { "mediaType": "x/y", "digest": digest(b""), "size": 1 }]),
        ),
        ambiguous,
        large_config,
        serde_json::json!({ "schemaVersion": 1, "fsLayers": [] }),
        serde_json::json!("text"),
    ];
    each(&documents, |document| {
        let bytes = document.to_string().into_bytes();
        let said = refusal(&with("v1", &image.media_type, bytes), "a:v1");
        assert!(said.contains("Failed to read registry image"), "{document}: {said}");
    });
    // A layer that is said to be elsewhere is asked for here.
    let mut foreign = image.blobs[1].descriptor();
    foreign["urls"] = serde_json::json!([format!("http://{}/x", thief.host())]);
    foreign["mediaType"] = "application/vnd.oci.image.layer.nondistributable.v1.tar".into();
    let document = manifest(serde_json::json!([foreign])).to_string().into_bytes();
    let registry = with("v1", &image.media_type, document);
    let target = Target::file();
    expect(&import(&registry.host(), "a:v1", &target), &target, &pattern(MIB), "foreign");
    assert!(thief.asked().is_empty(), "{:?}", thief.asked());
}

#[test]
fn a_layer_that_is_no_tar_is_an_error_and_an_artifact_a_disk() {
    let disk = pattern(2 * MIB);
    let config =
        || Blob { media_type: "application/vnd.oci.empty.v1+json".into(), bytes: b"{}".to_vec() };
    let blob = |kind: &str| Blob { media_type: kind.into(), bytes: disk.clone() };
    let image = ContainerImage::of(config(), vec![blob("application/x-raw-disk")]);
    let registry = StandIn::start().image("a", "disk", &image);
    let target = Target::file();
    expect(&import(&registry.host(), "a:disk", &target), &target, &disk, "artifact");
    let image = ContainerImage::of(config(), vec![blob(LAYER)]);
    let registry = StandIn::start().image("a", "v1", &image);
    let said = refusal(&registry, "a:v1");
    assert!(said.contains("tar archive"), "{said}");
    // A damaged artifact is found out at its end.
    let image = ContainerImage::of(config(), vec![blob("application/x-raw-disk")]);
    let registry = StandIn::start().image("a", "v1", &image);
    let mut body = disk.clone();
    body[77] ^= 1;
    let path = format!("/v2/a/blobs/{}", image.blobs[1].digest());
    registry.put(&path, Reply { status: 200, body, ..Reply::default() });
    assert!(refusal(&registry, "a:v1").contains("the disk is not what the image names"));
}

#[test]
fn bootable_containers_are_refused() {
    for label in ["containers.bootc", "ostree.bootable"] {
        let config = serde_json::json!({
            "architecture": "amd64", "os": "linux", "config": { "Labels": { label: "1" } },
        });
        let layer = Blob::plain(Tar::default().file("disk/d", &pattern(MIB)));
        let image = ContainerImage::with_config(&config, vec![layer]);
        let said = refusal(&StandIn::start().image("a", "v1", &image), "a:v1");
        assert!(said.contains("bootc image detected:"), "{said}");
    }
}

#[test]
fn faults_of_a_blob_store_are_survived() {
    let disk = pattern(6 * MIB);
    let tar = Tar::default().file("disk/d", &disk).finish();
    let layer = Blob { media_type: LAYER.into(), bytes: tar };
    let image = ContainerImage::new("amd64", &[], vec![layer.clone()]);
    type Script = fn(FaultServer) -> FaultServer;
    let table: [(&str, Script); 6] = [
        ("close", |server| server.once(Fault::CloseAt(3 * MIB))),
        ("close twice", |server| {
            server.once(Fault::CloseAt(2 * MIB)).once(Fault::CloseAt(5 * MIB))
        }),
        ("503", |server| server.on(1, Fault::Status(503)).on(3, Fault::Status(503))),
        ("no ranges", |server| server.always(Fault::IgnoreRange).once(Fault::CloseAt(4 * MIB))),
        ("no etag", |server| server.always(Fault::NoEtag).once(Fault::CloseAt(4 * MIB))),
        ("expired", |server| server.on(2, Fault::Status(403)).once(Fault::CloseAt(MIB))),
    ];
    each(&table, |(case, script)| {
        let store = script(FaultServer::in_memory(&layer.bytes));
        let away = store.url_via("localhost", "/blob");
        let registry = StandIn::start().image("a", "v1", &image).redirect("a", &layer, &away);
        let target = Target::file();
        expect(&import(&registry.host(), "a:v1", &target), &target, &disk, case);
    });
    // For good, or without what was announced: no disk.
    let broken: [(&str, Script); 3] = [
        ("always cut", |server| server.always(Fault::IgnoreRange).always(Fault::CloseAfter(MIB))),
        ("gone", |server| server.always(Fault::Status(404))),
        ("longer", |server| server.always(Fault::WrongLength(512))),
    ];
    each(&broken, |(case, script)| {
        let store = script(FaultServer::in_memory(&layer.bytes));
        let away = store.url_via("localhost", "/blob");
        let registry = StandIn::start().image("a", "v1", &image).redirect("a", &layer, &away);
        let said = refusal(&registry, "a:v1");
        assert!(said.contains("Failed to read registry image"), "{case}: {said}");
    });
}

#[test]
fn a_layer_is_fetched_once_and_no_layer_below_it() {
    let disk = pattern(3 * MIB);
    let layers = [
        Blob::plain(Tar::default().file("usr/large", &vec![3; 2 << 20])),
        Blob::plain(Tar::default().file("disk/d", &disk)),
        Blob::plain(Tar::default().file("etc/top", b"top")),
    ];
    let image = ContainerImage::new("amd64", &[], layers.to_vec());
    let stores = layers.clone().map(|layer| FaultServer::in_memory(&layer.bytes));
    let mut registry = StandIn::start().image("a", "v1", &image);
    for (layer, store) in layers.iter().zip(&stores) {
        registry = registry.redirect("a", layer, &store.url_via("localhost", "/blob"));
    }
    let target = Target::file();
    expect(&import(&registry.host(), "a:v1", &target), &target, &disk, "three layers");
    let sent = stores.each_ref().map(FaultServer::body_bytes_sent);
    assert_eq!(sent[0], 0, "the base was not needed");
    assert_eq!(sent[1], layers[1].bytes.len() as u64);
}

#[test]
fn mirrors_are_asked_first_and_left_when_they_do_not_help() {
    let disk = pattern(MIB);
    let image = ContainerImage::disk(&disk);
    let mirror = StandIn::start().image("cache/team/a", "v1", &image);
    let home = StandIn::start().image("team/a", "v1", &image).image("team/a", "v2", &image);
    let import = |tag: &str, target: &Target| {
        import(&home.host(), &format!("team/a:{tag}"), target)
            .option("--insecure-registry", mirror.host())
            .option("--mirror", format!("{}={}/cache", home.host(), mirror.host()))
            .option("--user", "anna")
            .variable("CDI_PASSWORD", "open sesame")
    };
    let target = Target::file();
    expect(&import("v1", &target), &target, &disk, "mirrored");
    assert!(home.asked().is_empty(), "{:?}", home.asked());
    let target = Target::file();
    expect(&import("v2", &target), &target, &disk, "not mirrored");
    assert!(!home.asked().is_empty());
    // Half of it there.
    let path = format!("/v2/cache/team/a/blobs/{}", image.blobs[1].digest());
    mirror.put(&path, Reply { status: 404, ..Reply::default() });
    let target = Target::file();
    expect(&import("v1", &target), &target, &disk, "half mirrored");
    assert!(mirror.asked().iter().all(|asked| asked.authorization.is_none()));
}

#[test]
fn archives_are_read_where_they_lie() {
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
fn what_skopeo_pushes_is_read() {
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
            "--dest-compress",
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
    let import = Import::new(format!("{to}"), target.path()).option("--architecture", "amd64");
    expect(&import, &target, &disk, "skopeo's archive");
}

#[test]
fn a_manifest_may_name_a_registry() {
    let disk = pattern(2 * MIB);
    let registry = StandIn::start().image("a", "v1", &ContainerImage::disk(&disk));
    registry.guard("token", Some("YW5uYTpvcGVuIHNlc2FtZQ=="));
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("volume.yaml");
    let text = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{accessKeyId: anna, secretKey: open \
         sesame}}\n---\napiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume\nmetadata: {{name: vm}}\nspec:\n  \
         source: {{registry: {{url: 'docker://{}/a:v1', secretRef: s, platform: {{architecture: amd64}}}}}}\n  \
         pvc: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 4Mi}}}}}}\n",
        registry.host()
    );
    std::fs::write(&manifest, text).unwrap();
    let mut command = std::process::Command::new(testkit::cdi());
    command.args(testkit::arguments!["apply", "-f", manifest, "--volumes", folder.path()]);
    command.args(["--insecure-registry", &registry.host()]);
    testkit::process::run(&mut command, tests::LIMIT).expect_success();
    let made = std::fs::read(folder.path().join("default/vm/disk.img")).unwrap();
    assert!(made[..disk.len()] == disk, "another disk");
}
