//! `bench clone`: a disk is copied from one volume to another, by a cloner and an upload server with TLS in between,
//! each in a pod of its own, against tools that copy locally.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use auth::{CertificateAuthority, Identity};
use serde_json::json;

use crate::common::{Common, in_turns};
use crate::disk::{self, Size};
use crate::party::{Party, Pod, logs, loopback_bytes};
use crate::report::{self, first_line};
use crate::server::free_address;
use crate::shell;
use crate::table::{self, Cost, Row, Run, at_least, at_most, line, rows};
use crate::target::{Kind, Target, attach};
use crate::upload::{own_folder, upstream_folder};
use crate::work::{self, WorkFolder, empty};

/// What to compare.
#[derive(clap::Args)]
pub struct Options {
    /// Only these programs.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Contender::ALL)]
    contenders: Vec<Contender>,
    /// Upstream CDI's importer; its cloner and its server are in the same folder.
    #[arg(long, value_name = "PROGRAM", env = "CDI_REFERENCE")]
    reference: Option<PathBuf>,
    /// Where this project's programs are, if not in the folder of this one.
    #[arg(long, value_name = "FOLDER")]
    programs: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// A method to copy a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Contender {
    /// Our cloner and our upload server.
    Cdi,
    /// Of upstream CDI.
    #[value(alias = "reference")]
    Upstream,
    /// cp, which looks for zeroes.
    Cp,
    /// nbdcopy, which queries holes.
    NbdCopy,
}

impl Contender {
    const ALL: [Self; 4] = [Self::Cdi, Self::Upstream, Self::Cp, Self::NbdCopy];

    fn name(self) -> &'static str {
        match self {
            Self::Cdi => "our cloner and server",
            Self::Upstream => "upstream CDI's cloner and server",
            Self::Cp => "cp --sparse=always, *no network*",
            Self::NbdCopy => "nbdcopy, *no network*",
        }
    }
}

/// From, to.
const WAYS: [(Kind, Kind); 3] =
    [(Kind::Loop, Kind::Loop), (Kind::File, Kind::File), (Kind::Loop, Kind::File)];

const CLIENT: &str = "bench/source-bench/target";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Runs the benchmark, prints its tables, and keeps them with the raw figures.
///
/// # Errors
/// When the environment cannot be created, or this project's programs fail or make a wrong disk.
pub fn run(options: &Options) -> Result<()> {
    let disk = source(options.common.size, &options.common.cache)?;
    let size = fs::metadata(&disk).context("cannot look at the disk")?.len();
    let (device, _keeps_it) = attach(&disk)?;
    let work = WorkFolder::new(&options.common.cache)?;
    let bench = Bench {
        options,
        disk,
        device,
        size,
        work: &work,
        trust: Trust::new(&work)?,
        ours: match &options.programs {
            Some(folder) => folder.clone(),
            None => own_folder()?,
        },
        reference: options.reference.as_deref().and_then(upstream_folder),
    };
    // The compressed size, holes included: by the compressor that we use, and by a slower one.
    let packed_by = |tool: &str| -> Result<u64> {
        let command = format!("{tool} -1 --stdout '{}' | wc --bytes", bench.disk.display());
        shell::output("bash", &["-c", &command])?.parse().context("no number")
    };
    let packed = packed_by("lz4")?;
    let mut about = report::machine_facts()?;
    about.extend([
        ("nbdcopy", first_line("nbdcopy", "--version")?),
        report::disk_fact(&bench.disk)?,
        ("the same by lz4 -1", format!("{} MiB", packed >> 20)),
        ("the same by zstd -1", format!("{} MiB", packed_by("zstd")? >> 20)),
        (
            "upstream CDI's cloner and server",
            match &bench.reference {
                Some(_) => "measured, programs given".into(),
                None => "not measured: not at hand".into(),
            },
        ),
    ]);
    let mut runs = Vec::new();
    for (from, to) in WAYS {
        bench.compare(from, to, &mut runs)?;
    }
    let date = shell::output("date", &["--utc", "+%F"])?;
    let text = markdown(&date, &about, &runs, packed);
    println!("{text}");
    if options.common.size == Size::Real {
        let header = json!({ "date": date, "about": table::about(&about) });
        let lines = table::json_lines(&header, &runs)?;
        work::keep(&date, "clone", &options.common.label, &text, &lines)?;
    }
    let failed = |run: &&Run| run.program == Contender::Cdi.name() && run.outcome.is_err();
    match runs.iter().find(failed) {
        Some(run) => bail!("{run}"),
        None => Ok(()),
    }
}

