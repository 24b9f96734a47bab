//! Servers that fail on purpose: every import ends with the image, byte for byte, or an error that names the cause.

mod common;

use std::time::Duration;

use common::{chain, connect, hasty_options, import, one_stream, read};
use importer::HttpSource;
use pipeline::SourceError;
use testkit::{Fault, FaultServer, KIB, MIB, pattern};

/// Long enough to be cut, stalled and resumed behind the first request's 256 KiB.
const LEN: u64 = 3 * MIB + 17;

/// A server that knows ranges, or one that does not.
fn server(ranges: bool) -> FaultServer {
    let server = FaultServer::in_memory(&pattern(LEN));
    if ranges { server } else { server.always(Fault::IgnoreRange) }
}

/// Imports from `server` and expects the image.
fn check(case: &str, server: &FaultServer) {
    match import(server) {
        Ok(image) => assert!(image == pattern(LEN), "{case}: {} bytes differ", image.len()),
        Err(error) => panic!("{case}: {}, ranges {:?}", chain(&error), server.ranges()),
    }
}

/// The same by one connection: its requests are to be counted.
fn import_in_order(server: &FaultServer) -> Result<Vec<u8>, SourceError> {
    read(&HttpSource::connect(&server.url(), &one_stream())?, 0, None)
}

/// Imports from `server` and expects an error with all of `texts` in its chain.
fn check_error(case: &str, server: &FaultServer, texts: &[&str]) {
    match import(server) {
        Ok(image) => panic!("{case}: got {} bytes", image.len()),
        Err(error) => {
            let chain = chain(&error);
            assert!(texts.iter().all(|text| chain.contains(text)), "{case}: {chain}");
        }
    }
}

/// What may happen to one response and passes.
fn passing() -> Vec<(&'static str, Fault)> {
    vec![
        ("closed", Fault::CloseAfter(100 * KIB)),
        ("closed after its head", Fault::CloseAfter(0)),
        ("hung up", Fault::Hangup),
        ("500", Fault::Status(500)),
        ("502", Fault::Status(502)),
        ("503, ask at once", Fault::StatusWithRetryAfter(503, 0)),
        ("429, ask at once", Fault::StatusWithRetryAfter(429, 0)),
        (
            "429 until a date",
            Fault::StatusWithRetryDate(429, "Sat, 21 Nov 2020 07:00:00 GMT".into()),
        ),
        ("503 until nonsense", Fault::StatusWithRetryDate(503, "tomorrow".into())),
        ("408", Fault::Status(408)),
        ("nonsense", Fault::Nonsense),
        ("late", Fault::Latency(Duration::from_millis(50))),
        ("range ignored", Fault::IgnoreRange),
        ("in chunks", Fault::Chunked),
        ("until close", Fault::UntilClose),
        ("length is no number", Fault::LengthText("many".into())),
        ("text/html", Fault::ContentType("text/html".into())),
        ("declared as gzip", Fault::ContentEncoding("gzip".into())),
        ("HEAD forbidden", Fault::HeadForbidden),
    ]
}

#[test]
fn one_failed_response_does_not_damage_the_image() {
    for ranges in [true, false] {
        for (what, fault) in passing() {
            for number in [1, 2] {
                let mut server = server(ranges).on(number, fault.clone());
                if number == 2 && !ranges {
                    server = server.on(1, Fault::CloseAfter(MIB)); // or there would be no second
                }
                check(&format!("answer {number} {what}, ranges {ranges}"), &server);
            }
        }
    }
}

#[test]
fn a_silent_connection_is_replaced() {
    for ranges in [true, false] {
        for len in [0, 100 * KIB, MIB] {
            let server = server(ranges).on(1, Fault::StallAfter(len)).on(2, Fault::StallAfter(len));
            let source = HttpSource::connect(&server.url(), &hasty_options()).unwrap();
            assert!(read(&source, 0, None).unwrap() == pattern(LEN), "{len}, ranges {ranges}");
        }
    }
}

