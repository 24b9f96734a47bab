//! Several connections for one long stream, against servers that are slow for each.

use std::collections::HashSet;

use super::*;
use testkit::{Fault, FaultServer, KIB, MIB, pattern};

const LEN: u64 = 10 * MIB + 5;

/// What each connection brings per second.
const RATE: u64 = 4 * MIB;

/// Reads the whole image; decides about connections ten times a second.
fn import(server: &FaultServer, streams_max: usize) -> Vec<u8> {
    let retry = RetryPolicy {
        delay_first: Duration::from_millis(1),
        delay_max: Duration::from_millis(5),
        ..RetryPolicy::default()
    };
    let options = HttpOptions { retry, streams_max, ..HttpOptions::default() };
    let interval = Duration::from_millis(100);
    let source = HttpSource::connect_paced(&server.url(), &options, interval).unwrap();
    let (mut stream, mut all) = (source.open(0, None), Vec::new());
    while let Some(bytes) = stream.next().unwrap() {
        all.extend_from_slice(&bytes);
    }
    all
}

fn connections(server: &FaultServer) -> usize {
    server.requests().iter().map(|request| request.connection).collect::<HashSet<_>>().len()
}

/// A range that ends before the image does: part of a division of labour.
fn is_segment(request: &testkit::Request) -> bool {
    let last = request.range().and_then(|range| range.split_once('-')?.1.parse().ok());
    request.number > 1 && last.is_some_and(|last: u64| last + 1 < LEN)
}

#[test]
fn a_server_that_limits_each_connection_gets_several() {
    let server = FaultServer::in_memory(&pattern(LEN)).always(Fault::SlowDown(RATE));
    assert!(import(&server, 4) == pattern(LEN));
    assert!(connections(&server) > 1, "{:?}", server.ranges());
}

#[test]
fn a_server_far_away_gets_several_requests_at_once() {
    let image = pattern(20 * MIB);
    let server = FaultServer::in_memory(&image).always(Fault::Latency(Duration::from_millis(30)));
    assert!(import(&server, 8) == image);
    assert!(server.requests().iter().any(is_segment), "{:?}", server.ranges());
}

/// As of servers with a limit for each connection that applies only once much was sent.
#[test]
fn connections_that_stall_after_a_while_are_helped_by_others() {
    let server = FaultServer::in_memory(&pattern(LEN)).always(Fault::StallAfter(3 * MIB));
    assert!(import(&server, 8) == pattern(LEN));
    assert!(server.requests().iter().any(is_segment), "{:?}", server.ranges());
}

#[test]
fn with_a_limit_of_one_there_is_one() {
    let server = FaultServer::in_memory(&pattern(MIB)).always(Fault::SlowDown(2 * MIB));
    assert!(import(&server, 1) == pattern(MIB));
    assert_eq!(connections(&server), 1);
}

#[test]
fn segments_are_resumed_where_they_broke() {
    let server = FaultServer::in_memory(&pattern(LEN))
        .always(Fault::SlowDown(RATE))
        .once(Fault::CloseAt(3 * MIB + 7))
        .once(Fault::CloseAt(5 * MIB))
        .once(Fault::CloseAt(8 * MIB + 100 * KIB))
        .on(5, Fault::Status(503))
        .on(6, Fault::Hangup);
    assert!(import(&server, 8) == pattern(LEN));
}

#[test]
fn refused_segments_fall_back_to_one_connection() {
    let server = FaultServer::in_memory(&pattern(LEN))
        .always(Fault::SlowDown(RATE))
        .when(is_segment, Fault::Status(403));
    assert!(import(&server, 8) == pattern(LEN));
    assert!(server.requests().iter().any(is_segment), "{:?}", server.ranges());
}

#[test]
fn an_image_that_changes_under_several_connections_is_noticed() {
    let server = FaultServer::in_memory(&pattern(LEN))
        .always(Fault::SlowDown(RATE))
        .on(4, Fault::ChangeEtag);
    let interval = Duration::from_millis(100);
    let source =
        HttpSource::connect_paced(&server.url(), &HttpOptions::default(), interval).unwrap();
    let mut stream = source.open(0, None);
    let error = loop {
        match stream.next() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("complete, from {:?}", server.ranges()),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("it was \"generation-1\", it is \"generation-2\""), "{error}");
}
