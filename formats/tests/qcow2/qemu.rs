//! The oracle: `qemu-img` and `qemu-io`, in a folder of its own for each test.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A folder to make images in; gone when dropped.
pub struct Workshop(TempDir);

impl Workshop {
    /// `None` on a machine without the tools, which a CI machine must not be.
    pub fn open() -> Option<Self> {
        let present = ["qemu-img", "qemu-io"].iter().all(|tool| {
            let run = Command::new(tool).arg("--version").stdout(Stdio::null()).status();
            run.is_ok_and(|status| status.success())
        });
        if !present {
            assert!(std::env::var_os("CI").is_none(), "qemu-img and qemu-io are needed in CI");
            eprintln!("SKIPPED: qemu-img and qemu-io are not installed");
            return None;
        }
        Some(Self(TempDir::with_prefix("qcow2-test-").unwrap()))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// Runs `qemu-img` in the folder; it has to succeed.
    pub fn img<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) {
        self.run("qemu-img", arguments).unwrap();
    }

    /// Runs a command of `qemu-io` after the other on the qcow2 image `name`.
    pub fn io(&self, name: &str, commands: &[String]) {
        let mut arguments = vec!["-f", "qcow2"];
        arguments.extend(commands.iter().flat_map(|command| ["-c", command]));
        arguments.push(name);
        self.run("qemu-io", arguments).unwrap();
    }

    /// The disk that the image `name` holds, as `qemu-img` sees it, or its complaint.
    pub fn disk_of(&self, name: &str) -> Result<Vec<u8>, String> {
        self.run("qemu-img", ["convert", "-f", "qcow2", "-O", "raw", name, "oracle.raw"])?;
        Ok(self.read("oracle.raw"))
    }

    fn run<S: AsRef<OsStr>>(
        &self,
        tool: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<(), String> {
        let arguments: Vec<_> = arguments.into_iter().map(|a| a.as_ref().to_owned()).collect();
        let run = Command::new(tool).args(&arguments).current_dir(self.0.path()).output().unwrap();
        if run.status.success() {
            return Ok(());
        }
        let complaint = String::from_utf8_lossy(&run.stderr);
        Err(format!("{tool} {arguments:?}: {complaint}"))
    }
}