#[test]
fn servers_with_unusual_headers_are_read() {
    let odd = [
        ("no ETag", Fault::NoEtag),
        ("weak ETag", Fault::WeakEtag),
        ("in chunks", Fault::Chunked),
        ("until close", Fault::UntilClose),
        ("length is no number", Fault::LengthText("many".into())),
        ("text/html", Fault::ContentType("text/html; charset=utf-8".into())),
        ("declared as gzip", Fault::ContentEncoding("gzip".into())),
    ];
    for ranges in [true, false] {
        for (what, fault) in &odd {
            check(&format!("{what}, ranges {ranges}"), &server(ranges).always(fault.clone()));
            // An end without an announced length looks like a break: there the break has to be in a response
            // with a length.
            if !matches!(fault, Fault::UntilClose | Fault::LengthText(_)) {
                let number = if ranges { 2 } else { 1 };
                let breaks = Fault::CloseAfter(2 * MIB);
                let broken = server(ranges).always(fault.clone()).on(number, breaks);
                check(&format!("{what}, broken, ranges {ranges}"), &broken);
            }
        }
    }
}

#[test]
fn breaks_with_progress_in_between_are_not_limited() {
    for ranges in [true, false] {
        let mut server = server(ranges);
        for n in 1..=20 {
            // A server without ranges repeats itself: each response has to reach further than the one before.
            let len = if ranges { 100 * KIB + n } else { 300 * KIB + n * 100 * KIB };
            server = server.on(n, Fault::CloseAfter(len));
        }
        check(&format!("ranges {ranges}"), &server);
    }
}

#[test]
fn a_broken_stream_is_resumed_at_the_byte_where_it_broke() {
    let server = server(true).once(Fault::CloseAt(MIB)).on(3, Fault::Status(503));
    assert!(import_in_order(&server).unwrap() == pattern(LEN));
    let last = LEN - 1;
    let expected = [
        "0-262143".to_owned(),
        format!("262144-{last}"),
        format!("{MIB}-{last}"),
        format!("{MIB}-{last}"),
    ];
    assert_eq!(server.ranges(), expected);
    for request in &server.requests()[1..] {
        assert_eq!(request.header("if-range"), Some("\"generation-1\""));
    }
}

#[test]
fn import_without_progress_fails() {
    for ranges in [true, false] {
        let at = if ranges { "at byte 1048576" } else { "at byte 1048576 after 5 attempts" };
        let closing = server(ranges).always(Fault::CloseAt(MIB));
        check_error(
            "closes",
            &closing,
            &["gave up on http://127.0.0.1", at, "HTTP request errored", "early"],
        );
        let busy = server(ranges).always(Fault::Status(503));
        check_error("busy", &busy, &["gave up", "at byte 0 after 5 attempts", "got 503"]);
        assert_eq!(busy.ranges().len(), 5);
        let mute = server(ranges).always(Fault::Hangup);
        check_error("mute", &mute, &["gave up", "HTTP request errored", "broke"]);
    }
}

#[test]
fn restarts_of_a_server_without_ranges_are_limited() {
    const LONG: u64 = 24 * MIB;
    let mut server = FaultServer::in_memory(&pattern(LONG)).always(Fault::IgnoreRange);
    for n in 1..200 {
        // A little progress each time, for the price of all before it.
        server = server.on(n, Fault::CloseAfter(12 * MIB + n));
    }
    check_error("repeats", &server, &["gave up on", "were fetched again", "HTTP request errored"]);
    assert!(server.requests().len() < 30, "{} requests", server.requests().len());
}

#[test]
fn missing_announced_byte_is_an_error() {
    let long = server(false).always(Fault::WrongLength(5));
    check_error("always", &long, &["gave up", "5 bytes early"]);
    let once = server(false).on(1, Fault::WrongLength(5));
    check_error("once", &once, &["it was 3145750 bytes long, it is 3145745 bytes long"]);
    // A range has its own length, which is then what counts.
    check("ranges", &server(true).always(Fault::WrongLength(5)));
    check("ranges, short", &server(true).on(2, Fault::WrongLength(-5)));
}

