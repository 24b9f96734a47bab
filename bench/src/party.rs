//! One of several programs that have a part in a transfer: started, ended, and what it cost.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::limit::Group;
use crate::sys;
use crate::target::Kind;

/// A program that does not end within this time after SIGTERM is killed.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// Where workers have the device of their volume.
pub const BLOCK_DEVICE: &str = "/dev/cdi-block-volume";

/// A running program. Killed when dropped.
pub struct Party {
    name: &'static str,
    child: Child,
    has_ended: bool,
}

#[derive(Clone, Debug)]
pub struct ProcessCost {
    /// `client`, `proxy`, `server` …
    pub name: &'static str,
    /// It exited with 0.
    pub success: bool,
    /// User and system time, of its children too.
    pub cpu: Duration,
    /// The largest resident set.
    pub peak_rss_bytes: u64,
}

impl Party {
    /// Starts it in a process group of its own; its output goes to a file.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(name: &'static str, command: &mut Command, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let out = File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
        let twin = out.try_clone().context("cannot share a file")?;
        command.stdin(Stdio::null()).stdout(out).stderr(twin).process_group(0);
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { name, child, has_ended: false })
    }

    /// Waits until it ends by itself, and ends it after `limit`.
    ///
    /// # Errors
    /// When it had to be ended.
    pub fn ended(self, limit: Duration) -> Result<ProcessCost> {
        let name = self.name;
        let (share, was_killed) = self.wait(limit)?;
        if was_killed {
            bail!("the {name} was ended after {} s", limit.as_secs());
        }
        Ok(share)
    }

    /// Sends it SIGTERM.
    ///
    /// # Errors
    /// When the kernel does not report its cost.
    pub fn stop(self) -> Result<ProcessCost> {
        // It may have ended just now.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::TERM);
        Ok(self.wait(STOP_WITHIN)?.0)
    }

    fn wait(mut self, limit: Duration) -> Result<(ProcessCost, bool)> {
        let group = Pid::from_child(&self.child);
        let (ended, watch) = mpsc::channel::<()>();
        let watchdog = thread::spawn(move || {
            let is_late = watch.recv_timeout(limit).is_err();
            if is_late {
                let _ = kill_process_group(group, Signal::KILL); // it ended just now
            }
            is_late
        });
        let usage = sys::wait_with_usage(&self.child).context("cannot wait for a program")?;
        self.has_ended = true;
        let _ = ended.send(()); // after the limit the receiver is gone
        let Ok(is_late) = watchdog.join() else { bail!("the watchdog panicked") };
        let sys::Ended { success, cpu, peak_rss_bytes, .. } = usage;
        Ok((ProcessCost { name: self.name, success, cpu, peak_rss_bytes }, is_late))
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        if !self.has_ended {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// The environment of a program in a pod: a temporary root in a mount namespace of its own. Takes root.
pub struct Pod {
    /// An empty folder to mount on.
    pub root: PathBuf,
    pub program: PathBuf,
    pub words: Vec<String>,
    pub variables: BTreeMap<&'static str, String>,
    /// What is mounted besides: from where, and to what below the root.
    pub mounts: Vec<(PathBuf, &'static str)>,
    /// Block devices: from where, and to what below the root.
    pub devices: Vec<(PathBuf, &'static str)>,
    /// The network that it is in, if not in this one.
    pub network: Option<PathBuf>,
    /// Shell words that put it into a control group.
    pub enter_group: String,
    /// What the shell does at last, before it becomes the program.
    pub last_step: String,
}

impl Pod {
    /// Of a program, with nothing but the system.
    pub fn new(root: &Path, program: &Path) -> Self {
        Self {
            root: root.to_owned(),
            program: program.to_owned(),
            words: Vec::new(),
            variables: BTreeMap::new(),
            mounts: Vec::new(),
            devices: Vec::new(),
            network: None,
            enter_group: String::new(),
            last_step: String::new(),
        }
    }

    /// Of an upload server, ours or another, without its volume. `identities` has `server.crt`, `server.key` and
    /// `clients.pem`; `client` is the name in the client's certificate, `size` the bytes of the disk.
    pub fn upload_server(
        root: &Path,
        program: &Path,
        identities: &Path,
        client: &str,
        size: u64,
    ) -> Self {
        Self::new(root, program)
            .mount(identities, "/identities")
            .with_tls_profile()
            .with("TLS_CERT_FILE", "/identities/server.crt")
            .with("TLS_KEY_FILE", "/identities/server.key")
            .with("CLIENT_CERT_FILE", "/identities/clients.pem")
            .with("CLIENT_NAME", client)
            .with("UPLOAD_IMAGE_SIZE", size.to_string())
            .with("FILESYSTEM_OVERHEAD", "0")
            .with("PREALLOCATION", "false")
            .with("HOME", "/tmp")
    }

    /// With the volume that an upload server writes to, and its scratch space.
    #[must_use]
    pub fn upload_target(self, kind: Kind, path: &Path, scratch: &Path) -> Self {
        let pod = self.mount(scratch, "/scratch").volume(kind, path, "/data");
        match kind {
            Kind::Loop => pod.with("DESTINATION", BLOCK_DEVICE),
            Kind::File | Kind::Network => pod,
        }
    }

    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.insert(name, value.into());
        self
    }

    /// With the TLS profile that controllers pass to every server. Those of upstream CDI do not start without one.
    #[must_use]
    pub fn with_tls_profile(self) -> Self {
        const CIPHERS: &str = "ECDHE-ECDSA-AES128-GCM-SHA256,ECDHE-RSA-AES128-GCM-SHA256,\
                               ECDHE-ECDSA-AES256-GCM-SHA384,ECDHE-RSA-AES256-GCM-SHA384";
        self.with("TLS_MIN_VERSION", "VersionTLS12").with("TLS_CIPHERS", CIPHERS)
    }

    /// With a file or folder, mounted where a file or folder of that name is made.
    #[must_use]
    pub fn mount(mut self, from: &Path, to: &'static str) -> Self {
        self.mounts.push((from.to_owned(), to));
        self
    }

    /// With the volume that `path` is on, as workers have it: the device, or the folder of the disk.
    #[must_use]
    pub fn volume(self, kind: Kind, path: &Path, folder: &'static str) -> Self {
        self.volume_at(kind, path, folder, BLOCK_DEVICE)
    }

    /// The same, as a device of this name.
    #[must_use]
    pub fn volume_at(
        mut self,
        kind: Kind,
        path: &Path,
        folder: &'static str,
        device: &'static str,
    ) -> Self {
        match kind {
            Kind::Loop => self.devices.push((path.to_owned(), device)),
            Kind::File | Kind::Network => {
                self.mounts.push((path.parent().unwrap_or(Path::new("/")).to_owned(), folder));
            }
        }
        self
    }

    /// In another network.
    #[must_use]
    pub fn within(mut self, network: PathBuf) -> Self {
        self.network = Some(network);
        self
    }

    /// In a control group, if there is one; it must outlive the process.
    #[must_use]
    pub fn in_group(mut self, group: Option<&Group>) -> Self {
        self.enter_group = group.map(Group::enter).unwrap_or_default();
        self
    }

    /// The command that starts it; the process that it is becomes the program.
    pub fn command(&self) -> Command {
        let mut script = self.enter_group.clone();
        script.push_str(
            r#"
mount -t tmpfs none "$ROOT"
mkdir "$ROOT"/{usr,etc,proc,sys,dev,tmp}
for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$ROOT/$folder"; done
for folder in usr etc proc sys; do mount --rbind "/$folder" "$ROOT/$folder"; done
mknod "$ROOT/dev/null" c 1 3; mknod "$ROOT/dev/urandom" c 1 9; touch "$ROOT/dev/termination-log"
touch "$ROOT/tmp/program"; mount --bind "$PROGRAM" "$ROOT/tmp/program"
"#,
        );
        for (from, to) in &self.mounts {
            let from = from.display();
            script += &format!(
                "if [ -d '{from}' ]; then mkdir -p \"$ROOT{to}\"; elif [ ! -e \"$ROOT{to}\" ]; then touch \"$ROOT{to}\"; fi\n\
                 mount --bind '{from}' \"$ROOT{to}\"\n"
            );
        }
        for (from, to) in &self.devices {
            let from = from.display();
            script += &format!(
                "mknod \"$ROOT{to}\" b \"0x$(stat -c %t '{from}')\" \"0x$(stat -c %T '{from}')\"\n"
            );
        }
        script += &self.last_step;
        // It inherits no variable of this process.
        script += "exec env -u ROOT -u PROGRAM chroot \"$ROOT\" /tmp/program \"$@\"\n";
        let mut command = match &self.network {
            None => Command::new("unshare"),
            Some(network) => {
                let mut enter = Command::new("nsenter");
                enter.arg(format!("--net={}", network.display())).arg("unshare");
                enter
            }
        };
        command
            .args(["--mount", "bash", "-euo", "pipefail", "-c", &script, "pod"])
            .args(&self.words)
            .envs(&self.variables)
            .env("ROOT", &self.root)
            .env("PROGRAM", &self.program);
        command
    }
}

/// The logs of the programs of a run.
pub fn logs(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let logs = entries.map(|entry| entry.path());
    let logs = logs.filter(|path| path.extension().is_some_and(|ending| ending == "log"));
    logs.filter_map(|path| std::fs::read_to_string(path).ok()).collect()
}

/// Bytes that this machine has sent to itself.
///
/// # Errors
/// When the kernel does not report it.
pub fn loopback_bytes() -> Result<u64> {
    network_bytes("lo", "tx")
}

/// Bytes that a network device has received (`rx`) or sent (`tx`).
///
/// # Errors
/// When the kernel does not report it.
pub fn network_bytes(device: &str, direction: &str) -> Result<u64> {
    let path = format!("/sys/class/net/{device}/statistics/{direction}_bytes");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    text.trim().parse().context("a count of bytes is no number")
}
