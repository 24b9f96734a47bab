//! Disks of VMware's virtual machines: `nbdkit` with VMware's library reads them, vSphere's API names the file
//! and the changes.

mod machine;
mod nbdkit;
mod soap;
mod xml;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use machine::Machine;
pub use nbdkit::VddkWatch;
use nbdkit::{NbdKit, Opens};
use pipeline::{ByteStream, Extent, ExtentKind, Source, SourceError, SourceFacts};
use soap::Soap;
use url::Url;

use crate::error::Error;
use crate::nbd::NbdSource;
use crate::secret::{RedactedUrl, Secret};
use crate::stage::{Checkpoints, StageSource, StopFlag};
use crate::web::HttpOptions;
use crate::web::tls::Trust;

/// VMware's library is fastest with few streams of large requests.
const STREAMS_MAX: usize = 2;

/// Which disk of which machine.
#[derive(Clone, Debug)]
pub struct VddkSettings {
    /// The vCenter or host: `https://vcenter.example`. Its own path is ignored: the path is `/sdk`.
    pub endpoint: String,
    pub username: String,
    pub password: Secret,
    /// SHA-1 of the server's certificate, `AA:BB:…`.
    pub thumbprint: String,
    /// Of the machine: as an instance, or of its BIOS.
    pub uuid: String,
    /// `[datastore] machine/disk.vmdk`
    pub backing_file: String,
    /// Snapshots; the previous one may be a change id.
    pub checkpoints: Checkpoints,
    /// Authorities to trust instead of the thumbprint, and how patient to be.
    pub http: HttpOptions,
    pub nbdkit: PathBuf,
    /// VMware's library: the directory that is called `vmware-vix-disklib-distrib`.
    pub library: PathBuf,
    pub extra_config: Option<PathBuf>,
    /// Where the socket may lie.
    pub work_folder: PathBuf,
    pub stop: StopFlag,
}

impl VddkSettings {
    /// As messages call the disk.
    fn name(&self) -> String {
        format!("VMware disk {:?}", self.backing_file)
    }
}

/// Opens a disk, a snapshot of it, or what has changed between two of them.
///
/// # Errors
/// When vSphere cannot be reached or refuses, has no such disk, or nbdkit does not start.
pub fn vddk(settings: &VddkSettings) -> Result<StageSource, Error> {
    let VddkSettings { checkpoints, stop, .. } = settings;
    if std::env::consts::ARCH != "x86_64" {
        let name =
            if std::env::consts::ARCH == "aarch64" { "arm64" } else { std::env::consts::ARCH };
        let what = format!("the {name} architecture does not support VDDK");
        return Err(Error::Option { what });
    }
    if checkpoints.previous.is_some() && checkpoints.current.is_none() {
        let what = "a previous checkpoint needs a current one".into();
        return Err(Error::Option { what });
    }
    let mut url = Url::parse(&settings.endpoint).map_err(|error| Error::Address {
        url: RedactedUrl::of_text(&settings.endpoint),
        because: error.to_string(),
    })?;
    url.set_path("/sdk");
    let server = url.host_str().unwrap_or_default().to_owned();
    let (user, password) = (&settings.username, &settings.password);
    let soap = Soap::login(url, user, password, trust(settings)?, &settings.http)?;
    stop.check(&settings.name())?;
    let machine = Machine::find(&soap, &settings.uuid)?;
    let mut disk = machine.disk(&settings.backing_file)?;
    let snapshot = match &checkpoints.current {
        Some(current) => Some(machine.snapshot(current)?),
        None => None,
    };
    let mut file = settings.backing_file.clone();
    if let Some(snapshot) = &snapshot {
        disk = machine.disk_in(snapshot, &disk)?;
        file.clone_from(&disk.file);
    }
    let changes = match (&snapshot, &checkpoints.previous) {
        (Some(current), Some(previous)) => Some(machine.changes(&disk, current, previous)?),
        _ => None,
    };
    stop.check(&settings.name())?;
    let opens = Opens {
        machine: &machine.moref.id,
        snapshot: snapshot.as_ref().map(|snapshot| snapshot.id.as_str()),
        file: &file,
        server: &server,
    };
    let nbdkit = NbdKit::start(settings, &opens)?;
    let http = HttpOptions { streams_max: STREAMS_MAX, ..settings.http.clone() };
    let bytes = NbdSource::connect(&nbdkit.uri(), &http).inspect_err(|_| {
        tracing::error!("output of nbdkit: {}", nbdkit.last_output());
    })?;
    let facts = SourceFacts { name: settings.name(), ..bytes.facts().clone() };
    let info = Some(nbdkit.watch());
    let (stop, delta) = (stop.clone(), checkpoints.delta(false));
    let source = VddkSource { facts, changes, bytes, stop, _nbdkit: nbdkit };
    Ok(StageSource { source: Arc::new(source), delta, info })
}

/// CAs if there are any, else the thumbprint. Else the certificate is not verified, as in upstream CDI.
fn trust(settings: &VddkSettings) -> Result<Trust, Error> {
    let http = &settings.http;
    let has_ca = !http.ca_files.is_empty() || !http.ca_pem.is_empty();
    if has_ca {
        Trust::new(http)
    } else if !settings.thumbprint.trim().is_empty() {
        Trust::only(&settings.thumbprint)
    } else {
        Trust::new(&HttpOptions { insecure_tls: true, ..http.clone() })
    }
}

/// A disk that nbdkit serves.
struct VddkSource {
    facts: SourceFacts,
    /// Ascending. `None`: everything is to be copied.
    changes: Option<Vec<Range<u64>>>,
    // Dropped in this order: the connections before the server.
    bytes: NbdSource,
    stop: StopFlag,
    _nbdkit: NbdKit,
}

impl Source for VddkSource {
    fn facts(&self) -> &SourceFacts {
        &self.facts
    }

    fn open(&self, at: u64, end: Option<u64>) -> Box<dyn ByteStream> {
        let (stop, name) = (self.stop.clone(), self.facts.name.clone());
        Box::new(VddkStream { bytes: self.bytes.open(at, end), stop, name })
    }

    fn extents(&self, at: u64, end: u64) -> Result<Option<Vec<Extent>>, SourceError> {
        self.stop.check(&self.facts.name)?;
        let Some(changes) = &self.changes else { return self.bytes.extents(at, end) };
        let next = changes.partition_point(|area| area.end <= at);
        let area = changes.get(next).filter(|area| area.start < end);
        let unchanged_to = area.map_or(end, |area| area.start);
        if at < unchanged_to {
            let kind = ExtentKind::Unchanged;
            return Ok(Some(vec![Extent { range: at..unchanged_to, kind }]));
        }
        let area_end = area.map_or(end, |area| area.end.min(end));
        let whole = vec![Extent { range: at..area_end, kind: ExtentKind::Data }];
        Ok(Some(self.bytes.extents(at, area_end)?.unwrap_or(whole)))
    }

    fn is_disk(&self) -> bool {
        true
    }

    fn limit_receive_memory(&self, bytes: usize) {
        self.bytes.limit_receive_memory(bytes);
    }
}

/// Bytes of nbdkit, until the import is stopped.
struct VddkStream {
    bytes: Box<dyn ByteStream>,
    stop: StopFlag,
    name: String,
}

impl ByteStream for VddkStream {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        self.stop.check(&self.name)?;
        self.bytes.next()
    }
}
