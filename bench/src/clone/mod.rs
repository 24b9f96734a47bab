//! `bench clone`: a disk is copied from one volume to another, by a cloner and an upload server with TLS in between,
//! each in a pod of its own, and by a cloner alone, in a pod with both volumes, against tools that copy locally.

mod report;
mod source;
mod trust;
mod wire;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::common::{Common, ProgramFolders, in_turns};
use crate::disk::Size;
use crate::limit::{Group, Limits};
use crate::party::{BLOCK_DEVICE, Party, Pod, logs};
use crate::report::{data_bytes, disk_fact, first_line, machine_facts};
use crate::server::free_address;
use crate::shell;
use crate::table::{self, Cost, Run};
use crate::target::{Kind, Target, attach};
use crate::work::{self, WorkFolder, empty};
use source::Xfs;
use trust::Trust;
use wire::Wire;

/// What to compare.
#[derive(clap::Args)]
pub struct Options {
    /// Only these programs.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Contender::ALL)]
    contenders: Vec<Contender>,
    /// Run each cloner and each upload server within these limits, as in a pod: CORES,MEMORY. Tools have none.
    #[arg(long, value_name = "0.75,600M")]
    cgroup: Option<Limits>,
    /// Connect cloner and upload server by the simulated network of `bench network` whose name contains this. Its
    /// threads take CPU time, too.
    #[arg(long, value_name = "1 Gbit/s, 1 ms")]
    network: Option<String>,
    #[command(flatten)]
    programs: ProgramFolders,
    #[command(flatten)]
    common: Common,
}

/// A method to copy a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Contender {
    /// Our cloner and our upload server.
    Cdi,
    /// Our cloner in a pod with both volumes.
    OnePod,
    /// Of upstream CDI.
    #[value(alias = "reference")]
    Upstream,
    /// cp, which looks for zeroes.
    Cp,
    /// cp, which shares blocks.
    CpReflink,
    /// nbdcopy, which queries holes.
    NbdCopy,
}

impl Contender {
    const ALL: [Self; 6] =
        [Self::Cdi, Self::OnePod, Self::Upstream, Self::Cp, Self::CpReflink, Self::NbdCopy];

    fn name(self) -> &'static str {
        match self {
            Self::Cdi => "our cloner and server",
            Self::OnePod => "our cloner in one pod, *no network*",
            Self::Upstream => "upstream CDI's cloner and server",
            Self::Cp => "cp --sparse=always, *no network*",
            Self::CpReflink => "cp --reflink, *no network*",
            Self::NbdCopy => "nbdcopy, *no network*",
        }
    }
}

/// From where to where.
#[derive(Clone, Copy)]
struct Volumes {
    from: Kind,
    to: Kind,
    /// Both on one XFS, which shares blocks.
    is_xfs: bool,
}

const VOLUMES: [Volumes; 4] = [
    Volumes { from: Kind::Loop, to: Kind::Loop, is_xfs: false },
    Volumes { from: Kind::File, to: Kind::File, is_xfs: false },
    Volumes { from: Kind::Loop, to: Kind::File, is_xfs: false },
    Volumes { from: Kind::File, to: Kind::File, is_xfs: true },
];

impl Volumes {
    /// As tables name the target.
    fn target(self) -> String {
        if self.is_xfs {
            format!("{} of the same XFS", self.to.name())
        } else {
            self.to.name().into()
        }
    }
}

const CLIENT: &str = "bench/source-bench/target";
/// Where a cloner has the file system that it reads, and the device of a second volume.
const SOURCE_FOLDER: &str = "/var/run/cdi/clone/source";
const TARGET_DEVICE: &str = "/dev/cdi-clone-target";

