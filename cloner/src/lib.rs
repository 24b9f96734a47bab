//! What stands beside the source of a clone: it reads a volume, and sends it to the upload server beside the target, or
//! writes it to the target itself where both are in one pod.
//!
//! ```text
//! volume ─► parts (holes left out) ─► threads: read, find zeroes, compress ─► in order ─► TLS ─► upload server
//!                                                                    └──────────────────────────► volume in the same pod
//! ```
//!
//! Which way a volume is cloned, and whether it may be, others have decided.

#![allow(missing_docs)] // documented is what the signature does not say

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
pub use run::{Surroundings, run};
pub use send::{Peer, Retries, send};
pub use volume::Volume;
