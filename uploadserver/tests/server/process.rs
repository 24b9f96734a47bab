//! The program: environment, sandbox, exit code, termination message.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use auth::Identity;
use tempfile::TempDir;
use testkit::{
    Connection, Finished, MIB, RawClient, Running, pattern, post_head, skip, without_landlock,
};

use crate::server::{CLIENT, CLONE_SOURCE, HOUR, authority, now};

const LIMIT: Duration = Duration::from_secs(60);
const PATH: &str = "/v1beta1/upload";
/// Termination message of a complete upload.
const COMPLETE: &str = r#"{"preallocationApplied":false,"message":"Upload Complete"}"#;

/// The termination message has a fixed path in `/dev`, which the tests mount.
const SCRIPT: &str = r#"
mkdir -p "$FOLDER/dev"
mount -t tmpfs none "$FOLDER/dev"
for device in null urandom; do touch "$FOLDER/dev/$device"; mount --bind "/dev/$device" "$FOLDER/dev/$device"; done
touch "$FOLDER/dev/termination-log"
mount --bind "$FOLDER/words" "$FOLDER/dev/termination-log"
mount --rbind "$FOLDER/dev" /dev
exec "$PROGRAM" -v=3 -tomorrow
"#;

/// A container with the program in it.
struct Container {
    folder: TempDir,
    port: u16,
    trusted: String,
    client: Identity,
    variables: Vec<(String, String)>,
    running: Running,
}

impl Container {
    fn start(variables: &[(&str, &str)]) -> Option<Self> {
        Self::start_on(variables, |_| ())
    }

