//! `cdi-importer` with disks of virtual machines: oVirt by its image transfers, VMware by nbdkit.

use std::path::Path;

use testkit::disk::Fill;
use testkit::imageio::{DISK, IMAGE, SNAPSHOT};
use testkit::vsphere::{FILES, MACHINE_UUID, fake_nbdkit_seen_at};
use testkit::{
    LoopDevice, MIB, Ovirt, OvirtState, QemuImg, SparseDisk, Vsphere, VsphereState, arguments,
    in_own_network,
};
use tests::{LIMIT, Pod};

const COMPLETE: &str =
    r#"{"scratchSpaceRequired":false,"preallocationApplied":false,"message":"Import Complete"}"#;

fn before() -> SparseDisk {
    SparseDisk::new(12 * MIB).with(0, 2 * MIB, Fill::Pattern).with(9 * MIB, MIB, Fill::Random(1))
}

/// The next state: some data, and zeroes where there was data.
fn after() -> SparseDisk {
    before().with(MIB, MIB, Fill::Byte(0)).with(5 * MIB, 2 * MIB, Fill::Random(2))
}

fn with_keys(pod: Pod, kind: &str, endpoint: &str, [user, password]: [&str; 2]) -> Pod {
    pod.from_url(endpoint)
        .variable("IMPORTER_SOURCE", kind)
        .variable("IMPORTER_IMAGE_SIZE", "")
        .variable("IMPORTER_ACCESS_KEY_ID", user)
        .variable("IMPORTER_SECRET_KEY", password)
}

fn between(pod: Pod, previous: &str, current: &str) -> Pod {
    let pod = pod.variable("IMPORTER_PREVIOUS_CHECKPOINT", previous);
    pod.variable("IMPORTER_CURRENT_CHECKPOINT", current)
}

fn ovirt_pod(pod: Pod, ovirt: &Ovirt) -> Pod {
    let keys = ["admin@internal", "hush"];
    with_keys(pod, "imageio", &ovirt.endpoint(), keys).variable("IMPORTER_DISK_ID", DISK)
}

#[track_caller]
fn expect_disk(pod: &Pod, disk: &[u8], case: &str) {
    let finished = pod.run().expect_success();
    assert!(std::fs::read(pod.path("data/disk.img")).unwrap() == disk, "{case}: the disks differ");
    assert_eq!(pod.names_in("data"), ["disk.img"], "{case}");
    assert!(!finished.stderr.contains("hush"), "{case}: {}", finished.stderr);
}

#[test]
fn ovirt_disk_is_imported_and_its_transfer_finalized() {
    in_own_network(|| {
        let state = || OvirtState { bytes: before().bytes(), ..OvirtState::default() };
        let ovirt = Ovirt::start(state());
        let pod = ovirt_pod(Pod::new(), &ovirt);
        expect_disk(&pod, &before().bytes(), "file");
        assert_eq!(pod.termination_message(), COMPLETE);
        assert_eq!(ovirt.state().actions.last().unwrap(), "finalize");
        if let Some(device) = LoopDevice::filled_with(0xaa, 12 * MIB) {
            let ovirt = Ovirt::start(state());
            ovirt_pod(Pod::on(&device), &ovirt).run().expect_success();
            assert!(device.bytes() == before().bytes(), "the disks differ");
        }
        let refused = ovirt_pod(Pod::new(), &ovirt).variable("IMPORTER_SECRET_KEY", "other");
        assert_eq!(refused.run().status.code(), Some(1));
        let words = refused.termination_message();
        assert!(words.starts_with("Unable to connect to imageio data source: "), "{words}");
        assert!(words.contains("Cannot authenticate"), "{words}");
    });
}

