//! From the environment to the exit code.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use contract::clone::{BadCloneJob, ClonedVolume, name};
use contract::paths;
use contract::termination::termination_text;
use runtime::metrics::{self, Page};
use runtime::sandbox::DNS_PORT;
use runtime::{
    Flags, SandboxMissing, SandboxPolicy, SandboxRequirement, TcpConnect, TerminationMessage,
    chain, enter_sandbox, worker_tasks,
};

use crate::config::{ClonerConfig, ClonerTarget};
use crate::error::Error;
use crate::local;
use crate::progress::Progress;
use crate::send::{RetryPolicy, UploadServer, send};
use crate::volume::SourceVolume;

/// Termination messages of a complete clone. Controllers look for `Preallocation applied`.
const COMPLETE: &str = "Clone Complete";
const COMPLETE_PREALLOCATED: &str = "Clone Complete, Preallocation applied";

/// What the process gets from its pod.
#[derive(Debug)]
pub struct ProcessEnvironment {
    /// `/`, or a directory in its place in tests.
    pub root: PathBuf,
    pub variables: BTreeMap<String, String>,
    /// Upstream's start script passes flags that repeat variables: only the common ones count.
    pub flags: Flags,
}

impl ProcessEnvironment {
    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

enum CloneFailure {
    Config(BadCloneJob),
    Clone(Error),
}

/// Runs the clone that the environment describes, and writes the result to the termination log. Returns the exit code
/// of the process.
pub fn run_clone_pod(process: &ProcessEnvironment) -> u8 {
    let mut termination = TerminationMessage::open(&process.at(paths::TERMINATION_LOG));
    let (message, code) = match run_clone(process) {
        Ok(message) => (message.to_owned(), 0),
        Err(CloneFailure::Config(error)) => (error.to_string(), error.exit_code()),
        Err(CloneFailure::Clone(error)) => (termination_text(&chain(&error)), 255),
    };
    if code == 0 {
        tracing::info!("{message}");
    } else {
        tracing::error!("{message}");
    }
    match termination.write(&message) {
        Err(error) if code == 0 => {
            tracing::error!("cannot write {}: {error}", termination.path().display());
            1
        }
        _ => code,
    }
}

fn run_clone(process: &ProcessEnvironment) -> Result<&'static str, CloneFailure> {
    let config =
        ClonerConfig::from_environment(&process.variables).map_err(CloneFailure::Config)?;
    let listener = metrics::listen(paths::METRICS_PORT)
        .inspect_err(|error| tracing::warn!(error = %error, "cannot serve metrics on port {}", paths::METRICS_PORT))
        .ok();
    let source = process.at(&config.source.path);
    // Before other threads exist: they would stay outside.
    enter_clone_sandbox(process, &config).map_err(|error| CloneFailure::Clone(error.into()))?;
    let progress = Arc::new(Progress::default());
    let page: Page = {
        let (progress, owner_uid) = (Arc::clone(&progress), config.owner_uid.clone());
        Arc::new(move || progress.page(&owner_uid))
    };
    let percentage = {
        let progress = Arc::clone(&progress);
        move || progress.value()
    };
    // No shutdown hook: the server keeps what is durable, and discards the rest.
    worker_tasks::start_worker_tasks(listener, config.metrics_tls.clone(), page, percentage, None)
        .map_err(|error| CloneFailure::Clone(Error::Worker(error)))?;
    tracing::info!(source.path = %source.display(), source.mode = ?config.source.mode, "cloning {} to {:?}", source.display(), config.target);
    copy_or_send(&config, &source, process, &progress).map_err(CloneFailure::Clone)?;
    Ok(if config.preallocate { COMPLETE_PREALLOCATED } else { COMPLETE })
}

fn copy_or_send(
    config: &ClonerConfig,
    source: &Path,
    process: &ProcessEnvironment,
    progress: &Progress,
) -> Result<(), Error> {
    let volume = SourceVolume::open(source, config.source.mode)?;
    match &config.target {
        ClonerTarget::Server { url, identity, ca } => {
            let peer = UploadServer::new(url, identity, ca)?;
            let owner = &config.owner_uid;
            send(&volume, config.preallocate, owner, &peer, RetryPolicy::default(), progress)
        }
        ClonerTarget::Volume(ClonedVolume { path, mode }) => {
            let target = process.at(path);
            local::copy(&volume, &target, *mode, config.preallocate, progress)
        }
    }
}

/// Permits reading the source, and either connections to the server's port or writing the target volume.
fn enter_clone_sandbox(
    process: &ProcessEnvironment,
    config: &ClonerConfig,
) -> Result<(), SandboxMissing> {
    let (write, ports) = match &config.target {
        ClonerTarget::Server { url, .. } => {
            (Vec::new(), url.port_or_known_default().into_iter().chain([DNS_PORT]).collect())
        }
        ClonerTarget::Volume(ClonedVolume { path, .. }) => (vec![process.at(path)], Vec::new()),
    };
    let policy = SandboxPolicy {
        read: vec![process.at(&config.source.path)],
        write,
        listen: Vec::new(), // the listener exists already
        connect: TcpConnect::Ports(ports),
    };
    let required = process.variables.get(name::REQUIRE_SANDBOX).map(String::as_str);
    enter_sandbox(&policy, SandboxRequirement::from_variable(required))?;
    Ok(())
}
