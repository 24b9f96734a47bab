//! Authentication at registries, the servers that get credentials, and connection failures.

use testkit::{Fault, FaultServer, MIB, ServerCertificate, pattern};
use tests::container::{Blob, ContainerImage, Tar};
use tests::registry::{DockerRegistry, Reply, Setup, StandIn};
use tests::{Import, Target};

use super::{LAYER, expect, import, refusal};
use crate::each;

#[test]
fn registry_with_tls_and_password_is_used() {
    let storage = tempfile::tempdir().unwrap();
    let disk = pattern(2 * MIB);
    {
        let Some(open) = DockerRegistry::start(storage.path(), &Setup::default()) else { return };
        open.push("private", "v1", &ContainerImage::disk(&disk));
    }
    let tls = ServerCertificate::new();
    let setup = Setup { tls: Some(tls.clone()), basic_auth: true };
    let Some(registry) = DockerRegistry::start(storage.path(), &setup) else { return };
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.crt");
    std::fs::write(&ca, &tls.ca).unwrap();
    let location = format!("docker://{}/private:v1", registry.host());
    let import = |target: &Target| {
        Import::new(&location, target.path()).option("--ca", &ca).option("--architecture", "amd64")
    };
    let target = Target::file();
    let named = import(&target).option("--user", "anna").variable("CDI_PASSWORD", "open sesame");
    expect(&named, &target, &disk, "user and password");
    let file = |password: &str| {
        let path = folder.path().join(format!("{}.json", password.len()));
        let entry = serde_json::json!({ "username": "anna", "password": password });
        let auths = serde_json::json!({ "auths": { registry.host(): entry } });
        std::fs::write(&path, auths.to_string()).unwrap();
        path
    };
    let target = Target::file();
    let configured = import(&target).option("--registry-config", file("open sesame"));
    expect(&configured, &target, &disk, "docker's file");

    let target = Target::file();
    let wrong = import(&target).option("--registry-config", file("wrongword")).flag("-vv");
    for (case, import) in [("none", import(&target)), ("wrong", wrong)] {
        let message = import.refusal();
        assert!(message.contains("401") && message.contains(&registry.host()), "{case}: {message}");
        assert!(message.contains("failed to pull image"), "{case}: {message}");
        assert!(!message.contains("wrongword"), "{case}: {message}");
    }
    // TLS is verified, unless this registry is listed as insecure.
    let message = Import::new(&location, target.path()).refusal();
    assert!(message.contains("cannot verify the certificate"), "{message}");
    let elsewhere =
        Import::new(&location, target.path()).option("--insecure-registry", "127.0.0.1:1");
    assert!(elsewhere.refusal().contains("cannot verify the certificate"));
    let target = Target::file();
    let insecure = Import::new(&location, target.path())
        .option("--insecure-registry", registry.host())
        .option("--architecture", "amd64")
        .option("--user", "anna")
        .variable("CDI_PASSWORD", "open sesame");
    expect(&insecure, &target, &disk, "insecure");
}

#[test]
fn registry_token_is_fetched_and_credentials_stay_with_their_host() {
    let disk = pattern(4 * MIB);
    let image = ContainerImage::disk(&disk);
    let layer = image.blobs[1].clone();
    let store = FaultServer::in_memory(&layer.bytes);
    let away = store.url_via("localhost", "/blob?sig=secret");
    let registry = StandIn::start().image("a", "v1", &image).redirect("a", &layer, &away);
    registry.guard("first-token", None);
    let target = Target::file();
    expect(&import(&registry.host(), "a:v1", &target), &target, &disk, "anonymous");
    registry.guard("second-token", Some("YW5uYTpvcGVuIHNlc2FtZQ=="));
    let target = Target::file();
    let message = import(&registry.host(), "a:v1", &target).refusal();
    assert!(message.contains("401") && message.contains("/token"), "{message}");
    let named = import(&registry.host(), "a:v1", &target)
        .option("--user", "anna")
        .variable("CDI_PASSWORD", "open sesame");
    expect(&named, &target, &disk, "with a password");
    for asked in registry.asked() {
        let password = asked.authorization.is_some_and(|sent| sent.starts_with("Basic "));
        assert!(!password || asked.target.starts_with("/token?"), "{}", asked.target);
        if asked.target.starts_with("/token") {
            assert!(asked.target.contains("scope=repository%3Aa%3Apull"), "{}", asked.target);
        }
    }
    assert!(!store.requests().is_empty());
    for request in store.requests() {
        assert_eq!(request.header("authorization"), None, "{request:?}");
    }
}

#[test]
fn challenge_of_a_blob_store_is_ignored() {
    let image = ContainerImage::disk(&pattern(MIB));
    let (registry, thief) = (StandIn::start(), StandIn::start());
    thief.guard("token", None);
    let away = format!("http://{}/blob", thief.host().replace("127.0.0.1", "localhost"));
    let registry = registry.image("a", "v1", &image).redirect("a", &image.blobs[1], &away);
    registry.guard("token", Some("YW5uYTpvcGVuIHNlc2FtZQ=="));
    let target = Target::file();
    let message = import(&registry.host(), "a:v1", &target)
        .option("--user", "anna")
        .variable("CDI_PASSWORD", "open sesame")
        .refusal();
    assert!(message.contains("401"), "{message}");
    assert!(thief.asked().iter().all(|asked| asked.authorization.is_none()), "{:?}", thief.asked());
    assert!(thief.asked().iter().all(|asked| !asked.target.starts_with("/token")));
}

