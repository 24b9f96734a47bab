//! Servers that fail on purpose: every import ends with the image, byte for byte, or with an error that says why.

use std::time::Duration;

use importer::{HttpOptions, HttpSource, RetryPolicy};
use pipeline::{Source, SourceError};
use testkit::{Fault, FaultServer, KIB, MIB, pattern};

/// Long enough to be cut, stalled and resumed behind the first request's 256 KiB.
const LEN: u64 = 3 * MIB + 17;

/// As patient as ever, in a thousandth of the time.
fn options() -> HttpOptions {
    HttpOptions {
        retry: RetryPolicy {
            delay_first: Duration::from_millis(1),
            delay_max: Duration::from_millis(5),
            ..RetryPolicy::default()
        },
        stall_timeout: Duration::from_millis(500),
        ..HttpOptions::default()
    }
}

fn read(source: &HttpSource, at: u64, end: Option<u64>) -> Result<Vec<u8>, SourceError> {
    let (mut stream, mut all) = (source.open(at, end), Vec::new());
    while let Some(bytes) = stream.next()? {
        assert!(!bytes.is_empty());
        all.extend_from_slice(&bytes);
    }
    assert!(stream.next()?.is_none(), "an end stays an end");
    Ok(all)
}

/// The whole image, however it comes.
fn import(server: &FaultServer) -> Result<Vec<u8>, SourceError> {
    read(&HttpSource::connect(&server.url(), &options())?, 0, None)
}

/// An error and its causes.
fn chain(error: &SourceError) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// A server that knows ranges, or one that does not.
fn server(ranges: bool) -> FaultServer {
    let server = FaultServer::in_memory(&pattern(LEN));
    if ranges { server } else { server.always(Fault::IgnoreRange) }
}

#[test]
fn whatever_passes_leaves_the_image_whole() {
    let passing = |number: u64| {
        [
            ("closed", Fault::CloseAfter(100 * KIB)),
            ("closed after its head", Fault::CloseAfter(0)),
            ("stalled", Fault::StallAfter(100 * KIB)),
            ("hung up", Fault::Hangup),
            ("500", Fault::Status(500)),
            ("503", Fault::StatusWithRetryAfter(503, 0)),
            ("429", Fault::StatusWithRetryAfter(429, 0)),
            (
                "429 until a date",
                Fault::StatusWithRetryDate(429, "Sat, 21 Nov 2020 07:00:00 GMT".into()),
            ),
            ("408", Fault::Status(408)),
            ("nonsense", Fault::Nonsense),
            ("slow to answer", Fault::Latency(Duration::from_millis(50))),
        ]
        .map(|(case, fault)| (format!("answer {number} {case}"), number, fault))
    };
    for ranges in [true, false] {
        for (case, number, fault) in passing(1).into_iter().chain(passing(2)) {
            // The first answer of a server without ranges is the image itself: it breaks, and the second repeats it.
            let server = server(ranges).on(number, fault);
            let got = import(&server)
                .unwrap_or_else(|error| panic!("{case}, ranges {ranges}: {}", chain(&error)));
            assert!(got == pattern(LEN), "{case}, ranges {ranges}: {} bytes differ", got.len());
        }
    }
}
