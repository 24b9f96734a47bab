//! The life of a server: concurrent uploads, deadline, stop.

use std::time::{Duration, Instant, SystemTime};

use testkit::{Connection, LoopDevice, MIB, SparseDisk, pattern, post_head};
use uploadserver::{Completed, ServerExit};

use crate::server::{Server, UPLOADED};

const PATH: &str = "/v1beta1/upload";

#[test]
fn second_upload_gets_503_and_probes_are_answered() {
    let server = Server::with(|settings| settings.owner_uid = "1-2".into());
    let disk = pattern(4 * MIB);
    let mut slow = server.client().connect();
    slow.send(post_head(PATH, "", disk.len()).as_bytes());
    slow.send(&disk[..MIB as usize]);
    let stranger = server.stranger();
    let received = format!("kubevirt_cdi_upload_received_bytes_total{{ownerUID=\"1-2\"}} {MIB}\n");
    while !stranger.ask("GET", "/metrics", "").body.contains(&received) {}
    assert_eq!(server.upload(PATH, &disk).status, 503);
    let healthy = stranger.ask("GET", "/healthz", "");
    assert_eq!((healthy.status, healthy.header("x-cdi-upload-complete")), (200, None));
    let page = stranger.ask("GET", "/metrics", "").body;
    assert!(page.contains("kubevirt_cdi_upload_progress_total{ownerUID=\"1-2\"} 25\n"), "{page}");
    slow.send(&disk[MIB as usize..]);
    let answer = slow.answer();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("x-cdi-upload-complete"), Some("true"), "so the proxy waits");
    assert!(server.disk().expect("a disk") == disk);
    assert_eq!(server.end(), UPLOADED);
}

#[test]
fn idle_connections_do_not_block_an_upload() {
    let server = Server::start();
    let client = server.client();
    let idle: Vec<_> = (0..200).map(|_| client.connect()).collect();
    let disk = pattern(MIB);
    assert_eq!(server.upload(PATH, &disk).status, 200);
    drop(idle);
    assert_eq!(server.end(), UPLOADED);
}

/// A server in the middle of an upload, of which the first kilobyte has come.
fn in_the_middle(deadline: Option<SystemTime>, disk: &[u8]) -> (Server, Connection) {
    let server = Server::with(|settings| settings.deadline = deadline);
    let mut slow = server.client().connect();
    slow.send(post_head(PATH, "", disk.len()).as_bytes());
    slow.send(&disk[..1000]);
    while server.client().post("/v1beta1/upload-form", "", b"").status != 503 {}
    (server, slow)
}

#[test]
fn server_exits_after_its_deadline_once_idle() {
    let disk = pattern(2 * MIB);
    let begin = Instant::now();
    let (mut server, slow) = in_the_middle(None, &disk);
    // Many times what this machine takes to begin an upload: the deadline is to pass after that.
    let passed = SystemTime::now() + (begin.elapsed() * 20).max(Duration::from_secs(3));
    drop(slow);
    server.stop();
    assert_eq!(server.end(), ServerExit::Stopped);
    let (server, mut slow) = in_the_middle(Some(passed), &disk);
    while SystemTime::now() < passed + Duration::from_millis(100) {
        std::thread::sleep(Duration::from_millis(10));
    }
    slow.send(&disk[1000..]);
    assert_eq!(slow.answer().status, 200);
    assert_eq!(server.end(), UPLOADED);
    let idle = Server::with(|settings| settings.deadline = Some(passed));
    let end = idle.end();
    assert_eq!(end, ServerExit::DeadlinePassed);
    let words = r#"{"deadlinePassed":true,"message":"Deadline Passed"}"#;
    assert_eq!(end.message().unwrap().to_json(), words);
}

#[test]
fn device_keeps_no_old_bytes() {
    let Some(device) = LoopDevice::filled_with(0xa5, 8 * MIB) else { return };
    let path = device.path().to_owned();
    let server = Server::with(|settings| settings.destination = path.clone());
    let disk = SparseDisk::mixed(6 * MIB, 8).bytes();
    assert_eq!(server.upload(PATH, &disk).status, 200);
    assert_eq!(server.end(), UPLOADED);
    let found = device.bytes();
    assert!(found[..disk.len()] == disk, "another disk");
    assert!(found[disk.len()..].iter().all(|byte| *byte == 0), "old bytes show");
}

/// As a kubelet does that was restarted without an API server: the number of the device is another volume's by then.
#[test]
fn device_that_is_unmapped_before_the_upload_is_still_the_one_that_is_written() {
    let Some(device) = LoopDevice::new(8 * MIB) else { return };
    let path = device.path().to_owned();
    let server = Server::with(|settings| settings.destination = path.clone());
    assert_eq!(server.stranger().ask("GET", "/healthz", "").status, 200);
    let volume = device.detach();
    let other = LoopDevice::filled_with(0xa5, 8 * MIB).unwrap();
    let disk = SparseDisk::mixed(6 * MIB, 8).bytes();
    assert_eq!(server.upload(PATH, &disk).status, 200);
    assert_eq!(server.end(), UPLOADED);
    assert!(other.bytes().iter().all(|byte| *byte == 0xa5), "another volume was written");
    assert!(std::fs::read(volume.path()).unwrap().starts_with(&disk), "another disk");
}

#[test]
fn preallocation_allocates_all_blocks_and_is_reported() {
    let server = Server::with(|settings| settings.preallocate = true);
    let disk = SparseDisk::mixed(4 * MIB, 8).bytes();
    assert_eq!(server.upload(PATH, &disk).status, 200);
    let facts = std::fs::metadata(server.data().join("disk.img")).unwrap();
    let allocated = std::os::unix::fs::MetadataExt::blocks(&facts) * 512;
    assert!(allocated >= 4 * MIB, "{allocated}");
    let end = server.end();
    assert_eq!(end, ServerExit::Complete(Completed { cloned: false, preallocated: true }));
    let words = r#"{"preallocationApplied":true,"message":"Upload Complete"}"#;
    assert_eq!(end.message().unwrap().to_json(), words);
}

#[test]
fn disk_of_a_killed_process_is_removed() {
    let server = Server::with(|settings| std::fs::write(&settings.destination, b"half").unwrap());
    assert_eq!(server.stranger().ask("GET", "/healthz", "").status, 200);
    assert_eq!(server.disk(), None);
}

#[test]
fn stop_ends_a_running_transfer() {
    let mut server = Server::start();
    let mut slow = server.client().connect();
    slow.send(post_head(PATH, "", 1000).as_bytes());
    slow.send(b"begun");
    while server.client().post("/v1beta1/upload-form", "", b"").status != 503 {}
    server.stop();
    drop(slow);
    let end = server.end();
    assert_eq!((end, end.message()), (ServerExit::Stopped, None));
}
