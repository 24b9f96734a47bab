//! Trust, credentials and proxies.

mod common;

use std::path::PathBuf;

use common::{all_of, chain, hasty_options, one_stream, options, read};
use importer::{
    BasicAuth, ExtraHeader, HttpOptions, HttpSource, ProxySettings, RetryPolicy, Secret,
};
use pipeline::{Source, SourceError};
use testkit::{Fault, FaultServer, MIB, Proxy, pattern};

const LEN: u64 = MIB;

/// Appears in what is sent, and nowhere else.
const HUSH: &str = "hush-hush";

fn server() -> FaultServer {
    FaultServer::in_memory(&pattern(LEN))
}

/// How many connections pay is measured; who counts requests must not depend on that.
fn with_secrets() -> HttpOptions {
    HttpOptions {
        auth: Some(BasicAuth { username: "me".into(), password: Secret::new(HUSH) }),
        headers: vec![
            ExtraHeader { name: "X-Token".into(), value: HUSH.into(), secret: true },
            ExtraHeader { name: "X-Plain".into(), value: "plain".into(), secret: false },
        ],
        ..options()
    }
}

fn get(url: &str, options: &HttpOptions) -> Result<Vec<u8>, SourceError> {
    read(&HttpSource::connect(url, options)?, 0, None)
}

fn check(url: &str, options: &HttpOptions) {
    match get(url, options) {
        Ok(image) => assert!(image == pattern(LEN)),
        Err(error) => panic!("{}", chain(&error)),
    }
}

/// Every request of `server` has `name: value`.
fn all_have(server: &FaultServer, name: &str, value: Option<&str>) {
    let requests = server.requests();
    assert!(!requests.is_empty());
    for request in requests {
        assert_eq!(request.header(name), value, "{request:#?}");
    }
}

#[test]
fn credentials_and_headers_go_with_every_request() {
    let basic = Fault::BasicAuth("me".into(), HUSH.into());
    let server = server().always(basic).once(Fault::CloseAfter(MIB / 2));
    check(&server.url(), &with_secrets());
    all_have(&server, "x-token", Some(HUSH));
    all_have(&server, "x-plain", Some("plain"));
    all_have(&server, "user-agent", Some("cdi-golang-importer"));
}

#[test]
fn a_user_in_the_address_is_used_and_taken_out_of_it() {
    let basic = Fault::BasicAuth("me@home".into(), "a:b/c".into());
    let server = server().always(basic);
    let url = server.url().replace("http://", "http://me%40home:a%3Ab%2Fc@");
    let source = HttpSource::connect(&url, &options()).unwrap();
    assert_eq!(source.facts().name, server.url());
    assert!(read(&source, 0, None).unwrap() == pattern(LEN));
}

#[test]
fn an_extra_user_agent_and_authorization_win() {
    let server = server();
    let mut options = with_secrets();
    options.headers = vec![
        ExtraHeader::parse("User-Agent: mine/1.0", false).unwrap(),
        ExtraHeader::parse("Authorization: Bearer 123", true).unwrap(),
    ];
    check(&server.url(), &options);
    all_have(&server, "user-agent", Some("mine/1.0"));
    all_have(&server, "authorization", Some("Bearer 123"));
}

#[test]
fn credentials_are_not_sent_to_another_host() {
    let other = server();
    for target in [other.url_via("localhost", "/image"), other.url()] {
        // The port differs in both cases, the name in one.
        let first = server().always(Fault::RedirectTo(target));
        check(&first.url(), &with_secrets());
        all_have(&first, "x-token", Some(HUSH));
    }
    for name in ["authorization", "x-token", "x-plain"] {
        all_have(&other, name, None);
    }
    all_have(&other, "user-agent", Some("cdi-golang-importer"));
}

#[test]
fn credentials_are_sent_again_to_the_same_host() {
    let basic = Fault::BasicAuth("me".into(), HUSH.into());
    let server = server().at("/old", Fault::RedirectWith(308, "/new?x=1".into())).always(basic);
    check(&server.url_of("/old"), &with_secrets());
    assert!(server.requests().iter().any(|request| request.target == "/new?x=1"));
}

#[test]
fn a_refusal_of_a_redirect_target_mentions_that_no_credentials_were_sent() {
    let other = server().always(Fault::BasicAuth("me".into(), HUSH.into()));
    let first = server().always(Fault::RedirectTo(other.url()));
    let error = chain(&get(&first.url(), &with_secrets()).unwrap_err());
    assert!(
        error.contains("Status: 401 Unauthorized") && error.contains("not sent to another"),
        "{error}"
    );
}

