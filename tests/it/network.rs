//! Faults and peculiarities of web servers.

use std::sync::Arc;
use std::time::Duration;

use contract::Hasher;
use importer::HttpOptions;
use testkit::{Fault, FaultServer, MIB, Request, pattern};
use tests::{Import, LIMIT, Target};

/// Imports 8 MiB of pattern from the server, whole.
fn check(server: &FaultServer) -> serde_json::Value {
    let target = Target::file();
    let report = Import::new(server.url(), target.path()).report();
    target.expect(&pattern(8 * MIB), "pattern");
    report
}

fn serve() -> FaultServer {
    FaultServer::in_memory(&pattern(8 * MIB))
}

/// The error of a failed import; no target looks complete.
fn refusal(server: &FaultServer) -> String {
    let target = Target::file();
    let message = Import::new(server.url(), target.path()).refusal();
    target.expect_unfinished(&[], "refused");
    message
}

#[test]
fn broken_connection_resumes_at_the_failed_byte() {
    let server = serve().once(Fault::CloseAt(5 * MIB));
    let report = check(&server);
    expect_resumed(&server, &report, &[5 * MIB]);
}

#[test]
fn stream_resumes_at_the_failed_byte() {
    // A digest wants all bytes in order.
    let resumed =
        |request: &Request| request.range().is_some_and(|range| range.starts_with("3145728-"));
    let server = serve().once(Fault::CloseAt(3 * MIB)).when(resumed, Fault::CloseAt(6 * MIB));
    let target = Target::file();
    let report = Import::new(server.url(), target.path()).flag("--digest").report();
    target.expect(&pattern(8 * MIB), "pattern");
    expect_resumed(&server, &report, &[3 * MIB, 6 * MIB]);
}

/// The transfer went on from each of these bytes, only one request was for the first, and nothing was taken twice. On a
/// busy machine a connection may have been taken for a slow one, and replaced by others, a little before it broke.
fn expect_resumed(server: &FaultServer, report: &serde_json::Value, at: &[u64]) {
    let ranges = server.ranges();
    let begin = |range: &String| range.split('-').next().and_then(|begin| begin.parse().ok());
    let begins: Vec<u64> = ranges.iter().filter_map(begin).collect();
    let mut before = 256 << 10; // where the second request begins, without any fault
    for &at in at {
        assert!(begins.iter().any(|begin| (before + 1..=at).contains(begin)), "{at}: {ranges:?}");
        before = at;
    }
    assert_eq!(begins.iter().filter(|begin| **begin == 0).count(), 1, "{ranges:?}");
    assert_eq!(report["bytesRead"], 8 * MIB, "{report}");
}

#[test]
fn stalled_connection_is_replaced() {
    let server = serve().once(Fault::StallAt(5 * MIB));
    let options = HttpOptions { stall_timeout: Duration::from_secs(1), ..HttpOptions::default() };
    let source = importer::source(&server.url(), &options).unwrap();
    let target = Target::file();
    let to = pipeline::Target {
        path: target.path().to_owned(),
        available: None,
        grow_to: None,
        preallocate: false,
    };
    pipeline::import(&*source, &to, &pipeline::Options::default(), &Arc::default()).unwrap();
    target.expect(&pattern(8 * MIB), "pattern");
}

#[test]
fn retry_after_is_respected() {
    let server = serve()
        .on(1, Fault::StatusWithRetryAfter(429, 1))
        .on(3, Fault::StatusWithRetryAfter(503, 1));
    let report = check(&server);
    assert!(report["seconds"].as_f64().unwrap() >= 1.0, "{report}");
}

#[test]
fn import_survives_three_503_of_four_responses() {
    check(&serve().when(|request| request.number % 4 != 0, Fault::Status(503)));
}

#[test]
fn client_error_fails_the_import_at_once() {
    for (status, words) in [(404, "404"), (401, "401"), (410, "410")] {
        let server = serve().always(Fault::Status(status));
        let message = refusal(&server);
        assert!(
            message.contains("expected status code 200, got ") && message.contains(words),
            "{message}"
        );
        assert!(message.contains(&server.url()), "{message}");
        assert_eq!(server.requests().len(), 1, "{:?}", server.requests());
    }
}

#[test]
fn import_needs_no_head_request() {
    let server = serve().always(Fault::HeadForbidden);
    check(&server);
    // A presigned address is good for GET only, and its query belongs to it but in no message.
    let signed = serve().when(|request| request.target != "/image?sig=secret", Fault::Status(403));
    let target = Target::file();
    Import::new(signed.url_of("/image?sig=secret"), target.path()).report();
    let message = Import::new(signed.url_of("/image?sig=wrong"), target.path()).refusal();
    assert!(message.contains("403") && !message.contains("wrong"), "{message}");
}

#[test]
fn content_type_and_encoding_headers_are_ignored() {
    check(&serve().always(Fault::ContentType("text/html".into())));
    check(&serve().always(Fault::WeakEtag));
    check(
        &serve()
            .always(Fault::NoEtag)
            .always(Fault::LastModified("Sat, 21 Nov 2026 07:50:00 GMT".into())),
    );
    check(&serve().always(Fault::UntilClose).always(Fault::IgnoreRange));
    let message = refusal(&serve().always(Fault::ContentEncoding("br".into())));
    assert!(message.contains("br"), "{message}");
}

