//! `bench start`: how long a worker takes from its start until its first request, or until it accepts connections.
//!
//! Of a worker's own time only: what a kubelet does before that, `cargo xtask bench control-plane single` shows.

use std::fmt;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::{Advice, fadvise};
use serde_json::json;

use crate::common::{ProgramFolders, Results, in_turns};
use crate::party::{Party, Pod, logs};
use crate::report::{first_line, machine_facts, median, sorted};
use crate::shell;
use crate::table::{self, at_most, line};
use crate::target::Kind;
use crate::upload::{Cluster, PORT};
use crate::work::WorkFolder;

/// Milliseconds that a worker of ours may take.
const GOAL: f64 = 100.0;
/// Bytes of the disk. Nothing of it is transferred.
const DISK: u64 = 1 << 30;
/// A worker that does nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a server is tried.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// What to measure.
#[derive(clap::Args)]
pub struct Options {
    /// How often everything is run; the table shows medians.
    #[arg(long, default_value_t = 15)]
    runs: u32,
    #[command(flatten)]
    programs: ProgramFolders,
    #[command(flatten)]
    results: Results,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Worker {
    /// Until a web server has its first connection.
    Importer,
    /// Until it accepts connections.
    UploadServer,
}

/// A worker of ours or of upstream CDI, with its program in the page cache or not.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Start {
    worker: Worker,
    is_upstream: bool,
    is_cached: bool,
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let worker = match self.worker {
            Worker::Importer => "importer, until its first connection",
            Worker::UploadServer => "upload server, until it accepts connections",
        };
        let whose = if self.is_upstream { "upstream CDI's" } else { "**ours**" };
        let cache = if self.is_cached { "in the page cache" } else { "read from the disk" };
        write!(f, "{worker} | {whose} | {cache}")
    }
}

struct Run {
    start: Start,
    /// Which round, from 0.
    round: u32,
    duration: Duration,
}

/// Runs the benchmark, prints its table, and keeps it with the raw figures.
///
/// # Errors
/// When the environment cannot be created, which takes root, or a worker does not start.
pub fn run(options: &Options) -> Result<()> {
    let work = WorkFolder::new(&options.results.cache)?;
    let bench = Bench {
        ours: options.programs.ours()?,
        upstream: options.programs.upstream(),
        cluster: Cluster::start(&work)?,
        work,
    };
    let mut facts = machine_facts()?;
    let cdi = bench.ours.join("cdi").display().to_string();
    facts.push(("our programs", first_line(&cdi, "--version")?));
    let mut runs = Vec::new();
    in_turns(bench.starts(), options.runs, |start, round| {
        let duration = bench.start(start)?;
        eprintln!("{start}, run {}: {:.1} ms", round + 1, milliseconds(duration));
        runs.push(Run { start, round, duration });
        Ok(true)
    })?;
    let date = shell::output("date", &["--utc", "+%F"])?;
    let text = markdown(&date, &facts, &bench.starts(), &runs);
    println!("{text}");
    if !options.results.dev {
        let lines = json_lines(&date, &facts, &runs)?;
        options.results.keep(&date, "start", &text, &lines)?;
    }
    Ok(())
}

struct Bench {
    ours: PathBuf,
    upstream: Option<PathBuf>,
    cluster: Cluster,
    work: WorkFolder,
}

impl Bench {
    /// All that are compared, in the order of the table.
    fn starts(&self) -> Vec<Start> {
        let mut starts = Vec::new();
        for worker in [Worker::Importer, Worker::UploadServer] {
            for is_cached in [true, false] {
                for is_upstream in [false, true] {
                    starts.push(Start { worker, is_upstream, is_cached });
                }
            }
        }
        starts.retain(|start| !start.is_upstream || self.upstream.is_some());
        starts
    }

