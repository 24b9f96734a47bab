//! Where the image comes from: the one place in which a job's source is opened. A source that [`plan`](super::plan)
//! lets through has its arm here.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fs;
use std::sync::Arc;

use contract::ImportJob;
use contract::job::{SourceKind, VddkInfo, texts};
use pipeline::Source;

use super::access;
use super::mounts::Paths;
use super::outcome::chain;
use crate::web::{HttpOptions, HttpSource};
use crate::{ContainerDisk, labels, served_environment};

/// An open source, and what it tells besides its bytes.
pub struct Connected {
    /// The image.
    pub source: Arc<dyn Source>,
    /// Labels for the claim.
    pub labels: BTreeMap<String, String>,
    /// Whom VMware's library talks to.
    pub vddk: Option<VddkInfo>,
}

impl Connected {
    fn plain(source: impl Source + 'static) -> Self {
        Self { source: Arc::new(source), labels: BTreeMap::new(), vddk: None }
    }
}

/// Opens the source of `job`.
///
/// # Errors
/// What the source says when it cannot be reached.
pub fn connect(
    job: &ImportJob,
    paths: &Paths,
) -> Result<Connected, Box<dyn StdError + Send + Sync>> {
    match &job.source {
        SourceKind::Http => {
            let options = access::http_options(job, paths)?;
            let endpoint = endpoint(job, paths);
            let source = HttpSource::connect(&endpoint, &options)?;
            let labels =
                if job.node_pull { served_labels(&endpoint, &options) } else { BTreeMap::new() };
            Ok(Connected { labels, ..Connected::plain(source) })
        }
        SourceKind::Registry => {
            let mut options = access::http_options(job, paths)?;
            let architecture = Some(job.architecture.clone());
            options.registry.architecture = architecture.filter(|name| !name.is_empty());
            let disk = ContainerDisk::open(&job.endpoint, &options)?;
            let labels = labels(disk.info().environment.iter().map(String::as_str));
            Ok(Connected { labels, ..Connected::plain(disk) })
        }
        other => Err(texts::unknown_source(other.name()).into()),
    }
}

/// What the image that the node has pulled wants its claim to be labelled with. A disk without labels is better than none.
fn served_labels(disk: &str, options: &HttpOptions) -> BTreeMap<String, String> {
    match served_environment(disk, options) {
        Ok(environment) => labels(environment.iter().map(String::as_str)),
        Err(error) => {
            tracing::warn!("nothing is known of the image beside its disk: {}", chain(&error));
            BTreeMap::new()
        }
    }
}

/// Whether opening this source starts programs, which has to happen before the process gives that right away.
pub fn starts_programs(source: &SourceKind) -> bool {
    *source == SourceKind::Vddk
}

/// The container beside, where there is one, says in its ready file how the image is called.
fn endpoint(job: &ImportJob, paths: &Paths) -> String {
    const PLACEHOLDER: &str = "disk.img";
    if job.ready_file.is_empty() {
        return job.endpoint.clone();
    }
    let name = fs::read_to_string(paths.at(&job.ready_file)).unwrap_or_default();
    match (name.trim(), job.endpoint.strip_suffix(PLACEHOLDER)) {
        ("", _) | (_, None) => job.endpoint.clone(),
        (name, Some(folder)) => format!("{folder}{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_file_names_the_image() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::under(root.path());
        fs::create_dir(root.path().join("shared")).unwrap();
        let url = |content: &str, ready_file: &str, endpoint: &str| {
            fs::write(root.path().join("shared/ready"), content).unwrap();
            let job = ImportJob {
                ready_file: ready_file.into(),
                ..ImportJob::new(SourceKind::Http, endpoint)
            };
            super::endpoint(&job, &paths)
        };
        let there = "http://localhost:8100/disk.img";
        assert_eq!(url("vm.qcow2\n", "/shared/ready", there), "http://localhost:8100/vm.qcow2");
        assert_eq!(url("", "/shared/ready", there), there);
        assert_eq!(url("vm.qcow2", "", there), there);
        assert_eq!(url("vm.qcow2", "/shared/absent", there), there);
        assert_eq!(url("vm.qcow2", "/shared/ready", "http://a/b"), "http://a/b");
    }
}
