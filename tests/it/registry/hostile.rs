//! Images whose content contradicts their metadata, and malicious images.

use testkit::{MIB, pattern};
use tests::Target;
use tests::container::{Blob, ContainerImage, Tar, digest, index};
use tests::registry::{Reply, StandIn};

use super::{INDEX, LAYER, expect, import, refusal};
use crate::each;

#[test]
fn image_without_a_single_disk_has_upstream_cdis_message() {
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
        let message = refusal(&registry, "a:v1");
        assert!(message.contains(words), "{words}: {message}");
        assert!(message.contains("Failed to read registry image"), "{message}");
    });
}

#[test]
fn digest_mismatch_is_refused() {
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
        let message = refusal(&registry, "a:v1");
        assert!(message.contains("Failed to read registry image"), "{case}: {message}");
    }
    // A manifest with another digest than the one requested by the client or named by its index.
    let other = ContainerImage::disk(&pattern(MIB));
    let headers = vec![format!("Content-Type: {}", good.media_type)];
    let reply = Reply { status: 200, headers, body: other.manifest.clone() };
    let list = index(&[good.descriptor("amd64")]);
    let registry = StandIn::start()
        .image("a", "v1", &other)
        .document("a", "list", INDEX, &list)
        .with(&format!("/v2/a/manifests/{}", good.digest()), reply);
    for name in [format!("a@{}", good.digest()), "a:list".to_owned()] {
        let message = refusal(&registry, &name);
        assert!(message.contains("the manifest is not what the image names"), "{name}: {message}");
    }
    // A tag whose manifest does not match the digest in the registry's header.
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
fn hostile_manifests_are_refused_and_their_urls_not_followed() {
    let image = ContainerImage::disk(&pattern(MIB));
    let thief = StandIn::start();
    let with = |tag: &str, kind: &str, body: Vec<u8>| {
        StandIn::start().image("a", "good", &image).document("a", tag, kind, &body)
    };
    // Larger than any manifest has to be.
    let mut huge = image.manifest.clone();
    huge.resize(5 << 20, b' ');
    let message = refusal(&with("v1", &image.media_type, huge), "a:v1");
    assert!(message.contains("longer than 4194304 bytes"), "{message}");
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
    let message = refusal(&registry, "a:deep4");
    assert!(message.contains("deep"), "{message}");
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
        let message = refusal(&with("v1", &image.media_type, bytes), "a:v1");
        assert!(message.contains("Failed to read registry image"), "{document}: {message}");
    });
    // A layer with URLs of other servers is requested from the registry.
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
fn bootable_containers_are_refused() {
    for label in ["containers.bootc", "ostree.bootable"] {
        let config = serde_json::json!({
            "architecture": "amd64", "os": "linux", "config": { "Labels": { label: "1" } },
        });
        let layer = Blob::plain(Tar::default().file("disk/d", &pattern(MIB)));
        let image = ContainerImage::with_config(&config, vec![layer]);
        let message = refusal(&StandIn::start().image("a", "v1", &image), "a:v1");
        assert!(message.contains("bootc image detected:"), "{message}");
    }
}
