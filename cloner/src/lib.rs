//! The worker of a clone's source pod: it reads a volume, and sends it to the upload server in the target's pod, or writes it
//! to the target itself if one pod has both volumes.
//!
//! ```text
//! volume ─► parts (holes skipped) ─► threads: read, find zeroes, compress ─► in order ─► TLS ─► upload server
//!                                                                   └──────────────────────────► volume in the same pod
//! ```
//!
//! The controller decides how a volume is cloned, and whether it may be.

mod config;
mod error;
mod in_order;
mod local;
mod progress;
mod run;
mod send;
mod volume;

pub use config::{ClonerConfig, ClonerTarget};
pub use error::Error;
pub use local::copy;
pub use progress::Progress;
pub use run::{ProcessEnvironment, run_clone_pod};
pub use send::{RetryPolicy, UploadServer, send};
pub use volume::SourceVolume;
