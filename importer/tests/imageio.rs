//! oVirt's image transfers: the route, and everything that can go wrong on it.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use importer::{
    Checkpoints, HttpOptions, ImageioSettings, Intervals, RetryPolicy, Secret, StopFlag, imageio,
};
use pipeline::{Options, Progress, Report, Target};
use testkit::disk::Fill;
use testkit::imageio::{DISK, IMAGE, SNAPSHOT};
use testkit::{MIB, Ovirt, OvirtState, QemuImg, SparseDisk, arguments};

fn settings(ovirt: &Ovirt) -> ImageioSettings {
    let millisecond = Duration::from_millis(1);
    ImageioSettings {
        endpoint: ovirt.endpoint(),
        username: "admin@internal".into(),
        password: Secret::new("hush"),
        disk_id: DISK.into(),
        checkpoints: Checkpoints::default(),
        http: HttpOptions {
            retry: RetryPolicy { delay_first: millisecond, ..RetryPolicy::default() },
            ..HttpOptions::default()
        },
        stop: StopFlag::default(),
        intervals: Intervals {
            poll: millisecond,
            locked: millisecond,
            keep: Duration::from_secs(60),
            give_up: Duration::from_secs(60),
            end: millisecond,
        },
    }
}

fn disk() -> SparseDisk {
    SparseDisk::new(20 * MIB)
        .with(0, 512, Fill::Text(1))
        .with(2 * MIB, 3 * MIB, Fill::Pattern)
        .with(17 * MIB, MIB, Fill::Random(2))
}

/// The list as the image server makes it, for [`disk`].
const EXTENTS: &str = r#"[
    {"start":0,"length":65536,"zero":false,"hole":false},
    {"start":65536,"length":2031616,"zero":true,"hole":true},
    {"start":2097152,"length":3145728,"zero":false,"hole":false},
    {"start":5242880,"length":12582912,"zero":true,"hole":false},
    {"start":17825792,"length":1048576,"zero":false,"hole":false},
    {"start":18874368,"length":2097152,"zero":true,"hole":true}]"#;

fn healthy() -> OvirtState {
    OvirtState { bytes: disk().bytes(), extents: Some(EXTENTS.into()), ..OvirtState::default() }
}

fn import(settings: &ImageioSettings, path: &Path) -> anyhow_lite::Result<Report> {
    let stage = imageio(settings)?;
    let options = Options { delta: stage.delta, ..Options::default() };
    let target = Target { path: path.into(), available: None, grow_to: None, preallocate: false };
    Ok(pipeline::import(&*stage.source, &target, &options, &Arc::new(Progress::default()))?)
}

/// Any error.
mod anyhow_lite {
    pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
}

/// The message of an error and of its causes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Imports the disk, and returns what was done about the transfer.
fn check(state: OvirtState) -> (Report, Vec<String>) {
    let ovirt = Ovirt::start(state);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let report =
        import(&settings(&ovirt), &path).unwrap_or_else(|error| panic!("{}", chain(&*error)));
    assert!(std::fs::read(&path).unwrap() == disk().bytes(), "the disks differ");
    let actions = ovirt.state().actions.clone();
    (report, actions)
}

