//! Builds and runs an importer container: mounts, environment, termination message.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use testkit::{FileSystem, Finished, LoopDevice, Running, cdi_importer};

use crate::LIMIT;

/// Precedes the size of a disk in the termination message.
const SIZE_KEY: &str = ",\"virtualSize\":";

/// As every controller sets them on every importer's container, with nothing in them but what a plain import has.
const ENVIRONMENT: [(&str, &str); 24] = [
    ("IMPORTER_SOURCE", "http"),
    ("IMPORTER_ENDPOINT", ""),
    ("IMPORTER_CONTENTTYPE", "kubevirt"),
    ("IMPORTER_IMAGE_SIZE", "1Gi"),
    ("OWNER_UID", "11111111-2222-3333-4444-555555555555"),
    ("FILESYSTEM_OVERHEAD", "0.06"),
    ("INSECURE_TLS", "false"),
    ("IMPORTER_DISK_ID", ""),
    ("IMPORTER_UUID", ""),
    ("IMPORTER_PULL_METHOD", ""),
    ("IMPORTER_READY_FILE", ""),
    ("IMPORTER_DONE_FILE", ""),
    ("IMPORTER_BACKING_FILE", ""),
    ("IMPORTER_THUMBPRINT", ""),
    ("http_proxy", ""),
    ("https_proxy", ""),
    ("no_proxy", ""),
    ("IMPORTER_CURRENT_CHECKPOINT", ""),
    ("IMPORTER_PREVIOUS_CHECKPOINT", ""),
    ("IMPORTER_FINAL_CHECKPOINT", ""),
    ("PREALLOCATION", "false"),
    ("CACHE_MODE", ""),
    ("IMPORTER_REGISTRY_IMAGE_ARCHITECTURE", ""),
    ("IMPORTER_CHECKSUM", ""),
];

/// What is bound into the container where the pod has it.
const MOUNTS: [&str; 15] = [
    "data",
    "scratch",
    "journal",
    "certs",
    "proxycerts",
    "extraheaders",
    "shared",
    "google",
    "tmp",       // where a pod has one of its own
    "opt",       // vddk: libraries
    "vddk-args", // vddk: settings
    "disk",      // the image of a container disk
    "identity",  // a service account's
    "mnt",       // the volume of a populator
    "var/run/cdi/clone/source",
];

/// A root that is read-only and thrown away, over the system's programs, with the pod's volumes in it; then the restricted
/// profile: user 107, no capabilities, no way to gain any.
const SCRIPT: &str = r#"
mount -t tmpfs none "$POD/root"
cd "$POD/root"
mkdir usr etc proc sys dev tmp
for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$folder"; done
for folder in usr etc proc sys; do mount --rbind "/$folder" "$folder"; done
if [ -n "$FIPS" ]; then mount -t tmpfs none proc/sys; mkdir proc/sys/crypto; echo 1 > proc/sys/crypto/fips_enabled; fi
mknod -m 666 dev/null c 1 3; mknod -m 666 dev/urandom c 1 9
touch dev/termination-log "$NAME"
mount --bind "$POD/termination-log" dev/termination-log
mount --bind "$PROGRAM" "$NAME"
for folder in $MOUNTS; do
    if [ -d "$POD/$folder" ]; then mkdir -p "$folder"; mount --bind "$POD/$folder" "$folder"; fi
done
if [ -n "$DEVICE" ]; then
    mknod -m 660 "dev/$NODE" b "0x$(stat -c %t "$DEVICE")" "0x$(stat -c %T "$DEVICE")"
    chown 107:107 "dev/$NODE"
fi
mount -o remount,ro "$POD/root"
exec chroot "$POD/root" /usr/bin/env -u POD -u PROGRAM -u NAME -u DEVICE -u NODE -u MOUNTS -u PROGRAMS -u FIPS PATH="$PROGRAMS" \
    /usr/bin/setpriv --reuid 107 --regid 107 --groups 107 --bounding-set=-all --inh-caps=-all --no-new-privs \
    "/$NAME" "$@"
