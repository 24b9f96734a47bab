//! Every source, compression, format and target: the oracle's disk, or a refusal in the documented words. What is found
//! is the table of docs/support-matrix.md; `CDI_BLESS=1` writes it anew.
//!
//! A new row is a [`Format`], a new column a [`Source`].

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Mutex;

use testkit::{
    Compressor, FaultServer, Fill, Image, KIB, MIB, Qcow2Options, QemuImg, SparseDisk, compress,
};
use tests::{Import, Kind, Target};

use crate::each;
use crate::s3_server::S3Server;

/// What an image is made of.
struct Format {
    name: &'static str,
    /// The image of a disk; `None` where the oracle is missing.
    make: fn(&SparseDisk) -> Option<Vec<u8>>,
    /// Words of the refusal; `None`: it becomes the disk.
    refused: Option<&'static str>,
}

const FORMATS: &[Format] = &[
    Format { name: "raw", make: |disk| Some(disk.bytes()), refused: None },
    Format { name: "ISO 9660", make: |disk| Some(iso(disk)), refused: None },
    Format {
        name: "qcow2",
        make: |disk| Some(QemuImg::require()?.qcow2(disk, &Qcow2Options::default()).bytes()),
        refused: None,
    },
    Format {
        name: "qcow2, compressed clusters",
        make: |disk| {
            let how = Qcow2Options { compressed: true, ..Qcow2Options::default() };
            Some(QemuImg::require()?.qcow2(disk, &how).bytes())
        },
        refused: None,
    },
];

const COMPRESSIONS: &[(&str, Option<Compressor>)] = &[
    ("none", None),
    ("gzip", Some(Compressor::GZIP)),
    ("xz", Some(Compressor::XZ)),
    ("zstd", Some(Compressor::ZSTD)),
];

/// Where an image comes from.
struct Source {
    name: &'static str,
    /// Imports bytes into a target.
    import: fn(&[u8], &Target) -> testkit::Finished,
}

const SOURCES: &[Source] = &[
    Source {
        name: "http",
        import: |bytes, target| {
            let server = FaultServer::in_memory(bytes);
            Import::new(server.url(), target.path()).run()
        },
    },
    Source {
        name: "file",
        import: |bytes, target| {
            let image = Image::of(bytes);
            Import::new(image.path(), target.path()).run()
        },
    },
    Source {
        name: "s3",
        import: |bytes, target| {
            let server = S3Server::private();
            server.put("disk.img", bytes);
            server.signed("disk.img", target.path()).run()
        },
    },
    Source {
        name: "gcs",
        import: |bytes, target| {
            let server = FaultServer::in_memory(bytes);
            Import::new("gs://images/disk.img", target.path())
                .option("--gcs-endpoint", server.url_of(""))
                .variable("GOOGLE_APPLICATION_CREDENTIALS", "")
                .run()
        },
    },
];

/// An image, and the disk in it.
struct Wire {
    format: &'static Format,
    compression: &'static str,
    bytes: Vec<u8>,
    disk: Vec<u8>,
}

type Cell = (&'static str, &'static str, &'static str);

#[test]
fn every_cell_gives_the_disk_of_the_oracle_or_the_documented_refusal() {
    let Some(wires) = wires() else { return };
    let sources = wires.iter().flat_map(|wire| SOURCES.iter().map(move |source| (wire, source)));
    let cases: Vec<_> = sources.collect();
    let found = Mutex::new(BTreeMap::new());
    each(&cases, |(wire, source)| {
        let outcomes: Vec<_> = [Kind::File, Kind::Device]
            .iter()
            .filter_map(|kind| outcome(wire, source, *kind))
            .collect();
        let what = format!("{} in {} from {}", wire.format.name, wire.compression, source.name);
        assert!(outcomes.windows(2).all(|pair| pair[0] == pair[1]), "{what}: {outcomes:?}");
        let cell = (wire.format.name, wire.compression, source.name);
        found.lock().expect("no panic yet").insert(cell, outcomes[0].clone());
    });
    compare(&table(&found.into_inner().expect("no panic")));
}

/// The way that an import took, or the words of its refusal. `None` without loop devices.
fn outcome(wire: &Wire, source: &Source, kind: Kind) -> Option<String> {
    let case =
        format!("{} in {} from {} to {kind:?}", wire.format.name, wire.compression, source.name);
    let target = Target::new(kind, wire.disk.len() as u64)?;
    let finished = (source.import)(&wire.bytes, &target);
    match wire.format.refused {
        None => {
            let finished = finished.expect_success();
            target.expect(&wire.disk, &case);
            Some(tests::report(&finished)["route"].as_str().expect("a route").to_owned())
        }
        Some(words) => {
            let said = finished.expect_refusal();
            assert!(said.contains(words), "{case}: {said}");
            target.expect_unfinished(&wire.disk, &case);
            Some(format!("refused: {words}"))
        }
    }
}

/// All images, or `None`, said aloud, where an oracle is missing: the table would have holes.
fn wires() -> Option<Vec<Wire>> {
    let disk = SparseDisk::mixed(4 * MIB, 3);
    let mut wires = Vec::new();
    for format in FORMATS {
        let image = (format.make)(&disk)?;
        let disk = if format.name == "ISO 9660" { image.clone() } else { disk.bytes() };
        for (compression, how) in COMPRESSIONS {
            let bytes = match how {
                None => image.clone(),
                Some(how) => compress(*how, &image)?,
            };
            wires.push(Wire { format, compression, bytes, disk: disk.clone() });
        }
    }
    Some(wires)
}

/// A disk with the descriptors of ISO 9660 where they belong (ECMA-119, 6.2.1), and a length that is no whole MiB.
fn iso(disk: &SparseDisk) -> Vec<u8> {
    let descriptor = 32 * KIB;
    let longer = SparseDisk::new(disk.len() + 6 * KIB);
    let mut bytes = longer.with(descriptor, 2 * KIB, Fill::Text(1)).bytes();
    bytes[MIB as usize..disk.len() as usize].copy_from_slice(&disk.bytes()[MIB as usize..]);
    bytes[descriptor as usize..][..7].copy_from_slice(b"\x01CD001\x01");
    bytes
}

const HEAD: &str = "\
# What can be imported from where

Written by `tests/it/matrix.rs`, which imports every cell of this table to a file and to a block device, and compares the
whole target with what qemu-img and the compressors began with. After a change: `CDI_BLESS=1 cargo test -p tests --test it
matrix`.

A cell says the way that the bytes take ([inspect](user-guide/inspect.md) explains the words), or in which words the image
is refused.

";

fn table(found: &BTreeMap<Cell, String>) -> String {
    let mut text = HEAD.to_owned();
    let names: Vec<_> = SOURCES.iter().map(|source| source.name).collect();
    let _ = writeln!(text, "| Format | Compressed by | {} |", names.join(" | "));
    let _ = writeln!(text, "|---|---|{}", "---|".repeat(names.len()));
    for format in FORMATS {
        for (compression, _) in COMPRESSIONS {
            let cells = names.iter().map(|source| &*found[&(format.name, *compression, *source)]);
            let cells: Vec<_> = cells.collect();
            let _ = writeln!(text, "| {} | {compression} | {} |", format.name, cells.join(" | "));
        }
    }
    text
}

fn compare(text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/support-matrix.md");
    if std::env::var_os("CDI_BLESS").is_some() {
        std::fs::write(&path, text).expect("cannot write the table");
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == text,
        "docs/support-matrix.md is not what was found; CDI_BLESS=1 writes:\n{text}"
    );
}
