//! Clones from pod to pod: our two programs, and each of them with upstream CDI's counterpart, over
//! TLS. What arrives is compared byte for byte.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use auth::CertificateAuthority;
use testkit::{
    Fill, LoopDevice, MIB, Running, SparseDisk, cdi_cloner, cdi_uploadserver, in_own_network,
    reference,
};
use tests::{LIMIT, Pod};

const HOUR: Duration = Duration::from_secs(3600);
const CLIENT: &str = "images/golden-vms/disk";
/// Not the port of metrics, which both pods use.
const PORT: &str = "8444";
const SOURCE: &str = "var/run/cdi/clone/source";
/// Some of those that are written into each upload pod; upstream CDI does not start without the first two.
const CIPHERS: &str = "ECDHE-ECDSA-AES128-GCM-SHA256,ECDHE-RSA-AES128-GCM-SHA256,\
                       ECDHE-ECDSA-AES256-GCM-SHA384,ECDHE-RSA-AES256-GCM-SHA384";
/// Of each side.
const PEAK_MAX: u64 = 128 * MIB;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Ours,
    Reference,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Device,
    Files,
}

const KINDS: [Kind; 2] = [Kind::Device, Kind::Files];

/// The programs on both sides, and the kinds of their volumes.
#[derive(Clone, Copy, Debug)]
struct CloneCase {
    cloner: Who,
    server: Who,
    from: Kind,
    to: Kind,
    preallocate: bool,
}

/// Peak memory of each side.
struct Ended {
    cloner: u64,
    server: u64,
}

enum Volume {
    Device(LoopDevice),
    Files,
}

impl CloneCase {
    fn between(cloner: Who, server: Who) -> impl Iterator<Item = Self> {
        let all = KINDS.into_iter().flat_map(|from| KINDS.into_iter().map(move |to| (from, to)));
        let plain =
            all.map(move |(from, to)| Self { cloner, server, from, to, preallocate: false });
        let (from, to) = (Kind::Files, Kind::Files);
        plain.chain([Self { cloner, server, from, to, preallocate: true }])
    }

    fn programs(self) -> Option<(PathBuf, PathBuf)> {
        let cloner = match self.cloner {
            Who::Ours => cdi_cloner().to_owned(),
            Who::Reference => reference("cdi-cloner")?,
        };
        let server = match self.server {
            Who::Ours => cdi_uploadserver().to_owned(),
            Who::Reference => reference("cdi-uploadserver")?,
        };
        Some((cloner, server))
    }

    /// Clones what `fill` puts into the directory of the source, or `disk` on a device, and hands the target's pod to `check`.
    fn carry_out(
        self,
        disk: &SparseDisk,
        fill: impl FnOnce(&Path),
        check: impl FnOnce(&Pod, &Volume),
    ) -> Option<Ended> {
        let (cloner, server) = self.programs()?;
        let volume = |kind| match kind {
            Kind::Device => LoopDevice::filled_with(0xa5, disk.len()).map(Volume::Device),
            Kind::Files => Some(Volume::Files),
        };
        let (source, target) = (volume(self.from)?, volume(self.to)?);
        let trust = Trust::new();
        let server = trust.server(server, self, &target);
        let cloner = trust.cloner(cloner, self, &source, disk.len());
        match &source {
            Volume::Device(device) => device.write_at(0, &disk.bytes()),
            Volume::Files => {
                let folder = cloner.path(SOURCE);
                disk.write_to(&folder.join("disk.img"));
                fs::set_permissions(folder.join("disk.img"), PermissionsExt::from_mode(0o660))
                    .unwrap();
                fill(&folder);
                give_away(&folder);
            }
        }
        let running = server.start();
        let deadline = Instant::now() + LIMIT;
        while TcpStream::connect(format!("127.0.0.1:{PORT}")).is_err() {
            if Instant::now() > deadline {
                panic!("{self:?}: no process listens: {}", running.kill().stderr);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let (sent, peak) = with_peak_memory(&running, || cloner.run());
        assert!(sent.success(), "{self:?}: {}\n{}", sent.stderr, running.kill().stderr);
        let received = running.wait(LIMIT);
        let peak = peak.max(received.peak_rss);
        assert!(received.success(), "{self:?}: {}", received.stderr);
        let words = if self.preallocate {
            "Clone Complete, Preallocation applied"
        } else {
            "Clone Complete"
        };
        assert_eq!(cloner.termination_message(), words, "{self:?}");
        // By contract, whether or not preallocation was requested.
        let applied = (self.from, self.to) == (Kind::Files, Kind::Files);
        let words = format!(r#"{{"preallocationApplied":{applied},"message":"Clone Complete"}}"#);
        assert_eq!(server.termination_message(), words, "{self:?}");
        check(&server, &target);
        Some(Ended { cloner: sent.peak_rss, server: peak })
    }
}

/// Runs a function and samples the memory of a program meanwhile.
fn with_peak_memory<T>(program: &Running, work: impl FnOnce() -> T) -> (T, u64) {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut peak = 0;
            while !is_done.load(Ordering::Relaxed) {
                peak = program.peak_rss().max(peak);
                std::thread::sleep(Duration::from_millis(5));
            }
            peak
        });
        let done = catch_unwind(AssertUnwindSafe(work));
        is_done.store(true, Ordering::Relaxed);
        let peak = watcher.join().unwrap();
        (done.unwrap_or_else(|panic| resume_unwind(panic)), peak)
    })
}