/// Runs the benchmark, prints its tables, and keeps them with the raw figures.
///
/// # Errors
/// When the environment cannot be created, or this project's programs fail or make a wrong disk.
pub fn run(options: &Options) -> Result<()> {
    let disk = source::disk(options.common.size, &options.common.cache)?;
    let size = fs::metadata(&disk).context("cannot look at the disk")?.len();
    let (device, _keeps_it) = attach(&disk)?;
    let work = WorkFolder::new(&options.common.cache)?;
    let xfs = Xfs::with(&disk, work.path())?;
    let bench = Bench {
        options,
        disk,
        device,
        xfs,
        size,
        work: &work,
        trust: Trust::new(&work)?,
        wire: Wire::new(options.network.as_deref(), &work)?,
        ours: options.programs.ours()?,
        reference: options.programs.upstream(),
    };
    // The compressed size, holes included: by the compressor of the goal, and by the one that is used.
    let packed_by = |tool: &str| -> Result<u64> {
        let command = format!("{tool} -1 --stdout '{}' | wc --bytes", bench.disk.display());
        shell::output("bash", &["-c", &command])?.parse().context("no number")
    };
    let packed = packed_by("zstd")?;
    let mut about = machine_facts()?;
    about.extend([
        ("nbdcopy", first_line("nbdcopy", "--version")?),
        disk_fact(&bench.disk)?,
        ("between the pods", bench.wire.name().into()),
        ("the same by zstd -1", format!("{} MiB", packed >> 20)),
        ("the same by lz4 -1", format!("{} MiB", packed_by("lz4")? >> 20)),
        (
            "upstream CDI's cloner and server",
            match &bench.reference {
                Some(_) => "measured, programs given".into(),
                None => "not measured: not at hand".into(),
            },
        ),
    ]);
    if let Some(limits) = options.cgroup {
        about.push(("limits of each pod", limits.to_string()));
    }
    let mut runs = Vec::new();
    for volumes in VOLUMES {
        bench.compare(volumes, &mut runs)?;
    }
    let date = shell::output("date", &["--utc", "+%F"])?;
    let text = report::markdown(&date, &about, &runs, packed);
    println!("{text}");
    if options.common.size == Size::Real {
        let header = json!({ "date": date, "about": table::about(&about) });
        let lines = table::json_lines(&header, &runs)?;
        work::keep(&date, "clone", &options.common.label, &text, &lines)?;
    }
    let ours = [Contender::Cdi, Contender::OnePod].map(Contender::name);
    let failed = |run: &&Run| ours.contains(&run.program.as_str()) && run.outcome.is_err();
    match runs.iter().find(failed) {
        Some(run) => bail!("{run}"),
        None => Ok(()),
    }
}

struct Bench<'a> {
    options: &'a Options,
    /// The source, as a file in a folder of its own.
    disk: PathBuf,
    /// The same as a device.
    device: PathBuf,
    xfs: Xfs,
    size: u64,
    work: &'a WorkFolder,
    trust: Trust,
    wire: Wire,
    ours: PathBuf,
    reference: Option<PathBuf>,
}

