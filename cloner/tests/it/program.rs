//! The program in its container: environment, exit code, termination message.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use testkit::{Fill, Finished, Running, SparseDisk, require_tool, skip, without_landlock};

use crate::receiver::{Receiver, Script};

const LIMIT: Duration = Duration::from_secs(60);

/// A container in so far as it has a termination log of its own.
const SCRIPT: &str = r#"
cd "$POD"
mkdir dev
touch dev/null dev/urandom dev/termination-log
mount --bind /dev/null dev/null
mount --bind /dev/urandom dev/urandom
if [ -n "$WORDS" ]; then mount --bind "$POD/words" dev/termination-log; else mount -t tmpfs -o ro none dev; fi
mount --rbind dev /dev
exec env -u POD -u PROGRAM -u WORDS -u PATH "$PROGRAM" -v=3 -alsologtostderr
"#;

struct Pod {
    directory: TempDir,
    variables: BTreeMap<&'static str, String>,
}

impl Pod {
    /// `None` where there is no way to make one.
    fn new() -> Option<Self> {
        require_tool("unshare")?;
        let directory = tempfile::tempdir().unwrap();
        if std::os::unix::fs::MetadataExt::uid(&directory.path().metadata().unwrap()) != 0 {
            skip("a container needs root");
            return None;
        }
        std::fs::write(directory.path().join("words"), "").unwrap();
        std::fs::create_dir(directory.path().join("source")).unwrap();
        let source = directory.path().join("source").display().to_string();
        let variables = BTreeMap::from([
            ("VOLUME_MODE", "filesystem".to_owned()),
            ("MOUNT_POINT", source),
            ("PREALLOCATION", "false".to_owned()),
            ("OWNER_UID", "1-2-3".to_owned()),
        ]);
        Some(Self { directory, variables })
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.variables.insert(name, value.to_owned());
        self
    }

    fn to(self, receiver: &Receiver) -> Self {
        self.with("UPLOAD_URL", &receiver.url)
            .with("CLIENT_CERT", &receiver.certificate)
            .with("CLIENT_KEY", &receiver.key)
            .with("SERVER_CA_CERT", &receiver.authority)
    }

    fn disk(&self) -> SparseDisk {
        let disk = SparseDisk::new(3 << 20).with(1 << 20, 100_000, Fill::Text(1));
        disk.write_to(&self.directory.path().join("source/disk.img"));
        disk
    }

    fn run(&self, words: bool) -> (Finished, String) {
        self.run_on(words, |_| ())
    }

    /// On a kernel that `prepare` makes.
    fn run_on(&self, words: bool, prepare: fn(&mut Command)) -> (Finished, String) {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "bash", "-euo", "pipefail", "-c", SCRIPT])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("POD", self.directory.path())
            .env("WORDS", if words { "yes" } else { "" })
            .env("PROGRAM", env!("CARGO_BIN_EXE_cdi-cloner"))
            .envs(&self.variables);
        prepare(&mut command);
        let finished = Running::start(&mut command).wait(LIMIT);
        let message = std::fs::read_to_string(self.directory.path().join("words")).unwrap();
        (finished, message)
    }
}

#[test]
fn complete_clone_writes_its_termination_message() {
    for (preallocation, message) in
        [("false", "Clone Complete"), ("true", "Clone Complete, Preallocation applied")]
    {
        let receiver = Receiver::new(Script::default());
        let Some(pod) = Pod::new() else { return };
        let pod = pod.to(&receiver).with("PREALLOCATION", preallocation);
        let disk = pod.disk();
        let (finished, words) = pod.run(true);
        finished.expect_success();
        assert_eq!(words, message);
        assert!(receiver.received().entries[0].1 == disk.bytes());
    }
}

#[test]
fn clone_within_one_pod_needs_no_server() {
    let Some(pod) = Pod::new() else { return };
    let disk = pod.disk();
    let target = pod.directory.path().join("target");
    std::fs::create_dir(&target).unwrap();
    let pod = pod
        .with("TARGET_VOLUME_MODE", "filesystem")
        .with("TARGET_MOUNT_POINT", &target.display().to_string());
    let (finished, words) = pod.run(true);
    finished.expect_success();
    assert_eq!(words, "Clone Complete");
    assert!(std::fs::read(target.join("disk.img")).unwrap() == disk.bytes());
}

#[test]
fn each_failure_has_its_exit_code_and_message() {
    let receiver = Receiver::new(Script { answers: vec![400; 9], ..Script::default() });
    let make = || Some(Pod::new()?.to(&receiver));
    let Some(pod) = make() else { return };
    let check = |pod: &Pod, code: i32, message: &str| {
        let (finished, words) = pod.run(true);
        assert_eq!(finished.status.code(), Some(code), "{}", finished.stderr);
        assert_eq!(words, message);
        assert!(!finished.stderr.contains(&receiver.key));
    };
    pod.disk();
    check(&pod, 255, "Unexpected status code 400: so.");
    for (name, code, message) in [
        ("VOLUME_MODE", 1, "VOLUME_MODE missing"),
        ("MOUNT_POINT", 1, "MOUNT_POINT missing"),
        ("PREALLOCATION", 255, "PREALLOCATION missing"),
        ("CLIENT_KEY", 255, "CLIENT_KEY missing"),
    ] {
        let Some(mut pod) = make() else { return };
        pod.variables.remove(name);
        check(&pod, code, message);
    }
}

#[test]
fn unwritable_termination_message_is_a_failure() {
    let receiver = Receiver::new(Script::default());
    let Some(pod) = Pod::new() else { return };
    let pod = pod.to(&receiver);
    pod.disk();
    let (finished, _) = pod.run(false);
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
}

#[test]
fn required_sandbox_is_entered_or_nothing_is_cloned() {
    let receiver = Receiver::new(Script::default());
    let Some(pod) = Pod::new() else { return };
    let pod = pod.to(&receiver).with("REQUIRE_SANDBOX", "true");
    pod.disk();
    let (finished, message) = pod.run_on(true, without_landlock);
    assert_eq!(finished.status.code(), Some(255), "{}", finished.stderr);
    assert!(
        message.starts_with("cannot enter the sandbox: the kernel does not enforce files"),
        "{message}"
    );
    assert!(receiver.received().entries.is_empty());
}

/// Landlock lets the clone connect to the port of its server, so one that is allowed to connect has succeeded with it.
#[test]
fn sandboxed_clone_connects_only_to_its_servers_port() {
    let receiver = Receiver::new(Script::default());
    let Some(pod) = Pod::new() else { return };
    let pod = pod.to(&receiver);
    pod.disk();
    let (finished, _) = pod.run(true);
    let message = finished.expect_success().stderr;
    if message.contains("TCP connections NOT confined") {
        return skip("this kernel's Landlock does not restrict TCP");
    }
    let expected = "sandbox: files confined, system calls confined, TCP listening confined, TCP connections confined";
    assert!(message.contains(expected), "{message}");
}
