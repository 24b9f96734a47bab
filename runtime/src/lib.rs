//! What every process of a cluster repeats: reading its flags, writing logs, serving metrics, minding signals, saying
//! last words, and giving away the rights that it does not need. No domain word is known here.

mod confine;
mod flags;
mod logs;
pub mod metrics;
mod signals;
mod termination;

pub use confine::{Confined, Rights, confine};
pub use flags::Flags;
pub use logs::init as init_logs;
pub use signals::StopSignals;
pub use termination::Termination;