"#;

/// A pod with one container.
#[derive(Debug)]
pub struct Pod {
    folder: TempDir,
    device: Option<PathBuf>,
    /// The name of the device in `/dev`.
    node: &'static str,
    program: PathBuf,
    /// The name of the program there.
    name: &'static str,
    /// The value of `PATH`.
    programs: &'static str,
    environment: BTreeMap<String, String>,
    arguments: Vec<String>,
    /// Disables features of the kernel.
    prepare: fn(&mut Command),
    is_in_fips_mode: bool,
}

impl Pod {
    /// With an empty volume in which there is a file system.
    pub fn new() -> Self {
        let pod = Self::without_volume();
        pod.mount("data");
        pod
    }

    /// With a volume that is this device.
    pub fn on(device: &LoopDevice) -> Self {
        Self::without_volume().device(device)
    }

    /// Without a volume, which no controller creates.
    pub fn without_volume() -> Self {
        let folder = TempDir::with_prefix("cdi-pod-").expect("cannot make a folder");
        let words = folder.path().join("termination-log");
        fs::write(&words, "").expect("cannot make a termination log");
        let writable = Permissions::from_mode(0o666);
        fs::set_permissions(&words, writable).expect("cannot open the termination log to all");
        fs::create_dir(folder.path().join("root")).expect("cannot make a root");
        let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Self {
            folder,
            device: None,
            node: "cdi-block-volume",
            program: cdi_importer().to_owned(),
            name: "importer",
            programs: "/usr/bin:/bin",
            environment: ENVIRONMENT.into_iter().map(pair).collect(),
            arguments: ["-alsologtostderr", "-v=3"].map(String::from).into(),
            prepare: |_| (),
            is_in_fips_mode: false,
        }
    }

    /// The pod of the populator with this name: its volume has another path, and its environment variables are the keys of a
    /// Secret.
    pub fn of_populator(name: &'static str) -> Self {
        let pod = Self::without_volume();
        pod.mount("mnt");
        Self {
            environment: BTreeMap::new(),
            node: "block",
            arguments: Vec::new(),
            ..pod.called(name)
        }
    }

    /// A pod of another program, without arguments and environment variables.
    pub fn for_program(program: &Path) -> Self {
        Self {
            environment: BTreeMap::new(),
            arguments: Vec::new(),
            ..Self::without_volume().program(program)
        }
    }

    /// With a volume that is this device.
    #[must_use]
    pub fn device(self, device: &LoopDevice) -> Self {
        Self { device: Some(device.path().to_owned()), ..self }
    }

    /// With another program than the importer.
    #[must_use]
    pub fn program(self, program: &Path) -> Self {
        Self { program: program.to_owned(), ..self }
    }

    /// With the program under another name: the importer is another program by some of them.
    #[must_use]
    pub fn called(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// With programs in these directories only.
    #[must_use]
    pub fn programs_in(self, programs: &'static str) -> Self {
        Self { programs, ..self }
    }

    /// With an empty directory at this mount.
    #[must_use]
    pub fn folder(self, mount: &str) -> Self {
        self.mount(mount);
        self
    }

    /// With the same directory at this mount as another container of the pod.
    #[must_use]
    pub fn sharing(self, mount: &str, other: &Self) -> Self {
        let here = self.path(mount);
        std::os::unix::fs::symlink(other.path(mount), here).expect("cannot share a mount");
        self
    }

    /// With a file system of its own at this mount.
    #[must_use]
    pub fn mounting(self, mount: &str, filesystem: &FileSystem) -> Self {
        let root = filesystem.path();
        std::os::unix::fs::chown(root, Some(107), Some(107)).expect("cannot give a folder away");
        std::os::unix::fs::symlink(root, self.path(mount)).expect("cannot mount a file system");
        self
    }

    /// With this directory as the volume at `mount`. All users can write to it.
    #[must_use]
    pub fn mounting_directory(self, mount: &str, root: &Path) -> Self {
        std::os::unix::fs::symlink(root, self.path(mount)).expect("cannot mount a directory");
        self
    }

    /// Imports from this address.
    #[must_use]
    pub fn from_url(self, url: &str) -> Self {
        self.variable("IMPORTER_ENDPOINT", url)
    }

    /// With this variable changed.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    /// On a kernel without Landlock.
    #[must_use]
    pub fn without_landlock(self) -> Self {
        Self { prepare: testkit::without_landlock, ..self }
    }

    /// On a kernel that reports FIPS mode.
    #[must_use]
    pub fn in_fips_mode(self) -> Self {
        Self { is_in_fips_mode: true, ..self }
    }

    /// Started with other arguments.
    #[must_use]
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        self
    }

