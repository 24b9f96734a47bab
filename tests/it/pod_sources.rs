//! `cdi-importer` with sources other than a web server: their messages.

use testkit::{FaultServer, MIB, in_own_network, pattern};
use tests::Pod;
use tests::container::{Blob, ContainerImage, Tar, index};
use tests::registry::StandIn;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

fn image(disk: &[u8]) -> ContainerImage {
    let environment = [
        "PATH=/bin",
        "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small",
        "KUBEVIRT_IO_TEST=no label",
    ];
    let layer = Blob::plain(Tar::default().folder("disk/").file("disk/vm.img", disk));
    ContainerImage::new("amd64", &environment, vec![layer])
}

fn from_registry(host: &str, name: &str) -> Pod {
    Pod::new()
        .from_url(&format!("docker://{host}/{name}"))
        .variable("IMPORTER_SOURCE", "registry")
        .variable("IMPORTER_IMAGE_SIZE", "")
        .variable("IMPORTER_REGISTRY_IMAGE_ARCHITECTURE", "amd64")
        .variable("INSECURE_TLS", "true")
}

#[test]
fn container_disk_labels_are_reported() {
    in_own_network(|| {
        let disk = pattern(3 * MIB);
        let registry = StandIn::start().image("vm", "latest", &image(&disk));
        let pod = from_registry(&registry.host(), "vm");
        pod.run().expect_success();
        let expected = concat!(
            r#"{"scratchSpaceRequired":false,"preallocationApplied":false,"#,
            r#""labels":{"instancetype.kubevirt.io/default-instancetype":"u1.small"},"message":"Import Complete"}"#
        );
        assert_eq!(pod.termination_message(), expected);
        assert!(std::fs::read(pod.path("data/disk.img")).unwrap() == disk);
        assert_eq!(pod.names_in("data"), ["disk.img"]);
    });
}

#[test]
fn missing_architecture_has_upstream_cdis_message() {
    in_own_network(|| {
        let image = image(&pattern(MIB));
        let index = index(&[image.descriptor("amd64")]);
        let registry =
            StandIn::start().image("vm", "one", &image).document("vm", "latest", INDEX, &index);
        let pod = from_registry(&registry.host(), "vm");
        let pod = pod.variable("IMPORTER_REGISTRY_IMAGE_ARCHITECTURE", "absent");
        assert_eq!(pod.run().status.code(), Some(1));
        let expected = "Unable to process data: Unable to transfer source data to scratch space: Failed to read \
                        registry image: Error retrieving image: choosing image instance: no image found in image \
                        index for architecture \"absent\", variant \"\", OS \"linux\"";
        assert_eq!(pod.termination_message(), expected);
    });
}

#[test]
fn missing_image_is_reported_as_image_pull_failure() {
    in_own_network(|| {
        let registry = StandIn::start();
        let pod = from_registry(&registry.host(), "absent");
        assert_eq!(pod.run().status.code(), Some(1));
        let words = pod.termination_message();
        assert!(words.contains("failed to pull image: "), "{words}");
    });
}

#[test]
fn archive_is_unpacked_and_removed_on_a_wrong_checksum() {
    in_own_network(|| {
        let tar = Tar::default().folder("a/").file("a/b", b"text").finish();
        let server = FaultServer::in_memory(&tar);
        let archive = || {
            let pod =
                Pod::new().from_url(&server.url()).variable("IMPORTER_CONTENTTYPE", "archive");
            pod.file("data/lost+found/kept", "").file("data/mine", "too")
        };
        let pod = archive();
        let message = pod.run().expect_success().stderr;
        assert_eq!(
            pod.termination_message(),
            r#"{"scratchSpaceRequired":false,"preallocationApplied":false,"message":"Import Complete"}"#
        );
        assert_eq!(std::fs::read_to_string(pod.path("data/a/b")).unwrap(), "text");
        assert_eq!(pod.names_in("data"), ["a", "lost+found", "mine"]);
        assert!(message.contains("fsync(/data)"), "{message}");
        let pod = archive().variable("IMPORTER_CHECKSUM", &format!("md5:{}", "0".repeat(32)));
        assert_eq!(pod.run().status.code(), Some(0));
        assert!(
            pod.termination_message().contains("checksum mismatch"),
            "{}",
            pod.termination_message()
        );
        assert_eq!(pod.names_in("data"), ["lost+found"]);
    });
}
