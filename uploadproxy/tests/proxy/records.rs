//! The response to a complete upload comes once its end is recorded: a server that is lost before that is replaced, and waits for
//! another upload.

use std::thread;
use std::time::Duration;

use testkit::{MIB, RawResponse, pattern};
use uploadserver::ServerExit;

use crate::resumable::{append, create, offset, place};
use crate::world::{DONE, PRIME, READY, TARGET, TestCluster};

const PATH: &str = "/v1beta1/upload";

/// The response to an upload to `disk`, which has ended when `record` is called and is not recorded before.
fn response(cluster: &TestCluster, server: &str, record: impl FnOnce()) -> RawResponse {
    cluster.set_controller(false);
    let server = cluster.server(server, |_| ());
    let (client, token, disk) = (cluster.client(), cluster.token("disk"), pattern(MIB));
    thread::scope(|scope| {
        let answer = scope.spawn(|| client.post(PATH, &token, &disk));
        assert!(matches!(cluster.end(server), ServerExit::Complete(_)));
        thread::sleep(Duration::from_millis(100)); // for a response that does not wait
        assert!(!answer.is_finished(), "there is a response before the end is recorded");
        record();
        answer.join().unwrap()
    })
}

#[test]
fn response_waits_until_the_end_is_recorded() {
    let cluster = TestCluster::new();
    cluster.set_pvc("disk", false, &[TARGET, READY]);
    let answer = response(&cluster, "disk", || cluster.set_pvc("disk", false, &[TARGET, DONE]));
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    assert_eq!(answer.header("x-cdi-upload-complete"), None);
}

#[test]
fn response_waits_for_the_record_of_a_prime_pvc() {
    let finished = |cluster: &TestCluster| cluster.set_pvc("prime-1", false, &[TARGET, DONE]);
    let moved = |cluster: &TestCluster| {
        cluster.delete_pvc("prime-1");
        cluster.set_pvc("disk", true, &[DONE]);
    };
    for record in [finished, moved] {
        let cluster = TestCluster::new();
        cluster.set_pvc("prime-1", false, &[TARGET, READY]);
        cluster.set_pvc("disk", true, &[(PRIME, "prime-1")]);
        assert_eq!(response(&cluster, "prime-1", || record(&cluster)).status, 200);
    }
}

#[test]
fn response_waits_for_no_record_of_a_deleted_pvc() {
    let cluster = TestCluster::new();
    cluster.set_pvc("disk", false, &[TARGET, READY]);
    assert_eq!(response(&cluster, "disk", || cluster.delete_pvc("disk")).status, 200);
}

/// The container of the server was restarted before the upload, which the PVC shows after it.
#[test]
fn late_report_of_a_restart_is_no_loss() {
    let cluster = TestCluster::new();
    cluster.set_pvc("disk", false, &[TARGET, READY]);
    let answer = response(&cluster, "disk", || {
        for annotations in [&[TARGET][..], &[TARGET, READY], &[TARGET, DONE]] {
            cluster.set_pvc("disk", false, annotations);
            thread::sleep(Duration::from_millis(100)); // so that the proxy reads each
        }
    });
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn client_learns_of_a_server_that_was_lost_and_repeats_the_upload() {
    let cluster =
        TestCluster::with(|settings| settings.record_patience = Duration::from_millis(200));
    cluster.set_pvc("disk", false, &[TARGET, READY]);
    let answer = response(&cluster, "disk", || ());
    assert_eq!(answer.status, 503);
    assert!(answer.body.contains("is not recorded in PVC disk"), "{answer:?}");
    assert!(answer.body.contains("Upload the image again"), "{answer:?}");
    // Meanwhile the controller has replaced the server.
    cluster.set_controller(true);
    let (server, disk) = (cluster.ready("disk"), pattern(2 * MIB));
    assert_eq!(cluster.client().post(PATH, &cluster.token("disk"), &disk).status, 200);
    assert!(server.disk().expect("a disk") == disk);
}

#[test]
fn last_part_and_the_offset_of_a_resumable_upload_wait_too() {
    let cluster =
        TestCluster::with(|settings| settings.record_patience = Duration::from_millis(200));
    cluster.set_controller(false);
    let server = cluster.ready("disk");
    let (client, token, disk) = (cluster.client(), cluster.token("disk"), pattern(MIB));
    let path = place(&create(&client, &token, disk.len()));
    let half = disk.len() / 2;
    assert_eq!(append(&client, &path, &token, 0, &disk[..half]).status, 204);
    assert_eq!(offset(&client, &path, &token), half as u64);
    let last = append(&client, &path, &token, half as u64, &disk[half..]);
    assert_eq!(last.status, 503, "{last:?}");
    assert!(matches!(cluster.end(server), ServerExit::Complete(_)));
}
