//! A local port forwarded to the upload proxy by `kubectl port-forward`, for clusters that publish no address of the proxy.
//!
//! kubectl ends when the connection to the proxy's pod is lost. It is then started again with the same local port, so that
//! the retries of the upload reach the next pod.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use parking_lot::{Condvar, Mutex, MutexGuard};

/// Between the end of one kubectl and the start of the next.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// Bytes of kubectl's standard error that are kept for an error message.
const STDERR_MAX: u64 = 4 << 10;

/// A forwarded port. Dropping it ends kubectl.
pub struct ForwardedPort {
    address: SocketAddr,
    state: Arc<ForwardState>,
    supervisor: Option<JoinHandle<()>>,
}

/// Shared by the owner and the thread that restarts kubectl.
#[derive(Default)]
struct ForwardState {
    current: Mutex<CurrentForward>,
    stopped: Condvar,
}

#[derive(Default)]
struct CurrentForward {
    is_stopped: bool,
    child: Option<Child>,
}

/// The output of a kubectl that forwards. The process itself is in [`CurrentForward`], where the owner can end it.
struct RunningForward {
    address: SocketAddr,
    stdout: BufReader<ChildStdout>,
    stderr: JoinHandle<String>,
}

impl ForwardedPort {
    /// Starts `command(LOCAL_PORT)`, where 0 means any port, and returns once it listens.
    ///
    /// # Errors
    /// When it cannot be started, or ends without listening: the error is what it wrote to standard error.
    pub fn start(command: impl Fn(u16) -> Command + Send + 'static) -> Result<Self> {
        let state = Arc::new(ForwardState::default());
        let running = state.start(command(0))?;
        let address = running.address;
        let shared = Arc::clone(&state);
        let supervisor = std::thread::spawn(move || shared.supervise(running, &command));
        Ok(Self { address, state, supervisor: Some(supervisor) })
    }

    /// Where it listens: an address of this machine.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ForwardedPort {
    fn drop(&mut self) {
        {
            let mut current = self.state.lock();
            current.is_stopped = true;
            if let Some(child) = &mut current.child {
                let _ = child.kill(); // it may have exited already
            }
        }
        self.state.stopped.notify_all();
        if let Some(supervisor) = self.supervisor.take() {
            let _ = supervisor.join(); // a panic there has nothing left to end
        }
    }
}

impl ForwardState {
    fn lock(&self) -> MutexGuard<'_, CurrentForward> {
        self.current.lock()
    }

    /// Starts kubectl and waits until it listens.
    fn start(&self, mut command: Command) -> Result<RunningForward> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().with_context(|| format!("cannot run {program}"))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        {
            let mut current = self.lock();
            if current.is_stopped {
                let _ = child.kill();
            }
            current.child = Some(child);
        }
        let stderr = stderr.context("kubectl has no standard error")?;
        let stderr = std::thread::spawn(move || beginning(stderr));
        let mut stdout = BufReader::new(stdout.context("kubectl has no standard output")?);
        let mut line = String::new();
        while stdout.read_line(&mut line).is_ok_and(|length| length > 0) {
            if let Some(address) = forwarded_address(&line) {
                return Ok(RunningForward { address, stdout, stderr });
            }
            line.clear();
        }
        self.reap();
        let text = stderr.join().unwrap_or_default();
        match text.trim() {
            "" => bail!("kubectl port-forward ended without a message"),
            text => bail!("{text}"),
        }
    }

    /// Restarts kubectl until the owner stops it.
    fn supervise(&self, first: RunningForward, command: &impl Fn(u16) -> Command) {
        let port = first.address.port();
        let mut running = Some(first);
        loop {
            if let Some(RunningForward { mut stdout, stderr, .. }) = running.take() {
                // One line for each connection. A full pipe would stop kubectl.
                let _ = std::io::copy(&mut stdout, &mut std::io::sink());
                let _ = stderr.join();
                self.reap();
            }
            let mut current = self.lock();
            let is_running = |current: &mut CurrentForward| !current.is_stopped;
            self.stopped.wait_while_for(&mut current, is_running, RESTART_DELAY);
            if current.is_stopped {
                return;
            }
            drop(current);
            // Fails while the proxy has no pod that runs. The upload's own patience limits how long that is tried.
            running = self.start(command(port)).ok();
        }
    }

    /// Waits for the end of a kubectl whose output has ended.
    fn reap(&self) {
        let child = self.lock().child.take();
        if let Some(mut child) = child {
            let _ = child.kill().and_then(|()| child.wait()); // it may have exited already
        }
    }
}

