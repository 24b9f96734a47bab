//! What web servers do to people, and how an import lives with it.

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

/// What is said when the import is refused; nothing looks finished then.
fn refusal(server: &FaultServer) -> String {
    let target = Target::file();
    let said = Import::new(server.url(), target.path()).refusal();
    target.expect_unfinished(&[], "refused");
    said
}

#[test]
fn a_broken_connection_resumes_at_the_byte_where_it_broke() {
    let server = serve().once(Fault::CloseAt(5 * MIB));
    let report = check(&server);
    expect_resumed(&server, &report, &[5 * MIB]);
}

#[test]
fn one_stream_resumes_at_the_byte_where_it_broke() {
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
/// busy machine a connection may have been taken for a slow one, and given up for others, a little before it broke.
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
fn a_stalled_connection_is_replaced() {
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
fn a_server_that_asks_for_patience_gets_it() {
    let server = serve()
        .on(1, Fault::StatusWithRetryAfter(429, 1))
        .on(3, Fault::StatusWithRetryAfter(503, 1));
    let report = check(&server);
    assert!(report["seconds"].as_f64().unwrap() >= 1.0, "{report}");
}

#[test]
fn three_of_four_answers_may_be_503() {
    check(&serve().when(|request| request.number % 4 != 0, Fault::Status(503)));
}

#[test]
fn a_refusal_ends_the_import_at_once_and_is_named() {
    for (status, words) in [(404, "404"), (401, "401"), (410, "410")] {
        let server = serve().always(Fault::Status(status));
        let said = refusal(&server);
        assert!(said.contains("expected status code 200, got ") && said.contains(words), "{said}");
        assert!(said.contains(&server.url()), "{said}");
        assert_eq!(server.requests().len(), 1, "{:?}", server.requests());
    }
}

#[test]
fn head_is_never_needed() {
    let server = serve().always(Fault::HeadForbidden);
    check(&server);
    // A presigned address is good for GET only, and its query belongs to it but in no message.
    let signed = serve().when(|request| request.target != "/image?sig=secret", Fault::Status(403));
    let target = Target::file();
    Import::new(signed.url_of("/image?sig=secret"), target.path()).report();
    let said = Import::new(signed.url_of("/image?sig=wrong"), target.path()).refusal();
    assert!(said.contains("403") && !said.contains("wrong"), "{said}");
}

#[test]
fn what_a_server_says_of_the_bytes_matters_less_than_the_bytes() {
    check(&serve().always(Fault::ContentType("text/html".into())));
    check(&serve().always(Fault::WeakEtag));
    check(
        &serve()
            .always(Fault::NoEtag)
            .always(Fault::LastModified("Sat, 21 Nov 2026 07:50:00 GMT".into())),
    );
    check(&serve().always(Fault::UntilClose).always(Fault::IgnoreRange));
    let said = refusal(&serve().always(Fault::ContentEncoding("br".into())));
    assert!(said.contains("br"), "{said}");
}

#[test]
fn a_wrong_length_never_passes_for_a_whole_disk() {
    for off in [-100, 100] {
        for ranges in [true, false] {
            let server = serve().always(Fault::WrongLength(off));
            let server = if ranges { server } else { server.always(Fault::IgnoreRange) };
            let target = Target::file();
            let finished = Import::new(server.url(), target.path()).run();
            if finished.success() {
                // A server that serves no ranges and announces less is believed: nobody else knows better.
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
fn a_body_that_is_cut_never_passes_for_a_whole_disk() {
    // In chunks, or until the end of a TLS connection: nobody says how long it is, but an end has to be an end.
    let cut =
        |server: FaultServer| server.always(Fault::IgnoreRange).always(Fault::CloseAfter(3 * MIB));
    refusal(&cut(serve()).always(Fault::Chunked));
    let server = cut(serve().tls()).always(Fault::UntilClose);
    let target = Target::file();
    let said = Import::new(server.url(), target.path()).flag("--insecure").refusal();
    assert!(said.contains("127.0.0.1"), "{said}");
    target.expect_unfinished(&[], "cut");
    // The same with a proper end is a whole disk.
    let server = serve().tls().always(Fault::IgnoreRange).always(Fault::UntilClose);
    Import::new(server.url(), target.path()).flag("--insecure").report();
    target.expect(&pattern(8 * MIB), "until the end of the connection");
}

#[test]
fn parts_of_different_images_are_never_put_together() {
    // Nothing tells the two images apart: no tag, a weak one, or a date that is too coarse.
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
fn a_server_may_send_less_than_a_range_at_a_time() {
    check(&serve().always(Fault::ShortRange(MIB)));
}

#[test]
fn a_length_that_is_no_number_is_survived() {
    let server = serve().always(Fault::LengthText("many".into()));
    let finished = Import::new(server.url(), Target::file().path()).run();
    assert!(finished.success() || !finished.expect_refusal().is_empty());
}

#[test]
fn a_part_of_another_range_is_refused() {
    let said = refusal(&serve().always(Fault::WrongRange(512)));
    assert!(said.contains("nonsense"), "{said}");
}

#[test]
fn no_server_and_no_web_server_are_told_apart() {
    let gone = serve().url();
    let said = refusal_of(&gone);
    assert!(said.contains("cannot connect to 127.0.0.1:"), "{said}");
    let said = refusal(&serve().always(Fault::Nonsense));
    assert!(said.contains("127.0.0.1"), "{said}");
}

#[test]
fn an_image_that_changes_is_detected_and_said() {
    // Broken in the second answer, other bytes in the third.
    let server = serve().on(2, Fault::CloseAfter(MIB)).on(3, Fault::ChangeEtag);
    let said = refusal(&server);
    assert!(said.contains("changed during the import"), "{said}");
}

#[test]
fn redirects_are_followed_and_bounded() {
    let server = serve()
        .at("/first", Fault::RedirectTo("/second".into()))
        .at("/second", Fault::RedirectWith(307, "image".into()))
        .at("/loop", Fault::RedirectTo("/loop".into()))
        .at("/ftp", Fault::RedirectTo("ftp://127.0.0.1/image".into()));
    let target = Target::file();
    Import::new(server.url_of("/first"), target.path()).report();
    target.expect(&pattern(8 * MIB), "redirected");
    // Resolved once: what follows goes to the last address.
    let first = server.requests().iter().filter(|request| request.path() == "/first").count();
    assert_eq!(first, 1, "{:?}", server.requests());
    let before = server.requests().len();
    let said = refusal_of(&server.url_of("/loop"));
    assert!(said.contains("redirect"), "{said}");
    assert!(server.requests().len() - before <= 25, "{}", server.requests().len() - before);
    assert!(refusal_of(&server.url_of("/ftp")).contains("ftp"));
}

#[test]
fn a_digest_is_that_of_the_wire() {
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
