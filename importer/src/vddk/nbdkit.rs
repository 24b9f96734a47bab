//! The program that has VMware's library in it: started, listened to, and ended.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use contract::termination::VddkInfo;
use parking_lot::{Condvar, Mutex};
use rustix::io::FdFlags;
use rustix::process::{Pid, Signal};

use super::VddkSettings;
use crate::error::Error;

/// Takes the place of VMware's plugin where it is there, for tests of whole clusters.
const TEST_PLUGIN: &str = "/opt/testing/libvddk-test-plugin.so";
/// The longest that it may take to listen.
const START_MAX: Duration = Duration::from_secs(15);
/// The longest that it may take to end.
const END_MAX: Duration = Duration::from_secs(5);
/// The longest that lines which were printed may take to be read.
const HEARD_MAX: Duration = Duration::from_secs(2);
/// Lines repeated when it fails, and bytes of a line that are examined.
const LINES_KEPT: usize = 5;
const LINE_MAX: u64 = 16 << 10;

/// A running nbdkit. Ended on drop.
pub(super) struct NbdKit {
    child: Child,
    output: Arc<Output>,
    listener: Option<JoinHandle<()>>,
    socket: PathBuf,
    pid_file: PathBuf,
}

/// What it prints, shared with the thread that reads it.
#[derive(Debug, Default)]
struct Output {
    heard: Mutex<Heard>,
    /// Notified after each line, and at the end.
    changed: Condvar,
}

/// What was read of its output.
#[derive(Debug, Default)]
struct Heard {
    info: VddkInfo,
    last: VecDeque<String>,
    has_ended: bool,
}

/// What nbdkit logs about library and host while it runs.
#[derive(Clone, Debug, Default)]
pub struct VddkWatch(Arc<Output>);

impl VddkWatch {
    /// Version and host, once a disk was read. nbdkit has printed both before that, and the thread that reads its output may
    /// be behind: waits for it, but not long, as other versions may print other lines.
    pub fn info(&self) -> VddkInfo {
        let mut heard = self.0.heard.lock();
        let is_unknown = |heard: &mut Heard| {
            !heard.has_ended && (heard.info.host.is_empty() || heard.info.version.is_empty())
        };
        let _ = self.0.changed.wait_while_for(&mut heard, is_unknown, HEARD_MAX);
        heard.info.clone()
    }
}

pub(super) struct Opens<'a> {
    pub(super) machine: &'a str,
    pub(super) snapshot: Option<&'a str>,
    pub(super) file: &'a str,
    pub(super) server: &'a str,
}

