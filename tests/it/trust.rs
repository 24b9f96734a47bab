//! Trusted certificates, and the destination of credentials, headers and proxies.

use testkit::{Fault, FaultServer, MIB, Proxy, pattern};
use tests::{Import, Target};

const PASSWORD: &str = "open sesame";

fn serve() -> FaultServer {
    FaultServer::in_memory(&pattern(2 * MIB))
}

fn check(import: Import, target: &Target) {
    import.report();
    target.expect(&pattern(2 * MIB), "pattern");
}

#[test]
fn unknown_ca_is_refused_with_a_hint() {
    let server = serve().tls();
    let target = Target::file();
    let message = Import::new(server.url(), target.path()).refusal();
    assert!(
        message.contains(&format!("cannot verify the certificate of 127.0.0.1:{}", server.port())),
        "{message}"
    );
    assert!(message.to_lowercase().contains("unknown") && message.contains("--ca"), "{message}");
    assert!(server.requests().is_empty(), "a request was sent");
    target.expect_unfinished(&[], "refused");
}

#[test]
fn ca_can_be_a_file_a_directory_or_not_verified() {
    let server = serve().tls();
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.crt");
    std::fs::write(&ca, server.ca_pem()).unwrap();
    for (option, value) in
        [("--ca", Some(&*ca)), ("--ca", Some(folder.path())), ("--insecure", None)]
    {
        let target = Target::file();
        let import = Import::new(server.url(), target.path());
        let import = match value {
            Some(value) => import.option(option, value),
            None => import.flag(option),
        };
        check(import, &target);
    }
    let other = serve().tls();
    let target = Target::file();
    let message = Import::new(other.url(), target.path()).option("--ca", ca).refusal();
    assert!(message.contains("cannot verify the certificate"), "{message}");
}

#[test]
fn user_and_password_are_sent_to_the_server() {
    let server = serve().always(Fault::BasicAuth("anna".into(), PASSWORD.into()));
    let target = Target::file();
    let import = Import::new(server.url(), target.path()).option("--user", "anna");
    check(import.variable("CDI_PASSWORD", PASSWORD), &target);
    let message = Import::new(server.url(), Target::file().path()).refusal();
    assert!(message.contains("401") && !message.contains(PASSWORD), "{message}");
    // In the address: used, and taken out of every message.
    let inside = server.url().replace("http://", "http://anna:wrongword@");
    let message = Import::new(inside, Target::file().path()).refusal();
    assert!(message.contains("401") && !message.contains("wrongword"), "{message}");
}

#[test]
fn credentials_are_not_sent_to_another_host() {
    let elsewhere = serve();
    let server = serve()
        .always(Fault::BasicAuth("anna".into(), PASSWORD.into()))
        .at("/away", Fault::RedirectTo(elsewhere.url_via("localhost", "/image")))
        .at("/home", Fault::RedirectTo("/image".into()));
    let import = |path: &str, target: &Target| {
        Import::new(server.url_of(path), target.path())
            .option("--user", "anna")
            .option("--header", "X-Token: secret")
            .variable("CDI_PASSWORD", PASSWORD)
    };
    let target = Target::file();
    check(import("/away", &target), &target);
    assert!(!elsewhere.requests().is_empty());
    for request in elsewhere.requests() {
        assert_eq!(
            (request.header("authorization"), request.header("x-token")),
            (None, None),
            "{request:?}"
        );
    }
    let target = Target::file();
    check(import("/home", &target), &target);
    let last = server.requests().pop().unwrap();
    assert_eq!(last.header("x-token"), Some("secret"), "the same host gets them again");
}

#[test]
fn headers_are_sent_and_secret_values_hidden() {
    let server = serve()
        .always(Fault::RequireHeader("X-One".into(), "1".into()))
        .always(Fault::RequireHeader("X-Two".into(), "hush".into()));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("headers");
    std::fs::write(&file, "X-Two: hush\n").unwrap();
    let target = Target::file();
    let import = Import::new(server.url(), target.path()).option("--header", "X-One: 1");
    check(import.option("--header-file", &file), &target);
    let target = Target::file();
    let finished =
        Import::new(server.url(), target.path()).option("--header-file", &file).flag("-vv").run();
    let message = finished.expect_refusal();
    assert!(message.contains("403") && !message.contains("hush"), "{message}");
}

#[test]
fn proxies_from_the_environment_are_used() {
    let (plain, tls) = (serve(), serve().tls());
    let proxy = Proxy::start().basic_auth("anna", "word");
    let address = proxy.url().replace("http://", "http://anna:word@");
    let away = |server: &FaultServer| server.url_via("images.test", "/image");
    for (server, variable) in [(&plain, "http_proxy"), (&tls, "HTTPS_PROXY")] {
        let target = Target::file();
        let import = Import::new(away(server), target.path()).flag("--insecure");
        check(import.variable(variable, &address), &target);
    }
    let asked = proxy.requests().into_iter().map(|request| (request.method, request.target));
    let asked: Vec<_> = asked.collect();
    assert!(asked.contains(&("GET".into(), away(&plain))), "{asked:?}");
    let tunnel = format!("images.test:{}", tls.port());
    assert!(asked.contains(&("CONNECT".into(), tunnel)), "{asked:?}");

    let target = Target::file();
    let import = Import::new(away(&plain), target.path());
    let message = import.variable("http_proxy", &proxy.url()).refusal();
    assert!(message.contains("407"), "{message}");
    // Never for this machine, and not for hosts that are excepted.
    let before = proxy.requests().len();
    let target = Target::file();
    check(Import::new(plain.url(), target.path()).variable("http_proxy", &address), &target);
    let import = Import::new(away(&plain), Target::file().path()).variable("http_proxy", &address);
    let message = import.variable("no_proxy", ".test").refusal();
    assert!(message.contains("images.test"), "{message}");
    assert_eq!(proxy.requests().len(), before);
}
