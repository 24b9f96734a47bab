//! Forwarded requests.

use testkit::{Compressor, MIB, SparseDisk, compress, pattern, post_head};

use crate::world::{CONTENT, PRIME, READY, TARGET, TestCluster};

const PATH: &str = "/v1beta1/upload";

#[test]
fn every_upload_path_reaches_the_server_of_its_pvc() {
    let cluster = TestCluster::new();
    let disk = SparseDisk::mixed(8 * MIB, 3).bytes();
    let form = [
        b"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n".as_slice(),
        &disk,
        b"\r\n--b--\r\n",
    ]
    .concat();
    let multipart = "Content-Type: multipart/form-data; boundary=b\r\n";
    let curl = "Content-Type: application/x-www-form-urlencoded\r\nExpect: 100-continue\r\n";
    let table = [
        ("upload", "v1beta1", curl, &disk),
        ("upload-async", "v1alpha1", "", &disk),
        ("upload-form", "v1beta1", multipart, &form),
        ("upload-form-async", "v1alpha1", multipart, &form),
    ];
    for (name, version, headers, body) in table {
        let claim = format!("{name}.{version}"); // dots are none of a service's name
        let server = cluster.server(&claim.replace('.', "-"), |_| ());
        cluster.set_pvc(&claim, false, &[TARGET, READY]);
        let headers = [headers, &cluster.token(&claim), "Origin: https://page\r\n"].concat();
        let path = format!("/{version}/{name}?query=dropped");
        let answer = cluster.client().post(&path, &headers, body);
        assert_eq!((answer.status, answer.body.as_str()), (200, ""), "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"), "{path}");
        assert!(server.disk().expect("a disk") == disk, "{path}");
        cluster.end(server);
    }
}

#[test]
fn head_requests_are_forwarded() {
    let cluster = TestCluster::new();
    let _server = cluster.ready("disk");
    let token = cluster.token("disk");
    for (method, path, status) in [
        ("HEAD", "/v1beta1/upload-async", 200),
        ("HEAD", "/v1beta1/upload-form-async", 200),
        ("HEAD", "/v1beta1/upload", 404),
        ("GET", "/v1beta1/upload", 404),
        ("PUT", "/v1alpha1/upload", 404),
        ("DELETE", "/v1alpha1/upload-async", 404),
    ] {
        let found = cluster.client().ask(method, path, &token).status;
        assert_eq!(found, status, "{method} {path}");
    }
}

#[test]
fn archives_are_forwarded_to_the_archive_path() {
    let Some(tar) = testkit::tar(&[("a", b"one")]) else { return };
    let Some(packed) = compress(Compressor::GZIP, &tar) else { return };
    let cluster = TestCluster::new();
    for (claim, path) in [("one", "/v1beta1/upload"), ("two", "/v1alpha1/upload-form-async")] {
        let server = cluster.server(claim, |_| ());
        cluster.set_pvc(claim, false, &[TARGET, READY, (CONTENT, "archive")]);
        let token = cluster.token(claim);
        assert_eq!(
            cluster.client().ask("HEAD", path, &token).status,
            404,
            "so clients are content"
        );
        assert_eq!(cluster.client().post(path, &token, &packed).status, 200, "{path}");
        assert_eq!(std::fs::read(server.data.join("a")).unwrap(), b"one");
    }
}

#[test]
fn request_waits_until_the_pvc_is_ready() {
    let cluster = TestCluster::new();
    let server = cluster.server("prime-1", |_| ());
    cluster.set_pvc("disk", true, &[]);
    let disk = pattern(MIB);
    let (client, token) = (cluster.client(), cluster.token("disk"));
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| client.post(PATH, &token, &disk));
        cluster.set_pvc("prime-1", false, &[TARGET]);
        cluster.set_pvc("disk", true, &[(PRIME, "prime-1")]);
        cluster.set_pvc("prime-1", false, &[TARGET, READY]);
        assert_eq!(answer.join().unwrap().status, 200);
    });
    assert!(server.disk().expect("a disk") == disk);
}

#[test]
fn renewed_certificates_do_not_disturb_a_running_upload() {
    let cluster = TestCluster::new();
    let server = cluster.ready("disk");
    let (disk, token) = (pattern(2 * MIB), cluster.token("disk"));
    let mut connection = cluster.client().connect();
    connection.send(post_head(PATH, &token, disk.len()).as_bytes());
    connection.send(&disk[..MIB as usize]);
    cluster.wait_until_busy(&token);
    cluster.remove_certificates();
    assert_eq!(cluster.client().post(PATH, &token, b"x").status, 500, "no trusted CA");
    connection.send(&disk[MIB as usize..]);
    assert_eq!(connection.answer().status, 200);
    assert!(server.disk().expect("a disk") == disk);
}

/// Of a client's headers only those of uploads arrive: a body that calls itself a clone is an image like any other.
#[test]
fn clone_content_type_of_a_client_is_not_forwarded() {
    let cluster = TestCluster::new();
    for (claim, content) in [("device", "blockdevice-clone"), ("files", "filesystem-clone")] {
        let server = cluster.ready(claim);
        let disk = pattern(MIB);
        let headers = format!("{}x-cdi-content-type: {content}\r\n", cluster.token(claim));
        let answer = cluster.client().post(PATH, &headers, &disk);
        assert_eq!((answer.status, answer.body.as_str()), (200, ""), "{content}");
        assert!(server.disk().expect("a disk") == disk, "{content}");
        let end = cluster.end(server);
        assert_eq!(end.message().unwrap().message.as_deref(), Some("Upload Complete"));
    }
}