#[test]
fn only_extents_with_data_are_fetched_and_the_transfer_is_finalised() {
    let (report, actions) = check(healthy());
    assert_eq!((&*report.format, &*report.route), ("raw", "ranges"));
    assert!(report.bytes_read < 5 * MIB, "{report:?}");
    assert!(actions[0].contains(r#""format":"raw""#) && actions[0].contains(DISK), "{actions:?}");
    assert!(actions[0].contains(r#""inactivity_timeout":60"#), "{actions:?}");
    assert_eq!(actions[1..], ["finalize"]);
}

#[test]
fn servers_without_extents_and_engines_without_tokens_are_supported() {
    let (report, _) = check(OvirtState { extents: None, ..healthy() });
    assert!(report.bytes_read >= 20 * MIB, "{report:?}");
    check(OvirtState { without_tokens: true, ..healthy() });
}

#[test]
fn temporary_states_are_awaited() {
    check(OvirtState { locked: 3, slow: 3, ..healthy() });
    for at in 1..3 {
        let (_, actions) = check(OvirtState { expires_at: Some(at), ..healthy() });
        assert!(actions.contains(&"extend".to_owned()), "{actions:?}");
        let (_, actions) = check(OvirtState { pauses_at: Some(at), slow: 2, ..healthy() });
        assert!(actions.contains(&"resume".to_owned()), "{actions:?}");
        assert_eq!(actions.last().unwrap(), "finalize");
    }
}

#[test]
fn a_disk_with_the_content_of_an_image_is_not_decoded() {
    let mut bytes = disk().bytes();
    bytes[..4].copy_from_slice(b"QFI\xfb");
    let ovirt = Ovirt::start(OvirtState { bytes: bytes.clone(), ..healthy() });
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    import(&settings(&ovirt), &path).unwrap();
    assert!(std::fs::read(&path).unwrap() == bytes);
}

#[test]
fn invalid_settings_are_rejected_with_reasons_without_secrets() {
    let lists = [
        (r#"[{"start":512,"length":512},{"start":0,"length":512}]"#, "not ascending"),
        (r#"[{"start":0,"length":99999999999}]"#, "an extent ends behind byte"),
        ("nonsense", "is not one"),
    ];
    let states = lists
        .map(|(list, expected)| (OvirtState { extents: Some(list.into()), ..healthy() }, expected));
    let more = [
        (OvirtState { another_length: 512, ..healthy() }, "changed during the import"),
        (OvirtState { another_length: -512, ..healthy() }, ""),
        (OvirtState { fails_at: Some(2), ..healthy() }, "has ended (finished_failure)"),
    ];
    for (state, expected) in states.into_iter().chain(more) {
        let failed_by_itself = state.fails_at.is_some();
        let ovirt = Ovirt::start(state);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let error = import(&settings(&ovirt), &path).unwrap_err();
        let text = format!("{} {error:?}", chain(&*error));
        assert!(text.contains(expected), "{text}");
        for secret in ["hush", "secret-token", testkit::imageio::TICKET] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
        assert!(!path.exists());
        let last = ovirt.state().actions.last().cloned().unwrap();
        assert!(failed_by_itself || last == "finalize", "the transfer was left open after {text}");
    }
}

#[test]
fn refusals_of_the_engine_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let ovirt = Ovirt::start(healthy());
    let good = settings(&ovirt);
    let with = |current: &str| Checkpoints::between(current, "");
    for (settings, expected) in [
        (ImageioSettings { password: Secret::new("wrong"), ..good.clone() }, "Cannot authenticate"),
        (ImageioSettings { disk_id: "other".into(), ..good.clone() }, "status 404: Not Found"),
        (ImageioSettings { checkpoints: with("other"), ..good.clone() }, "has no snapshot other"),
        (ImageioSettings { endpoint: "ftp://host".into(), ..good.clone() }, "http or https"),
    ] {
        let error = chain(&*import(&settings, &path).unwrap_err());
        assert!(error.contains(expected), "{error}");
    }
    assert!(ovirt.state().actions.is_empty(), "no transfer was begun");
}

#[test]
fn a_stop_ends_the_transfer_wherever_it_is() {
    for (locked, slow, expected) in [(1_000_000, 0, None), (0, u32::MAX, Some("cancel"))] {
        let ovirt = Ovirt::start(OvirtState { locked, slow, ..healthy() });
        let settings = settings(&ovirt);
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                // As soon as it waits.
                while ovirt.state().actions.is_empty() && ovirt.state().locked + 2 > locked {
                    std::thread::sleep(Duration::from_millis(1));
                }
                settings.stop.set();
            });
            imageio(&settings).err().expect("it was stopped")
        });
        assert!(error.to_string().contains("was stopped"), "{error}");
        assert_eq!(ovirt.state().actions.get(1).map(String::as_str), expected);
    }
    let ovirt = Ovirt::start(healthy());
    let settings = settings(&ovirt);
    let stage = imageio(&settings).unwrap();
    settings.stop.set();
    let mut stream = stage.source.open(0, Some(512));
    assert!(stream.next().unwrap_err().to_string().contains("was stopped"));
    drop((stream, stage));
    assert_eq!(ovirt.state().actions.last().unwrap(), "finalize");
}

#[test]
fn an_idle_ticket_is_renewed_until_the_limit() {
    let ovirt = Ovirt::start(healthy());
    let mut settings = settings(&ovirt);
    settings.intervals.keep = Duration::from_millis(5);
    settings.intervals.give_up = Duration::from_millis(300);
    let stage = imageio(&settings).unwrap();
    let mut stream = stage.source.open(0, None);
    let error = loop {
        std::thread::sleep(settings.intervals.give_up * 2); // nothing is read meanwhile
        match stream.next() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("no byte came"), "{error}");
    assert!(ovirt.state().actions.iter().any(|action| action == "extend"));
}

#[test]
fn a_delta_between_two_checkpoints_changes_the_disk_in_place() {
    let Some(qemu) = QemuImg::require() else { return };
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().join(IMAGE);
    disk().write_to(&base);
    let overlay = directory.path().join("overlay");
    let create = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b"].map(Into::into).into_iter();
    qemu.run(create.chain(arguments![&base, &overlay]));
    qemu.qemu_io(&overlay, &["write -P 5 4M 1M", "write -z 17M 512k", "write -P 6 19M 64k"]);
    let expected = qemu.to_raw(&overlay, "qcow2");
    let bytes = std::fs::read(&overlay).unwrap();
    let ovirt = Ovirt::start(OvirtState { bytes, ..healthy() });
    let path = directory.path().join("disk.img");
    for (previous, good) in [("other", false), (IMAGE, true)] {
        disk().write_to(&path);
        let checkpoints = Checkpoints::between(SNAPSHOT, previous);
        let result = import(&ImageioSettings { checkpoints, ..settings(&ovirt) }, &path);
        if good {
            let report = result.unwrap();
            assert!(report.bytes_written < 2 * MIB, "{report:?}");
            assert!(std::fs::read(&path).unwrap() == expected, "the disks differ");
        } else {
            let error = chain(&*result.unwrap_err());
            assert!(error.contains("and not since other"), "{error}");
        }
    }
    let begin = ovirt.state().actions[0].clone();
    assert!(begin.contains(r#""format":"cow""#) && begin.contains(SNAPSHOT), "{begin}");
}
