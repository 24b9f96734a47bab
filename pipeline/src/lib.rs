//! The one data path of the project: wire bytes come in, a raw disk goes out.
//!
//! A [`Source`] supplies the bytes of an image, whatever the protocol; [`import`](import()) detects compression and
//! format, decides on a route ([`plan::plan_import`]), decodes on all cores and writes to a [`Sink`]: a sparse or
//! preallocated file, a block device, or a test's memory. Nothing here knows HTTP, Kubernetes or tokio: everything runs on
//! plain threads, and all buffers share one memory budget.
//!
//! ```text
//! Source ─► route (ranges, stream, parts, one pass) ─► jobs ─► worker pool: decode, find zeroes, write ─► Sink
//!                                                                 └─► completion: segments that are durable ─► journal
//! ```

mod activity_times;
mod blank;
pub mod buffer;
mod completion;
mod concurrency_limiter;
mod counting_sink;
pub mod error;
mod feeder;
mod finish;
mod import;
mod inspect;
pub mod io_counters;
mod jobs;
mod journal;
mod memory;
mod memory_permit;
mod options;
mod ova;
mod parallel_gzip;
mod pieces;
pub mod plan;
mod probe;
pub mod progress;
mod resume;
mod routes;
mod scratch_retry;
pub mod sink;
pub mod source;
mod sparse_space;
mod sys;
pub mod target;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod timed_source;
mod transfer;
mod unpack;
mod wire;
mod worker_pool;
pub mod zeroes;

pub use activity_times::TimeSpent;
pub use blank::blank;
pub use buffer::{Buffer, Pool};
pub use error::Error;
pub use import::import;
pub use inspect::inspect;
pub use options::{Delta, FileSpace, Inspection, Options, Report, SourceFormat, Target};
pub use parallel_gzip::decompress;
pub use probe::{HEAD_LEN, ImageKind, image_kind};
pub use progress::{Progress, ProgressPhase};
pub use sink::Sink;
pub use source::{ByteStream, Extent, ExtentKind, Source, SourceError, SourceFacts};
pub use sys::{is_cached, start_write_back};
pub use target::{Disk, DiskOptions};
pub use unpack::{Staging, UnpackOptions, Unpacked, unpack};
pub use wire::{Wire, explain};
