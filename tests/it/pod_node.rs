//! Node pull with both programs: one container brings the server, one is the container disk, one imports.

use testkit::{MIB, Qcow2Options, QemuImg, SparseDisk, cdi_containerimage_server, in_own_network};
use tests::{LIMIT, Pod};

/// As pods start the server in the container disk.
const SERVE: [&str; 8] = [
    "-p",
    "8100",
    "-image-dir",
    "/disk",
    "-ready-file",
    "/shared/ready",
    "-done-file",
    "/shared/done",
];

/// The container that runs first. Its image has no shell: the server stands in for one, and is found under that name.
fn init(line: &str) -> Pod {
    let pod = Pod::without_volume().folder("shared").program(cdi_containerimage_server());
    pod.called("sh").arguments(&["-c", line])
}

fn importer(other: &Pod) -> Pod {
    Pod::new()
        .sharing("shared", other)
        .from_url("http://localhost:8100/disk.img")
        .variable("IMPORTER_PULL_METHOD", "node")
        .variable("IMPORTER_IMAGE_SIZE", "")
        .variable("IMPORTER_READY_FILE", "/shared/ready")
        .variable("IMPORTER_DONE_FILE", "/shared/done")
}

#[test]
fn node_pull_server_serves_the_container_disk() {
    in_own_network(|| {
        let disk = SparseDisk::mixed(4 * MIB, 9);
        let mut images = vec![disk.bytes()];
        images.extend(
            QemuImg::require().map(|qemu| qemu.qcow2(&disk, &Qcow2Options::default()).bytes()),
        );
        for image in images {
            let init = init("cp /sh /shared/server");
            init.run().expect_success();
            let server = Pod::without_volume()
                .sharing("shared", &init)
                .program(&init.path("shared/server"))
                .file("disk/a vm.img", &image)
                .variable("INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE", "u1.small")
                .arguments(&SERVE);
            let serving = server.start();
            let pod = importer(&init);
            pod.run().expect_success();
            assert!(std::fs::read(pod.path("data/disk.img")).unwrap() == disk.bytes());
            let label = r#""instancetype.kubevirt.io/default-instancetype":"u1.small""#;
            assert!(pod.termination_message().contains(label), "{}", pod.termination_message());
            // The importer's done file ends the server, which removes both files.
            let message = serving.wait(LIMIT).expect_success().stdout;
            assert!(message.contains("/disk/a vm.img"), "{message}");
            assert_eq!(init.names_in("shared"), ["server"]);
        }
    });
}

#[test]
fn file_name_with_special_characters_is_served() {
    in_own_network(|| {
        let init = init("cp /sh /shared/server");
        init.run().expect_success();
        let server = Pod::without_volume()
            .sharing("shared", &init)
            .program(&init.path("shared/server"))
            .file("disk/50% über?.img", "a disk")
            .arguments(&SERVE);
        let serving = server.start();
        let pod = importer(&init);
        pod.run().expect_success();
        let found = std::fs::read(pod.path("data/disk.img")).unwrap();
        assert_eq!(&found[..6], b"a disk");
        serving.wait(LIMIT).expect_success();
    });
}

#[test]
fn unknown_shell_commands_are_refused() {
    in_own_network(|| {
        let finished = init("cp /absent /shared/server").run();
        assert_eq!(finished.status.code(), Some(1));
        assert!(finished.stderr.contains("cannot copy /absent"), "{}", finished.stderr);
        for line in ["ls /shared", "cp /sh /shared/a; ls", "cp -r / /shared"] {
            let finished = init(line).run();
            assert_eq!(finished.status.code(), Some(127), "{line}");
            assert!(finished.stderr.contains("there is no shell"), "{}", finished.stderr);
        }
        // The poller's pods check whether it starts at all.
        let help = Pod::without_volume().program(cdi_containerimage_server()).arguments(&["-h"]);
        assert!(help.run().expect_success().stdout.starts_with("Usage of"));
    });
}
