//! Common to all processes: flags, logs, HTTPS and metrics servers, signals, termination messages, the client of the API
//! server, the sandbox. No domain logic.

#[cfg(feature = "cluster")]
mod api_server_client;
mod chain;
pub mod container_command;
#[cfg(feature = "cluster")]
mod control_plane;
mod dead_peers;
#[cfg(feature = "cluster")]
pub mod decoded;
mod exit;
mod flags;
pub mod health;
pub mod https;
#[cfg(feature = "cluster")]
mod json_path;
#[cfg(feature = "cluster")]
pub mod leader_election;
mod logs;
pub mod metrics;
#[cfg(feature = "cluster")]
pub mod metrics_access;
mod metrics_key;
mod metrics_tls;
mod only_request;
mod program;
mod random;
pub mod sandbox;
mod signals;
mod sys;
mod termination;
pub mod tls;
pub mod worker_tasks;

#[cfg(feature = "cluster")]
pub use api_server_client::{ClusterClientError, api_server_client};
pub use chain::chain;
pub use container_command::run_container_command;
#[cfg(feature = "cluster")]
pub use control_plane::run_control_plane_program;
pub use dead_peers::detect_dead_peer;
pub use exit::exit_process;
pub use flags::Flags;
pub use metrics_key::{BadMetricsKey, MetricsKey};
pub use metrics_tls::MetricsTls;
pub use only_request::send_only_request;
pub use program::{environment, start_program};
pub use random::random_bytes;
#[cfg(feature = "cluster")]
pub use sandbox::enter_control_plane_sandbox;
pub use sandbox::{SandboxMissing, SandboxPolicy, SandboxRequirement, TcpConnect, enter_sandbox};
pub use signals::StopSignals;
pub use termination::TerminationMessage;
