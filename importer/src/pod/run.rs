//! From the environment to the exit code.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use contract::import::{SourceKind, name, texts};
use contract::paths;
use contract::termination::ExitMessage;
use contract::{ByteCount, ImportJob, Volume};
use pipeline::{
    Error as Pipeline, FileSpace, Options, Progress, SourceFormat, Target, UnpackOptions,
};
use runtime::{
    MetricsTls, SandboxPolicy, SandboxRequirement, TcpConnect, TerminationMessage, enter_sandbox,
    metrics,
};

use super::access;
use super::connect::{self, Connected};
use super::leftovers;
use super::mounts::{Mounts, Paths, has_device};
use super::outcome::{Failure, Outcome};
use super::plan::{DiskTarget, ImportAction, plan_job};
use super::progress::Percentage;
use crate::stage::StopFlag;
use crate::vddk::VddkWatch;

/// How often and how long the container that serves an image is waited for.
const READY_POLLS: u32 = 60;
const READY_INTERVAL: Duration = Duration::from_secs(1);

/// The server of the image may run as another user.
const DONE_FILE_MODE: u32 = 0o666;

/// What a process of a pod starts with.
#[derive(Debug)]
pub struct ProcessEnvironment {
    pub paths: Paths,
    pub variables: BTreeMap<String, String>,
}

/// Carries out the import that the environment describes, and writes its outcome to the termination log.
/// Returns the exit code of the process.
pub fn run_importer(environment: ProcessEnvironment) -> u8 {
    let ProcessEnvironment { paths, variables } = environment;
    let mut termination = TerminationMessage::open(&paths.at(paths::TERMINATION_LOG));
    let job = ImportJob::from_environment(&variables);
    let source = job.as_ref().map_or(SourceKind::Unknown(String::new()), |job| job.source.clone());
    let tls = MetricsTls::from_environment(&variables);
    let required = variables.get(name::REQUIRE_SANDBOX).map(String::as_str);
    let required = SandboxRequirement::from_variable(required);
    let carried = job.map_err(Failure::Job).and_then(|job| carry_out(&job, tls, &paths, required));
    let outcome = match carried {
        Ok(outcome) => outcome,
        Err(failure) => {
            tracing::error!("{}", failure.text(&source));
            failure.outcome(&source)
        }
    };
    if let Some(message) = &outcome.message {
        tracing::info!("{message}");
        if let Err(error) = termination.write(message) {
            tracing::error!("cannot write {}: {error}", termination.path().display());
        }
    }
    outcome.code
}

fn carry_out(
    job: &ImportJob,
    tls: MetricsTls,
    paths: &Paths,
    required: SandboxRequirement,
) -> Result<Outcome, Failure> {
    let _device =
        pipeline::target::hold_device(&paths.at(paths::BLOCK_DEVICE)).map_err(Failure::Volume)?;
    let listener = metrics::listen(paths::METRICS_PORT)
        .inspect_err(|error| tracing::warn!("no metrics are served: {error}"))
        .ok();
    let programs = connect::starts_programs(&job.source);
    if !programs {
        enter_import_sandbox(job, paths, required)?; // while there is one thread
    }
    let progress = Arc::new(Progress::default());
    let percentage = Percentage::new(Arc::clone(&progress), &job.owner_uid);
    let stop = StopFlag::default();
    let stop_flag = connect::needs_notification(&job.source).then(|| stop.clone());
    percentage
        .attend(listener, tls, stop_flag)
        .map_err(|error| Failure::Import(Pipeline::Thread(error)))?;

    leftovers::remove(job, paths).map_err(Failure::Volume)?;
    let mounts = Mounts::detect(paths).map_err(Failure::Volume)?;
    let work = plan_job(job, &mounts).map_err(Failure::Refused)?;
    tracing::info!(
        job.source = job.source.name(),
        job.endpoint = crate::name_of(&job.endpoint),
        volume = ?mounts.volume,
        "{work:?}"
    );
    match work {
        ImportAction::Blank { size, preallocate } => {
            let disk = DiskTarget { available: size, grow_to: None, preallocate };
            pipeline::blank(size, &target(disk, &mounts, paths), FileSpace::WholeDisk, &progress)
                .map_err(|error| Failure::Blank(error.into()))?;
            make_durable(paths)?;
            if matches!(mounts.volume, Volume::Device { .. }) && !preallocate {
                return Ok(Outcome::silent(0)); // as upstream CDI reports it
            }
            Ok(Outcome::message(&ExitMessage {
                preallocation_applied: Some(preallocate),
                message: Some(texts::COMPLETE.into()),
                virtual_size: size_in_file(&mounts, size.get()),
                ..ExitMessage::default()
            }))
        }
        ImportAction::Disk(disk) => {
            wait_until_ready(job, paths)?;
            let connected = connect::connect(job, paths, &stop).map_err(Failure::Connect)?;
            if programs {
                enter_import_sandbox(job, paths, required)?;
            }
            let target = target(disk, &mounts, paths);
            import(job, &connected, &target, &mounts, paths, &progress)
        }
        ImportAction::Archive => {
            wait_until_ready(job, paths)?;
            let connected = connect::connect(job, paths, &stop).map_err(Failure::Connect)?;
            unpack(job, &connected, paths, &progress)
        }
    }
}