    /// Starts a worker in the environment of its pod, and kills it as soon as it is ready.
    fn start(&self, start: Start) -> Result<Duration> {
        let folder = if start.is_upstream { self.upstream.as_deref() } else { None };
        let folder = folder.unwrap_or(&self.ours);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
        let port = listener.local_addr().context("a listener has no address")?.port();
        let mut pod = match start.worker {
            Worker::Importer => self.importer(&folder.join("cdi-importer"), port),
            Worker::UploadServer => self.upload_server(&folder.join("cdi-uploadserver")),
        };
        // The shell that becomes the program connects first.
        pod.last_step = format!(": > /dev/tcp/127.0.0.1/{port}\n");
        if !start.is_cached {
            forget_cached(&pod.program)?;
        }
        let connections = watch(listener);
        let party = Party::start("worker", &mut pod.command(), self.work.path())?;
        let next = || {
            connections.recv_timeout(PATIENCE).ok().with_context(|| {
                format!("{start}: no connection in time: {}", logs(self.work.path()))
            })
        };
        let begin = next()?;
        let ready = match start.worker {
            Worker::Importer => next()?,
            Worker::UploadServer => {
                accepting().with_context(|| format!("{start}: {}", logs(self.work.path())))?
            }
        };
        drop(party);
        Ok(ready.duration_since(begin))
    }

    fn importer(&self, program: &Path, port: u16) -> Pod {
        Pod::new(&self.work.path().join("root"), program)
            .volume(Kind::File, &self.work.path().join("data/disk.img"), "/data")
            .mount(&self.work.path().join("scratch"), "/scratch")
            .with("IMPORTER_SOURCE", "http")
            .with("IMPORTER_ENDPOINT", format!("http://127.0.0.1:{port}/disk.img"))
            .with("IMPORTER_CONTENTTYPE", "kubevirt")
            .with("IMPORTER_IMAGE_SIZE", DISK.to_string())
            .with("OWNER_UID", "bench")
            .with("FILESYSTEM_OVERHEAD", "0")
            .with("INSECURE_TLS", "false")
            .with("PREALLOCATION", "false")
            .with("HOME", "/tmp")
    }

    fn upload_server(&self, program: &Path) -> Pod {
        let work = self.work.path();
        self.cluster
            .server_pod(&work.join("root"), program, DISK)
            .with("LISTEN_ADDRESS", Ipv4Addr::LOCALHOST.to_string())
            .upload_target(Kind::File, &work.join("data/disk.img"), &work.join("scratch"))
    }
}

/// The times of connections. The thread ends when the receiver is gone and one more comes, or with this process.
fn watch(listener: TcpListener) -> Receiver<Instant> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || while listener.accept().is_ok() && send.send(Instant::now()).is_ok() {});
    receive
}

/// When the upload server accepts a connection.
fn accepting() -> Result<Instant> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
    let begin = Instant::now();
    while TcpStream::connect(address).is_err() {
        if begin.elapsed() > PATIENCE {
            bail!("nothing listens on {address}");
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(Instant::now())
}

/// Removes a file from the page cache. A program that still runs keeps its pages there.
fn forget_cached(program: &Path) -> Result<()> {
    let file = File::open(program).with_context(|| format!("cannot open {}", program.display()))?;
    fadvise(&file, 0, None, Advice::DontNeed)
        .map_err(io::Error::from)
        .with_context(|| format!("cannot remove {} from the page cache", program.display()))
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn markdown(
    date: &str,
    facts: &[(&'static str, String)],
    starts: &[Start],
    runs: &[Run],
) -> String {
    let mut text = format!("# Starts of workers, {date}\n\n");
    text.push_str(
        "Made by `cargo xtask bench start`. Each worker starts in the environment of its pod, in turns. The time is from the \
         last step of the shell that becomes the program: medians, with least and most. Programs that are *read from the disk* \
         were removed from the page cache before. Ours are linked as on this machine; in images they are static.\n\n",
    );
    table::facts(&mut text, facts);
    text.push_str("\n| Worker | Program | Its file | Median ms (goal) | Least–most |\n|---|---|---|---|---|\n");
    for start in starts {
        let own = runs.iter().filter(|run| run.start == *start);
        let own = sorted(own.map(|run| milliseconds(run.duration)));
        let (Some(middle), Some(least), Some(most)) = (median(&own), own.first(), own.last())
        else {
            continue;
        };
        let middle =
            if start.is_upstream { format!("{middle:.2}") } else { at_most(Some(middle), GOAL) };
        line(&mut text, format_args!("| {start} | {middle} | {least:.1}–{most:.1} |"));
    }
    text
}

fn json_lines(date: &str, facts: &[(&'static str, String)], runs: &[Run]) -> Result<Vec<String>> {
    let header = json!({ "date": date, "about": table::about(facts) });
    let each = runs.iter().map(|run| {
        json!({
            "start": run.start.to_string().replace('*', ""),
            "run": run.round + 1,
            "milliseconds": milliseconds(run.duration),
        })
    });
    table::to_lines(header, each)
}
