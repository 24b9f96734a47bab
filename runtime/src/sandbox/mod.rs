//! A sandbox of Landlock and seccomp, which a program enters before it reads anything from outside.
//!
//! A compromised decoder or client then cannot start a program or another process, trace processes, mount, create namespaces,
//! open a file other than those of its policy, or open a TCP connection to a port other than those of its policy. What the
//! kernel does not support is left out, unless the sandbox is required. A restriction is never lifted.

#[cfg(feature = "cluster")]
mod api_server_access;
mod landlock_rules;
mod syscall_filters;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use contract::go_bool;
use contract::import::name::REQUIRE_SANDBOX;

#[cfg(feature = "cluster")]
pub use api_server_access::enter_control_plane_sandbox;
use syscall_filters::Connections;

/// Port of name servers. Resolvers use TCP for responses that do not fit into a datagram.
pub const DNS_PORT: u16 = 53;

/// What every program may read: libraries, certificates, name resolution, time zones, CPU and memory limits. The two files
/// may be links to somewhere else.
const SYSTEM_PATHS: [&str; 9] =
    ["/etc", "/usr", "/lib", "/lib64", "/proc", "/sys", "/dev", "/etc/resolv.conf", "/etc/hosts"];

/// What a process does after it has entered the sandbox. Files and sockets that are open already are not affected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxPolicy {
    /// Files, and directories with everything below them, that it reads next to system files (`/etc`, `/usr`, `/proc` …).
    /// Those that do not exist when the sandbox is entered stay out of reach.
    pub read: Vec<PathBuf>,
    /// The same for what it reads, writes, creates and removes.
    pub write: Vec<PathBuf>,
    /// TCP ports that it binds; 0 is any free one.
    pub listen: Vec<u16>,
    /// TCP ports that it connects to.
    pub connect: TcpConnect,
}

/// TCP ports that a process connects to, whatever the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TcpConnect {
    /// Any: the port is part of a URL that a user gives, or of a redirect.
    #[default]
    Anywhere,
    /// These only. If empty, the process connects to nothing, by any protocol, and has no UDP sockets.
    Ports(Vec<u16>),
}

impl TcpConnect {
    fn is_nowhere(&self) -> bool {
        matches!(self, Self::Ports(ports) if ports.is_empty())
    }
}

/// Whether a program runs without the sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SandboxRequirement {
    /// It runs with what the kernel supports.
    #[default]
    Optional,
    /// It ends if the kernel does not enforce the whole policy.
    Required,
}

impl SandboxRequirement {
    /// From the variable of a worker's container.
    pub fn from_variable(value: Option<&str>) -> Self {
        match value {
            None | Some("") => Self::Optional,
            // A value that is not a boolean is an error of the administrator: do not run unprotected.
            Some(text) if go_bool(text) != Some(false) => Self::Required,
            Some(_) => Self::Optional,
        }
    }

    /// From [`REQUIRE_SANDBOX`] of this process.
    pub fn from_environment() -> Self {
        Self::from_variable(std::env::var(REQUIRE_SANDBOX).ok().as_deref())
    }
}

/// What of its policy the kernel enforces for this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SandboxState {
    /// Access to files (Landlock, Linux 5.13).
    pub files: bool,
    /// System calls that no program needs (seccomp).
    pub system_calls: bool,
    /// TCP ports that are bound (Landlock, Linux 6.7).
    pub tcp_listen: bool,
    /// TCP ports that are connected to (Landlock, Linux 6.7; seccomp, if there are none). `None`: the policy allows all.
    pub tcp_connect: Option<bool>,
}

impl SandboxState {
    /// Each restriction of the policy by its name in metrics, and whether it is enforced.
    fn restrictions(&self) -> impl Iterator<Item = (&'static str, bool)> {
        let Self { files, system_calls, tcp_listen, tcp_connect } = *self;
        [
            ("files", Some(files)),
            ("system_calls", Some(system_calls)),
            ("tcp_listen", Some(tcp_listen)),
            ("tcp_connect", tcp_connect),
        ]
        .into_iter()
        .filter_map(|(name, state)| Some((name, state?)))
    }

    /// Fails if the sandbox is required and a restriction of the policy is not enforced.
    fn check(self, requirement: SandboxRequirement) -> Result<Self, SandboxMissing> {
        let missing: Vec<_> =
            self.restrictions().filter_map(|(name, held)| (!held).then_some(name)).collect();
        match requirement {
            SandboxRequirement::Required if !missing.is_empty() => Err(SandboxMissing { missing }),
            _ => Ok(self),
        }
    }

    fn metric(&self) -> String {
        let name = "kubevirt_cdi_sandbox";
        let help = "Whether the kernel enforces a restriction of this process";
        let mut text = format!("# HELP {name} {help}\n# TYPE {name} gauge\n");
        for (restriction, held) in self.restrictions() {
            text += &format!("{name}{{restriction=\"{restriction}\"}} {}\n", u8::from(held));
        }
        text
    }
}

impl fmt::Display for SandboxState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = |held| if held { "confined" } else { "NOT confined" };
        write!(formatter, "files {}, ", state(self.files))?;
        write!(formatter, "system calls {}, ", state(self.system_calls))?;
        write!(formatter, "TCP listening {}, ", state(self.tcp_listen))?;
        match self.tcp_connect {
            None => formatter.write_str("TCP connections to any port"),
            Some(held) => write!(formatter, "TCP connections {}", state(held)),
        }
    }
}

