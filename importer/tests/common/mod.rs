//! What all these tests need: a patient client in a hurry, and its errors in full.
#![allow(dead_code, missing_docs)] // each test file takes what it needs

use std::time::Duration;

use importer::{HttpOptions, HttpSource, RetryPolicy};
use pipeline::{Source, SourceError};
use testkit::FaultServer;

/// As patient as ever, with delays of a thousandth. Silence is borne for long, or a busy machine would decide the test.
pub fn options() -> HttpOptions {
    HttpOptions {
        retry: RetryPolicy {
            delay_first: Duration::from_millis(1),
            delay_max: Duration::from_millis(5),
            ..RetryPolicy::default()
        },
        stall_timeout: Duration::from_secs(10),
        ..HttpOptions::default()
    }
}

/// The same by one connection, for tests that count requests: on a busy machine a second one may seem to pay.
pub fn one_stream() -> HttpOptions {
    HttpOptions { streams_max: 1, ..options() }
}

/// The same for servers that fall silent. Too hasty at times, but that costs only a request.
pub fn hasty_options() -> HttpOptions {
    HttpOptions { stall_timeout: Duration::from_millis(300), ..options() }
}

pub fn connect(server: &FaultServer) -> Result<HttpSource, SourceError> {
    Ok(HttpSource::connect(&server.url(), &options())?)
}

/// Reads `at..end`.
pub fn read(source: &dyn Source, at: u64, end: Option<u64>) -> Result<Vec<u8>, SourceError> {
    let (mut stream, mut all) = (source.open(at, end), Vec::new());
    while let Some(bytes) = stream.next()? {
        assert!(!bytes.is_empty());
        all.extend_from_slice(&bytes);
    }
    assert!(stream.next()?.is_none(), "an end stays an end");
    Ok(all)
}

/// The whole image, however it comes.
pub fn import(server: &FaultServer) -> Result<Vec<u8>, SourceError> {
    read(&connect(server)?, 0, None)
}

/// An error and its causes.
pub fn chain(error: &SourceError) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// Everything that could be shown of an error.
pub fn all_of(error: &SourceError) -> String {
    format!("{} {error:?} {error:#?}", chain(error))
}