    /// With scratch space.
    #[must_use]
    pub fn scratch(self) -> Self {
        self.mount("scratch");
        self
    }

    /// With this file in one of its mounts, as `certs/ca.pem`.
    #[must_use]
    pub fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        let (mount, _) = name.split_once('/').expect("a file lies in a mount");
        self.mount(mount);
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a mount")).expect("cannot make folders");
        fs::write(&path, content).expect("cannot write a file of the pod");
        std::os::unix::fs::chown(&path, Some(107), Some(107)).expect("cannot give a file away");
        self
    }

    /// Where a path of the container is outside of it: `data/disk.img`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The names in a mount, sorted.
    pub fn names_in(&self, mount: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(mount)).expect("cannot list a mount");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("cannot list a mount").file_name().to_string_lossy().into())
            .collect();
        names.sort();
        names
    }

    /// The termination message, without the size of the disk, which has its own test.
    pub fn termination_message(&self) -> String {
        let words = self.raw_termination_message();
        match words.split_once(SIZE_KEY) {
            Some((before, after)) => {
                before.to_owned() + after.trim_start_matches(|c: char| c.is_ascii_digit())
            }
            None => words,
        }
    }

    /// The size of the disk in a file of the volume, as in the termination message.
    pub fn virtual_size(&self) -> Option<u64> {
        let words = self.raw_termination_message();
        let (_, after) = words.split_once(SIZE_KEY)?;
        after.trim_end_matches('}').parse().ok()
    }

    fn raw_termination_message(&self) -> String {
        fs::read_to_string(self.path("termination-log")).expect("cannot read the termination log")
    }

    /// Starts the container.
    pub fn start(&self) -> Running {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "bash", "-euo", "pipefail", "-c", SCRIPT, "pod"])
            .args(&self.arguments)
            .stdin(Stdio::null())
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("POD", self.folder.path())
            .env("PROGRAM", &self.program)
            .env("NAME", self.name)
            .env("PROGRAMS", self.programs)
            .env("MOUNTS", MOUNTS.join(" "))
            .env("NODE", self.node)
            .env("FIPS", if self.is_in_fips_mode { "yes" } else { "" })
            .env("DEVICE", self.device.as_deref().unwrap_or(Path::new("")))
            .envs(&self.environment);
        (self.prepare)(&mut command);
        Running::start(&mut command)
    }

    /// Runs the container to its end.
    ///
    /// # Panics
    /// When it hangs.
    pub fn run(&self) -> Finished {
        self.start().wait(LIMIT)
    }

    fn mount(&self, name: &str) {
        assert!(MOUNTS.contains(&name), "{name} is no mount of a pod");
        let path = self.path(name);
        if !path.is_dir() {
            fs::create_dir_all(&path).expect("cannot make a mount");
            fs::set_permissions(&path, Permissions::from_mode(0o2770))
                .expect("cannot open a mount");
            std::os::unix::fs::chown(&path, Some(107), Some(107))
                .expect("cannot give a mount away");
        }
    }
}

impl Default for Pod {
    fn default() -> Self {
        Self::new()
    }
}