#[test]
fn a_refusal_ends_at_once() {
    for ranges in [true, false] {
        for status in [404, 410, 401, 451] {
            let server = server(ranges).always(Fault::Status(status));
            check_error(
                "refused",
                &server,
                &[&format!("expected status code 200, got {status}. Status: {status}")],
            );
            assert_eq!(server.ranges().len(), 1, "{status}");
        }
        let server = server(ranges)
            .on(1, Fault::CloseAfter(MIB))
            .on(2, Fault::CloseAfter(KIB))
            .on(3, Fault::Status(404));
        let error = chain(&import_in_order(&server).unwrap_err());
        let expected = "expected status code 200, got 404. Status: 404 Not Found";
        assert!(error.contains(expected), "{error}");
        assert_eq!(server.ranges().len(), 3);
    }
}

#[test]
fn a_server_without_ranges_is_read_as_a_whole() {
    for status in [400, 403, 405, 416, 501] {
        let server = FaultServer::in_memory(&pattern(LEN))
            .when(|request| request.range().is_some(), Fault::Status(status));
        assert!(import_in_order(&server).unwrap() == pattern(LEN), "{status}");
        assert_eq!(server.ranges(), ["0-262143", ""], "{status}");
    }
}

#[test]
fn a_change_of_the_image_is_noticed() {
    let etags = ["changed during the import", "it was \"generation-1\", it is \"generation-2\""];
    for ranges in [true, false] {
        let (breaks, next) = if ranges { (2, 3) } else { (1, 2) };
        let etag = server(ranges).on(breaks, Fault::CloseAfter(MIB)).on(next, Fault::ChangeEtag);
        check_error("another ETag", &etag, &etags);
    }
    let replaced = server(true);
    let source = connect(&replaced).unwrap();
    replaced.replace(&pattern(LEN + 1));
    let error = read(&source, 0, None).unwrap_err();
    assert!(etags.iter().all(|text| error.to_string().contains(text)), "{error}");
}

#[test]
fn a_change_is_noticed_without_any_etag() {
    let other: Vec<u8> = pattern(LEN).iter().map(|byte| byte ^ 1).collect();
    let table = [
        ("other bytes", other, "have the CRC"),
        ("longer", pattern(LEN + 1), "it was 3145745 bytes long, it is 3145746 bytes long"),
        ("shorter", pattern(LEN - 1), "it was 3145745 bytes long, it is 3145744 bytes long"),
    ];
    for (case, image, text) in table {
        let server = server(false).always(Fault::NoEtag).on(1, Fault::CloseAfter(MIB));
        let source = connect(&server).unwrap();
        server.replace(&image);
        let error = read(&source, 0, None).expect_err(case);
        assert!(error.to_string().contains("changed during the import"), "{case}: {error}");
        assert!(error.to_string().contains(text), "{case}: {error}");
    }
}

#[test]
fn an_unrequested_range_is_rejected() {
    check_error("at first", &server(true).on(1, Fault::WrongRange(1)), &["another range"]);
    check_error(
        "later",
        &server(true).on(2, Fault::WrongRange(1)),
        &["another range than 262144-3145744"],
    );
}

#[test]
fn an_encoding_that_content_does_not_reveal_is_refused() {
    let server = server(true).always(Fault::ContentEncoding("br".into()));
    check_error("br", &server, &["it insists on the content encoding \"br\""]);
    assert_eq!(server.requests()[0].header("accept-encoding"), Some("identity"));
}

#[test]
fn head_requests_are_never_sent() {
    let server = server(true).once(Fault::CloseAt(MIB));
    check("GET only", &server);
    assert!(server.requests().iter().all(|request| request.method == "GET"));
}

#[test]
fn any_range_is_read_despite_faults() {
    let image = pattern(LEN);
    let parts = [
        (0, 10),
        (5, 256 * KIB),
        (256 * KIB - 1, 256 * KIB + 1),
        (MIB - 9, 2 * MIB + 9),
        (LEN - 1, LEN),
    ];
    for (what, fault) in passing() {
        // The second answer is that to the first part behind the kept head.
        let server = server(true).on(2, fault);
        let source = connect(&server).unwrap();
        for (at, end) in parts {
            let found = read(&source, at, Some(end))
                .unwrap_or_else(|error| panic!("{what}: {}", chain(&error)));
            assert!(found == image[at as usize..end as usize], "{what}: {at}..{end}");
        }
    }
}
