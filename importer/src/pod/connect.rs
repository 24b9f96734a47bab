//! Where the image comes from: the one place in which a job's source is opened. A source that [`plan`](super::plan)
//! lets through has its arm here.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fs;
use std::sync::Arc;

use contract::ImportJob;
use contract::import::{SourceKind, texts};
use contract::paths;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use pipeline::{Delta, Source};

use super::access;
use super::mounts::Paths;
use runtime::chain;

use crate::error::Error;
use crate::imageio::{ImageioSettings, Intervals, imageio};
use crate::stage::{Checkpoints, StageSource, StopFlag};
use crate::vddk::{VddkSettings, VddkWatch, vddk};
use crate::web::{HttpOptions, HttpSource};
use crate::{BasicAuth, ContainerDisk, Secret, labels, served_environment};

/// With VMware's plugin in it.
const NBDKIT: &str = "nbdkit";

/// An open source and its metadata.
pub struct Connected {
    /// The image. Dropping it ends the session with its server.
    pub source: Arc<dyn Source>,
    /// Only changes come, to a disk that is there.
    pub delta: Option<Delta>,
    pub labels: BTreeMap<String, String>,
    /// Whom VMware's library talks to.
    pub vddk: Option<VddkWatch>,
}

impl Connected {
    fn plain(source: impl Source + 'static) -> Self {
        Self::stage(StageSource { source: Arc::new(source), delta: None, info: None })
    }

    /// An object in a store, and how it is requested.
    fn object((location, options): (String, HttpOptions)) -> Result<Self, Error> {
        let source = crate::source(&location, &options)?;
        Ok(Self::stage(StageSource { source, delta: None, info: None }))
    }

    fn stage(stage: StageSource) -> Self {
        let StageSource { source, delta, info } = stage;
        Self { source, delta, labels: BTreeMap::new(), vddk: info }
    }
}

/// Opens the source of `job`. Sources of machines look at `stop`.
///
/// # Errors
/// When the source cannot be reached.
pub fn connect(
    job: &ImportJob,
    paths: &Paths,
    stop: &StopFlag,
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
        SourceKind::Imageio => {
            let http = access::http_options(job, paths)?;
            let BasicAuth { username, password } = http.auth.clone().unwrap_or_else(no_credentials);
            Ok(Connected::stage(imageio(&ImageioSettings {
                endpoint: job.endpoint.clone(),
                username,
                password,
                disk_id: job.disk_id.clone(),
                checkpoints: checkpoints(job),
                http: HttpOptions { auth: None, ..http },
                stop: stop.clone(),
                intervals: Intervals::default(),
            })?))
        }
        SourceKind::Vddk => Ok(Connected::stage(vddk(&vddk_settings(job, paths, stop)?)?)),
        SourceKind::S3 => Ok(Connected::object(access::s3(job, paths)?)?),
        SourceKind::Gcs => Ok(Connected::object(access::gcs(job, paths)?)?),
        other => Err(texts::unknown_source(other.name()).into()),
    }
}

fn vddk_settings(
    job: &ImportJob,
    paths: &Paths,
    stop: &StopFlag,
) -> Result<VddkSettings, crate::Error> {
    let mut http = access::http_options(job, paths)?;
    if job.cert_dir.is_empty() {
        http.ca_pem.clear(); // the proxy's CA signs no vCenter, whose thumbprint is known
    }
    let BasicAuth { username, password } = http.auth.take().unwrap_or_else(no_credentials);
    Ok(VddkSettings {
        endpoint: job.endpoint.clone(),
        username,
        password,
        thumbprint: job.thumbprint.clone(),
        uuid: job.uuid.clone(),
        backing_file: job.backing_file.clone(),
        checkpoints: checkpoints(job),
        http,
        nbdkit: NBDKIT.into(),
        library: paths.at(paths::VDDK_LIBRARY),
        extra_config: Some(paths.at(paths::VDDK_CONFIG)).filter(|path| path.exists()),
        work_folder: paths.at(paths::SOCKETS),
        stop: stop.clone(),
    })
}

fn no_credentials() -> BasicAuth {
    BasicAuth { username: String::new(), password: Secret::new("") }
}

fn checkpoints(job: &ImportJob) -> Checkpoints {
    Checkpoints::between(&job.checkpoints.current, &job.checkpoints.previous)
}

/// Whether its source has to be notified of the end, even of an early one.
pub fn needs_notification(source: &SourceKind) -> bool {
    matches!(source, SourceKind::Imageio | SourceKind::Vddk)
}