    /// On a kernel that `prepare` makes.
    fn start_on(variables: &[(&str, &str)], prepare: fn(&mut Command)) -> Option<Self> {
        let may_mount = Command::new("unshare")
            .args(["--mount", "true"])
            .stdin(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if !may_mount {
            skip("mounting needs root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let ((servers, trusted), (clients, client_authority)) = (authority(), authority());
        let server = servers.server(&["localhost".to_owned()], HOUR, now()).unwrap();
        let name = variables.iter().find(|(name, _)| *name == "CLIENT_NAME");
        let name = name.map_or(CLIENT, |(_, name)| name);
        let client = clients.client(name, HOUR, now()).unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("tls.crt", &server.certificate);
        write("tls.key", &server.key);
        write("ca.crt", &client_authority);
        for name in ["data", "journal"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let variables: Vec<_> = variables.iter().map(owned).collect();
        let (port, running) = Self::run(folder.path(), &variables, prepare);
        Some(Self { folder, port, trusted, client, variables, running })
    }

    /// Kills the program, as a lack of memory would, and starts it as the kubelet does then.
    fn killed_and_started(self) -> Self {
        let Self { folder, trusted, client, variables, running, .. } = self;
        let killed = running.kill();
        assert_eq!(killed.status.signal(), Some(9), "it has ended by itself: {}", killed.stderr);
        let (port, running) = Self::run(folder.path(), &variables, |_| ());
        Self { folder, port, trusted, client, variables, running }
    }

    fn run(
        folder: &Path,
        variables: &[(String, String)],
        prepare: fn(&mut Command),
    ) -> (u16, Running) {
        std::fs::write(folder.join("words"), "").unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = |name: &str| folder.join(name);
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "bash", "-euc", SCRIPT])
            .stdin(Stdio::null())
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("FOLDER", folder)
            .env("PROGRAM", Path::new(env!("CARGO_BIN_EXE_cdi-uploadserver")))
            .env("LISTEN_ADDRESS", "127.0.0.1")
            .env("LISTEN_PORT", port.to_string())
            .env("TLS_CERT_FILE", at("tls.crt"))
            .env("TLS_KEY_FILE", at("tls.key"))
            .env("CLIENT_CERT_FILE", at("ca.crt"))
            .env("DESTINATION", at("data/disk.img"))
            .env("JOURNAL", at("journal"))
            .envs(variables.iter().map(|(name, value)| (name, value)));
        prepare(&mut command);
        (port, Running::start(&mut command))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A client that has its response and not yet sent its body: the program, at its end, waits some seconds for the body.
    fn unfinished_request(&self) -> Connection {
        let mut connection = self.client().connect();
        connection.send(post_head("/v1beta1/unknown", "", 1).as_bytes());
        assert_eq!(connection.response("POST").status, 404);
        connection
    }

    /// Once it is there.
    fn client(&self) -> RawClient {
        let address = ([127, 0, 0, 1], self.port).into();
        while std::net::TcpStream::connect(address).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let Identity { certificate, key } = &self.client;
        RawClient::new(address, &self.trusted, Some((certificate, key)))
    }

    /// Exit status and termination message.
    fn end(self) -> (Finished, String) {
        self.end_before(|| ())
    }

    /// The same, after a look at what it left.
    fn end_before(self, look: impl FnOnce()) -> (Finished, String) {
        let finished = self.running.wait(LIMIT);
        look();
        let mut words = String::new();
        let file = std::fs::File::open(self.folder.path().join("words"));
        file.unwrap().read_to_string(&mut words).unwrap();
        // For a disk in a file, the message has its size.
        if let Ok(disk) = std::fs::metadata(self.folder.path().join("data/disk.img"))
            && finished.status.success()
        {
            let size = format!(r#","virtualSize":{}}}"#, disk.len());
            assert!(words.ends_with(&size), "{words}");
            words = words.replace(&size, "}");
        }
        (finished, words)
    }
}

#[test]
fn complete_upload_exits_with_its_termination_message() {
    let Some(container) = Container::start(&[("UPLOAD_IMAGE_SIZE", "64Mi")]) else { return };
    let disk = pattern(48 * MIB);
    assert_eq!(container.client().post(PATH, "", &disk).status, 200);
    assert!(std::fs::read(container.at("data/disk.img")).unwrap()[..disk.len()] == disk);
    let (finished, words) = container.end();
    assert_eq!(finished.status.code(), Some(0), "{}", finished.stderr);
    assert_eq!(words, COMPLETE);
    assert!(finished.peak_rss < 128 * MIB, "{} bytes of memory", finished.peak_rss);
}

#[test]
fn process_killed_after_its_response_has_completed_the_upload() {
    let clone = "x-cdi-content-type: blockdevice-clone\r\n";
    let disk = pattern(2 * MIB);
    let mut frames = snap::write::FrameEncoder::new(Vec::new());
    frames.write_all(&disk).unwrap();
    let frames = frames.into_inner().unwrap();
    let cloned = r#"{"preallocationApplied":false,"message":"Clone Complete"}"#;
    for (client, headers, body, words) in
        [(CLIENT, "", &disk, COMPLETE), (CLONE_SOURCE, clone, &frames, cloned)]
    {
        let variables = [("OWNER_UID", "uid-1"), ("CLIENT_NAME", client)];
        let Some(container) = Container::start(&variables) else { return };
        let unfinished = container.unfinished_request();
        assert_eq!(container.client().post(PATH, headers, body).status, 200);
        let after = container.killed_and_started();
        drop(unfinished);
        let path = after.at("data/disk.img");
        let (finished, message) =
            after.end_before(|| assert!(std::fs::read(path).unwrap() == disk));
        assert_eq!(finished.status.code(), Some(0), "{}", finished.stderr);
        assert_eq!(message, words);
        assert!(finished.stderr.contains("an earlier process has completed the volume"));
    }
}

#[test]
fn process_killed_before_its_response_has_completed_nothing() {
    let Some(container) = Container::start(&[("OWNER_UID", "uid-1")]) else { return };
    let disk = pattern(2 * MIB);
    let mut slow = container.client().connect();
    slow.send(post_head(PATH, "", disk.len()).as_bytes());
    slow.send(&disk[..disk.len() - 1]);
    while container.client().post("/v1beta1/upload-form", "", b"").status != 503 {}
    let container = container.killed_and_started();
    assert_eq!(container.client().post(PATH, "", &disk).status, 200);
    let (finished, words) = container.end();
    assert_eq!((finished.status.code(), &*words), (Some(0), COMPLETE), "{}", finished.stderr);
}

#[test]
fn mark_of_another_upload_is_ignored() {
    let Some(container) = Container::start(&[("OWNER_UID", "uid-1")]) else { return };
    let mark = br#"{"format":1,"cloned":true,"preallocated":true}"#;
    std::fs::write(container.at("journal/complete-uid-2"), mark).unwrap();
    let container = container.killed_and_started();
    let disk = pattern(MIB);
    assert_eq!(container.client().post(PATH, "", &disk).status, 200);
    let (finished, words) = container.end();
    assert_eq!((finished.status.code(), &*words), (Some(0), COMPLETE), "{}", finished.stderr);
}

#[test]
fn unwritable_mark_is_logged_and_fails_no_upload() {
    let Some(container) = Container::start(&[("OWNER_UID", "uid-1")]) else { return };
    std::fs::create_dir(container.at("journal/complete-uid-1")).unwrap();
    assert_eq!(container.client().post(PATH, "", &pattern(MIB)).status, 200);
    let (finished, words) = container.end();
    assert_eq!((finished.status.code(), &*words), (Some(0), COMPLETE), "{}", finished.stderr);
    assert!(finished.stderr.contains("cannot write the completion mark"), "{}", finished.stderr);
}

#[test]
fn sigterm_is_not_a_success() {
    let Some(container) = Container::start(&[]) else { return };
    let client = container.client();
    let mut slow = client.connect();
    slow.send(post_head(PATH, "", 1000).as_bytes());
    slow.send(b"begun");
    while client.post("/v1beta1/upload-form", "", b"").status != 503 {}
    container.running.signal(15);
    let (finished, words) = container.end();
    assert_eq!((finished.status.code(), words.as_str()), (Some(143), ""), "{}", finished.stderr);
}

#[test]
fn startup_error_has_its_documented_exit_code() {
    for (variable, value, code, words) in [
        ("DEADLINE", "tomorrow", 255, ""),
        ("LISTEN_PORT", "high", 1, ""),
        ("TLS_KEY_FILE", "/nonexistent", 1, "invalid TLS config"),
    ] {
        let Some(container) = Container::start(&[(variable, value)]) else { return };
        let (finished, message) = container.end();
        assert_eq!(finished.status.code(), Some(code), "{variable}: {}", finished.stderr);
        assert!(message.contains(words), "{variable}: {message}");
    }
    let passed = [("DEADLINE", "2020-01-01T00:00:00Z")];
    let Some(container) = Container::start(&passed) else { return };
    let (finished, message) = container.end();
    assert_eq!(finished.status.code(), Some(0), "{}", finished.stderr);
    assert_eq!(message, r#"{"deadlinePassed":true,"message":"Deadline Passed"}"#);
}

#[test]
fn required_sandbox_is_entered_or_the_process_exits() {
    let required = [("REQUIRE_SANDBOX", "true")];
    let Some(container) = Container::start_on(&required, without_landlock) else { return };
    let (finished, message) = container.end();
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
    let expected = "cannot enter the sandbox: the kernel does not enforce files, tcp_listen;";
    assert!(message.starts_with(expected), "{message}");

    // Where it is not required, what the kernel has is in force.
    let Some(container) = Container::start_on(&[], without_landlock) else { return };
    assert_eq!(container.client().post(PATH, "", &pattern(MIB)).status, 200);
    let (finished, message) = container.end();
    assert_eq!((finished.status.code(), &*message), (Some(0), COMPLETE), "{}", finished.stderr);
    let expected = "sandbox: files NOT confined, system calls confined, TCP listening NOT confined, \
                    TCP connections confined";
    assert!(finished.stderr.contains(expected), "{}", finished.stderr);
}

#[test]
fn metrics_show_the_enforced_sandbox() {
    let Some(container) = Container::start(&[]) else { return };
    let page = container.client().ask("GET", "/metrics", "").body;
    for name in ["files", "system_calls", "tcp_listen", "tcp_connect"] {
        let line = format!("kubevirt_cdi_sandbox{{restriction=\"{name}\"}} ");
        let held = page.lines().find_map(|one| one.strip_prefix(&line));
        match (name, held) {
            (_, Some("1")) => (),
            ("system_calls", _) => panic!("this kernel has seccomp: {page}"),
            (_, Some("0")) => skip(&format!("this kernel does not enforce {name}")),
            _ => panic!("{page}"),
        }
    }
}

/// Clients run these in the container by `kubectl exec`. The image links the program to both names.
#[test]
fn program_replaces_the_commands_that_clients_run_in_its_container() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["sh", "cat"] {
        let program = env!("CARGO_BIN_EXE_cdi-uploadserver");
        std::os::unix::fs::symlink(program, folder.path().join(name)).unwrap();
    }
    std::fs::write(folder.path().join("file"), "text").unwrap();
    let run = |name: &str, arguments: &[&str]| {
        let mut command = std::process::Command::new(folder.path().join(name));
        command.args(arguments).current_dir(folder.path()).output().unwrap()
    };
    let mut victim = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let killed = run("sh", &["-c", &format!("kill {}", victim.id())]);
    assert!(killed.status.success(), "{killed:?}");
    let ended = victim.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(15));
    assert_eq!(run("cat", &["file"]).stdout, b"text");
    assert_eq!(run("sh", &["-c", "cat file"]).stdout, b"text");
    assert_eq!(run("cat", &["absent"]).status.code(), Some(2));
    let refused = run("sh", &["-c", "rm file"]);
    assert_eq!(refused.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no shell"), "{refused:?}");
    assert!(folder.path().join("file").exists());
}