/// It reads certificates, headers and credentials, and writes the volume, scratch space and the directory that it shares with
/// the server of an image. Users choose the ports of sources.
fn enter_import_sandbox(
    job: &ImportJob,
    paths: &Paths,
    required: SandboxRequirement,
) -> Result<(), Failure> {
    let given = [paths::CERTS, paths::PROXY_CERTS, paths::EXTRA_HEADERS, paths::GOOGLE];
    let given = given.into_iter().chain([job.cert_dir.as_str()]).filter(|path| !path.is_empty());
    let given = given.map(|path| paths.at(path)).chain(access::aws_folders(job, paths));
    let write = [paths::DATA, paths::BLOCK_DEVICE, paths::SCRATCH, paths::JOURNAL, paths::SHARED];
    // A program that was started leaves its socket behind.
    let sockets = connect::starts_programs(&job.source).then_some(paths::SOCKETS);
    let policy = SandboxPolicy {
        read: given.collect(),
        write: write.into_iter().chain(sockets).map(|path| paths.at(path)).collect(),
        listen: Vec::new(), // it has its port already
        connect: TcpConnect::Anywhere,
    };
    enter_sandbox(&policy, required).map_err(Failure::Sandbox)?;
    Ok(())
}

fn import(
    job: &ImportJob,
    connected: &Connected,
    target: &Target,
    mounts: &Mounts,
    paths: &Paths,
    progress: &Arc<Progress>,
) -> Result<Outcome, Failure> {
    let scratch = mounts.scratch.then(|| paths.at(paths::SCRATCH));
    // A device has no directory for a journal.
    let journal = match mounts.volume {
        Volume::Device { .. } => {
            journal_folder(paths).map(|directory| directory.join(".cdi-journal"))
        }
        Volume::Directory { .. } => None,
    };
    let options = Options {
        format: if job.raw { SourceFormat::Raw } else { SourceFormat::Detect },
        // What comes from the node was checked by the node.
        checksum: job.checksum.filter(|_| !job.node_pull),
        journal,
        scratch,
        delta: connected.delta.clone(),
        ..Options::default()
    };
    let message = |scratch_space_required| ExitMessage {
        scratch_space_required: Some(scratch_space_required),
        preallocation_applied: Some(target.preallocate),
        labels: connected.labels.clone(),
        vddk_info: connected.vddk.as_ref().map(VddkWatch::info),
        message: Some(texts::COMPLETE.into()),
        ..ExitMessage::default()
    };
    match pipeline::import(&*connected.source, target, &options, progress) {
        Ok(report) => {
            tracing::info!(
                "{} is complete: {} bytes of {} by way of {}; {} bytes read, {} bytes written, {} bytes were there \
                 already, in {:.1} s",
                target.path.display(),
                report.virtual_size,
                report.format,
                report.route,
                report.bytes_read,
                report.bytes_written,
                report.resumed_at,
                report.seconds
            );
            tracing::info!("time of the import: {}", report.time);
            make_durable(paths)?;
            write_done_file(job, paths);
            // A file is as long as its volume requires.
            let grown = target.grow_to.map_or(0, ByteCount::get);
            let virtual_size = size_in_file(mounts, report.virtual_size.max(grown));
            Ok(Outcome::message(&ExitMessage { virtual_size, ..message(false) }))
        }
        Err(Pipeline::NeedsScratch { because }) if !mounts.scratch => {
            tracing::warn!("scratch space is needed: {because}");
            write_done_file(job, paths);
            Ok(Outcome::message(&message(true)))
        }
        Err(error) => Err(Failure::Import(error)),
    }
}