/// Everything belongs to the one user of both pods.
fn give_away(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        std::os::unix::fs::lchown(&path, Some(107), Some(107)).unwrap();
        if path.is_dir() && !path.is_symlink() {
            give_away(&path);
        }
    }
}

/// The CAs of both sides.
struct Trust {
    servers: CertificateAuthority,
    server_authority: String,
    clients: CertificateAuthority,
    client_authority: String,
}

impl Trust {
    fn new() -> Self {
        let make = |name: &str| {
            let kept = CertificateAuthority::create(name, HOUR, SystemTime::now()).unwrap();
            (CertificateAuthority::from_identity(&kept).unwrap(), kept.certificate)
        };
        let ((servers, server_authority), (clients, client_authority)) =
            (make("servers"), make("clients"));
        Self { servers, server_authority, clients, client_authority }
    }

    fn server(&self, program: PathBuf, way: CloneCase, volume: &Volume) -> Pod {
        let names = ["localhost".to_owned()];
        let identity = self.servers.server(&names, HOUR, SystemTime::now()).unwrap();
        let pod = Pod::for_program(&program)
            .called("cdi-uploadserver")
            .programs_in("/usr/sbin:/usr/bin:/sbin:/bin")
            .file("identity/tls.crt", identity.certificate)
            .file("identity/tls.key", identity.key)
            .file("identity/ca.crt", &self.client_authority)
            .folder("tmp")
            .variable("HOME", "/tmp")
            .variable("TLS_CERT_FILE", "/identity/tls.crt")
            .variable("TLS_KEY_FILE", "/identity/tls.key")
            .variable("CLIENT_CERT_FILE", "/identity/ca.crt")
            .variable("CLIENT_NAME", CLIENT)
            .variable("LISTEN_PORT", PORT)
            .variable("TLS_MIN_VERSION", "VersionTLS12")
            .variable("TLS_CIPHERS", CIPHERS)
            .variable("UPLOAD_IMAGE_SIZE", "1Gi")
            .variable("FILESYSTEM_OVERHEAD", "0.06")
            .variable("PREALLOCATION", if way.preallocate { "true" } else { "false" });
        match volume {
            Volume::Device(device) => {
                pod.device(device).variable("DESTINATION", "/dev/cdi-block-volume")
            }
            Volume::Files => pod.folder("data").variable("DESTINATION", "/data/disk.img"),
        }
    }

    fn cloner(&self, program: PathBuf, way: CloneCase, volume: &Volume, size: u64) -> Pod {
        let identity = self.clients.client(CLIENT, HOUR, SystemTime::now()).unwrap();
        let (mode, content, place) = match way.from {
            Kind::Device => ("block", "blockdevice-clone", "/dev/cdi-block-volume"),
            Kind::Files => ("filesystem", "filesystem-clone", "/var/run/cdi/clone/source"),
        };
        // The arguments that the script of upstream CDI's image derives from the environment, which ours reads itself.
        let size = size.to_string();
        let words = ["-content-type", content, "-upload-bytes", &size, "-mount", place];
        let words = [&["-v=3", "-alsologtostderr"], &words[..]].concat();
        let pod = Pod::for_program(&program)
            .called("cdi-cloner")
            .programs_in("/usr/sbin:/usr/bin:/sbin:/bin")
            .arguments(&words)
            .folder("tmp")
            .variable("HOME", "/tmp")
            .variable("VOLUME_MODE", mode)
            .variable("MOUNT_POINT", place)
            .variable("PREALLOCATION", if way.preallocate { "true" } else { "false" })
            .variable("OWNER_UID", "11111111-2222-3333-4444-555555555555")
            .variable("CLIENT_CERT", &identity.certificate)
            .variable("CLIENT_KEY", &identity.key)
            .variable("SERVER_CA_CERT", &self.server_authority)
            .variable("UPLOAD_URL", &format!("https://localhost:{PORT}/v1beta1/upload"));
        match volume {
            Volume::Device(device) => pod.device(device),
            Volume::Files => pod.folder(SOURCE),
        }
    }
}

fn disk() -> SparseDisk {
    SparseDisk::new(24 * MIB)
        .with(0, 70_000, Fill::Text(1))
        .with(5 * MIB, 2 * MIB, Fill::Random(2))
        .with(9 * MIB + 512, 5000, Fill::Byte(9))
        .with(11 * MIB, 3 * MIB, Fill::Pattern)
        .with(24 * MIB - 512, 512, Fill::Text(3))
}

