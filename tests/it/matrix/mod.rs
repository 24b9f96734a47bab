//! Every source, compression, format and target: the oracle's disk, or a refusal in the documented words. What is found
//! is the table of docs/support-matrix.md; `CDI_BLESS=1` writes it again.
//!
//! A new row is a [`Format`](formats::Format), a new column a [`Source`]. The imports happen in this process: there are
//! nearly a thousand. That programs do the same is shown by the other tests here, source by source.

mod formats;
mod sources;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use formats::{COMPRESSIONS, FORMATS, Wire, wires};
use pipeline::{Options, Progress, Report};
use sources::{Expected, Opener, SOURCES, Source};
use testkit::require_tool;
use tests::{Kind, Target, told};

use crate::each;

type Cell = (&'static str, &'static str, &'static str);

#[test]
fn support_matrix_matches_the_oracle() {
    let Some(wires) = wires() else { return };
    let sources = wires.iter().flat_map(|wire| SOURCES.iter().map(move |source| (wire, source)));
    let cases: Vec<_> = sources.collect();
    let found = Mutex::new(BTreeMap::new());
    each(&cases, |(wire, source)| {
        if source.needs.is_some_and(|program| require_tool(program).is_none()) {
            return;
        }
        let open = (source.serve)(&wire.bytes);
        let outcomes: Vec<_> = [Kind::File, Kind::Device]
            .iter()
            .filter_map(|kind| outcome(wire, source, &open, *kind))
            .collect();
        let what = format!("{} in {} from {}", wire.format.name, wire.compression, source.name);
        assert!(outcomes.windows(2).all(|pair| pair[0] == pair[1]), "{what}: {outcomes:?}");
        let cell = (wire.format.name, wire.compression, source.name);
        found.lock().expect("no panic yet").insert(cell, outcomes[0].clone());
    });
    let found = found.into_inner().expect("no panic");
    if found.len() == cases.len() {
        compare(&table(&found)); // else a server is missing, which was message
    }
}

/// The way that an import took, or the words of its refusal. `None` without loop devices.
fn outcome(wire: &Wire, source: &Source, open: &Opener, kind: Kind) -> Option<String> {
    let case =
        format!("{} in {} from {} to {kind:?}", wire.format.name, wire.compression, source.name);
    let expected = source.kind.expects(wire);
    let room = match expected {
        Expected::Disk(disk) | Expected::AsItIs(disk) => disk.len(),
        Expected::Refused(_) => wire.disk.len(),
    };
    let target = Target::new(kind, room as u64)?;
    let imported = import(open, &target);
    Some(match expected {
        Expected::Disk(disk) => {
            let report = imported.unwrap_or_else(|message| panic!("{case}: {message}"));
            target.expect(disk, &case);
            report.route
        }
        Expected::AsItIs(bytes) => {
            imported.unwrap_or_else(|message| panic!("{case}: {message}"));
            target.expect(bytes, &case);
            "as it is".to_owned()
        }
        Expected::Refused(words) => {
            let message = imported.expect_err(&case);
            assert!(message.contains(&words), "{case}: {message}");
            target.expect_unfinished(&wire.disk, &case);
            format!("refused: {words}")
        }
    })
}

fn import(open: &Opener, target: &Target) -> Result<Report, String> {
    let source = open().map_err(|error| told(&error))?;
    let target = pipeline::Target {
        path: target.path().to_owned(),
        available: None,
        grow_to: None,
        preallocate: false,
    };
    let progress = Arc::new(Progress::default());
    let imported = pipeline::import(&*source, &target, &Options::default(), &progress);
    imported.map_err(|error| told(&error))
}

const HEAD: &str = "\
# What can be imported from where

Written by `tests/it/matrix`, which imports every cell of this table to a file and to a block device, and compares the
whole target with what qemu-img and the compressors began with. After a change: `CDI_BLESS=1 cargo test -p tests --test it
matrix`.

A cell says the way that the bytes take ([inspect](user-guide/inspect.md) explains the words), or in which words the image
is refused. oVirt's image transfers (imageio) bring the disks of guests: what looks like an image there stays as it is.
VMware's disks come by way of NBD, and as disks too. The node's copy of an image is served by http.

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
