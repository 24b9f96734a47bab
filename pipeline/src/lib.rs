//! The one data path of the project: wire bytes come in, a raw disk goes out.
//!
//! A [`Source`] hands over bytes of an image, whatever the protocol; [`import`](import()) recognises compression and
//! format, decides on a route ([`plan::plan_import`]), decodes on all cores and writes to a [`Sink`]: a sparse or
//! preallocated file, a block device, or a test's memory. Nothing here knows HTTP, Kubernetes or tokio: every stage is
//! a plain thread, and all buffers come out of one memory budget.
//!
//! ```text
//! Source ─► route (ranges, stream, parts, one pass) ─► jobs ─► crew: decode, find zeroes, write ─► Sink
//!                                                                └─► ledger: what is durable ─► journal
//! ```

pub mod buffer;
mod concurrency;
mod crew;
pub mod error;
mod feeder;
mod import;
mod inspect;
mod jobs;
mod journal;
mod ledger;
mod look;
mod memory;
mod options;
mod outlet;
mod ova;
pub mod plan;
pub mod progress;
mod routes;
pub mod sink;
pub mod source;
mod space;
mod sys;
pub mod target;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod unpack;
mod wire;
pub mod zeroes;

pub use buffer::{Buffer, Pool};
pub use error::Error;
pub use import::{blank, import};
pub use inspect::inspect;
pub use look::{HEAD_LEN, Nature, nature};
pub use options::{Delta, FileSpace, Inspection, Options, Report, SourceFormat, Target};
pub use progress::{Progress, Stage};
pub use sink::Sink;
pub use source::{ByteStream, Extent, ExtentKind, Source, SourceError, SourceFacts};
pub use target::{Disk, DiskOptions};
pub use unpack::{Staging, UnpackOptions, Unpacked, unpack};
pub use wire::{Wire, explain};