#[test]
fn sigterm_cancels_the_ovirt_transfer() {
    in_own_network(|| {
        let bytes = before().bytes();
        let ovirt = Ovirt::start(OvirtState { bytes, slow: u32::MAX, ..OvirtState::default() });
        let pod = ovirt_pod(Pod::new(), &ovirt);
        let running = pod.start();
        let deadline = std::time::Instant::now() + LIMIT;
        while ovirt.state().actions.is_empty() {
            assert!(std::time::Instant::now() < deadline, "no transfer was begun");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        running.signal(15);
        let finished = running.wait(LIMIT);
        assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
        assert_eq!(ovirt.state().actions.last().unwrap(), "cancel");
        assert!(pod.termination_message().contains("was stopped"), "{}", pod.termination_message());
        assert!(pod.names_in("data").is_empty());
    });
}

#[test]
fn ovirt_delta_changes_the_previous_stage() {
    let Some(qemu) = QemuImg::require() else { return };
    in_own_network(|| {
        let folder = tempfile::tempdir().unwrap();
        let (base, overlay) = (folder.path().join(IMAGE), folder.path().join("overlay"));
        before().write_to(&base);
        let create = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b"].map(Into::into);
        qemu.run(create.into_iter().chain(arguments![&base, &overlay]));
        qemu.qemu_io(&overlay, &["write -P 5 4M 1M", "write -z 9M 512k"]);
        let expected = qemu.to_raw(&overlay, "qcow2");
        let bytes = std::fs::read(&overlay).unwrap();
        let ovirt = Ovirt::start(OvirtState { bytes, ..OvirtState::default() });
        let stage = |previous: &str| {
            let pod = Pod::new().file("data/disk.img", before().bytes());
            between(ovirt_pod(pod, &ovirt), previous, SNAPSHOT)
        };
        expect_disk(&stage(IMAGE), &expected, "delta");
        let other = stage("other");
        assert_eq!(other.run().status.code(), Some(1));
        assert!(
            other.termination_message().contains("and not since other"),
            "{}",
            other.termination_message()
        );
    });
}

/// A pod in which nbdkit simulates the plugin for VMware's library. Its disk, and the arguments that it gets, are in
/// `/opt`.
fn vddk_pod(pod: Pod, vsphere: &Vsphere, disk: &SparseDisk) -> Option<Pod> {
    let pod = pod.folder("tmp").file("opt/disk", disk.bytes()).programs_in("/opt:/usr/bin:/bin");
    fake_nbdkit_seen_at(&pod.path("opt"), Path::new("/opt"), Path::new("/opt/disk"))?;
    let pod = with_keys(pod, "vddk", &vsphere.endpoint(), ["root", "hush & <hush>"]);
    let pod = pod.variable("IMPORTER_UUID", MACHINE_UUID);
    Some(pod.variable("IMPORTER_BACKING_FILE", FILES[0]))
}

fn vsphere() -> Vsphere {
    let areas = vec![(MIB, MIB), (5 * MIB, 2 * MIB)];
    let state = VsphereState { capacity: 12 * MIB, areas, ..VsphereState::default() };
    Vsphere::start(state, false)
}

const VDDK_COMPLETE: &str = concat!(
    r#"{"scratchSpaceRequired":false,"preallocationApplied":false,"#,
    r#""vddkInfo":{"Version":"8.0.2","Host":"esx.example"},"message":"Import Complete"}"#
);

#[test]
#[cfg(target_arch = "x86_64")]
fn vmware_disk_is_imported_through_nbdkit_in_the_sandbox() {
    in_own_network(|| {
        let vsphere = vsphere();
        let Some(pod) = vddk_pod(Pod::new(), &vsphere, &before()) else { return };
        let pod = pod.file("vddk-args/vddk-config-file", "");
        expect_disk(&pod, &before().bytes(), "file");
        assert_eq!(pod.termination_message(), VDDK_COMPLETE);
        let password = std::fs::read_to_string(pod.path("opt/password")).unwrap();
        assert_eq!(password, "hush & <hush>");
        let asked = std::fs::read_to_string(pod.path("opt/arguments")).unwrap();
        for word in ["libdir=/opt/vmware-vix-disklib-distrib", "config=/vddk-args/vddk-config-file"]
        {
            assert!(asked.lines().any(|line| line == word), "{word}: {asked}");
        }
        assert!(pod.names_in("tmp").is_empty(), "nbdkit has not ended");
        if let Some(device) = LoopDevice::filled_with(0xaa, 12 * MIB) {
            let on_device = vddk_pod(Pod::on(&device), &vsphere, &before()).unwrap();
            let message = on_device.run().expect_success().stderr;
            assert!(device.bytes() == before().bytes(), "the disks differ");
            assert!(message.contains("system calls confined"), "{message}");
        }
    });
}

#[test]
#[cfg(target_arch = "x86_64")]
fn vmware_delta_writes_only_changed_blocks() {
    in_own_network(|| {
        let vsphere = vsphere();
        let pod = Pod::new().file("data/disk.img", before().bytes());
        let Some(pod) = vddk_pod(pod, &vsphere, &after()) else { return };
        let pod = between(pod, "snapshot-1", "snapshot-2");
        expect_disk(&pod, &after().bytes(), "warm");
        assert_eq!(pod.termination_message(), VDDK_COMPLETE);
        let calls = vsphere.state().calls.clone();
        assert!(calls.contains(&"QueryChangedDiskAreas 52 aa/1".to_owned()), "{calls:?}");
    });
}

#[test]
#[cfg(target_arch = "x86_64")]
fn vmware_errors_are_in_the_termination_message() {
    in_own_network(|| {
        let vsphere = vsphere();
        type Change = fn(Pod) -> Pod;
        let table: [(Change, &str); 5] = [
            (|pod| pod.variable("IMPORTER_SECRET_KEY", "other"), "Cannot complete login"),
            (|pod| pod.variable("IMPORTER_UUID", "other"), "no virtual machine other"),
            (|pod| pod.variable("IMPORTER_BACKING_FILE", "[ds] x.vmdk"), "has no disk"),
            (|pod| pod.variable("IMPORTER_PREVIOUS_CHECKPOINT", "a"), "needs a current one"),
            (|pod| pod.file("opt/broken", ""), "nbdkit ended with"),
        ];
        for (change, expected) in table {
            let Some(pod) = vddk_pod(Pod::new(), &vsphere, &before()) else { return };
            let pod = change(pod);
            assert_eq!(pod.run().status.code(), Some(1), "{expected}");
            let words = pod.termination_message();
            assert!(words.starts_with("Unable to connect to vddk data source: "), "{words}");
            assert!(words.contains(expected) && !words.contains("hush"), "{words}");
            assert!(pod.names_in("data").is_empty(), "{expected}");
        }
    });
}
