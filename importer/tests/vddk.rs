//! VMware's disks: vSphere is a stand-in, nbdkit a real one without VMware's library.
#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

use std::path::Path;
use std::sync::Arc;

use contract::Checksum;
use importer::{Checkpoints, HttpOptions, Secret, StopFlag, VddkSettings, vddk};
use pipeline::{Options, Progress, Report, Target};
use tempfile::TempDir;
use testkit::disk::Fill;
use testkit::vsphere::{CHANGE_IDS, FILES, MACHINE_UUID, fake_nbdkit};
use testkit::{MIB, SparseDisk, Vsphere, VsphereState};

const LEN: u64 = 24 * MIB;

fn before() -> SparseDisk {
    SparseDisk::new(LEN).with(0, 4 * MIB, Fill::Pattern).with(20 * MIB, MIB, Fill::Random(1))
}

/// The next state: some data, and zeroes where there was data.
fn after() -> SparseDisk {
    before().with(MIB, MIB, Fill::Byte(0)).with(10 * MIB, 2 * MIB, Fill::Random(2))
}

fn state() -> VsphereState {
    let areas = vec![(MIB, MIB), (10 * MIB, MIB), (11 * MIB, MIB)];
    VsphereState { capacity: LEN, areas, ..VsphereState::default() }
}

/// vSphere, nbdkit, and the settings to reach them.
struct VddkFixture {
    directory: TempDir,
    vsphere: Vsphere,
    settings: VddkSettings,
}

fn vddk_fixture(state: VsphereState, tls: bool, disk: &SparseDisk) -> Option<VddkFixture> {
    let directory = tempfile::tempdir().unwrap();
    let raw = directory.path().join("raw");
    disk.write_to(&raw);
    let nbdkit = fake_nbdkit(directory.path(), &raw)?;
    let vsphere = Vsphere::start(state, tls);
    let settings = VddkSettings {
        endpoint: vsphere.endpoint(),
        username: "root".into(),
        password: Secret::new("hush & <hush>"),
        thumbprint: String::new(),
        uuid: MACHINE_UUID.into(),
        backing_file: FILES[0].into(),
        checkpoints: Checkpoints::default(),
        http: HttpOptions::default(),
        nbdkit,
        library: "/opt/vmware-vix-disklib-distrib".into(),
        extra_config: None,
        work_folder: directory.path().into(),
        stop: StopFlag::default(),
    };
    Some(VddkFixture { directory, vsphere, settings })
}

impl VddkFixture {
    fn target(&self) -> std::path::PathBuf {
        self.directory.path().join("disk.img")
    }

    fn import(&self) -> Result<Report, Box<dyn std::error::Error>> {
        let stage = vddk(&self.settings)?;
        let options = Options { delta: stage.delta.clone(), ..Options::default() };
        let path = self.target();
        let target = Target { path, available: None, grow_to: None, preallocate: false };
        let report =
            pipeline::import(&*stage.source, &target, &options, &Arc::new(Progress::default()))?;
        let info = stage.info.unwrap().info();
        assert_eq!((&*info.version, &*info.host), ("8.0.2", "esx.example"));
        Ok(report)
    }

    fn arguments(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.directory.path().join("arguments")).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[track_caller]
    fn refusal(&self) -> String {
        let error = self.import().unwrap_err();
        let causes = std::iter::successors(error.source(), |error| error.source());
        let text = causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"));
        assert!(!text.contains("hush") && !format!("{error:?}").contains("hush"), "{text}");
        text
    }
}

fn same(path: &Path, disk: &SparseDisk) -> bool {
    std::fs::read(path).unwrap() == disk.bytes()
}

#[test]
fn a_whole_disk_comes_through_nbdkit_without_its_holes() {
    let Some(fixture) = vddk_fixture(state(), false, &before()) else { return };
    let report = fixture.import().unwrap();
    assert!(same(&fixture.target(), &before()));
    assert!(report.bytes_read < 7 * MIB, "{report:?}");
    let arguments = fixture.arguments();
    let plugin = arguments.iter().position(|word| word == "vddk").unwrap();
    let (before, after) = arguments.split_at(plugin);
    for word in ["--verbose", "--filter=retry", "--filter=cacheextents", "vddk.stats=1"] {
        assert!(before.contains(&word.to_owned()), "{word}: {before:?}");
    }
    let password = after[4].strip_prefix("password=-").unwrap();
    assert!(password.parse::<u32>().unwrap() > 2);
    let expected = [
        "vddk",
        "libdir=/opt/vmware-vix-disklib-distrib",
        "server=127.0.0.1",
        "user=root",
        &after[4],
        "thumbprint=",
        "vm=moref=vm-7",
        "file=[ds] m/d-000002.vmdk",
    ];
    assert_eq!(after, expected);
    let given = std::fs::read_to_string(fixture.directory.path().join("password")).unwrap();
    assert_eq!(given, "hush & <hush>");
    let left = ["nbd.sock", "nbd.pid"].map(|name| fixture.directory.path().join(name).exists());
    assert_eq!(left, [false, false], "nbdkit has not ended");
}

