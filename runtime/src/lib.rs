//! What every process of a cluster repeats: reading its flags, writing logs, serving metrics and other things by TLS,
//! minding signals, saying last words, finding its cluster, and a sandbox without the rights that it does not need. No domain word is known here.

pub mod beside;
mod chain;
#[cfg(feature = "cluster")]
mod cluster;
pub mod container_command;
#[cfg(feature = "cluster")]
pub mod decoded;
mod flags;
pub mod health;
pub mod https;
mod logs;
pub mod metrics;
mod metrics_key;
mod process;
mod random;
#[cfg(feature = "cluster")]
pub mod readers;
pub mod sandbox;
mod signals;
mod termination;
pub mod tls;

pub use chain::chain;
#[cfg(feature = "cluster")]
pub use cluster::{NoCluster, cluster};
pub use container_command::run_container_command;
pub use flags::Flags;
pub use metrics_key::{BadMetricsKey, MetricsKey};
pub use process::{begin, environment};
pub use random::random_bytes;
#[cfg(feature = "cluster")]
pub use sandbox::enter_control_plane_sandbox;
pub use sandbox::{SandboxMissing, SandboxPolicy, SandboxRequirement, TcpConnect, enter_sandbox};
pub use signals::StopSignals;
pub use termination::Termination;
