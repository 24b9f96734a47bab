//! The tenant under attack: imports, uploads, clones and golden images, in a few concurrent sequences, until the run
//! ends. Operations that have begun by then are finished. Nothing is retried: an operation that fails once has failed.

mod golden;
mod prepare;
mod volumes;

use std::cell::RefCell;
use std::time::Instant;

use anyhow::{Result, ensure};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::scenario::Scenario;

pub use prepare::Prepared;

/// An operation of the tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Blank,
    Http,
    Registry,
    Upload,
    CsiClone,
    SnapshotClone,
    CopyClone,
    Refresh,
}

impl Operation {
    pub const ALL: [Self; 8] = [
        Self::Blank,
        Self::Http,
        Self::Registry,
        Self::Upload,
        Self::CsiClone,
        Self::SnapshotClone,
        Self::CopyClone,
        Self::Refresh,
    ];

    /// As figures name it; good in names of objects.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blank => "blank",
            Self::Http => "http",
            Self::Registry => "registry",
            Self::Upload => "upload",
            Self::CsiClone => "csi-clone",
            Self::SnapshotClone => "snapshot-clone",
            Self::CopyClone => "copy-clone",
            Self::Refresh => "refresh",
        }
    }
}

/// Sequences that run concurrently, each repeated: three, so that the attackers get processor time too.
const SEQUENCES: [&[Operation]; 3] = [
    &[Operation::Blank, Operation::CsiClone, Operation::Http],
    &[Operation::Upload, Operation::SnapshotClone, Operation::Registry, Operation::CopyClone],
    &[Operation::Refresh],
];

/// Repeats all sequences, each at least once, and returns a row for each operation. A failed operation ends its
/// sequence: the run has failed, and the operation has waited for minutes.
pub async fn work(scenario: &Scenario, prepared: &Prepared) -> Vec<Value> {
    let rows = RefCell::new(Vec::new());
    let (rows, sequences) = (&rows, SEQUENCES.iter().enumerate());
    let sequences = sequences.map(|(at, sequence)| async move {
        for (number, operation) in sequence.iter().cycle().enumerate() {
            if scenario.is_over() && number >= sequence.len() {
                break;
            }
            let mut row = one(prepared, *operation, number).await;
            row["sequence"] = at.into();
            row["under_attack"] = (!scenario.is_over()).into();
            eprintln!("{row}");
            let has_failed = !row["error"].is_null();
            rows.borrow_mut().push(row);
            if has_failed {
                break;
            }
        }
    });
    join_all(sequences).await;
    rows.take()
}

async fn one(prepared: &Prepared, operation: Operation, number: usize) -> Value {
    let begin = Instant::now();
    let name = format!("{}-{number}", operation.name());
    let outcome = match operation {
        Operation::Refresh => golden::refresh(prepared, number).await,
        _ => volumes::make(prepared, operation, &name).await,
    };
    let seconds = begin.elapsed().as_secs_f64();
    let error = outcome.err().map(|error| format!("{error:#}"));
    json!({
        "row": "operation", "operation": operation.name(), "name": name, "seconds": seconds,
        "error": error,
    })
}

/// Fails unless every operation succeeded, and each sequence had one that ended while the attackers were active:
/// success after the attacks is not enough.
pub fn check(rows: &[Value]) -> Result<()> {
    let failed: Vec<_> = rows.iter().filter(|row| !row["error"].is_null()).collect();
    let (bad, all) = (failed.len(), rows.len());
    ensure!(failed.is_empty(), "{bad} of {all} operations of the victim failed: {failed:?}");
    for (at, sequence) in SEQUENCES.iter().enumerate() {
        let mut of_sequence = rows.iter().filter(|row| row["sequence"] == at);
        let operation = sequence.first().map(|operation| operation.name()).unwrap_or_default();
        let progressed = of_sequence.any(|row| row["under_attack"] == true);
        ensure!(progressed, "nothing of the sequence of {operation} ended while it was attacked");
    }
    Ok(())
}

/// One more import, when all is over.
pub async fn once_more(prepared: &Prepared) -> Result<()> {
    volumes::make(prepared, Operation::Http, "once-more").await
}
