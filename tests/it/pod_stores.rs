//! `cdi-importer` with objects of S3 and Google Cloud Storage: credentials and messages.

use testkit::{
    Fault, FaultServer, LoopDevice, MIB, Qcow2Options, QemuImg, SparseDisk, Stub, StubResponse,
    in_own_network,
};
use tests::Pod;

use crate::s3_server::{KEY_ID, S3Server, SECRET_KEY};
use crate::stores::service_account;

const COMPLETE: &str =
    r#"{"scratchSpaceRequired":false,"preallocationApplied":false,"message":"Import Complete"}"#;

fn disk() -> SparseDisk {
    SparseDisk::mixed(4 * MIB, 12)
}

fn pod(kind: &str, endpoint: &str) -> Pod {
    let pod = Pod::new().variable("IMPORTER_SOURCE", kind).variable("IMPORTER_IMAGE_SIZE", "");
    pod.from_url(endpoint)
}

fn object(server: &S3Server, key: &str) -> String {
    format!("{}/images/{key}", server.endpoint())
}

fn with_keys(pod: Pod, secret_key: &str) -> Pod {
    let pod = pod.variable("IMPORTER_ACCESS_KEY_ID", KEY_ID);
    pod.variable("IMPORTER_SECRET_KEY", secret_key)
}

#[track_caller]
fn expect_disk(pod: &Pod, case: &str) {
    let finished = pod.run().expect_success();
    assert_eq!(pod.termination_message(), COMPLETE, "{case}");
    let found = std::fs::read(pod.path("data/disk.img")).unwrap();
    assert!(found == disk().bytes(), "{case}: the disks differ");
    assert!(!finished.stderr.contains("hush"), "{case}: {}", finished.stderr);
}

#[track_caller]
fn expect_refusal(pod: &Pod, words: &str) {
    let finished = pod.run();
    assert_eq!(finished.status.code(), Some(1), "{words}: {}", finished.stderr);
    let message = pod.termination_message();
    assert!(message.contains(words), "{words}: {message}");
    assert!(!message.contains("hush") && !finished.stderr.contains("hush"), "{}", finished.stderr);
    assert!(pod.names_in("data").is_empty(), "{words}");
}

#[test]
fn s3_object_is_imported_with_its_secret() {
    in_own_network(|| {
        let server = S3Server::private();
        server.put("disk.img", &disk().bytes());
        expect_disk(&with_keys(pod("s3", &object(&server, "disk.img")), SECRET_KEY), "raw");
        if let Some(qemu) = QemuImg::require() {
            server.put("a b.qcow2", &qemu.qcow2(&disk(), &Qcow2Options::default()).bytes());
            let address = object(&server, "a%20b.qcow2");
            expect_disk(&with_keys(pod("s3", &address), SECRET_KEY), "qcow2");
        }
        if let Some(device) = LoopDevice::filled_with(0xaa, 4 * MIB) {
            let pod = Pod::on(&device).variable("IMPORTER_SOURCE", "s3");
            let pod = with_keys(pod.from_url(&object(&server, "disk.img")), SECRET_KEY);
            pod.run().expect_success();
            assert!(device.bytes() == disk().bytes(), "the disks differ");
        }
        let connect = "Unable to connect to s3 data source: could not get s3 object: ";
        let missing = with_keys(pod("s3", &object(&server, "missing.img")), SECRET_KEY);
        expect_refusal(&missing, &format!("{connect}\"images/missing.img\": there is no such"));
        let wrong = with_keys(pod("s3", &object(&server, "disk.img")), "another/hush");
        expect_refusal(&wrong, "the secret key does not belong to the access key id");
        let archive = with_keys(pod("s3", &object(&server, "disk.img")), SECRET_KEY);
        let archive = archive.variable("IMPORTER_CONTENTTYPE", "archive");
        expect_refusal(&archive, "Unable to transfer source data to target directory: ");
    });
}

