//! Resumable uploads through the proxy.

use std::time::{Duration, SystemTime};

use auth::token::{Claims, LIFETIME};
use testkit::{MIB, RawClient, RawResponse, pattern, post_head};

use crate::world::{CONTENT, NAMESPACE, READY, TARGET, TestCluster};

const PATH: &str = "/v1beta1/upload-resumable";
const TUS: &str = "Tus-Resumable: 1.0.0\r\nOrigin: https://page\r\n";

pub fn create(client: &RawClient, token: &str, length: usize) -> RawResponse {
    client.post(PATH, &format!("{TUS}{token}Upload-Length: {length}\r\n"), b"")
}

pub fn place(answer: &RawResponse) -> String {
    format!("/v1beta1/{}", answer.header("location").expect("a place"))
}

fn head(path: &str, token: &str, at: u64, length: usize) -> String {
    let kind = "Content-Type: application/offset+octet-stream\r\n";
    let headers = format!("{TUS}{token}{kind}Upload-Offset: {at}\r\n");
    post_head(path, &headers, length).replacen("POST", "PATCH", 1)
}

pub fn append(client: &RawClient, path: &str, token: &str, at: u64, body: &[u8]) -> RawResponse {
    let mut connection = client.connect();
    connection.send(head(path, token, at, body.len()).as_bytes());
    connection.send(body);
    connection.answer_to("PATCH")
}

/// Where the upload goes on. A request whose client has left may reach the server after this one and overtake it.
pub fn offset(client: &RawClient, path: &str, token: &str) -> u64 {
    let mut answers = (0..20).map(|_| client.ask("HEAD", path, &format!("{TUS}{token}")));
    let answer = answers.find(|answer| answer.status != 423).expect("an end of those that left");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.header("upload-offset").expect("an offset").parse().unwrap()
}

#[test]
fn upload_resumes_after_a_cut_at_any_byte() {
    let cluster = TestCluster::new();
    let server = cluster.ready("disk");
    let (client, token, disk) = (cluster.client(), cluster.token("disk"), pattern(3 * MIB));
    let answer = create(&client, &token, disk.len());
    assert_eq!(answer.status, 201, "{answer:?}");
    let exposed = answer.header("access-control-expose-headers").expect("a page has to see it");
    assert!(exposed.contains("Location") && exposed.contains("Upload-Offset"), "{exposed}");
    let path = place(&answer);
    let cuts = [0, 1, 511, 256 << 10, MIB, 3 * MIB - 1];
    for end in cuts {
        let at = offset(&client, &path, &token);
        let mut connection = client.connect();
        connection.send(head(&path, &token, at, disk.len() - at as usize).as_bytes());
        connection.send(&disk[at as usize..end.max(at) as usize]);
        drop(connection);
        assert_eq!(server.disk(), None, "cut at {end}");
    }
    // A request whose client has left may reach the server after those of the next connection, and then brings the upload on
    // once more or overtakes one of those: each of them at most once, and the response to the next request reports the offset.
    let answer = (0..=cuts.len()).find_map(|_| {
        let at = offset(&client, &path, &token);
        let answer = append(&client, &path, &token, at, &disk[at as usize..]);
        assert!([204, 409, 423].contains(&answer.status), "{answer:?}");
        (answer.status == 204).then_some(answer)
    });
    let answer = answer.expect("an end of those that were cut");
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    assert!(server.disk().expect("a disk") == disk);
    cluster.end(server);
}