/// The first [`STDERR_MAX`] bytes; the rest is read and dropped.
fn beginning(mut stderr: impl Read) -> String {
    let mut text = Vec::new();
    let _ = (&mut stderr).take(STDERR_MAX).read_to_end(&mut text);
    let _ = std::io::copy(&mut stderr, &mut std::io::sink());
    String::from_utf8_lossy(&text).into_owned()
}

/// The address in `Forwarding from 127.0.0.1:40123 -> 8443`.
fn forwarded_address(line: &str) -> Option<SocketAddr> {
    let (address, _) = line.trim().strip_prefix("Forwarding from ")?.split_once(" -> ")?;
    address.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::Instant;

    use super::*;

    /// A shell script in the place of kubectl, which is called with the local port.
    fn script(folder: &Path, text: &str) -> impl Fn(u16) -> Command + Send + use<> {
        let (folder, text) = (folder.to_owned(), text.to_owned());
        move |port| {
            let mut command = Command::new("sh");
            command.args(["-c", &text, "kubectl", &port.to_string()]).current_dir(&folder);
            command
        }
    }

    fn wait_for(path: &Path, expected: &str) {
        let begin = Instant::now();
        while fs::read_to_string(path).unwrap_or_default() != expected {
            assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", fs::read_to_string(path));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn address_is_parsed_from_kubectls_output() {
        for (line, expected) in [
            ("Forwarding from 127.0.0.1:40123 -> 8443\n", Some("127.0.0.1:40123")),
            ("Forwarding from [::1]:40123 -> 8443", Some("[::1]:40123")),
            ("Handling connection for 40123", None),
            ("Forwarding from nowhere -> 8443", None),
            ("", None),
        ] {
            let address = expected.map(|text| text.parse().unwrap());
            assert_eq!(forwarded_address(line), address, "{line}");
        }
    }

    #[test]
    fn kubectl_is_restarted_with_the_same_port() {
        let folder = tempfile::tempdir().unwrap();
        let text = r#"echo "$1" >>ports
            echo 'Forwarding from 127.0.0.1:40123 -> 8443'
            if [ "$1" = 0 ]; then exit 1; fi
            exec sleep 600"#;
        let forwarded = ForwardedPort::start(script(folder.path(), text)).unwrap();
        assert_eq!(forwarded.address().port(), 40123);
        wait_for(&folder.path().join("ports"), "0\n40123\n");
        // Returns when the second one has ended, long before its sleep does.
        drop(forwarded);
    }

    #[test]
    fn failed_restart_is_retried() {
        let folder = tempfile::tempdir().unwrap();
        let text = r#"echo "$1" >>ports
            if [ "$(wc -l <ports)" = 2 ]; then echo 'no pod runs' >&2; exit 1; fi
            echo 'Forwarding from 127.0.0.1:40123 -> 8443'
            if [ "$1" = 0 ]; then exit 1; fi
            exec sleep 600"#;
        let _forwarded = ForwardedPort::start(script(folder.path(), text)).unwrap();
        wait_for(&folder.path().join("ports"), "0\n40123\n40123\n");
    }

    #[test]
    fn kubectl_that_does_not_listen_is_an_error_with_its_message() {
        let folder = tempfile::tempdir().unwrap();
        for (text, expected) in [
            ("echo 'services \"cdi-uploadproxy\" is forbidden' >&2; exit 1", "is forbidden"),
            ("echo hello; exit 0", "ended without a message"),
        ] {
            let error = ForwardedPort::start(script(folder.path(), text)).err().unwrap();
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
    }
}