/// The size of a disk, where it is in a file: what clones of it need at least.
fn size_in_file(mounts: &Mounts, virtual_size: u64) -> Option<u64> {
    matches!(mounts.volume, Volume::Directory { .. }).then_some(virtual_size)
}

/// Where a journal outlives this process. Scratch space outlives the pod too.
fn journal_folder(paths: &Paths) -> Option<PathBuf> {
    let directories = [paths::SCRATCH, paths::JOURNAL].map(|path| paths.at(path));
    directories.into_iter().find(|directory| directory.is_dir())
}

fn unpack(
    job: &ImportJob,
    connected: &Connected,
    paths: &Paths,
    progress: &Arc<Progress>,
) -> Result<Outcome, Failure> {
    let options = UnpackOptions {
        checksum: job.checksum,
        preallocate: job.preallocation,
        ..UnpackOptions::default()
    };
    let unpacked = pipeline::unpack(&*connected.source, &paths.at(paths::DATA), &options, progress)
        .map_err(Failure::Import)?;
    tracing::info!(
        "{} files and {} folders are complete; {} bytes read, {} bytes written, in {:.1} s",
        unpacked.files,
        unpacked.folders,
        unpacked.bytes_read,
        unpacked.bytes_written,
        unpacked.seconds
    );
    sync(paths::DATA, paths)?;
    write_done_file(job, paths);
    Ok(Outcome::message(&ExitMessage {
        scratch_space_required: Some(false),
        // KubeVirt reads it of a disk, and here is none, although the files have their space.
        preallocation_applied: Some(false),
        message: Some(texts::COMPLETE.into()),
        ..ExitMessage::default()
    }))
}

fn target(disk: DiskTarget, mounts: &Mounts, paths: &Paths) -> Target {
    let DiskTarget { available, grow_to, preallocate } = disk;
    let path = match mounts.volume {
        Volume::Device { .. } => paths::BLOCK_DEVICE,
        Volume::Directory { .. } => paths::DISK,
    };
    Target { path: paths.at(path), available: Some(available), grow_to, preallocate }
}

/// The disk is durable already. Clients match this text.
fn make_durable(paths: &Paths) -> Result<(), Failure> {
    sync(if has_device(paths) { paths::BLOCK_DEVICE } else { paths::DISK }, paths)
}

fn sync(path: &str, paths: &Paths) -> Result<(), Failure> {
    let found = paths.at(path);
    let synced = if found.is_dir() {
        pipeline::target::sync_directory(&found)
    } else {
        File::open(found).and_then(|disk| disk.sync_all())
    };
    synced.map_err(Failure::Sync)?;
    tracing::info!("{}", texts::committed(path));
    Ok(())
}

fn wait_until_ready(job: &ImportJob, paths: &Paths) -> Result<(), Failure> {
    if job.ready_file.is_empty() {
        return Ok(());
    }
    let path = paths.at(&job.ready_file);
    tracing::info!("waiting for {}", path.display());
    for _ in 0..READY_POLLS {
        if path.exists() {
            return Ok(());
        }
        thread::sleep(READY_INTERVAL);
    }
    Err(Failure::NotReady { path: job.ready_file.clone() })
}

/// Lets the container that served the image end.
fn write_done_file(job: &ImportJob, paths: &Paths) {
    if job.done_file.is_empty() {
        return;
    }
    let path = paths.at(&job.done_file);
    if let Err(error) = make_done_file(&path) {
        tracing::warn!("cannot make {}: {error}", path.display());
    }
}

fn make_done_file(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(DONE_FILE_MODE).open(path).map(drop)
}
