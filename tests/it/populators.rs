//! Forklift's populators as its pods start them: flags, a Secret's keys as variables, and a volume.

use testkit::imageio::DISK;
use testkit::openstack::IMAGE;
use testkit::{
    Fault, FaultServer, LoopDevice, MIB, Openstack, OpenstackState, Ovirt, OvirtState, SparseDisk,
    in_own_network, pattern,
};
use tests::{LIMIT, Pod};

use crate::pod_life::page;

/// The failure of such a program.
const FATAL: Option<i32> = Some(255);

fn disk() -> SparseDisk {
    SparseDisk::mixed(6 * MIB, 7)
}

const OVIRT: &str = "ovirt-populator";
const OPENSTACK: &str = "openstack-populator";

fn pod(program: &'static str, volume: &str, own: &[String]) -> Pod {
    let common = ["--secret-name=keys", "--owner-uid=1-2-3", "--cr-name=cr", "--cr-namespace=ns"];
    let mut arguments = common.map(str::to_owned).to_vec();
    arguments.extend([format!("--volume-path={volume}"), format!("--pvc-size={}", 8 * MIB)]);
    arguments.extend_from_slice(own);
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    Pod::of_populator(program).arguments(&arguments)
}

fn ovirt_pod(ovirt: &Ovirt, volume: &str) -> Pod {
    let own = [format!("--engine-url={}", ovirt.endpoint()), format!("--disk-id={DISK}")];
    pod(OVIRT, volume, &own)
        .variable("user", "admin@internal")
        .variable("password", "hush")
        .variable("insecureSkipVerify", "true")
}

fn openstack_pod(openstack: &Openstack, volume: &str) -> Pod {
    let own = [format!("--endpoint={}", openstack.endpoint()), format!("--image-id={IMAGE}")];
    pod(OPENSTACK, volume, &own)
        .variable("username", "anna")
        .variable("password", "hush")
        .variable("projectName", "vms")
        .variable("domainName", "Default")
        .variable("regionName", "one")
}

#[track_caller]
fn expect_disk(pod: &Pod, disk: &[u8]) {
    let finished = pod.run().expect_success();
    assert!(std::fs::read(pod.path("mnt/disk.img")).unwrap() == disk, "the disks differ");
    assert_eq!(pod.names_in("mnt"), ["disk.img"]);
    assert!(!finished.stderr.contains("hush"), "{}", finished.stderr);
}