#[test]
fn a_warm_import_writes_what_has_changed_between_two_snapshots() {
    for (previous, page, expires_at) in [
        ("snapshot-1", 0, None),
        (CHANGE_IDS[0], 0, None),
        ("snapshot-1", 5 * MIB, None),
        ("snapshot-1", 5 * MIB, Some(12)),
    ] {
        let state = VsphereState { page, expires_at, ..state() };
        let Some(mut fixture) = vddk_fixture(state, false, &after()) else { return };
        fixture.settings.checkpoints = Checkpoints::between("snapshot-2", previous);
        fixture.settings.extra_config = Some("/vddk-args/vddk-config-file".into());
        before().write_to(&fixture.target());
        let report = fixture.import().unwrap();
        assert!(same(&fixture.target(), &after()), "{previous} {page}");
        assert_eq!((report.bytes_written, report.zero_bytes), (2 * MIB, MIB), "{previous} {page}");
        let arguments = fixture.arguments();
        for word in [
            "snapshot=snapshot-2",
            "transports=file:nbdssl:nbd",
            "config=/vddk-args/vddk-config-file",
            "file=[ds] m/d-000003.vmdk",
        ] {
            assert!(arguments.contains(&word.to_owned()), "{word}: {arguments:?}");
        }
        let calls = fixture.vsphere.state().calls.clone();
        let count = calls.iter().filter(|call| *call == "QueryChangedDiskAreas 52 aa/1").count();
        assert!(count >= if page == 0 { 1 } else { 5 }, "{calls:?}");
        let logins = calls.iter().filter(|call| *call == "Login").count();
        assert_eq!(logins, 1 + usize::from(expires_at.is_some()), "{calls:?}");
    }
}

#[test]
fn stage_without_changes_reads_and_writes_nothing() {
    let state = VsphereState { areas: vec![], ..state() };
    let Some(mut fixture) = vddk_fixture(state, false, &after()) else { return };
    fixture.settings.checkpoints = Checkpoints::between("snapshot-2", "snapshot-1");
    before().write_to(&fixture.target());
    let report = fixture.import().unwrap();
    assert_eq!((report.bytes_read, report.bytes_written), (0, 0));
    assert!(same(&fixture.target(), &before()));
}

#[test]
fn a_disk_is_found_by_any_of_its_files() {
    for file in FILES {
        let Some(mut fixture) = vddk_fixture(state(), false, &before()) else { return };
        fixture.settings.backing_file = file.into();
        fixture.import().unwrap();
        assert!(fixture.arguments().contains(&format!("file={file}")));
    }
}

#[test]
fn only_the_certificate_with_the_thumbprint_is_trusted() {
    let Some(mut fixture) = vddk_fixture(state(), true, &before()) else { return };
    fixture.import().unwrap(); // nothing given, nothing checked
    let any: Checksum = format!("sha1:{}", "0".repeat(40)).parse().unwrap();
    let mut hasher = any.hasher();
    hasher.update(fixture.vsphere.certificate());
    let digest = hasher.finish().to_string();
    let digits = digest.strip_prefix("sha1:").unwrap().to_uppercase();
    let pairs: Vec<_> =
        digits.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).unwrap()).collect();
    fixture.settings.thumbprint = pairs.join(":");
    fixture.import().unwrap();
    fixture.settings.thumbprint = format!("00{}", &pairs.join(":")[2..]);
    assert!(fixture.refusal().contains("it has another thumbprint"));
    fixture.settings.thumbprint = "short".into();
    assert!(fixture.refusal().contains("the thumbprint cannot be used"));
}

#[test]
fn invalid_settings_are_rejected_with_reasons() {
    type Change = fn(&mut VddkSettings);
    let table: [(Change, &str); 7] = [
        (|s| s.password = Secret::new("other"), "Cannot complete login"),
        (|s| s.uuid = "other".into(), "no virtual machine other"),
        (|s| s.backing_file = "[ds] other.vmdk".into(), "has no disk"),
        (|s| s.checkpoints = Checkpoints::between("snapshot-9", ""), "has no snapshot"),
        (|s| s.checkpoints = Checkpoints::between("", "snapshot-1"), "needs a current one"),
        (|s| s.nbdkit = "/nowhere/nbdkit".into(), "cannot start /nowhere/nbdkit"),
        (|s| s.stop.set(), "was stopped"),
    ];
    for (change, expected) in table {
        let Some(mut fixture) = vddk_fixture(state(), false, &before()) else { return };
        change(&mut fixture.settings);
        let text = fixture.refusal();
        assert!(text.contains(expected), "{text}");
    }
    let Some(fixture) = vddk_fixture(state(), false, &before()) else { return };
    std::fs::write(fixture.directory.path().join("broken"), "").unwrap();
    let text = fixture.refusal();
    assert!(text.contains("nbdkit ended with") && text.contains("no such library"), "{text}");
}

#[test]
fn invalid_changed_areas_are_refused() {
    let answer = |text: &str| format!("<returnval>{text}</returnval>");
    let area = |start: u64, len: u64| {
        format!("<changedArea><start>{start}</start><length>{len}</length></changedArea>")
    };
    let head =
        |start: u64, len: u64| format!("<startOffset>{start}</startOffset><length>{len}</length>");
    for (changes, expected) in [
        (String::new(), "there are none"),
        (answer(&head(0, 0)), "another part"),
        (answer(&head(0, LEN + 1)), "another part"),
        (answer(&head(MIB, MIB)), "another part"),
        (answer(&(head(0, LEN) + &area(LEN - 1, 2))), "one is outside"),
        (answer(&(head(0, LEN) + &area(0, u64::MAX) + &area(2, u64::MAX))), "one is outside"),
        (answer(&(head(0, LEN) + &area(10, 10) + &area(5, 10))), "they overlap"),
    ] {
        let state = VsphereState { changes: Some(changes), ..state() };
        let Some(mut fixture) = vddk_fixture(state, false, &after()) else { return };
        fixture.settings.checkpoints = Checkpoints::between("snapshot-2", "snapshot-1");
        let text = fixture.refusal();
        assert!(text.contains(expected), "{text}");
    }
    let state = VsphereState { untracked: true, ..state() };
    let Some(mut fixture) = vddk_fixture(state, false, &after()) else { return };
    fixture.settings.checkpoints = Checkpoints::between("snapshot-2", "snapshot-1");
    assert!(fixture.refusal().contains("tracking of changed blocks is not enabled"));
}