#[test]
fn mirrors_are_tried_first() {
    let disk = pattern(MIB);
    let image = ContainerImage::disk(&disk);
    let mirror = StandIn::start().image("cache/team/a", "v1", &image);
    let home = StandIn::start().image("team/a", "v1", &image).image("team/a", "v2", &image);
    let import = |tag: &str, target: &Target| {
        import(&home.host(), &format!("team/a:{tag}"), target)
            .option("--insecure-registry", mirror.host())
            .option("--mirror", format!("{}={}/cache", home.host(), mirror.host()))
            .option("--user", "anna")
            .variable("CDI_PASSWORD", "open sesame")
    };
    let target = Target::file();
    expect(&import("v1", &target), &target, &disk, "mirrored");
    assert!(home.asked().is_empty(), "{:?}", home.asked());
    let target = Target::file();
    expect(&import("v2", &target), &target, &disk, "not mirrored");
    assert!(!home.asked().is_empty());
    // Half of it there.
    let path = format!("/v2/cache/team/a/blobs/{}", image.blobs[1].digest());
    mirror.put(&path, Reply { status: 404, ..Reply::default() });
    let target = Target::file();
    expect(&import("v1", &target), &target, &disk, "half mirrored");
    assert!(mirror.asked().iter().all(|asked| asked.authorization.is_none()));
}

#[test]
fn blob_store_faults_are_retried() {
    let disk = pattern(6 * MIB);
    let tar = Tar::default().file("disk/d", &disk).finish();
    let layer = Blob { media_type: LAYER.into(), bytes: tar };
    let image = ContainerImage::new("amd64", &[], vec![layer.clone()]);
    type Script = fn(FaultServer) -> FaultServer;
    // By the whole program; tests/it/faults.rs has all of them.
    let table: [(&str, Script); 3] = [
        ("close", |server| server.once(Fault::CloseAt(3 * MIB))),
        ("no etag", |server| server.always(Fault::NoEtag).once(Fault::CloseAt(4 * MIB))),
        ("expired", |server| server.on(2, Fault::Status(403)).once(Fault::CloseAt(MIB))),
    ];
    each(&table, |(case, script)| {
        let store = script(FaultServer::in_memory(&layer.bytes));
        let away = store.url_via("localhost", "/blob");
        let registry = StandIn::start().image("a", "v1", &image).redirect("a", &layer, &away);
        let target = Target::file();
        expect(&import(&registry.host(), "a:v1", &target), &target, &disk, case);
    });
    // For good, or without what was announced: no disk.
    let broken: [(&str, Script); 3] = [
        ("always cut", |server| server.always(Fault::IgnoreRange).always(Fault::CloseAfter(MIB))),
        ("gone", |server| server.always(Fault::Status(404))),
        ("longer", |server| {
            server.replace(&[7; 7 << 20]);
            server
        }),
    ];
    each(&broken, |(case, script)| {
        let store = script(FaultServer::in_memory(&layer.bytes));
        let away = store.url_via("localhost", "/blob");
        let registry = StandIn::start().image("a", "v1", &image).redirect("a", &layer, &away);
        let message = refusal(&registry, "a:v1");
        assert!(message.contains("Failed to read registry image"), "{case}: {message}");
    });
}

#[test]
fn only_needed_layers_are_fetched_once() {
    let disk = pattern(3 * MIB);
    let layers = [
        Blob::plain(Tar::default().file("usr/large", &vec![3; 2 << 20])),
        Blob::plain(Tar::default().file("disk/d", &disk)),
        Blob::plain(Tar::default().file("etc/top", b"top")),
    ];
    let image = ContainerImage::new("amd64", &[], layers.to_vec());
    let stores = layers.clone().map(|layer| FaultServer::in_memory(&layer.bytes));
    let mut registry = StandIn::start().image("a", "v1", &image);
    for (layer, store) in layers.iter().zip(&stores) {
        registry = registry.redirect("a", layer, &store.url_via("localhost", "/blob"));
    }
    let target = Target::file();
    expect(&import(&registry.host(), "a:v1", &target), &target, &disk, "three layers");
    let sent = stores.each_ref().map(FaultServer::body_bytes_sent);
    assert_eq!(sent[0], 0, "the base was not needed");
    // A connection that is replaced by others may have been sent a little more.
    assert!(sent[1] < 2 * layers[1].bytes.len() as u64, "{sent:?}");
}

#[test]
fn cdi_apply_imports_from_a_registry() {
    let disk = pattern(2 * MIB);
    let registry = StandIn::start().image("a", "v1", &ContainerImage::disk(&disk));
    registry.guard("token", Some("YW5uYTpvcGVuIHNlc2FtZQ=="));
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("volume.yaml");
    let text = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{accessKeyId: anna, secretKey: open \
         sesame}}\n---\napiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume\nmetadata: {{name: vm}}\nspec:\n  \
         source: {{registry: {{url: 'docker://{}/a:v1', secretRef: s, platform: {{architecture: amd64}}}}}}\n  \
         pvc: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 4Mi}}}}}}\n",
        registry.host()
    );
    std::fs::write(&manifest, text).unwrap();
    let mut command = std::process::Command::new(testkit::cdi());
    command.args(testkit::arguments!["apply", "-f", manifest, "--volumes", folder.path()]);
    command.args(["--insecure-registry", &registry.host()]);
    testkit::process::run(&mut command, tests::LIMIT).expect_success();
    let made = std::fs::read(folder.path().join("default/vm/disk.img")).unwrap();
    assert!(made[..disk.len()] == disk, "another disk");
}
