//! Secrets are sent to their server only, and appear in no log line, no error, no `Debug`.
//!
//! A test binary of its own: it listens to every log line of the process.

mod common;

use std::io;
use std::sync::Arc;

use common::{all_of, options, read};
use importer::{BasicAuth, ExtraHeader, HttpOptions, HttpSource, ProxySettings, Secret};
use parking_lot::Mutex;
use pipeline::{Source, SourceError};
use testkit::{Fault, FaultServer, MIB, Proxy, pattern};

const HUSH: &str = "hush-hush";
/// `me:hush-hush` as it is sent.
const HUSH_SENT: &str = "bWU6aHVzaC1odXNo";

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn secretive(server: &FaultServer, proxy: &Proxy) -> HttpOptions {
    HttpOptions {
        auth: Some(BasicAuth { username: "me".into(), password: Secret::new(HUSH) }),
        headers: vec![ExtraHeader { name: "X-Token".into(), value: HUSH.into(), secret: true }],
        proxy: ProxySettings::all(proxy.url().replace("http://", &format!("http://me:{HUSH}@"))),
        ca_pem: [server.ca_pem()]
            .into_iter()
            .filter(|pem| !pem.is_empty())
            .map(str::to_owned)
            .collect(),
        ..options()
    }
}

/// Imports with secrets in every setting. Returns all messages as text.
fn import(server: &FaultServer, proxy: &Proxy) -> String {
    let url =
        server.url().replace("://", &format!("://me:{HUSH}@")) + "?signature=" + HUSH + "#" + HUSH;
    let options = secretive(server, proxy);
    let result =
        HttpSource::connect(&url, &options).map_err(SourceError::from).and_then(|source| {
            read(&source, 0, None)
                .map(|image| format!("{} {:?} {source:?}", image.len(), source.facts()))
        });
    format!("{options:?} {}", result.unwrap_or_else(|error| all_of(&error)))
}

#[test]
fn no_secret_is_ever_shown() {
    let log = Log::default();
    let written = log.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || written.clone())
        .init();
    let make = |tls: bool| {
        let server = FaultServer::in_memory(&pattern(MIB));
        if tls { server.tls() } else { server }
    };
    let mut message = String::new();
    for tls in [false, true] {
        let proxy = Proxy::start().basic_auth("me", HUSH);
        let target = || Fault::RedirectTo(format!("/new?signature={HUSH}"));
        let servers = [
            make(tls)
                .at("/image", target())
                .on(3, Fault::CloseAfter(MIB / 4))
                .on(4, Fault::Status(503)),
            make(tls).at("/image", target()).on(3, Fault::Status(403)),
            make(tls).always(Fault::IgnoreRange).on(1, Fault::CloseAfter(MIB / 2)),
            make(tls).always(Fault::Status(404)),
            make(tls).always(Fault::Status(503)),
            make(tls).always(Fault::Hangup),
            make(tls).always(Fault::RedirectTo(format!("/image?signature={HUSH}"))),
            make(tls).always(Fault::RedirectTo(format!("http://x:{HUSH}@[bad/?{HUSH}"))),
            make(tls).always(Fault::ContentType("text/html".into())).on(2, Fault::ChangeEtag),
            make(tls).always(Fault::WrongRange(1)),
        ];
        for server in servers {
            message += &import(&server, &proxy);
            // The secrets did arrive, so they could have been shown.
            let sent = format!("{:?}", server.requests());
            assert!(sent.contains(HUSH) && sent.contains(HUSH_SENT), "{sent}\n{message}");
        }
        let stranger = make(true);
        message += &format!("{:?}", import_without_trust(&stranger, &proxy));
    }
    let logged = String::from_utf8(log.0.lock().clone()).unwrap();
    assert!(logged.contains("requesting byte"), "{logged}");
    let warning = "Unexpected content type 'text/html'. Content might not be a KubeVirt image.";
    assert!(logged.contains(warning), "{logged}");
    for (what, text) in [("reported", &message), ("logged", &logged)] {
        for secret in [HUSH, HUSH_SENT] {
            let around =
                text.find(secret).map(|at| &text[at.saturating_sub(300)..at + secret.len()]);
            assert_eq!(around, None, "{what}");
        }
    }
}

fn import_without_trust(server: &FaultServer, proxy: &Proxy) -> String {
    let options = HttpOptions { ca_pem: vec![], ..secretive(server, proxy) };
    match HttpSource::connect(&server.url(), &options) {
        Ok(source) => panic!("connected to {source:?}"),
        Err(error) => all_of(&error.into()),
    }
}