#[test]
fn redirects_are_followed_once_for_all_requests() {
    for status in [301, 302, 303, 307, 308] {
        let server = server()
            .at("/old", Fault::RedirectWith(status, "/new".into()))
            .once(Fault::CloseAt(MIB / 2));
        check(&server.url_of("/old"), &one_stream());
        let paths: Vec<_> = server.requests().iter().map(|found| found.target.clone()).collect();
        assert_eq!(paths, ["/old", "/new", "/new", "/new"], "{status}");
    }
}

#[test]
fn an_expired_redirect_target_is_requested_again() {
    for status in [401, 403, 404, 410] {
        let server =
            server().at("/image", Fault::RedirectTo("/signed".into())).on(3, Fault::Status(status)); // 1: redirect, 2: first bytes, 3: the rest
        check(&server.url(), &one_stream());
        let paths: Vec<_> = server.requests().iter().map(|found| found.target.clone()).collect();
        assert_eq!(paths, ["/image", "/signed", "/signed", "/image", "/signed"], "{status}");
    }
    let server = server()
        .at("/image", Fault::RedirectTo("/signed".into()))
        .when(|request| request.number > 2 && request.path() == "/signed", Fault::Status(403));
    let error = get(&server.url(), &options()).unwrap_err();
    assert!(error.to_string().contains("got 403"), "{error}");
}

#[test]
fn broken_mirror_is_replaced_by_another_redirect() {
    let (bad, good) = (server().on(2, Fault::CloseAfter(MIB / 4)), server());
    let bad = bad.when(|request| request.number > 2, Fault::Hangup);
    let first = server().on(1, Fault::RedirectTo(bad.url())).always(Fault::RedirectTo(good.url()));
    check(&first.url(), &one_stream());
    assert_eq!(first.requests().len(), 2, "the location is requested twice");
    assert!(bad.requests().len() >= 4 && !good.requests().is_empty());
}

#[test]
fn redirects_without_end_are_refused() {
    let circle =
        server().at("/a", Fault::RedirectTo("/b".into())).at("/b", Fault::RedirectTo("/a".into()));
    let error = get(&circle.url_of("/a"), &options()).unwrap_err().to_string();
    assert!(error.contains("cannot follow the redirects") && error.contains("circle"), "{error}");
    assert_eq!(circle.requests().len(), 2);

    let mut long = server();
    for n in 0..20 {
        long = long.at(&format!("/{n}"), Fault::RedirectTo(format!("/{}", n + 1)));
    }
    let error = get(&long.url_of("/0"), &options()).unwrap_err().to_string();
    assert!(error.contains("more than 10"), "{error}");
    check(&long.url_of("/10"), &options());

    let file = server().always(Fault::RedirectTo("file:///etc/passwd".into()));
    let error = get(&file.url(), &options()).unwrap_err().to_string();
    assert!(error.contains("file://"), "{error}");
}

#[test]
fn certificate_of_an_unknown_ca_is_refused_with_advice() {
    let server = server().tls();
    let error = get(&server.url(), &options()).unwrap_err();
    let chain = chain(&error);
    let texts =
        ["HTTP request errored", &format!("127.0.0.1:{}", server.port()), "add its CA with --ca"];
    assert!(texts.iter().all(|text| chain.contains(text)), "{chain}");
    assert!(server.requests().is_empty());
}

#[test]
fn configured_ca_is_trusted_for_its_names_only() {
    let server = server().tls();
    let trusting = HttpOptions { ca_pem: vec![server.ca_pem().into()], ..options() };
    for host in ["127.0.0.1", "localhost"] {
        check(&server.url_via(host, "/image"), &trusting);
    }
    // Connecting to 0.0.0.0 reaches this machine, by a name that is not in the certificate.
    let error = chain(&get(&server.url_via("0.0.0.0", "/image"), &trusting).unwrap_err());
    assert!(error.contains("it was issued for another name"), "{error}");
    check(&server.url_via("0.0.0.0", "/image"), &HttpOptions { insecure_tls: true, ..options() });
}

#[test]
fn invalid_certificate_of_a_bundle_is_skipped() {
    let server = server().tls();
    let file = tempfile::NamedTempFile::new().unwrap();
    let bad = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    std::fs::write(file.path(), format!("{bad}{}", server.ca_pem())).unwrap();
    let with = |path: PathBuf| HttpOptions { ca_files: vec![path], ..options() };
    check(&server.url(), &with(file.path().into()));
    std::fs::write(file.path(), bad).unwrap();
    let error = get(&server.url(), &with(file.path().into())).unwrap_err().to_string();
    assert!(error.contains("no certificate in") && error.contains("can be used"), "{error}");
    let error = get(&server.url(), &with("/does/not/exist".into())).unwrap_err().to_string();
    assert_eq!(error, "cannot read /does/not/exist");
}