impl Bench<'_> {
    fn compare(&self, volumes: Volumes, runs: &mut Vec<Run>) -> Result<()> {
        let folder = if volumes.is_xfs { self.xfs.data() } else { self.work.path().join("data") };
        let target = Target::new(volumes.to, &folder, self.size)?;
        let may = |contender: &Contender| match contender {
            Contender::Cdi | Contender::OnePod | Contender::NbdCopy => true,
            Contender::Upstream => self.reference.is_some(),
            // It would replace a device by a file, or keep the old content.
            Contender::Cp => volumes.to == Kind::File,
            Contender::CpReflink => volumes.is_xfs,
        };
        let contenders = self.options.contenders.iter().copied().filter(may).collect();
        in_turns(contenders, self.options.common.runs, |contender, round| {
            let outcome = self.one(contender, volumes, &target).and_then(|cost| {
                if round == 0 {
                    target.verify(&self.disk)?;
                }
                Ok(cost)
            });
            let run = Run {
                case: format!("from a {}", volumes.from.name()),
                target: volumes.target(),
                program: contender.name().into(),
                round,
                outcome: outcome.map_err(|error| format!("{error:#}")),
            };
            eprintln!("{run}");
            runs.push(run);
            Ok(true)
        })
    }

    fn one(&self, contender: Contender, volumes: Volumes, target: &Target) -> Result<Cost> {
        empty(&self.work.path().join("scratch"))?;
        target.make_fresh()?;
        let limit = Duration::from_secs(self.options.common.limit_seconds);
        let port = free_address()?.port();
        let group = |name| self.options.cgroup.map(|limits| Group::new(name, limits)).transpose();
        let groups = [group("server")?, group("sender")?];
        let [server_group, sender_group] = groups.each_ref().map(Option::as_ref);
        let (server, sender) = match contender {
            Contender::Cdi => {
                let cloner = self.sender(&self.ours, volumes, port);
                (
                    Some(self.server(&self.ours, target, port)),
                    cloner.in_group(sender_group).command(),
                )
            }
            Contender::OnePod => {
                (None, self.copier(volumes, target).in_group(sender_group).command())
            }
            Contender::Upstream => {
                let folder =
                    self.reference.as_deref().context("upstream CDI's programs are not given")?;
                let mut cloner = self.sender(folder, volumes, port);
                cloner.words = self.upstream_arguments(volumes.from)?;
                (Some(self.server(folder, target, port)), cloner.in_group(sender_group).command())
            }
            Contender::Cp => (None, self.local("cp --sparse=always", volumes, target)),
            Contender::CpReflink => (None, self.local("cp --reflink=always", volumes, target)),
            Contender::NbdCopy => (None, self.local("nbdcopy --flush", volumes, target)),
        };
        let server = match server {
            Some(pod) => Some(self.started(&pod.in_group(server_group), port)?),
            None => None,
        };
        let (sent_before, begin) = (self.wire.bytes()?, Instant::now());
        let mut sender = sender;
        let sender = Party::start("sender", &mut sender, self.work.path())?.ended(limit)?;
        // Upstream CDI responds before its writes are durable.
        if contender == Contender::Upstream {
            shell::output("sync", &[&target.path().display().to_string()])?;
        }
        let (wall, sent) = (begin.elapsed(), self.wire.bytes()? - sent_before);
        if !sender.success {
            bail!("failed: {}", logs(self.work.path()));
        }
        let mut shares = vec![sender];
        if let Some(server) = server {
            shares.push(server.stop()?);
        }
        Ok(Cost {
            wall,
            shares,
            wire_bytes: sent,
            allocated_bytes: target.allocated_bytes()?,
            basis_bytes: self.size,
        })
    }

    fn source(&self, volumes: Volumes) -> PathBuf {
        match volumes.from {
            Kind::File if volumes.is_xfs => self.xfs.disk(),
            Kind::File | Kind::Network => self.disk.clone(),
            Kind::Loop => self.device.clone(),
        }
    }

    fn local(&self, program: &str, volumes: Volumes, target: &Target) -> Command {
        let script = format!("{program} \"$SOURCE\" \"$TARGET\"\nsync \"$TARGET\"");
        let mut command = Command::new("bash");
        command
            .args(["-euo", "pipefail", "-c", &script])
            .env("SOURCE", self.source(volumes))
            .env("TARGET", target.path());
        command
    }

    /// A cloner, with its source.
    fn cloner(&self, folder: &Path, volumes: Volumes) -> Pod {
        let (mode, place) = mode_and_path(volumes.from, SOURCE_FOLDER, BLOCK_DEVICE);
        Pod::new(&self.work.path().join("root"), &folder.join("cdi-cloner"))
            .volume(volumes.from, &self.source(volumes), SOURCE_FOLDER)
            .with("VOLUME_MODE", mode)
            .with("MOUNT_POINT", place)
            .with("PREALLOCATION", "false")
            .with("OWNER_UID", "bench")
            .with("HOME", "/tmp")
    }

    /// A cloner that sends to a server.
    fn sender(&self, folder: &Path, volumes: Volumes, port: u16) -> Pod {
        let trust = &self.trust;
        let server = self.wire.server_name();
        self.wire
            .connect_cloner(self.cloner(folder, volumes))
            .with("CLIENT_CERT", &trust.client.certificate)
            .with("CLIENT_KEY", &trust.client.key)
            .with("SERVER_CA_CERT", &trust.authority)
            .with("UPLOAD_URL", format!("https://{server}:{port}/v1beta1/upload"))
    }

    /// A cloner with both volumes.
    fn copier(&self, volumes: Volumes, target: &Target) -> Pod {
        let (mode, place) = mode_and_path(volumes.to, "/data", TARGET_DEVICE);
        self.cloner(&self.ours, volumes)
            .volume_at(volumes.to, target.path(), "/data", TARGET_DEVICE)
            .with("TARGET_VOLUME_MODE", mode)
            .with("TARGET_MOUNT_POINT", place)
    }

    /// The arguments that the script of its image derives from the environment.
    fn upstream_arguments(&self, from: Kind) -> Result<Vec<String>> {
        let (content, bytes, place) = match from {
            Kind::Loop => ("blockdevice-clone", self.size, BLOCK_DEVICE),
            Kind::File | Kind::Network => {
                ("filesystem-clone", data_bytes(&self.disk)?, SOURCE_FOLDER)
            }
        };
        let words = ["-v=1", "-alsologtostderr", "-content-type", content, "-upload-bytes"];
        let words = words.into_iter().map(str::to_owned);
        Ok(words.chain([bytes.to_string(), "-mount".into(), place.into()]).collect())
    }

    fn server(&self, folder: &Path, target: &Target, port: u16) -> Pod {
        let (work, program) = (self.work.path(), folder.join("cdi-uploadserver"));
        let pod =
            Pod::upload_server(&work.join("root"), &program, &self.trust.folder, CLIENT, self.size)
                .upload_target(target.kind(), target.path(), &work.join("scratch"));
        self.wire.connect_server(pod).with("LISTEN_PORT", port.to_string())
    }

    fn started(&self, pod: &Pod, port: u16) -> Result<Party> {
        let party = Party::start("server", &mut pod.command(), self.work.path())?;
        let address = self.wire.address();
        let url = format!("https://{address}:{port}/healthz");
        crate::upload::wait_for_response(&url, self.work.path())?;
        Ok(party)
    }
}

/// The mode of a volume, and where a cloner finds it.
fn mode_and_path(
    kind: Kind,
    folder: &'static str,
    device: &'static str,
) -> (&'static str, &'static str) {
    match kind {
        Kind::File | Kind::Network => ("filesystem", folder),
        Kind::Loop => ("block", device),
    }
}