/// The disk is complete, and sparse.
fn expect_disk(way: CloneCase, pod: &Pod, volume: &Volume) {
    let disk = disk();
    match volume {
        Volume::Device(device) => assert!(device.bytes() == disk.bytes(), "{way:?}"),
        Volume::Files => {
            let path = pod.path("data/disk.img");
            assert!(fs::read(&path).unwrap() == disk.bytes(), "{way:?}");
            let allocated = fs::metadata(&path).unwrap().blocks() * 512;
            assert_eq!(
                allocated >= disk.len(),
                way.preallocate,
                "{way:?}: {allocated} bytes allocated"
            );
            assert_eq!(pod.names_in("data"), ["disk.img"], "{way:?}");
        }
    }
}

fn clone_disks(cloner: Who, server: Who) {
    in_own_network(|| {
        for way in CloneCase::between(cloner, server) {
            way.carry_out(&disk(), |_| (), |pod, volume| expect_disk(way, pod, volume));
        }
    });
}

#[test]
fn cloner_sends_to_our_upload_server() {
    clone_disks(Who::Ours, Who::Ours);
}

#[test]
fn cloner_sends_to_upstream_cdis_upload_server() {
    clone_disks(Who::Ours, Who::Reference);
}

#[test]
fn upload_server_receives_from_upstream_cdis_cloner() {
    clone_disks(Who::Reference, Who::Ours);
}

/// Files of all kinds.
fn archive(folder: &Path) {
    let at = |name: &str| folder.join(name);
    let long = "n".repeat(200);
    fs::create_dir_all(at("var/lib/empty")).unwrap();
    fs::write(at("var/lib/file"), vec![7; 100_000]).unwrap();
    fs::write(at("nothing"), b"").unwrap();
    fs::write(at(&long), b"a long name").unwrap();
    fs::set_permissions(at("var/lib/file"), PermissionsExt::from_mode(0o440)).unwrap();
    fs::hard_link(at("var/lib/file"), at("var/twin")).unwrap();
    symlink("lib/file", at("var/link")).unwrap();
    symlink(&long, at("var/lib/long")).unwrap();
    // More holes than fit into a header.
    let holes = (0..60).fold(SparseDisk::new(8 * MIB), |disk, number| {
        disk.with(number * 128 * 1024, 4096, Fill::Pattern)
    });
    holes.write_to(&at("var/holes"));
}

fn expect_archive(way: CloneCase, pod: &Pod) {
    let source = tempfile::tempdir().unwrap();
    archive(source.path());
    let (source, target) = (source.path(), pod.path("data"));
    let long = "n".repeat(200);
    for name in ["var/lib/file", "nothing", &long, "var/twin", "var/holes"] {
        let (one, other) = (source.join(name), target.join(name));
        assert!(fs::read(&one).unwrap() == fs::read(&other).unwrap(), "{way:?}: {name}");
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&one), mode(&other), "{way:?}: {name}");
    }
    assert!(target.join("var/lib/empty").is_dir());
    assert_eq!(fs::read_link(target.join("var/link")).unwrap(), Path::new("lib/file"));
    assert_eq!(fs::read_link(target.join("var/lib/long")).unwrap(), Path::new(&long));
    let number = |name: &str| target.join(name).metadata().unwrap().ino();
    assert_eq!(number("var/twin"), number("var/lib/file"), "{way:?}");
    let allocated = target.join("var/holes").metadata().unwrap().blocks() * 512;
    assert!(allocated < 4 * MIB, "{way:?}: {allocated} bytes allocated");
    assert_eq!(pod.names_in("data"), ["disk.img", &long, "nothing", "var"], "{way:?}");
}

#[test]
fn files_are_cloned_unchanged_between_all_pairs() {
    in_own_network(|| {
        for (cloner, server) in
            [(Who::Ours, Who::Ours), (Who::Ours, Who::Reference), (Who::Reference, Who::Ours)]
        {
            let (from, to) = (Kind::Files, Kind::Files);
            let way = CloneCase { cloner, server, from, to, preallocate: false };
            way.carry_out(&disk(), archive, |pod, _| expect_archive(way, pod));
        }
    });
}

#[test]
fn clone_memory_does_not_grow_with_the_disk() {
    let disk = SparseDisk::new(256 * MIB).with(0, 100 * MIB, Fill::Random(4)).with(
        140 * MIB,
        60 * MIB,
        Fill::Pattern,
    );
    let expected = disk.bytes();
    in_own_network(|| {
        for way in CloneCase::between(Who::Ours, Who::Ours).filter(|way| !way.preallocate) {
            let ended = way.carry_out(
                &disk,
                |_| (),
                |pod, volume| match volume {
                    Volume::Device(device) => assert!(device.bytes() == expected, "{way:?}"),
                    Volume::Files => {
                        assert!(
                            fs::read(pod.path("data/disk.img")).unwrap() == expected,
                            "{way:?}"
                        );
                    }
                },
            );
            let Some(Ended { cloner, server }) = ended else { return };
            for (side, peak) in [("cloner", cloner), ("server", server)] {
                eprintln!("{way:?}: the {side} had {} MiB", peak / MIB);
                assert!((1..=PEAK_MAX).contains(&peak), "{way:?}: the {side} had {peak} bytes");
            }
        }
    });
}