/// The first bytes of a guest's raw disk may resemble the header of an image.
fn looks_like_qcow2(mut disk: Vec<u8>) -> Vec<u8> {
    disk[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
    disk
}

#[test]
fn ovirt_populator_copies_the_disk_unchanged() {
    in_own_network(|| {
        let bytes = looks_like_qcow2(disk().bytes());
        let state = || OvirtState { bytes: bytes.clone(), ..OvirtState::default() };
        let ovirt = Ovirt::start(state());
        expect_disk(&ovirt_pod(&ovirt, "/mnt/disk.img"), &bytes);
        assert_eq!(ovirt.state().actions.last().unwrap(), "finalize");
        let Some(device) = LoopDevice::filled_with(0xaa, 8 * MIB) else { return };
        let ovirt = Ovirt::start(state());
        ovirt_pod(&ovirt, "/dev/block").device(&device).run().expect_success();
        assert!(device.bytes()[..bytes.len()] == bytes, "the disks differ");
        // The error is logged, and the transfer is ended.
        let failing = Ovirt::start(OvirtState { another_length: 512, ..state() });
        let pod = ovirt_pod(&failing, "/mnt/disk.img");
        let finished = pod.run();
        assert_eq!(finished.status.code(), FATAL);
        assert!(finished.stderr.contains("changed during the import"), "{}", finished.stderr);
        assert_eq!(failing.state().actions.last().unwrap(), "finalize");
        assert!(!pod.path("mnt/disk.img").exists());
        let finished = ovirt_pod(&failing, "/mnt/disk.img").variable("password", "other").run();
        assert_eq!(finished.status.code(), FATAL);
        assert!(finished.stderr.contains("Cannot authenticate"), "{}", finished.stderr);
    });
}

#[test]
fn openstack_populator_copies_and_hashes_the_image() {
    in_own_network(|| {
        let bytes = looks_like_qcow2(disk().bytes());
        let state = || OpenstackState { bytes: bytes.clone(), ..OpenstackState::default() };
        let hash = |digits: String| Some(("sha256".to_owned(), digits));
        let right = tests::container::digest(&bytes).replace("sha256:", "");
        for state in [
            state(),
            OpenstackState { ranges: true, busy_at: Some(1), ..state() },
            OpenstackState { ranges: true, hash: hash(right.clone()), ..state() },
        ] {
            let openstack = Openstack::start(state);
            expect_disk(&openstack_pod(&openstack, "/mnt/disk.img"), &bytes);
            let login = openstack.state().logins[0].clone();
            assert!(login.contains(r#""domain":{"name":"Default"}"#), "{login}");
        }
        let Some(device) = LoopDevice::filled_with(0xaa, 8 * MIB) else { return };
        let openstack = Openstack::start(state());
        openstack_pod(&openstack, "/dev/block").device(&device).run().expect_success();
        assert!(device.bytes()[..bytes.len()] == bytes, "the disks differ");

        let wrong = OpenstackState { hash: hash("0".repeat(64)), ..state() };
        let queued = OpenstackState { status: Some("queued".into()), ..state() };
        type Change = fn(Pod) -> Pod;
        let table: [(OpenstackState, Change, &str); 6] = [
            (wrong, |pod| pod, "checksum mismatch"),
            (queued, |pod| pod, "the image is not active, but \"queued\""),
            (state(), |pod| pod.variable("password", "other"), "requires authentication"),
            (
                state(),
                |pod| pod.variable("authType", "kerberos"),
                "unsupported authentication type",
            ),
            (state(), |pod| pod.variable("regionName", "two"), "no images for this region"),
            (
                state(),
                |pod| pod.variable("cacert", "-----BEGIN CERTIFICATE-----"),
                "CA certificate is malformed, failed to configure the CA cert pool",
            ),
        ];
        for (state, change, words) in table {
            let openstack = Openstack::start(state);
            let pod = change(openstack_pod(&openstack, "/mnt/disk.img"));
            let finished = pod.run();
            assert_eq!(finished.status.code(), FATAL, "{words}");
            assert!(finished.stderr.contains(words), "{words}: {}", finished.stderr);
            assert!(!finished.stderr.contains("hush"), "{}", finished.stderr);
            assert!(!pod.path("mnt/disk.img").exists(), "{words}");
        }
    });
}

#[test]
fn populator_progress_has_its_own_metric_name() {
    in_own_network(|| {
        let bytes = pattern(8 * MIB);
        let server = FaultServer::in_memory(&bytes).once(Fault::StallAt(4 * MIB));
        let elsewhere = Some(server.url());
        let openstack = Openstack::start(OpenstackState { elsewhere, ..OpenstackState::default() });
        let pod = openstack_pod(&openstack, "/mnt/disk.img");
        let running = pod.start();
        server.wait_for_stall(LIMIT);
        let Some(page) = page("/metrics", &[]) else { return };
        let metric = "kubevirt_cdi_openstack_populator_progress_total{ownerUID=\"1-2-3\"} ";
        let line = page.lines().find_map(|line| line.strip_prefix(metric));
        let percent: f64 = line.unwrap_or_else(|| panic!("{page}")).parse().unwrap();
        assert!((0.0..100.0).contains(&percent), "{percent}");
        server.heal();
        running.wait(LIMIT).expect_success();
        assert!(std::fs::read(pod.path("mnt/disk.img")).unwrap() == bytes, "the disks differ");
    });
}

#[test]
fn incomplete_populator_arguments_are_refused() {
    in_own_network(|| {
        for (program, arguments, words) in [
            (OVIRT, vec!["--volume-path=/mnt/disk.img"], "--pvc-size is missing"),
            (
                OPENSTACK,
                vec!["--volume-path=/mnt/disk.img", "--pvc-size=0"],
                "--pvc-size has to be a count of bytes",
            ),
            (
                OVIRT,
                vec!["--volume-path=/mnt/disk.img", "--pvc-size=1048576"],
                "--engine-url is missing",
            ),
        ] {
            let finished = Pod::of_populator(program).arguments(&arguments).run();
            assert_eq!(finished.status.code(), FATAL, "{words}");
            assert!(finished.stderr.contains(words), "{words}: {}", finished.stderr);
        }
    });
}