impl NbdKit {
    /// Starts it, and waits until it listens.
    pub(super) fn start(settings: &VddkSettings, opens: &Opens<'_>) -> Result<Self, Error> {
        let failed = |what| {
            let path = settings.nbdkit.clone();
            move |source| Error::File { what, path, source }
        };
        let socket = settings.work_folder.join("nbd.sock");
        let pid_file = settings.work_folder.join("nbd.pid");
        for stale in [&socket, &pid_file] {
            let _ = std::fs::remove_file(stale); // of a container that was killed, if at all
        }
        // The password goes through a pipe: a list of processes shows only its number.
        let (password, mut secret) = std::io::pipe().map_err(failed("give the password to"))?;
        secret
            .write_all(settings.password.reveal().as_bytes())
            .map_err(failed("give the password to"))?;
        drop(secret);
        rustix::io::fcntl_setfd(&password, FdFlags::empty())
            .map_err(|error| failed("give the password to")(error.into()))?;
        let arguments =
            arguments(settings, opens, password.as_raw_fd(), &socket, &pid_file, &plugin());
        let mut command = Command::new(&settings.nbdkit);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed("start"))?;
        drop(password);
        let output = Arc::new(Output::default());
        let listener = child.stderr.take().map(|stderr| {
            let output = Arc::clone(&output);
            std::thread::spawn(move || output.read(stderr))
        });
        let mut nbdkit = Self { child, output, listener, socket, pid_file };
        nbdkit.wait_until_ready(settings)?;
        Ok(nbdkit)
    }

    pub(super) fn uri(&self) -> String {
        let socket = self.socket.to_string_lossy();
        let encoded =
            percent_encoding::utf8_percent_encode(&socket, percent_encoding::NON_ALPHANUMERIC);
        format!("nbd+unix:///?socket={encoded}")
    }

    pub(super) fn watch(&self) -> VddkWatch {
        VddkWatch(Arc::clone(&self.output))
    }

    /// The end of its output, for an error.
    pub(super) fn last_output(&self) -> String {
        let last: Vec<_> = self.output.heard.lock().last.iter().cloned().collect();
        last.join("; ")
    }

    fn wait_until_ready(&mut self, settings: &VddkSettings) -> Result<(), Error> {
        let deadline = Instant::now() + START_MAX;
        let refuse = |because: String| Error::Option { what: because };
        loop {
            settings.stop.check(&settings.name())?;
            // It writes the file when it listens.
            if self.pid_file.exists() && self.socket.exists() {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                if let Some(listener) = self.listener.take() {
                    let _ = listener.join(); // all that it message is wanted
                }
                return Err(refuse(format!("nbdkit ended with {status}: {}", self.last_output())));
            }
            if Instant::now() >= deadline {
                let seconds = START_MAX.as_secs();
                let last = self.last_output();
                return Err(refuse(format!("nbdkit does not listen after {seconds} s: {last}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for NbdKit {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, Signal::TERM); // it may have ended
        }
        let deadline = Instant::now() + END_MAX;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        for left in [&self.socket, &self.pid_file] {
            let _ = std::fs::remove_file(left); // it cleans up itself, if it could
        }
    }
}

fn plugin() -> OsString {
    if Path::new(TEST_PLUGIN).exists() { TEST_PLUGIN.into() } else { "vddk".into() }
}

fn arguments(
    settings: &VddkSettings,
    opens: &Opens<'_>,
    password: i32,
    socket: &Path,
    pid_file: &Path,
    plugin: &OsString,
) -> Vec<OsString> {
    let joined = |name: &str, value: &dyn AsRef<std::ffi::OsStr>| {
        let mut text = OsString::from(name);
        text.push(value);
        text
    };
    let mut all: Vec<OsString> = vec!["--foreground".into(), "--readonly".into()];
    all.extend(["--unix".into(), socket.into(), "--pidfile".into(), pid_file.into()]);
    all.extend(["--filter=retry".into(), "--filter=cacheextents".into()]);
    all.push("--verbose".into());
    for setting in ["nbdkit.backend.datapath=0", "vddk.datapath=0", "vddk.stats=1"] {
        all.extend(["-D".into(), setting.into()]);
    }
    all.push(plugin.clone());
    all.push(joined("libdir=", &settings.library));
    all.push(joined("server=", &opens.server));
    all.push(joined("user=", &settings.username));
    all.push(format!("password=-{password}").into());
    all.push(joined("thumbprint=", &settings.thumbprint));
    all.push(joined("vm=moref=", &opens.machine));
    if let Some(snapshot) = opens.snapshot {
        all.push(joined("snapshot=", &snapshot));
        all.push("transports=file:nbdssl:nbd".into());
    }
    if let Some(config) = &settings.extra_config {
        all.push(joined("config=", config));
    }
    all.push(joined("file=", &opens.file));
    all
}

impl Output {
    /// Reads the output of nbdkit to its end: nbdkit would block on a full pipe.
    fn read(&self, stderr: impl Read) {
        let mut reader = BufReader::new(stderr);
        let mut line = Vec::new();
        while let Ok(1..) = (&mut reader).take(LINE_MAX).read_until(b'\n', &mut line) {
            let text = String::from_utf8_lossy(&line);
            let text: String = text.trim_end().escape_debug().collect();
            tracing::debug!("{text}");
            self.heard.lock().add(text);
            self.changed.notify_all();
            line.clear();
        }
        self.heard.lock().has_ended = true;
        self.changed.notify_all();
    }
}

impl Heard {
    fn add(&mut self, line: String) {
        if let Some(version) = version_in(&line) {
            self.info.version = version.to_owned();
        }
        if let Some(host) = host_in(&line) {
            self.info.host = host.to_owned();
        }
        if self.last.len() == LINES_KEPT {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }
}

/// `… VMware VixDiskLib (8.0.2) Release build-…`
fn version_in(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("VMware VixDiskLib (")?;
    let (version, rest) = rest.split_once(')')?;
    rest.starts_with(" Release").then_some(version)
}

/// `… Opened 'vpxa-nfcssl://[datastore] machine/disk.vmdk@esx.example:902' …`. (Quotes come escaped.)
fn host_in(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("Opened ")?;
    let rest = rest.trim_start_matches(['\\', '\'']);
    let (_, rest) = rest.split_once("://")?;
    let place = rest.split(['\\', '\'']).next()?;
    let (_, place) = place.rsplit_once('@')?;
    let (host, port) = place.rsplit_once(':')?;
    port.bytes().all(|byte| byte.is_ascii_digit()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_and_host_are_waited_for_until_the_output_ends() {
        const VERSION: &str = "nbdkit: debug: VMware VixDiskLib (7.0.3) Release build-19513565\n";
        const HOST: &str =
            "nbdkit: vddk[1]: debug: Opened 'vpxa-nfcssl://[d] a@b/c.vmdk@esx.host:902' (0xa)\n";
        for (text, host) in [([VERSION, HOST].concat(), "esx.host"), (VERSION.to_owned(), "")] {
            let (stderr, mut nbdkit) = std::io::pipe().unwrap();
            let output = Arc::new(Output::default());
            let watch = VddkWatch(Arc::clone(&output));
            let asked = std::thread::spawn(move || watch.info());
            let reader = std::thread::spawn(move || output.read(stderr));
            nbdkit.write_all(text.as_bytes()).unwrap();
            drop(nbdkit);
            let info = asked.join().unwrap();
            assert_eq!((&*info.version, &*info.host), ("7.0.3", host));
            reader.join().unwrap();
        }
    }

    #[test]
    fn version_and_host_are_parsed_from_the_log_of_nbdkit() {
        let line = "nbdkit: debug: VMware VixDiskLib (7.0.3) Release build-19513565";
        assert_eq!(version_in(line), Some("7.0.3"));
        let line = "nbdkit: vddk[1]: debug: Opened 'vpxa-nfcssl://[Datastore 1] a@b/c.vmdk@esx.host:902' (0xa)";
        for line in [line.to_owned(), line.escape_debug().collect()] {
            assert_eq!(host_in(&line), Some("esx.host"), "{line}");
        }
        for other in ["VMware VixDiskLib (1", "Opened 'x'", "Opened 'a://b@c:d'", "nothing"] {
            assert_eq!((version_in(other), host_in(other)), (None, None), "{other}");
        }
    }
}
