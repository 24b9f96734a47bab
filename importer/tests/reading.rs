//! How a source is read: in whole or in parts, by one or many, lazily, and no faster than it is used.

mod common;

use std::time::Duration;

use common::{connect, hasty_options, import, options, read};
use importer::{HttpOptions, HttpSource, RetryPolicy};
use pipeline::Source;
use testkit::{Fault, FaultServer, KIB, MIB, pattern};

/// Long enough to continue after the first request's 256 KiB.
const LEN: u64 = 3 * MIB + 17;

/// A server that knows ranges, or one that does not.
fn server(ranges: bool) -> FaultServer {
    let server = FaultServer::in_memory(&pattern(LEN));
    if ranges { server } else { server.always(Fault::IgnoreRange) }
}

#[test]
fn facts_are_known_after_the_first_response() {
    let facts = |server: &FaultServer| connect(server).unwrap().facts().clone();
    let ranged = server(true);
    let found = facts(&ranged);
    assert_eq!((found.length, found.ranges, found.streams_max), (Some(LEN), true, 8));
    assert_eq!(found.validator.as_deref(), Some("\"generation-1\""));
    assert_eq!(found.name, ranged.url());
    let whole = facts(&server(false));
    assert_eq!((whole.length, whole.ranges, whole.streams_max), (Some(LEN), false, 1));
    let unknown = facts(&server(false).always(Fault::Chunked));
    assert_eq!((unknown.length, unknown.ranges), (None, false));
    let untold = facts(&server(true).always(Fault::NoEtag));
    assert_eq!((untold.length, untold.ranges, untold.validator), (Some(LEN), false, None));
}

#[test]
fn images_around_the_size_of_the_first_request_are_whole() {
    let first = 256 * KIB;
    for len in [0, 1, first - 1, first, first + 1] {
        for ranges in [true, false] {
            let server = FaultServer::in_memory(&pattern(len));
            let server = if ranges { server } else { server.always(Fault::IgnoreRange) };
            assert!(import(&server).unwrap() == pattern(len), "{len}, ranges {ranges}");
            if ranges && len <= first {
                assert_eq!(server.ranges(), ["0-262143"], "{len} bytes came with the first answer");
            }
        }
    }
}

#[test]
fn parts_outside_the_image_are_empty() {
    let server = server(true);
    let source = connect(&server).unwrap();
    for (at, end) in
        [(LEN, None), (LEN, Some(LEN + 9)), (u64::MAX, None), (5, Some(5)), (9, Some(5))]
    {
        assert!(read(&source, at, end).unwrap().is_empty(), "{at}..{end:?}");
    }
    assert_eq!(read(&source, LEN - 3, Some(u64::MAX)).unwrap().len(), 3);
}

#[test]
fn a_server_without_ranges_gives_no_parts() {
    let server = server(false);
    let source = connect(&server).unwrap();
    for (at, end) in [(1, None), (0, Some(5))] {
        let error = read(&source, at, end).unwrap_err();
        assert!(error.to_string().contains("can only be read once, from its start"), "{error}");
    }
    // Yet it can be requested the whole a second time.
    assert!(read(&source, 0, None).unwrap() == pattern(LEN));
    assert!(read(&source, 0, None).unwrap() == pattern(LEN));
}

#[test]
fn opening_costs_no_request_and_connections_are_kept() {
    let server = server(true);
    let source = connect(&server).unwrap();
    drop((source.open(MIB, None), source.open(0, Some(9))));
    assert_eq!(read(&source, 0, Some(100 * KIB)).unwrap().len(), 100 << 10);
    assert_eq!(server.requests().len(), 1, "the first bytes are kept");
    for n in 4..10 {
        read(&source, n * 100 * KIB, Some((n + 1) * 100 * KIB)).unwrap();
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 7);
    assert!(requests.iter().all(|request| request.connection == 1), "{requests:#?}");
}

#[test]
fn a_connection_closed_while_idle_is_replaced_silently() {
    let server = server(true);
    let source = HttpSource::connect(
        &server.url(),
        &HttpOptions {
            retry: RetryPolicy { attempts_max: 1, ..RetryPolicy::default() },
            ..options()
        },
    )
    .unwrap();
    server.heal(); // closes all connections
    assert!(read(&source, 0, None).unwrap() == pattern(LEN));
}

#[test]
fn many_streams_read_side_by_side() {
    let server = server(true)
        .once(Fault::CloseAt(MIB))
        .once(Fault::StallAt(2 * MIB))
        .on(5, Fault::Status(503));
    let source = HttpSource::connect(&server.url(), &hasty_options()).unwrap();
    let image = pattern(LEN);
    std::thread::scope(|scope| {
        for n in 0..8 {
            let (source, image) = (&source, &image);
            scope.spawn(move || {
                let (at, end) = (n * LEN / 8, (n + 1) * LEN / 8);
                let found = read(source, at, Some(end)).unwrap();
                assert!(found == image[at as usize..end as usize], "{at}..{end}");
            });
        }
    });
}

#[test]
fn a_reader_that_stops_stops_the_transfer() {
    const LONG: u64 = 64 * MIB;
    for ranges in [true, false] {
        let server = FaultServer::in_memory(&pattern(LONG));
        let server = if ranges { server } else { server.always(Fault::IgnoreRange) };
        let source = connect(&server).unwrap();
        let mut stream = source.open(0, None);
        stream.next().unwrap();
        stream.next().unwrap();
        // Whatever time it is given: what is not read is not fetched, beyond a few buffers of ours and the kernel's.
        let mut sent = 0;
        while sent != server.body_bytes_sent() {
            sent = server.body_bytes_sent();
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(sent < LONG / 2, "{sent} bytes for a reader of one piece");
        drop(stream);
        assert_eq!(read(&source, 0, None).unwrap().len() as u64, LONG);
    }
}

#[test]
fn a_source_may_be_dropped_before_its_streams_and_within_a_runtime() {
    let server = server(true);
    let mut stream = connect(&server).unwrap().open(0, None);
    let mut len = 0;
    while let Some(bytes) = stream.next().unwrap() {
        len += bytes.len() as u64;
    }
    assert_eq!(len, LEN);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let source = connect(&server).unwrap();
        assert_eq!(read(&source, 0, None).unwrap().len() as u64, LEN);
    });
}
