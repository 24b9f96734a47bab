//! The one data path of the project: wire bytes come in, a raw disk goes out.
//!
//! A [`Source`] hands over bytes of an image, whatever the protocol; [`import`](import()) recognises compression and
//! format, decides on a route ([`plan::plan_import`]), decodes on all cores and writes to a [`Sink`]: a sparse or
//! preallocated file, a block device, or a test's memory. Nothing here knows HTTP, Kubernetes or tokio: every stage is
//! a plain thread, and all buffers come out of one memory budget.

pub mod buffer;
pub mod error;
pub mod import;
pub mod progress;
pub mod sink;
pub mod source;
mod sys;
pub mod target;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod zeroes;

pub use buffer::{Buffer, Pool};
pub use error::Error;
pub use import::{Inspection, Options, Report, Target, blank, import, inspect};
pub use progress::{Progress, Stage};
pub use sink::Sink;
pub use source::{ByteStream, Source, SourceError, SourceFacts};
pub use target::{Disk, DiskOptions};