#[test]
fn wrong_content_length_is_an_error() {
    for off in [-100, 100] {
        for ranges in [true, false] {
            let server = serve().always(Fault::WrongLength(off));
            let server = if ranges { server } else { server.always(Fault::IgnoreRange) };
            let target = Target::file();
            let finished = Import::new(server.url(), target.path()).run();
            if finished.success() {
                // A server that serves no ranges and announces less is believed: there is no other source of the length.
                let announced = if off < 0 && !ranges { 8 * MIB - 100 } else { 8 * MIB };
                let disk = pattern(announced);
                target.expect(&disk, &format!("{off} {ranges}"));
            } else {
                target.expect_unfinished(&[], "refused");
            }
        }
    }
}

#[test]
fn truncated_body_is_an_error() {
    // In chunks, or until the end of a TLS connection: no length is announced, but the end has to be marked.
    let cut =
        |server: FaultServer| server.always(Fault::IgnoreRange).always(Fault::CloseAfter(3 * MIB));
    refusal(&cut(serve()).always(Fault::Chunked));
    let server = cut(serve().tls()).always(Fault::UntilClose);
    let target = Target::file();
    let message = Import::new(server.url(), target.path()).flag("--insecure").refusal();
    assert!(message.contains("127.0.0.1"), "{message}");
    target.expect_unfinished(&[], "cut");
    // The same with a proper end is a whole disk.
    let server = serve().tls().always(Fault::IgnoreRange).always(Fault::UntilClose);
    Import::new(server.url(), target.path()).flag("--insecure").report();
    target.expect(&pattern(8 * MIB), "until the end of the connection");
}

#[test]
fn ranges_of_different_images_are_not_mixed() {
    // Nothing distinguishes the two images: no tag, a weak one, or a date that is too coarse.
    let date = || Fault::LastModified("Sat, 21 Nov 2026 07:50:00 GMT".into());
    for (case, vague) in
        [("none", Fault::NoEtag), ("weak", Fault::WeakEtag), ("date", Fault::NoEtag)]
    {
        let server = serve().always(vague).once(Fault::StallAt(5 * MIB));
        let server = if case == "date" { server.always(date()) } else { server };
        let target = Target::file();
        let running = Import::new(server.url(), target.path()).start();
        server.wait_for_stall(LIMIT);
        let other = vec![0x55; 8 << 20];
        server.replace(&other);
        // Healing ends the stalled connection.
        server.heal();
        let finished = running.wait(LIMIT);
        if finished.success() {
            target.expect(&other, case);
        } else {
            target.expect_unfinished(&[], case);
        }
    }
}

#[test]
fn short_ranges_are_completed() {
    check(&serve().always(Fault::ShortRange(MIB)));
}

#[test]
fn invalid_content_length_is_ignored() {
    let server = serve().always(Fault::LengthText("many".into()));
    let finished = Import::new(server.url(), Target::file().path()).run();
    assert!(finished.success() || !finished.expect_refusal().is_empty());
}

#[test]
fn response_for_another_range_is_refused() {
    let message = refusal(&serve().always(Fault::WrongRange(512)));
    assert!(message.contains("nonsense"), "{message}");
}

#[test]
fn unreachable_and_non_http_servers_have_different_errors() {
    let gone = serve().url();
    let message = refusal_of(&gone);
    assert!(message.contains("cannot connect to 127.0.0.1:"), "{message}");
    let message = refusal(&serve().always(Fault::Nonsense));
    assert!(message.contains("127.0.0.1"), "{message}");
}

#[test]
fn changed_image_is_detected_and_reported() {
    // The second response is cut off, the third has other bytes.
    let server = serve().on(2, Fault::CloseAfter(MIB)).on(3, Fault::ChangeEtag);
    let message = refusal(&server);
    assert!(message.contains("changed during the import"), "{message}");
}

#[test]
fn redirects_are_followed_up_to_a_limit() {
    let server = serve()
        .at("/first", Fault::RedirectTo("/second".into()))
        .at("/second", Fault::RedirectWith(307, "image".into()))
        .at("/loop", Fault::RedirectTo("/loop".into()))
        .at("/ftp", Fault::RedirectTo("ftp://127.0.0.1/image".into()));
    let target = Target::file();
    Import::new(server.url_of("/first"), target.path()).report();
    target.expect(&pattern(8 * MIB), "redirected");
    // Resolved once: all further requests are sent to the last address.
    let first = server.requests().iter().filter(|request| request.path() == "/first").count();
    assert_eq!(first, 1, "{:?}", server.requests());
    let before = server.requests().len();
    let message = refusal_of(&server.url_of("/loop"));
    assert!(message.contains("redirect"), "{message}");
    assert!(server.requests().len() - before <= 25, "{}", server.requests().len() - before);
    assert!(refusal_of(&server.url_of("/ftp")).contains("ftp"));
}

#[test]
fn digest_is_that_of_the_wire_bytes() {
    let server = serve().once(Fault::CloseAt(4 * MIB));
    let target = Target::file();
    let report = Import::new(server.url(), target.path()).flag("--digest").report();
    let mut hasher = Hasher::sha256();
    hasher.update(&pattern(8 * MIB));
    assert_eq!(report["digest"], hasher.finish().to_string());
}

fn refusal_of(url: &str) -> String {
    Import::new(url, Target::file().path()).refusal()
}