/// The directory of a file, which a policy names for a file that is replaced while the program runs.
pub fn directory_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(directory) if directory.as_os_str().is_empty() => ".".into(),
        Some(directory) => directory.to_owned(),
        None => file.to_owned(),
    }
}

/// The sandbox is required, and the kernel does not enforce all of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot enter the sandbox: the kernel does not enforce {}; use nodes with Linux 6.7 or later and Landlock enabled, or \
     do not require the sandbox",
    missing.join(", ")
)]
pub struct SandboxMissing {
    missing: Vec<&'static str>,
}

/// Set once, as the restrictions are of the process.
static STATE: OnceLock<SandboxState> = OnceLock::new();

/// Restricts this thread and all threads that it starts later; system calls are restricted in all threads. Call it while
/// the process has one thread. Logs the outcome.
///
/// # Errors
/// Only if the sandbox is required and the kernel lacks part of it. The process has to end then.
pub fn enter_sandbox(
    policy: &SandboxPolicy,
    requirement: SandboxRequirement,
) -> Result<SandboxState, SandboxMissing> {
    if let Err(error) = rustix::thread::set_no_new_privs(true) {
        tracing::debug!("cannot set no_new_privs: {error}");
    }
    let files = landlock_rules::restrict_files(policy).unwrap_or_else(|error| {
        tracing::debug!("cannot restrict access to files: {error}");
        false
    });
    let tcp = landlock_rules::restrict_tcp(policy)
        .inspect_err(|error| tracing::debug!("cannot restrict TCP ports: {error}"))
        .is_ok();
    let connections =
        if policy.connect.is_nowhere() { Connections::Refused } else { Connections::Allowed };
    let system_calls = syscall_filters::install(connections)
        .inspect_err(|error| tracing::debug!("cannot restrict system calls: {error}"))
        .is_ok();
    let connects = tcp || (system_calls && policy.connect.is_nowhere());
    let tcp_connect = (policy.connect != TcpConnect::Anywhere).then_some(connects);
    let state = SandboxState { files, system_calls, tcp_listen: tcp, tcp_connect };
    publish(state).check(requirement)
}

/// Logs the state, and shows it in [`sandbox_metrics`].
fn publish(state: SandboxState) -> SandboxState {
    tracing::info!("sandbox: {state}");
    let _ = STATE.set(state); // a second sandbox only adds to the first
    state
}

/// The metric `kubevirt_cdi_sandbox`, in the text format; empty if this process has entered no sandbox.
pub fn sandbox_metrics() -> String {
    STATE.get().map(SandboxState::metric).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(files: bool, system_calls: bool, tcp: bool, connect: Option<bool>) -> SandboxState {
        SandboxState { files, system_calls, tcp_listen: tcp, tcp_connect: connect }
    }

    #[test]
    fn required_sandbox_that_is_incomplete_is_an_error() {
        use SandboxRequirement::{Optional, Required};
        for (state, missing) in [
            (state(true, true, true, Some(true)), ""),
            (state(true, true, true, None), ""),
            // Linux 5.13 to 6.6, where Landlock knows files only.
            (state(true, true, false, Some(false)), "tcp_listen, tcp_connect"),
            (state(true, true, false, None), "tcp_listen"),
            // Without Landlock, and without anything.
            (state(false, true, false, None), "files, tcp_listen"),
            (
                state(false, false, false, Some(false)),
                "files, system_calls, tcp_listen, tcp_connect",
            ),
        ] {
            assert_eq!(state.check(Optional), Ok(state));
            let checked = state.check(Required);
            match missing {
                "" => assert_eq!(checked, Ok(state)),
                missing => {
                    let text = checked.unwrap_err().to_string();
                    assert!(text.contains(&format!("does not enforce {missing};")), "{text}");
                }
            }
        }
    }

    #[test]
    fn unreadable_requirement_counts_as_required() {
        use SandboxRequirement::{Optional, Required};
        for (value, expected) in [
            (None, Optional),
            (Some(""), Optional),
            (Some("false"), Optional),
            (Some("0"), Optional),
            (Some("true"), Required),
            (Some("1"), Required),
            (Some("yes"), Required),
        ] {
            assert_eq!(SandboxRequirement::from_variable(value), expected, "{value:?}");
        }
    }

    #[test]
    fn log_and_metric_list_each_restriction() {
        let partial = state(true, true, false, Some(false));
        let text = partial.to_string();
        assert_eq!(
            text,
            "files confined, system calls confined, TCP listening NOT confined, TCP connections NOT confined"
        );
        assert!(partial.metric().contains("kubevirt_cdi_sandbox{restriction=\"files\"} 1\n"));
        assert!(partial.metric().contains("kubevirt_cdi_sandbox{restriction=\"tcp_connect\"} 0\n"));
        let anywhere = state(true, true, true, None);
        assert!(anywhere.to_string().ends_with("TCP connections to any port"));
        assert!(!anywhere.metric().contains("tcp_connect"), "it is not restricted");
    }
}
