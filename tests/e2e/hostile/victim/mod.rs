//! The tenant that does no harm: imports, uploads, clones and golden images, one after the other and a few at a time, until
//! the run is over. What has begun by then is finished. Nothing is tried twice: what fails once has failed.

mod golden;
mod prepare;
mod volumes;

use std::cell::RefCell;
use std::time::Instant;

use anyhow::{Result, ensure};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::stage::Stage;

pub use prepare::Prepared;

/// What it does.
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

/// What is done at the same time, over and over: three things, so that the attackers have processors too.
const LANES: [&[Operation]; 3] = [
    &[Operation::Blank, Operation::CsiClone, Operation::Http],
    &[Operation::Upload, Operation::SnapshotClone, Operation::Registry, Operation::CopyClone],
    &[Operation::Refresh],
];

/// Does everything over and over, each thing at least once, and returns a row for each operation. Whatever fails ends its
/// lane: the run has failed, and what waits for it has waited for minutes.
pub async fn work(stage: &Stage, prepared: &Prepared) -> Vec<Value> {
    let rows = RefCell::new(Vec::new());
    let (rows, lanes) = (&rows, LANES.iter().enumerate());
    let lanes = lanes.map(|(at, lane)| async move {
        for (number, operation) in lane.iter().cycle().enumerate() {
            if stage.is_over() && number >= lane.len() {
                break;
            }
            let mut row = one(prepared, *operation, number).await;
            row["lane"] = at.into();
            row["under_attack"] = (!stage.is_over()).into();
            eprintln!("{row}");
            let has_failed = !row["error"].is_null();
            rows.borrow_mut().push(row);
            if has_failed {
                break;
            }
        }
    });
    join_all(lanes).await;
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

/// Fails unless every operation succeeded, and each lane had one that ended while the attackers were at work: it is not enough
/// that all is well when they are gone.
pub fn check(rows: &[Value]) -> Result<()> {
    let failed: Vec<_> = rows.iter().filter(|row| !row["error"].is_null()).collect();
    let (bad, all) = (failed.len(), rows.len());
    ensure!(failed.is_empty(), "{bad} of {all} operations of the victim failed: {failed:?}");
    for (at, lane) in LANES.iter().enumerate() {
        let mut of_lane = rows.iter().filter(|row| row["lane"] == at);
        let operation = lane.first().map(|operation| operation.name()).unwrap_or_default();
        let progressed = of_lane.any(|row| row["under_attack"] == true);
        ensure!(progressed, "nothing of the lane of {operation} ended while it was attacked");
    }
    Ok(())
}

/// One more import, when all is over.
pub async fn once_more(prepared: &Prepared) -> Result<()> {
    volumes::make(prepared, Operation::Http, "once-more").await
}
