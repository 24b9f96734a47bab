//! From the environment to the exit code.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use contract::clone::{BadCloneJob, ClonedVolume, name};
use contract::job::{paths, termination_text};
use runtime::metrics::{self, Page};
use runtime::sandbox::DNS_PORT;
use runtime::{
    Flags, SandboxMissing, SandboxPolicy, SandboxRequirement, TcpConnect, Termination, beside,
    enter_sandbox,
};

use crate::config::{ClonerConfig, ClonerTarget};
use crate::error::{Error, chain};
use crate::local;
use crate::progress::Progress;
use crate::send::{Peer, Retries, send};
use crate::volume::Volume;

/// Last words of a clone that is complete. Controllers look for the second half of the other.
const COMPLETE: &str = "Clone Complete";
const COMPLETE_PREALLOCATED: &str = "Clone Complete, Preallocation applied";

/// What a process of a pod starts with.
#[derive(Debug)]
pub struct Surroundings {
    /// Where `/` is.
    pub root: PathBuf,
    /// The environment.
    pub variables: BTreeMap<String, String>,
    /// What a start script would say again, and is taken from the environment instead.
    pub flags: Flags,
}

impl Surroundings {
    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// Why there is no clone.
enum Failure {
    Config(BadCloneJob),
    Clone(Error),
}

/// Carries out the clone that the environment orders, and says how it went in the termination log.
pub fn run(surroundings: &Surroundings) -> ExitCode {
    let mut termination = Termination::open(&surroundings.at(paths::TERMINATION_LOG));
    let (words, code) = match carry_out(surroundings) {
        Ok(words) => (words.to_owned(), 0),
        Err(Failure::Config(error)) => (error.to_string(), error.exit_code()),
        Err(Failure::Clone(error)) => (termination_text(&chain(&error)), 255),
    };
    if code == 0 {
        tracing::info!("{words}");
    } else {
        tracing::error!("{words}");
    }
    match termination.write(&words) {
        Err(error) if code == 0 => {
            tracing::error!("cannot write {}: {error}", termination.path().display());
            ExitCode::from(1)
        }
        _ => ExitCode::from(code),
    }
}

fn carry_out(surroundings: &Surroundings) -> Result<&'static str, Failure> {
    let config =
        ClonerConfig::from_environment(&surroundings.variables).map_err(Failure::Config)?;
    let listener = metrics::listen(paths::METRICS_PORT)
        .inspect_err(|error| tracing::warn!("no metrics are served: {error}"))
        .ok();
    let source = surroundings.at(&config.source.path);
    // While there is one thread.
    enter_clone_sandbox(surroundings, &config).map_err(|error| Failure::Clone(error.into()))?;
    let progress = Arc::new(Progress::default());
    let page: Page = {
        let (progress, owner_uid) = (Arc::clone(&progress), config.owner_uid.clone());
        Arc::new(move || progress.page(&owner_uid))
    };
    let percentage = {
        let progress = Arc::clone(&progress);
        move || progress.value()
    };
    // What the server has is durable or lost: there is nobody to say goodbye to.
    beside::start(listener, config.metrics_key.clone(), page, percentage, None)
        .map_err(|error| Failure::Clone(Error::Worker(error)))?;
    tracing::info!(source.path = %source.display(), source.mode = ?config.source.mode, "cloning to {:?}", config.target);
    carry(&config, &source, surroundings, &progress).map_err(Failure::Clone)?;
    Ok(if config.preallocate { COMPLETE_PREALLOCATED } else { COMPLETE })
}

fn carry(
    config: &ClonerConfig,
    source: &Path,
    surroundings: &Surroundings,
    progress: &Progress,
) -> Result<(), Error> {
    let volume = Volume::open(source, config.source.mode)?;
    match &config.target {
        ClonerTarget::Server { url, identity, ca } => {
            let peer = Peer::new(url, identity, ca)?;
            let owner = &config.owner_uid;
            send(&volume, config.preallocate, owner, &peer, Retries::default(), progress)
        }
        ClonerTarget::Volume(ClonedVolume { path, mode }) => {
            let target = surroundings.at(path);
            local::copy(&volume, &target, *mode, config.preallocate, progress)
        }
    }
}

/// It reads the source. A clone to an upload server writes nothing and connects to that server's port only; one to a volume
/// of this pod writes that volume and connects to nothing.
fn enter_clone_sandbox(
    surroundings: &Surroundings,
    config: &ClonerConfig,
) -> Result<(), SandboxMissing> {
    let (write, ports) = match &config.target {
        ClonerTarget::Server { url, .. } => {
            (Vec::new(), url.port_or_known_default().into_iter().chain([DNS_PORT]).collect())
        }
        ClonerTarget::Volume(ClonedVolume { path, .. }) => {
            (vec![surroundings.at(path)], Vec::new())
        }
    };
    let policy = SandboxPolicy {
        read: vec![surroundings.at(&config.source.path)],
        write,
        listen: Vec::new(), // it has its port already
        connect: TcpConnect::Ports(ports),
    };
    let required = surroundings.variables.get(name::REQUIRE_SANDBOX).map(String::as_str);
    enter_sandbox(&policy, SandboxRequirement::from_variable(required))?;
    Ok(())
}