#[test]
fn expired_token_continues_an_upload_but_starts_none() {
    let cluster = TestCluster::new();
    let server = cluster.ready("disk");
    let claims = Claims::upload(NAMESPACE, "disk");
    let at = |ago: u64| cluster.sign(&claims, SystemTime::now() - Duration::from_secs(ago));
    let expired = at(LIFETIME.as_secs() + 5 * 60);
    let long_expired = at(LIFETIME.as_secs() + 11 * 60);
    let (client, token, disk) = (cluster.client(), cluster.token("disk"), pattern(MIB));
    assert_eq!(create(&client, &expired, disk.len()).status, 401);
    let path = place(&create(&client, &token, disk.len()));
    assert_eq!(append(&client, &path, &token, 0, &disk[..1000]).status, 204);
    assert_eq!(client.ask("HEAD", &path, &format!("{TUS}{long_expired}")).status, 401);
    assert_eq!(client.ask("HEAD", &path, TUS).status, 400, "no token at all");
    // A client without the upload's URL cannot continue it.
    for guess in ["0", "00000000000000000000000000000000"] {
        let path = format!("{PATH}/{guess}");
        assert_eq!(append(&client, &path, &expired, 1000, &disk[1000..]).status, 404);
    }
    assert_eq!(client.post("/v1beta1/upload", &expired, &disk).status, 401);
    assert_eq!(offset(&client, &path, &expired), 1000);
    assert_eq!(append(&client, &path, &expired, 1000, &disk[1000..]).status, 204);
    assert!(server.disk().expect("a disk") == disk);
}

/// The permission was taken away: there is no other token, and the one from before soon brings nothing on.
#[test]
fn upload_needs_a_new_token_after_the_grace_period() {
    let cluster = TestCluster::new();
    let server = cluster.ready("disk");
    let claims = Claims::upload(NAMESPACE, "disk");
    let (client, token, disk) = (cluster.client(), cluster.token("disk"), pattern(MIB));
    let path = place(&create(&client, &token, disk.len()));
    assert_eq!(append(&client, &path, &token, 0, &disk[..1000]).status, 204);
    for ago in [LIFETIME + Duration::from_secs(11 * 60), Duration::from_secs(24 * 3600)] {
        let revoked = cluster.sign(&claims, SystemTime::now() - ago);
        assert_eq!(append(&client, &path, &revoked, 1000, &disk[1000..]).status, 401, "{ago:?}");
    }
    assert_eq!(server.disk(), None);
    // Who still may upload gets another token, and goes on where the upload was.
    let renewed = cluster.sign(&claims, SystemTime::now() - Duration::from_secs(1));
    assert_eq!(offset(&client, &path, &renewed), 1000);
    assert_eq!(append(&client, &path, &renewed, 1000, &disk[1000..]).status, 204);
    assert!(server.disk().expect("a disk") == disk);
}

#[test]
fn token_of_another_pvc_cannot_continue_an_upload() {
    let cluster = TestCluster::new();
    let (server, other) = (cluster.ready("disk"), cluster.ready("other"));
    let (client, disk) = (cluster.client(), pattern(MIB));
    let path = place(&create(&client, &cluster.token("disk"), disk.len()));
    let answer = append(&client, &path, &cluster.token("other"), 0, &disk);
    assert_eq!(answer.status, 404, "{answer:?}");
    assert_eq!((server.disk(), other.disk()), (None, None));
}

#[test]
fn archives_and_other_paths_are_refused() {
    let cluster = TestCluster::new();
    let _server = cluster.server("files", |_| ());
    cluster.set_pvc("files", false, &[TARGET, READY, (CONTENT, "archive")]);
    let (client, token) = (cluster.client(), cluster.token("files"));
    let answer = create(&client, &token, 1000);
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(answer.body.contains("takes an archive"), "{}", answer.body);
    for path in ["/v1alpha1/upload-resumable", "/v1beta1/upload-resumable/a/b"] {
        assert_eq!(client.ask("POST", path, &token).status, 404, "{path}");
    }
}

#[test]
fn upload_page_is_served_only_if_enabled() {
    let cluster = TestCluster::new();
    let parts = ["/upload", "/upload/page.js", "/upload/page.css"];
    for path in parts {
        assert_eq!(cluster.client().ask("GET", path, "").status, 404, "{path}");
    }
    let cluster = TestCluster::with(|settings| settings.page = true);
    for path in parts {
        let answer = cluster.client().ask("GET", path, "");
        assert_eq!(answer.status, 200, "{path}");
        assert!(!answer.body.is_empty(), "{path}");
        assert!(answer.header("content-security-policy").is_some(), "{path}");
        assert_eq!(cluster.client().ask("POST", path, "").status, 404, "{path}");
    }
}