#[test]
fn a_broken_tls_connection_is_resumed() {
    let server = server().tls().on(2, Fault::CloseAfter(MIB / 3)).on(3, Fault::Hangup);
    check(&server.url(), &HttpOptions { ca_pem: vec![server.ca_pem().into()], ..options() });
}

#[test]
fn a_server_that_speaks_no_tls_is_named() {
    let server = server();
    let url = server.url().replace("http://", "https://");
    let once = RetryPolicy { attempts_max: 1, ..options().retry };
    let error = chain(&get(&url, &HttpOptions { retry: once, ..hasty_options() }).unwrap_err());
    assert!(
        error.contains(&format!("no TLS connection with 127.0.0.1:{}", server.port())),
        "{error}"
    );
}

#[test]
fn a_proxy_passes_plain_requests_and_tunnels() {
    let (plain, secure) = (server(), server().tls());
    let proxy = Proxy::start().basic_auth("me", HUSH);
    let address = proxy.url().replace("http://", &format!("http://me:{HUSH}@"));
    let through = HttpOptions {
        proxy: ProxySettings::all(address),
        ca_pem: vec![secure.ca_pem().into()],
        ..options()
    };
    check(&plain.url(), &through);
    check(&secure.url(), &through);
    let requests = proxy.requests();
    assert!(
        requests.iter().any(|request| request.method == "GET" && request.target == plain.url())
    );
    let connect = requests.iter().find(|request| request.method == "CONNECT").unwrap();
    assert_eq!(connect.target, format!("127.0.0.1:{}", secure.port()));
    for request in requests {
        assert_eq!(request.header("user-agent"), Some("cdi-golang-importer"));
    }
    // What the proxy needs to know is not for the server.
    all_have(&plain, "proxy-authorization", None);
    all_have(&secure, "proxy-authorization", None);
}

#[test]
fn a_proxy_that_refuses_is_named() {
    let (plain, secure) = (server(), server().tls());
    let proxy = Proxy::start().basic_auth("me", "other");
    let through = HttpOptions { proxy: ProxySettings::all(proxy.url()), ..options() };
    let error = chain(&get(&plain.url(), &through).unwrap_err());
    assert!(error.contains("got 407"), "{error}");
    let error = chain(&get(&secure.url(), &through).unwrap_err());
    assert!(error.contains("refuses to connect to 127.0.0.1") && error.contains("407"), "{error}");
    assert_eq!(proxy.requests().len(), 2, "a refusal is final");
}

#[test]
fn proxy_exceptions_are_connected_directly() {
    let server = server();
    let proxy = Proxy::start();
    let no_proxy = format!("example.com,127.0.0.1:{}", server.port());
    let settings = ProxySettings { no_proxy, ..ProxySettings::all(proxy.url()) };
    check(&server.url(), &HttpOptions { proxy: settings, ..options() });
    assert!(proxy.requests().is_empty());
}

#[test]
fn a_connection_error_contains_the_host() {
    let port = server().port(); // and gone
    let error = chain(&get(&format!("http://127.0.0.1:{port}/image"), &options()).unwrap_err());
    let expected = format!(
        "HTTP request errored: http://127.0.0.1:{port}/image: cannot connect to 127.0.0.1:{port}"
    );
    assert!(error.contains(&expected), "{error}");
    let error = chain(&get("http://no-such-host.invalid/image", &options()).unwrap_err());
    assert!(error.contains("cannot connect to no-such-host.invalid:80"), "{error}");
}

#[test]
fn invalid_headers_are_rejected_before_a_request() {
    let server = server();
    let with = |name: &str, value: &str| HttpOptions {
        headers: vec![ExtraHeader { name: name.into(), value: value.into(), secret: true }],
        ..options()
    };
    for (name, value) in
        [("X-Bad", "a\r\nInjected: b"), ("bad name", HUSH), ("", HUSH), (HUSH, "\n\0")]
    {
        let error = get(&server.url(), &with(name, value)).unwrap_err();
        assert!(error.to_string().contains("cannot be sent"), "{error}");
        assert!(!all_of(&error).contains(HUSH), "{error:?}");
    }
    for url in ["http://", "http://[bad/", &format!("http://me:{HUSH}@ho st/")] {
        let error = get(url, &options()).unwrap_err();
        assert!(error.to_string().contains("is not an address"), "{error}");
        assert!(!all_of(&error).contains(HUSH), "{error:?}");
    }
    assert!(server.requests().is_empty());
}