/// The labels for the PVC, from the image that the node has pulled. A disk without labels is better than none.
fn served_labels(disk: &str, options: &HttpOptions) -> BTreeMap<String, String> {
    match served_environment(disk, options) {
        Ok(environment) => labels(environment.iter().map(String::as_str)),
        Err(error) => {
            tracing::warn!("cannot read the metadata of the image: {}", chain(&error));
            BTreeMap::new()
        }
    }
}

/// Whether opening this source starts programs, which has to happen before the process gives that right away.
pub fn starts_programs(source: &SourceKind) -> bool {
    *source == SourceKind::Vddk
}

/// The ready file of the server container, if there is one, contains the file name of the image.
fn endpoint(job: &ImportJob, paths: &Paths) -> String {
    const PLACEHOLDER: &str = "disk.img";
    if job.ready_file.is_empty() {
        return job.endpoint.clone();
    }
    let name = fs::read_to_string(paths.at(&job.ready_file)).unwrap_or_default();
    match (name.trim(), job.endpoint.strip_suffix(PLACEHOLDER)) {
        ("", _) | (_, None) => job.endpoint.clone(),
        (name, Some(directory)) => format!("{directory}{}", utf8_percent_encode(name, SEGMENT)),
    }
}

/// What may stand in a path as it is (RFC 3986, "unreserved"). A file's name may hold anything.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[cfg(test)]
mod tests {
    use contract::import::{self as job, Credentials};
    use testkit::imageio::{DISK, SNAPSHOT};
    use testkit::{Ovirt, OvirtState};

    use super::*;

    fn imageio_job(ovirt: &Ovirt, previous: &str, current: &str) -> ImportJob {
        let credentials =
            Credentials { access_key: "admin@internal".into(), secret_key: "hush".into() };
        ImportJob {
            disk_id: DISK.into(),
            credentials: Some(credentials),
            checkpoints: job::Checkpoints {
                current: current.into(),
                previous: previous.into(),
                last: false,
            },
            ..ImportJob::new(SourceKind::Imageio, ovirt.endpoint())
        }
    }

    #[test]
    fn a_disk_of_ovirt_is_opened_for_its_stage_and_ends_its_transfer() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::under(root.path());
        for (previous, current, format, backing) in [
            ("", "", "raw", None),
            ("", SNAPSHOT, "raw", None),
            ("before", SNAPSHOT, "cow", Some("before".to_owned())),
        ] {
            let ovirt = Ovirt::start(OvirtState { bytes: vec![7; 4096], ..OvirtState::default() });
            let stop = StopFlag::default();
            let job = imageio_job(&ovirt, previous, current);
            let connected = connect(&job, &paths, &stop).unwrap();
            let found = connected.delta.as_ref().map(|delta| delta.backing.clone());
            assert_eq!(found, backing.map(Some), "{current}");
            assert!(ovirt.state().actions[0].contains(&format!(r#""format":"{format}""#)));
            stop.set();
            let stopped = connected.source.open(0, None).next().unwrap_err().to_string();
            assert!(stopped.contains("was stopped"), "{stopped}");
            drop(connected);
            assert_eq!(ovirt.state().actions.last().unwrap(), "finalize");
        }
    }

    #[test]
    fn vmware_server_is_verified_by_thumbprint_unless_the_user_set_a_ca() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::under(root.path());
        for directory in ["proxycerts", "certs", "vddk-args"] {
            fs::create_dir(root.path().join(directory)).unwrap();
        }
        let pem = "-----BEGIN CERTIFICATE-----\n";
        fs::write(root.path().join("proxycerts/ca.crt"), pem).unwrap();
        fs::write(root.path().join("certs/ca.crt"), pem).unwrap();
        let settings = |cert_dir: &str| {
            let job = ImportJob {
                cert_dir: cert_dir.into(),
                thumbprint: "AA:BB".into(),
                ..ImportJob::new(SourceKind::Vddk, "https://vcenter.example")
            };
            vddk_settings(&job, &paths, &StopFlag::default()).unwrap()
        };
        let plain = settings("");
        assert!(plain.http.ca_pem.is_empty() && plain.extra_config.is_none());
        fs::write(root.path().join("vddk-args/vddk-config-file"), "").unwrap();
        let given = settings("/certs");
        assert_eq!((given.http.ca_pem.len(), given.thumbprint.as_str()), (2, "AA:BB"));
        assert!(given.extra_config.is_some());
    }

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
        assert_eq!(url("50% a?b", "/shared/ready", there), "http://localhost:8100/50%25%20a%3Fb");
        assert_eq!(url("", "/shared/ready", there), there);
        assert_eq!(url("vm.qcow2", "", there), there);
        assert_eq!(url("vm.qcow2", "/shared/absent", there), there);
        assert_eq!(url("vm.qcow2", "/shared/ready", "http://a/b"), "http://a/b");
    }
}