/// Twice the disk of the other benchmarks, a quarter of it data: what it has, and then its first half once more. It lies in a
/// folder with nothing else.
fn source(size: Size, cache: &Path) -> Result<PathBuf> {
    let folder = disk::folder(size, cache)?;
    let out = folder.join("clone/disk.img");
    if !out.is_file() {
        fs::create_dir_all(folder.join("clone")).context("cannot make a folder")?;
        let unfinished = folder.join("clone.unfinished");
        let (from, to) = (folder.join("disk.raw"), unfinished.display().to_string());
        let script = r#"
cp --sparse=always "$FROM" "$OUT"
size=$(stat --format=%s "$FROM")
truncate --size=$((2 * size)) "$OUT"
mib=$((size >> 20))
dd if="$FROM" of="$OUT" bs=1M count=$((mib / 2)) seek=$mib conv=notrunc,sparse status=none
"#;
        shell::script(script, &[("FROM", &from.display().to_string()), ("OUT", &to)])?;
        fs::rename(&unfinished, &out).with_context(|| format!("cannot name {}", out.display()))?;
    }
    let mut file = File::open(&out).with_context(|| format!("cannot read {}", out.display()))?;
    std::io::copy(&mut file, &mut std::io::sink()).context("cannot read the disk")?;
    Ok(out)
}

/// Certificates of both sides.
struct Trust {
    client: Identity,
    /// The CA of the server.
    authority: String,
    folder: PathBuf,
}

impl Trust {
    fn new(work: &WorkFolder) -> Result<Self> {
        let now = SystemTime::now();
        let (servers, clients) = (
            CertificateAuthority::create("servers", DAY, now)?,
            CertificateAuthority::create("clients", DAY, now)?,
        );
        let server = CertificateAuthority::from_identity(&servers)?.server(
            &["localhost".to_owned()],
            DAY,
            now,
        )?;
        let client = CertificateAuthority::from_identity(&clients)?.client(CLIENT, DAY, now)?;
        let folder = work.path().join("identities");
        fs::create_dir_all(&folder).context("cannot make a folder")?;
        work.file("identities/tls.crt", &server.certificate)?;
        work.file("identities/tls.key", &server.key)?;
        work.file("identities/ca.crt", &clients.certificate)?;
        Ok(Self { client, authority: servers.certificate, folder })
    }
}

struct Bench<'a> {
    options: &'a Options,
    /// The source, as a file in a folder of its own.
    disk: PathBuf,
    /// The same as a device.
    device: PathBuf,
    size: u64,
    work: &'a WorkFolder,
    trust: Trust,
    ours: PathBuf,
    reference: Option<PathBuf>,
}