#[test]
fn public_s3_object_needs_no_keys() {
    in_own_network(|| {
        let server = S3Server::public();
        server.put("disk.img", &disk().bytes());
        expect_disk(&pod("s3", &object(&server, "disk.img")), "public");
        let private = S3Server::private();
        private.put("disk.img", &disk().bytes());
        expect_refusal(&pod("s3", &object(&private, "disk.img")), "the object is not public");
    });
}

/// Amazon's service that gives temporary keys to a client with the token of a service account.
fn token_service() -> Stub {
    Stub::start(|asked| {
        let right = asked.body.contains("Action=AssumeRoleWithWebIdentity")
            && asked.body.contains("WebIdentityToken=service-account-token")
            && asked.body.contains("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fimporter");
        if !right {
            let error = "<ErrorResponse><Error><Code>InvalidIdentityToken</Code>\
                         <Message>no such token</Message></Error></ErrorResponse>";
            return StubResponse::new(400, error).with("content-type", "text/xml");
        }
        let answer = format!(
            "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
             <AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{KEY_ID}</AccessKeyId>\
             <SecretAccessKey>{SECRET_KEY}</SecretAccessKey><SessionToken>hush-session</SessionToken>\
             <Expiration>2099-01-01T00:00:00Z</Expiration></Credentials><AssumedRoleUser>\
             <Arn>arn:aws:sts::1:assumed-role/importer/x</Arn><AssumedRoleId>A:x</AssumedRoleId>\
             </AssumedRoleUser></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
        );
        StubResponse::new(200, answer).with("content-type", "text/xml")
    })
}

#[test]
fn pod_without_keys_uses_its_aws_identity() {
    in_own_network(|| {
        let (server, service) = (S3Server::private(), token_service());
        server.put("disk.img", &disk().bytes());
        let pod = || pod("s3", &object(&server, "disk.img")).variable("AWS_REGION", "us-east-1");
        let role = |token: &str| {
            pod()
                .variable("AWS_ROLE_ARN", "arn:aws:iam::1:role/importer")
                .variable("AWS_WEB_IDENTITY_TOKEN_FILE", "/identity/token")
                .variable("AWS_ENDPOINT_URL_STS", &service.url(""))
                .file("identity/token", token)
        };
        expect_disk(&role("service-account-token"), "the role of a service account");
        let profile = format!(
            "[default]\naws_access_key_id = unknown\naws_secret_access_key = hush\n[import]\n\
             aws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET_KEY}\n"
        );
        let named = pod()
            .variable("AWS_SHARED_CREDENTIALS_FILE", "/identity/credentials")
            .variable("AWS_PROFILE", "import")
            .file("identity/credentials", &profile);
        expect_disk(&named, "a profile");
        let own = pod().variable("AWS_ACCESS_KEY_ID", KEY_ID);
        let own = own.variable("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
        expect_disk(&own, "keys of its own");
        // The keys of a Secret come first.
        expect_disk(&with_keys(role("unknown"), SECRET_KEY), "both");
        let connect = "Unable to connect to s3 data source: could not build s3 client for \"127.0.0.1\": \
                       no credentials";
        expect_refusal(&role("unknown"), connect);
    });
}

#[test]
fn gcs_object_is_imported_with_or_without_a_key() {
    in_own_network(|| {
        let server = FaultServer::in_memory(&disk().bytes());
        let address = server.url_of("/images/disk.img");
        expect_disk(&pod("gcs", &address), "public");
        let signed = pod("gcs", &address)
            .variable("GOOGLE_APPLICATION_CREDENTIALS", "/google/credentials.json")
            .file("google/credentials.json", service_account());
        let before = server.requests().len();
        expect_disk(&signed, "signed");
        let requests = server.requests();
        assert!(requests[before..].iter().all(|one| one.target.contains("X-Goog-Signature=")));
        let not_found = FaultServer::in_memory(&[]).always(Fault::Status(404));
        let missing = pod("gcs", &not_found.url_of("/images/missing.img"));
        let words = "Unable to connect to gcs data source: could not get gcs object: ";
        expect_refusal(&missing, &format!("{words}\"images/missing.img\""));
    });
}
