//! Forklift's populators: a disk of oVirt, or an image of OpenStack, is copied to a volume as it is.
//!
//! Both programs are ordered by flags, and get the keys of a Secret as variables. They answer by their exit code and
//! nothing else, and show how far they are under names of their own. What is copied is a disk, whatever it looks like:
//! its owner may not make this program decode it.

mod glance;
mod keystone;
mod openstack;
mod ovirt;
mod spec;

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use contract::Checksum;
use contract::import::name;
use contract::paths;
use pipeline::{Options, Progress, Source, Target};
use runtime::sandbox::directory_of;
use runtime::{
    Flags, MetricsTls, SandboxMissing, SandboxPolicy, SandboxRequirement, TcpConnect,
    enter_sandbox, metrics,
};
use spec::{FLAGS, PopulatorSpec};

use runtime::chain;

use crate::error::Error;
use crate::pod::progress::Percentage;
use crate::stage::StopFlag;

/// How these programs have always ended when they could not continue.
const FATAL: u8 = 255;

const HELP: &str = "Progress of volume population";

/// Which of the two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Populator {
    Openstack,
    /// A disk, by image transfer.
    Ovirt,
}

struct Opened {
    source: Arc<dyn Source>,
    /// What its bytes hash to, where the server knows.
    checksum: Option<Checksum>,
}

impl Populator {
    /// What controllers look for on the page of metrics.
    fn metric(self) -> &'static str {
        match self {
            Self::Openstack => "kubevirt_cdi_openstack_populator_progress_total",
            Self::Ovirt => "kubevirt_cdi_ovirt_progress_total",
        }
    }

    fn open(
        self,
        flags: &Flags,
        variables: &BTreeMap<String, String>,
        stop: &StopFlag,
    ) -> Result<Opened, Error> {
        match self {
            Self::Openstack => openstack::open(flags, variables),
            Self::Ovirt => ovirt::open(flags, variables, stop),
        }
    }
}

/// Carries out what the arguments of this process order, with the Secret's keys among its variables. Starts logging.
/// Returns the exit code of the process.
pub fn run_populator(populator: Populator) -> u8 {
    let flags = runtime::start_program(&["importer", "pipeline", "runtime"], FLAGS);
    match populate(populator, &flags, &runtime::environment()) {
        Ok(()) => 0,
        Err(error) => {
            tracing::error!("cannot populate the volume: {}", chain(&*error));
            FATAL
        }
    }
}

fn populate(
    populator: Populator,
    flags: &Flags,
    variables: &BTreeMap<String, String>,
) -> Result<(), Box<dyn StdError + Send + Sync>> {
    let PopulatorSpec { volume, owner_uid, claim_size } = PopulatorSpec::read(flags)?;
    let listener = metrics::listen(paths::METRICS_PORT)
        .inspect_err(|error| tracing::warn!("no metrics are served: {error}"))
        .ok();
    let required = variables.get(name::REQUIRE_SANDBOX).map(String::as_str);
    // While there is one thread.
    enter_population_sandbox(&volume, SandboxRequirement::from_variable(required))?;
    let progress = Arc::new(Progress::default());
    let metric = (populator.metric(), HELP);
    let percentage = Percentage::under(metric, Arc::clone(&progress), &owner_uid);
    let stop = StopFlag::default();
    let stop_flag = (populator == Populator::Ovirt).then(|| stop.clone()); // a transfer has to be ended
    percentage.attend(listener, MetricsTls::from_environment(variables), stop_flag)?;

    let Opened { source, checksum } = populator.open(flags, variables, &stop)?;
    progress.set_read_total(claim_size); // until the source reports its size
    tracing::info!("copying {} to {}", source.facts().name, volume.display());
    let target = Target { path: volume, available: None, grow_to: None, preallocate: false };
    let options = Options { checksum, ..Options::default() };
    let report = pipeline::import(&*source, &target, &options, &progress)?;
    tracing::info!(
        "{} is complete: {} bytes read, {} bytes written, in {:.1} s",
        target.path.display(),
        report.bytes_read,
        report.bytes_written,
        report.seconds
    );
    Ok(())
}

/// It writes the volume. Users choose the ports of sources.
fn enter_population_sandbox(
    volume: &Path,
    required: SandboxRequirement,
) -> Result<(), SandboxMissing> {
    let is_device = volume.metadata().is_ok_and(|facts| facts.file_type().is_block_device());
    let policy = SandboxPolicy {
        read: Vec::new(),
        write: vec![if is_device { volume.to_owned() } else { directory_of(volume) }],
        listen: Vec::new(), // it has its port already
        connect: TcpConnect::Anywhere,
    };
    enter_sandbox(&policy, required)?;
    Ok(())
}