impl Bench<'_> {
    fn compare(&self, from: Kind, to: Kind, runs: &mut Vec<Run>) -> Result<()> {
        let target = Target::new(to, &self.work.path().join("data"), self.size)?;
        let may = |contender: &Contender| match contender {
            Contender::Cdi | Contender::NbdCopy => true,
            Contender::Upstream => self.reference.is_some(),
            // It would replace a device by a file, or keep the old content.
            Contender::Cp => to == Kind::File,
        };
        let contenders = self.options.contenders.iter().copied().filter(may).collect();
        in_turns(contenders, self.options.common.runs, |contender, round| {
            let outcome = self.one(contender, from, &target).and_then(|cost| {
                if round == 0 {
                    target.verify(&self.disk)?;
                }
                Ok(cost)
            });
            let run = Run {
                case: format!("from a {}", from.name()),
                target: to.name().into(),
                program: contender.name().into(),
                round,
                outcome: outcome.map_err(|error| format!("{error:#}")),
            };
            eprintln!("{run}");
            runs.push(run);
            Ok(true)
        })
    }

    fn one(&self, contender: Contender, from: Kind, target: &Target) -> Result<Cost> {
        empty(&self.work.path().join("scratch"))?;
        target.make_fresh()?;
        let limit = Duration::from_secs(self.options.common.limit_seconds);
        let port = free_address()?.port();
        let (server, sender) = match contender {
            Contender::Cdi => {
                let cloner = self.cloner(&self.ours, from, port);
                (Some(self.server(&self.ours, target, port)), cloner.command())
            }
            Contender::Upstream => {
                let folder =
                    self.reference.as_deref().context("upstream CDI's programs are not given")?;
                let mut cloner = self.cloner(folder, from, port);
                cloner.words = self.upstream_arguments(from)?;
                (Some(self.server(folder, target, port)), cloner.command())
            }
            Contender::Cp => (None, self.local("cp --sparse=always", from, target)),
            Contender::NbdCopy => (None, self.local("nbdcopy --flush", from, target)),
        };
        let server = match server {
            Some(pod) => Some(self.started(&pod, port)?),
            None => None,
        };
        let (sent_before, begin) = (loopback_bytes()?, Instant::now());
        let mut sender = sender;
        let sender = Party::start("sender", &mut sender, self.work.path())?.ended(limit)?;
        // Upstream CDI responds before its writes are durable.
        if contender == Contender::Upstream {
            shell::output("sync", &[&target.path().display().to_string()])?;
        }
        let (wall, sent) = (begin.elapsed(), loopback_bytes()? - sent_before);
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

    fn source(&self, from: Kind) -> &Path {
        match from {
            Kind::File => &self.disk,
            Kind::Loop => &self.device,
        }
    }

    fn local(&self, program: &str, from: Kind, target: &Target) -> Command {
        let script = format!("{program} \"$SOURCE\" \"$TARGET\"\nsync \"$TARGET\"");
        let mut command = Command::new("bash");
        command
            .args(["-euo", "pipefail", "-c", &script])
            .env("SOURCE", self.source(from))
            .env("TARGET", target.path());
        command
    }

    fn cloner(&self, folder: &Path, from: Kind, port: u16) -> Pod {
        let (mode, place) = match from {
            Kind::File => ("filesystem", "/var/run/cdi/clone/source"),
            Kind::Loop => ("block", "/dev/cdi-block-volume"),
        };
        let trust = &self.trust;
        Pod::new(&self.work.path().join("root"), &folder.join("cdi-cloner"))
            .volume(from, self.source(from), "/var/run/cdi/clone/source")
            .with("VOLUME_MODE", mode)
            .with("MOUNT_POINT", place)
            .with("PREALLOCATION", "false")
            .with("OWNER_UID", "bench")
            .with("CLIENT_CERT", &trust.client.certificate)
            .with("CLIENT_KEY", &trust.client.key)
            .with("SERVER_CA_CERT", &trust.authority)
            .with("UPLOAD_URL", format!("https://localhost:{port}/v1beta1/upload"))
            .with("HOME", "/tmp")
    }

    /// The arguments that the script of its image derives from the environment.
    fn upstream_arguments(&self, from: Kind) -> Result<Vec<String>> {
        let (content, bytes, place) = match from {
            Kind::Loop => ("blockdevice-clone", self.size, "/dev/cdi-block-volume"),
            Kind::File => {
                ("filesystem-clone", report::data_bytes(&self.disk)?, "/var/run/cdi/clone/source")
            }
        };
        let words = ["-v=1", "-alsologtostderr", "-content-type", content, "-upload-bytes"];
        let words = words.into_iter().map(str::to_owned);
        Ok(words.chain([bytes.to_string(), "-mount".into(), place.into()]).collect())
    }

    fn server(&self, folder: &Path, target: &Target, port: u16) -> Pod {
        let work = self.work.path();
        let pod = Pod::new(&work.join("root"), &folder.join("cdi-uploadserver"))
            .mount(&self.trust.folder, "/identities")
            .mount(&work.join("scratch"), "/scratch")
            .volume(target.kind(), target.path(), "/data")
            .with("LISTEN_ADDRESS", "127.0.0.1")
            .with("LISTEN_PORT", port.to_string())
            .with_tls_profile()
            .with("TLS_CERT_FILE", "/identities/tls.crt")
            .with("TLS_KEY_FILE", "/identities/tls.key")
            .with("CLIENT_CERT_FILE", "/identities/ca.crt")
            .with("CLIENT_NAME", CLIENT)
            .with("UPLOAD_IMAGE_SIZE", self.size.to_string())
            .with("FILESYSTEM_OVERHEAD", "0")
            .with("PREALLOCATION", "false")
            .with("HOME", "/tmp");
        match target.kind() {
            Kind::Loop => pod.with("DESTINATION", "/dev/cdi-block-volume"),
            Kind::File => pod,
        }
    }

    fn started(&self, pod: &Pod, port: u16) -> Result<Party> {
        let party = Party::start("server", &mut pod.command(), self.work.path())?;
        crate::upload::wait_for_response(
            &format!("https://localhost:{port}/healthz"),
            self.work.path(),
        )?;
        Ok(party)
    }
}

fn markdown(date: &str, about: &[(&str, String)], runs: &[Run], packed: u64) -> String {
    let mut text = format!("# Clones compared, {date}\n\n");
    text.push_str(
        "Made by `cargo xtask bench clone`. Medians; wall time with least and most, until the copy is durable. Cloner and \
         upload server are each in the environment of a pod, with TLS on loopback in between. A file is in the page cache; a \
         device is read past it. The tools copy with no network at all, and so have half of the work. CPU and memory are \
         those of each program and its children; wire is all that went over loopback.\n\n",
    );
    for (name, value) in about {
        line(&mut text, format_args!("* {name}: {value}"));
    }
    text.push('\n');
    let rows = rows(runs);
    text.push_str(&table::markdown(&rows, runs, Contender::Cdi.name(), "the disk"));
    text.push_str(
        "\n## Against the goals\n\n\
         Wall time of upstream CDI's pair over ours, bytes on the wire over those that lz4 -1 makes of the disk, and the \
         larger memory of both sides. A cross marks what is missed.\n\n\
         | Target | What | × upstream | Wire ÷ compressed | Peak MiB |\n\
         |---|---|---|---|---|\n",
    );
    for ours in rows.iter().filter(|row| row.program == Contender::Cdi.name()) {
        let same = |row: &&Row| {
            row.program == Contender::Upstream.name()
                && (&row.case, &row.target) == (&ours.case, &ours.target)
        };
        let reference = rows.iter().find(same).map(|row| row.wall / ours.wall);
        let wanted = if ours.case.contains(Kind::Loop.name()) { 3.5 } else { 2.0 };
        line(
            &mut text,
            format_args!(
                "| {} | {} | {} | {} | {} |",
                ours.target,
                ours.case,
                at_least(reference, wanted),
                at_most(Some(ours.wire_bytes / packed as f64), 1.0),
                at_most(Some(ours.peak_mib(&["sender", "server"])), 128.0),
            ),
        );
    }
    text
}
