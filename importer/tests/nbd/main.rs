//! NBD: real servers, servers that break off, and servers that lie.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod script;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use importer::{HttpOptions, NbdSource, RetryPolicy};
use pipeline::{Options, Progress, Report, Source, SourceError, Target};
use script::{
    Act, Command, CommandHook, OptionHook, Script, block_sizes, chunk, data, export, failure, hole,
    option_reply, status,
};
use testkit::disk::Fill;
use testkit::{MIB, NbdServer, Qcow2Options, QemuImg, SparseDisk, pattern};

fn options() -> HttpOptions {
    let millisecond = Duration::from_millis(1);
    let retry = RetryPolicy {
        attempts_max: 3,
        delay_first: millisecond,
        delay_max: millisecond,
        ..RetryPolicy::default()
    };
    HttpOptions { retry, stall_timeout: Duration::from_secs(20), ..HttpOptions::default() }
}

fn read(source: &NbdSource, at: u64, end: Option<u64>) -> Result<Vec<u8>, SourceError> {
    let (mut stream, mut bytes) = (source.open(at, end), vec![]);
    while let Some(chunk) = stream.next()? {
        assert!(!chunk.is_empty());
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn import(source: &dyn Source, path: &Path) -> Result<Report, pipeline::Error> {
    let target = Target { path: path.into(), available: None, grow_to: None, preallocate: false };
    pipeline::import(source, &target, &Options::default(), &Arc::new(Progress::default()))
}

/// The message of an error and of its causes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Mostly zeroes: 96 MiB with 5 MiB of data, and a hole too small to be worth leaving out.
fn sparse() -> SparseDisk {
    SparseDisk::new(96 * MIB)
        .with(0, 4096, Fill::Text(1))
        .with(7 * MIB, 3 * MIB, Fill::Pattern)
        .with(10 * MIB + 4096, MIB, Fill::Random(3))
        .with(70 * MIB, MIB, Fill::Random(5))
        .with(96 * MIB - 512, 512, Fill::Pattern)
}

fn check(server: &NbdServer, expected: &SparseDisk) {
    let source = NbdSource::connect(&server.uri(), &options()).unwrap();
    assert_eq!(source.facts().length, Some(expected.len()));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let report = import(&source, &path).unwrap();
    assert!(std::fs::read(&path).unwrap() == expected.bytes(), "the disks differ");
    assert!(report.bytes_read < 8 * MIB, "{} bytes were read", report.bytes_read);
    let inspection = pipeline::inspect(&source, &Options::default()).unwrap();
    let allocated = inspection.allocated_size.unwrap();
    assert!((5 * MIB..8 * MIB).contains(&allocated), "{allocated} bytes are allocated");
}

#[test]
fn holes_of_a_raw_file_are_never_read_from_nbdkit() {
    let directory = tempfile::tempdir().unwrap();
    let raw = directory.path().join("disk.raw");
    sparse().write_to(&raw);
    let Some(server) = NbdServer::nbdkit(&["file", raw.to_str().unwrap()]) else { return };
    check(&server, &sparse());
}

#[test]
fn unallocated_clusters_are_never_read_from_qemu_nbd() {
    let Some(qemu) = QemuImg::require() else { return };
    let image = qemu.qcow2(&sparse(), &Qcow2Options::default());
    let Some(server) = NbdServer::qemu(image.path(), "qcow2") else { return };
    check(&server, &sparse());
}

#[test]
fn an_image_inside_an_export_is_decoded() {
    let Some(qemu) = QemuImg::require() else { return };
    let image = qemu.qcow2(&sparse(), &Qcow2Options::default());
    let Some(server) = NbdServer::nbdkit(&["file", image.path().to_str().unwrap()]) else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let source = NbdSource::connect(&server.uri(), &options()).unwrap();
    let report = import(&source, &path).unwrap();
    assert_eq!((&*report.format, &*report.route), ("qcow2", "ranges"));
    assert!(std::fs::read(&path).unwrap() == sparse().bytes(), "the disks differ");
}

#[test]
fn any_range_is_read_with_any_block_size() {
    let disk = SparseDisk::new(3 * MIB).with(0, 3 * MIB, Fill::Pattern);
    let directory = tempfile::tempdir().unwrap();
    let raw = directory.path().join("disk.raw");
    disk.write_to(&raw);
    let policy = [
        "--filter=blocksize-policy",
        "file",
        raw.to_str().unwrap(),
        "blocksize-minimum=4096",
        "blocksize-preferred=4096",
        "blocksize-maximum=64K",
        "blocksize-error-policy=error",
    ];
    let Some(server) = NbdServer::nbdkit(&policy) else { return };
    let source = NbdSource::connect(&server.uri(), &options()).unwrap();
    let expected = disk.bytes();
    let len = 3 * MIB;
    for (at, end) in [(0, None), (1, Some(2)), (4095, Some(4097)), (5, None), (len - 1, None)] {
        let part = &expected[at as usize..end.unwrap_or(len) as usize];
        assert!(read(&source, at, end).unwrap() == part, "{at}..{end:?}");
    }
    for (at, end) in [(len, None), (len + 7, None), (9, Some(9)), (u64::MAX, None)] {
        assert!(read(&source, at, end).unwrap().is_empty(), "{at}..{end:?}");
    }
}

#[test]
fn temporary_failures_are_retried_and_permanent_ones_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let (raw, fails) = (directory.path().join("disk.raw"), directory.path().join("fails"));
    std::fs::write(&raw, pattern(MIB)).unwrap();
    std::fs::write(&fails, "").unwrap();
    let flag = format!("error-file={}", fails.display());
    let arguments = [
        "--filter=error",
        "file",
        raw.to_str().unwrap(),
        "error-pread=EIO",
        "error-pread-rate=100%",
        &flag,
    ];
    let Some(server) = NbdServer::nbdkit(&arguments) else { return };
    let source = NbdSource::connect(&server.uri(), &options()).unwrap();
    let error = chain(&*read(&source, 0, None).unwrap_err());
    assert!(error.contains("after 3 attempts") && error.contains("input/output error"), "{error}");
    std::fs::remove_file(&fails).unwrap();
    assert!(read(&source, 0, None).unwrap() == pattern(MIB));
}

#[test]
fn only_servers_with_a_trusted_ca_are_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let raw = directory.path().join("disk.raw");
    std::fs::write(&raw, pattern(2 * MIB)).unwrap();
    let Some((server, ca)) = NbdServer::nbdkit_tls(&["file", raw.to_str().unwrap()]) else {
        return;
    };
    let secure = server.uri().replace("nbd+unix", "nbds+unix");
    let trusting = HttpOptions { ca_pem: vec![ca], ..options() };
    let source = NbdSource::connect(&secure, &trusting).unwrap();
    assert!(read(&source, 0, None).unwrap() == pattern(2 * MIB));
    let anyone = HttpOptions { insecure_tls: true, ..options() };
    assert!(read(&NbdSource::connect(&secure, &anyone).unwrap(), 0, None).is_ok());
    for (address, expected) in [
        (secure, "no trusted authority signed it"),
        (server.uri(), "use nbds:// instead of nbd://"),
    ] {
        let error = chain(&NbdSource::connect(&address, &options()).unwrap_err());
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_slow_server_is_read_to_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let raw = directory.path().join("disk.raw");
    std::fs::write(&raw, pattern(4 * MIB)).unwrap();
    let arguments = ["--filter=delay", "file", raw.to_str().unwrap(), "rdelay=20ms"];
    let Some(server) = NbdServer::nbdkit(&arguments) else { return };
    let source = NbdSource::connect(&server.uri(), &options()).unwrap();
    assert!(read(&source, 0, None).unwrap() == pattern(4 * MIB));
}

#[test]
fn servers_without_chunks_and_without_extents_are_supported() {
    let directory = tempfile::tempdir().unwrap();
    let raw = directory.path().join("disk.raw");
    sparse().write_to(&raw);
    for more in [&["--no-sr"][..], &["--filter=noextents"]] {
        let arguments = [more, &["file", raw.to_str().unwrap()]].concat();
        let Some(server) = NbdServer::nbdkit(&arguments) else { return };
        let source = NbdSource::connect(&server.uri(), &options()).unwrap();
        let path = directory.path().join("disk.img");
        import(&source, &path).unwrap();
        assert!(std::fs::read(&path).unwrap() == sparse().bytes(), "{more:?}: the disks differ");
    }
}

#[test]
fn a_broken_connection_resumes_at_the_failed_byte() {
    let mut script = Script::new(pattern(4 * MIB));
    script.command = |n, _| if n % 5 == 4 { Act::Close } else { Act::Right };
    let server = script.start();
    let source = NbdSource::connect(&server.uri(), &options()).unwrap();
    assert!(read(&source, 0, None).unwrap() == pattern(4 * MIB));
    assert!(server.connections.load(Ordering::SeqCst) > 1);
    let commands = server.commands.load(Ordering::SeqCst);
    assert!(commands <= 8 + 8 * 3, "{commands} requests for 8 pieces");
}

#[test]
fn export_of_another_size_after_reconnecting_is_refused() {
    let mut script = Script::new(pattern(2 * MIB));
    script.command = |n, _| if n == 1 { Act::Close } else { Act::Right };
    script.size = |connection, size| if connection == 0 { size } else { size - 512 };
    let server = script.start();
    let source = NbdSource::connect(&server.uri(), &options()).unwrap();
    let error = chain(&*read(&source, 0, None).unwrap_err());
    assert!(error.contains("changed during the import"), "{error}");
}

#[test]
fn silent_server_is_an_error() {
    let mut script = Script::new(pattern(MIB));
    script.command = |_, _| Act::Reply(vec![]);
    let server = script.start();
    let mut impatient = options();
    impatient.stall_timeout = Duration::from_secs(2); // long enough to connect on a busy machine
    impatient.retry.attempts_max = 1;
    let source = NbdSource::connect(&server.uri(), &impatient).unwrap();
    let error = chain(&*read(&source, 0, None).unwrap_err());
    assert!(error.contains("no byte from"), "{error}");
}

#[test]
fn data_may_come_in_pieces_in_any_order_with_holes_between() {
    let mut disk = pattern(MIB);
    disk[100_000..200_000].fill(0);
    let mut script = Script::new(disk.clone());
    script.command = |_, command| {
        let Command { handle, at, len, .. } = *command;
        let whole = pattern(MIB);
        let (begin, end) = (at as usize, at as usize + len as usize);
        let part = |from: usize, to: usize| {
            let payload = [&(from as u64).to_be_bytes()[..], &whole[from..to]].concat();
            chunk(0, 1, handle, &payload)
        };
        let mut hole = [&(100_000_u64).to_be_bytes()[..], &100_000_u32.to_be_bytes()].concat();
        if begin > 0 {
            return Act::Reply([part(begin, end), chunk(1, 0, handle, &[])].concat());
        }
        hole = chunk(0, 2, handle, &hole);
        Act::Reply([part(200_000, end), part(0, 100_000), hole, chunk(1, 0, handle, &[])].concat())
    };
    let server = script.start();
    let source = NbdSource::connect(&server.uri(), &options()).unwrap();
    assert!(read(&source, 0, None).unwrap() == disk);
}

#[test]
fn invalid_handshake_is_refused_with_its_reason() {
    let table: [(&str, OptionHook, &str); 11] = [
        ("another magic", |_| Some(vec![7; 20]), "without its magic number"),
        ("another option", |_| Some(option_reply(99, 1, &[])), "that was not requested"),
        ("endless reply", |n| (n == 7).then(|| endless(7, 3)), "a reply of 4294967295 bytes"),
        ("no size", |n| (n == 7).then(|| option_reply(7, 1, &[])), "without a size"),
        (
            "short information",
            |n| (n == 7).then(|| option_reply(7, 3, &[0, 0, 1])),
            "not 12 bytes long",
        ),
        ("no kind", |n| (n == 7).then(|| option_reply(7, 3, &[0])), "without a kind"),
        (
            "a huge export",
            |n| (n == 7).then(|| option_reply(7, 3, &export(u64::MAX, 1))),
            "larger than any disk",
        ),
        (
            "odd blocks",
            |n| (n == 7).then(|| option_reply(7, 3, &block_sizes(3, 9))),
            "blocks of 3 to 9 bytes",
        ),
        (
            "information without end",
            |n| (n == 7).then(|| option_reply(7, 3, &[0, 1]).repeat(100)),
            "without an end",
        ),
        (
            "no export",
            |n| (n == 7).then(|| option_reply(7, 0x8000_0006, b"no\nno")),
            "no such export",
        ),
        (
            "wants TLS",
            |n| (n == 8).then(|| option_reply(8, 0x8000_0005, &[])),
            "use nbds:// instead of nbd://",
        ),
    ];
    for (case, option, expected) in table {
        let mut script = Script::new(pattern(4096));
        script.option = option;
        let server = script.start();
        let error = NbdSource::connect(&server.uri(), &options()).unwrap_err();
        assert!(chain(&error).contains(expected), "{case}: {}", chain(&error));
        assert_eq!(server.connections.load(Ordering::SeqCst), 1, "{case}: connected again");
    }
    for (greeting, expected) in [
        (&b"HTTP/1.1 400 Bad Request"[..], "no NBD server"),
        (b"NBDMAGIC\x00\x00\x42\x02\x81\x86\x12\x53\x00\x00", "old handshake"),
        (b"NBDMAGICIHAVEOPT\x00\x00", "before the fixed one"),
    ] {
        let mut script = Script::new(pattern(4096));
        script.greeting = greeting.to_vec();
        let error = NbdSource::connect(&script.start().uri(), &options()).unwrap_err();
        assert!(chain(&error).contains(expected), "{}", chain(&error));
    }
}

fn endless(option: u32, kind: u32) -> Vec<u8> {
    let mut bytes = option_reply(option, kind, &[]);
    bytes.truncate(16);
    bytes.extend(u32::MAX.to_be_bytes());
    bytes
}

#[test]
fn invalid_reply_is_refused_with_its_reason() {
    let table: [(&str, CommandHook, &str); 12] = [
        ("another magic", |_, _| Act::Reply(vec![1; 20]), "magic number"),
        (
            "another handle",
            |_, c| Act::Reply(data(&Command { handle: c.handle + 99, ..*c }, c.at, &[0; 4096])),
            "that was not requested",
        ),
        (
            "twice",
            |_, c| Act::Reply([data(c, c.at, &[1; 4096]), data(c, c.at, &[1; 4096])].concat()),
            "",
        ),
        ("too long", |_, c| Act::Reply(data(c, c.at, &[1; 8192])), "not requested"),
        ("before", |_, c| Act::Reply(data(c, c.at.wrapping_sub(1), &[1; 4096])), "not requested"),
        ("too short", |_, c| Act::Reply(data(c, c.at, &[1; 512])), "not complete"),
        ("a hole too long", |_, c| Act::Reply(hole(c, c.at, u32::MAX)), "not requested"),
        ("an empty hole", |_, c| Act::Reply(hole(c, c.at, 0)), "the same bytes twice"),
        (
            "a part twice",
            |_, c| {
                let piece = [&c.at.to_be_bytes()[..], &[1; 4096]].concat();
                Act::Reply(chunk(0, 1, c.handle, &piece).repeat(2))
            },
            "the same bytes twice",
        ),
        (
            "an unknown chunk",
            |_, c| Act::Reply(chunk(1, 77, c.handle, &[0; 5])),
            "a chunk of kind 77",
        ),
        ("a status", |_, c| Act::Reply(status(c, 7, &[(4096, 0)])), "not requested"),
        (
            "a simple reply",
            |_, c| {
                let head = [&0x6744_6698_u32.to_be_bytes()[..], &[0; 4], &c.handle.to_be_bytes()];
                Act::Reply([&head.concat()[..], &[1; 4096]].concat())
            },
            "did not come in chunks",
        ),
    ];
    for (case, command, expected) in table {
        let mut script = Script::new(pattern(4096));
        script.command = command;
        let server = script.start();
        let source = NbdSource::connect(&server.uri(), &options()).unwrap();
        match read(&source, 0, Some(4096)) {
            Ok(bytes) => assert!(expected.is_empty() && bytes == [1; 4096], "{case}"),
            Err(error) => assert!(chain(&*error).contains(expected), "{case}: {}", chain(&*error)),
        }
    }
}

#[test]
fn invalid_extents_are_refused_and_too_many_are_cut() {
    let table: [(&str, CommandHook, &str); 6] = [
        ("an empty one", |_, c| Act::Reply(status(c, 7, &[(0, 0)])), "an extent without bytes"),
        ("another context", |_, c| Act::Reply(status(c, 8, &[(4096, 0)])), "something else"),
        ("none", |_, c| Act::Reply(chunk(1, 0, c.handle, &[])), "not complete"),
        ("half of one", |_, c| Act::Reply(chunk(1, 5, c.handle, &[0; 14])), "a chunk of kind 5"),
        (
            "a failure",
            |_, c| Act::Reply(failure(c.handle, 5, "bad disk")),
            "output error (bad disk)",
        ),
        (
            "a long failure",
            |_, c| Act::Reply(chunk(1, 0x8001, c.handle, &[0; 9000])),
            "an error of",
        ),
    ];
    for (case, command, expected) in table {
        let mut script = Script::new(pattern(4096));
        script.command = command;
        let server = script.start();
        let source = NbdSource::connect(&server.uri(), &options()).unwrap();
        let error = source.extents(0, 4096).unwrap_err();
        assert!(chain(&*error).contains(expected), "{case}: {}", chain(&*error));
    }
    // More bytes than requested are cut; fewer are requested again.
    let mut script = Script::new(pattern(MIB));
    script.command = |_, c| Act::Reply(status(c, 7, &[(4096, 3), (u32::MAX, 0)]));
    let server = script.start();
    let source = NbdSource::connect(&server.uri(), &options()).unwrap();
    let extents = source.extents(0, MIB).unwrap().unwrap();
    let ranges: Vec<_> = extents.into_iter().map(|extent| extent.range).collect();
    assert_eq!(ranges, [0..4096, 4096..MIB]);
    // Alternating blocks without end: what is kept is bounded.
    let mut script = Script::new(vec![0; 512]);
    script.size = |_, _| 1 << 40;
    script.command = |_, c| {
        let states: Vec<_> = (0..100_000).map(|n| (512, n % 2 * 2)).collect();
        Act::Reply(status(c, 7, &states))
    };
    let server = script.start();
    let source = NbdSource::connect(&server.uri(), &options()).unwrap();
    assert_eq!(source.extents(0, 1 << 40).unwrap().unwrap().len(), 1 << 14);
}
