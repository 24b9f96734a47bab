//! Container images of this project: static programs and the few files that they need. The same commit gives the same bytes
//! on the same machine.

mod nbdkit;
mod programs;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};
use ociimage::Entry;

use crate::deps::AUTHORITIES;
use crate::shell;

/// How the programs are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Optimized, static: for use.
    Release,
    /// Not optimized, static: to try something.
    Dev,
    /// As the tests of the workspace have compiled them, which costs nothing more: dynamically linked, so the libraries of this
    /// machine go into the image too.
    Tests,
}

/// A container image.
struct Image {
    name: &'static str,
    package: &'static str,
    /// Installed in `/usr/bin`. The first one is the entry point, with `arguments`.
    programs: &'static [&'static str],
    /// Symbolic links: path in the image, target.
    links: &'static [(&'static str, &'static str)],
    arguments: &'static [&'static str],
    /// Pods may choose another user, and importer pods do.
    user: u32,
    /// Whether it holds nbdkit of this machine, with the plugin for VMware's library.
    has_nbdkit: bool,
    /// The Deployment that runs it. Without one it is the image of worker pods.
    deployment: Option<&'static str>,
}

/// The server lies apart, as pods copy it from the image.
const IMPORTER_PROGRAMS: &[&str] = &["cdi-importer", "cdi-containerimage-server"];
/// The importer is another program by each of its names. Pods copy the server with `sh -c "cp …"`, which the server itself
/// carries out. Clients run `sh -c "kill 1"` and `cat` in workers; in the programs of the installation, which have keys
/// mounted, they cannot.
const IMPORTER_LINKS: &[(&str, &str)] = &[
    ("bin/cat", "/usr/bin/cdi-containerimage-server"),
    ("bin/sh", "/usr/bin/cdi-containerimage-server"),
    ("usr/bin/cdi-image-size-detection", "/usr/bin/cdi-importer"),
    ("usr/bin/cdi-source-update-poller", "/usr/bin/cdi-importer"),
    ("usr/bin/openstack-populator", "/usr/bin/cdi-importer"),
    ("usr/bin/ovirt-populator", "/usr/bin/cdi-importer"),
];

const IMAGES: &[Image] = &[
    Image {
        name: "importer",
        package: "importer",
        programs: IMPORTER_PROGRAMS,
        links: IMPORTER_LINKS,
        arguments: &["-alsologtostderr"],
        user: 1001,
        has_nbdkit: false,
        deployment: None,
    },
    Image {
        name: IMPORTER_VDDK,
        package: "importer",
        programs: IMPORTER_PROGRAMS,
        links: IMPORTER_LINKS,
        arguments: &["-alsologtostderr"],
        user: 1001,
        has_nbdkit: true,
        deployment: None,
    },
    Image {
        name: "uploadserver",
        package: "uploadserver",
        programs: &["cdi-uploadserver"],
        links: &[("bin/cat", "/usr/bin/cdi-uploadserver"), ("bin/sh", "/usr/bin/cdi-uploadserver")],
        arguments: &["-alsologtostderr"],
        user: 1001,
        has_nbdkit: false,
        deployment: None,
    },
    Image {
        name: "cloner",
        package: "cloner",
        programs: &["cdi-cloner"],
        // Upstream's clients start a pod that only mounts a volume with `bash -c "echo …"`, which the program carries out.
        links: &[
            ("bin/bash", "/usr/bin/cdi-cloner"),
            ("bin/cat", "/usr/bin/cdi-cloner"),
            ("bin/sh", "/usr/bin/cdi-cloner"),
            ("usr/bin/cloner_startup.sh", "/usr/bin/cdi-cloner"),
        ],
        arguments: &["-alsologtostderr"],
        user: 1001,
        has_nbdkit: false,
        deployment: None,
    },
    Image {
        name: "apiserver",
        package: "apiserver",
        programs: &["cdi-apiserver"],
        links: &[],
        arguments: &[],
        user: 1001,
        has_nbdkit: false,
        deployment: Some("cdi-apiserver"),
    },
    Image {
        name: "operator",
        package: "operator",
        programs: &["cdi-operator"],
        links: &[],
        arguments: &[],
        user: 1001,
        has_nbdkit: false,
        deployment: Some("cdi-operator"),
    },
    Image {
        name: "controller",
        package: "cdi-controller",
        programs: &["cdi-controller"],
        links: &[],
        arguments: &["-alsologtostderr"],
        user: 1001,
        has_nbdkit: false,
        deployment: Some("cdi-deployment"),
    },
    Image {
        name: "uploadproxy",
        package: "uploadproxy",
        programs: &["cdi-uploadproxy"],
        links: &[],
        arguments: &["-alsologtostderr"],
        user: 1001,
        has_nbdkit: false,
        deployment: Some("cdi-uploadproxy"),
    },
];

/// The image for VDDK sources: the importer's, with nbdkit. It is built only when it is named, and for the tests: not every
/// distribution has the plugin.
pub const IMPORTER_VDDK: &str = "importer-vddk";

/// Pods run workers as this user; with a name, logs and shells are easier to read.
const PASSWD: &str = "root:x:0:0:root:/:/sbin/nologin\nqemu:x:107:107:qemu:/:/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nqemu:x:107:\n";

/// The names of all images that can be built on every machine.
pub fn names() -> Vec<&'static str> {
    IMAGES.iter().filter(|image| !image.has_nbdkit).map(|image| image.name).collect()
}

/// The names of the images of an installation. The one for VDDK sources is among them where it can be built, and where the
/// tests bring a plugin of their own.
///
/// # Errors
/// When nbdkit cannot be run.
pub fn installed(profile: Profile) -> Result<Vec<&'static str>> {
    let has_vddk =
        nbdkit::is_installed() && (profile == Profile::Tests || nbdkit::plugin()?.is_some());
    Ok(names().into_iter().chain(has_vddk.then_some(IMPORTER_VDDK)).collect())
}

/// Builds the images of these names: `target/images/NAME.tar`, an OCI image layout that `docker load` reads too. Their programs
/// are compiled by one command.
///
/// # Errors
/// When there is no such image, or a program does not compile.
pub fn build(names: &[&str], profile: Profile) -> Result<Vec<PathBuf>> {
    let images = names.iter().map(|name| image(name)).collect::<Result<Vec<_>>>()?;
    programs::compile(&images, profile)?;
    let folder = shell::root().join("target/images");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let archives = images.iter().map(|image| {
        let path = folder.join(format!("{}.tar", image.name));
        write_at_once(&path, &archive(image, profile)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("xtask: built {}", path.display());
        Ok(path)
    });
    archives.collect()
}

/// Writes a file that another process may read or write at the same time: it sees a whole one.
fn write_at_once(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension(process::id().to_string());
    fs::write(&unfinished, bytes)?;
    fs::rename(&unfinished, path)
}

/// What one command updates in a cluster.
pub struct Update {
    /// The image's name.
    pub image: &'static str,
    pub programs: &'static [&'static str],
    /// The Deployment to restart. `None` for worker pods: those that start from now on run the new image.
    pub deployment: Option<&'static str>,
}

/// The image of that name, or of the package of that name, as it is updated in a cluster.
///
/// # Errors
/// When there is none.
pub fn update(name: &str) -> Result<Update> {
    let Image { name: image, programs, deployment, .. } = image(name)?;
    Ok(Update { image, programs, deployment: *deployment })
}

fn image(name: &str) -> Result<&'static Image> {
    let by_name = IMAGES.iter().find(|image| image.name == name);
    let by_package = || IMAGES.iter().find(|image| image.package == name);
    let Some(image) = by_name.or_else(by_package) else {
        let names: Vec<_> = IMAGES.iter().map(|image| image.name).collect();
        bail!("there is no image {name:?}, only {}", names.join(", "));
    };
    Ok(image)
}

fn archive(image: &Image, profile: Profile) -> Result<Vec<u8>> {
    let programs = programs::compiled(image, profile);
    let mut files = files(image, &programs)?;
    let mut linked = BTreeSet::new();
    if profile == Profile::Tests {
        for (_, program) in &programs {
            linked.extend(ociimage::libraries(program).context("cannot run ldd")?);
        }
    }
    if image.has_nbdkit {
        let nbdkit = nbdkit::files(profile)?;
        for path in &nbdkit {
            linked.extend(ociimage::libraries(path).context("cannot run ldd")?);
        }
        linked.extend(nbdkit);
    }
    files.extend(files_of_this_machine(linked)?);
    let entry_point = format!("/usr/bin/{}", image.programs[0]);
    let arguments = image.arguments.iter().map(|argument| (*argument).to_owned());
    let image = ociimage::Image {
        reference: format!("localhost/cdi-{}:dev", image.name),
        entrypoint: std::iter::once(entry_point).chain(arguments).collect(),
        user: Some(image.user),
        files,
    };
    // What is loaded on this machine only is not compressed: that would take longer than it saves.
    let compressor: Option<ociimage::Gzip<'_>> =
        if profile == Profile::Release { Some(&gzip) } else { None };
    image.archive(&sha256, compressor).context("cannot build an image")
}

fn sha256(bytes: &[u8]) -> io::Result<String> {
    let output = filter("sha256sum", &["--binary"], bytes)?;
    let text = String::from_utf8_lossy(&output);
    let digest = text.split_whitespace().next().filter(|digest| digest.len() == 64);
    digest.map(str::to_owned).ok_or_else(|| io::Error::other("sha256sum printed no digest"))
}

/// Without a name and a time, so that the same bytes give the same.
fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    filter("gzip", &["-9", "--no-name"], bytes)
}

/// What a program that every distribution has prints for some bytes, so that this crate needs no library for it.
fn filter(program: &str, arguments: &[&str], bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut command = shell::program(program, arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let input = child.stdin.take();
    // The program may print before it has read everything.
    let output = thread::scope(|scope| {
        let writer = scope.spawn(|| input.map_or(Ok(()), |mut input| input.write_all(bytes)));
        let output = child.wait_with_output()?;
        writer.join().map_err(|_| io::Error::other("a thread panicked"))??;
        Ok::<_, io::Error>(output)
    })?;
    if !output.status.success() {
        return Err(io::Error::other(format!("{program} failed: {}", output.status)));
    }
    Ok(output.stdout)
}

/// The files of every image and its programs. A directory precedes its content.
fn files(image: &Image, programs: &[(&str, PathBuf)]) -> Result<Vec<Entry>> {
    let authorities = fs::read(AUTHORITIES).with_context(|| {
        format!("cannot read {AUTHORITIES}: install the package ca-certificates")
    })?;
    let mut entries: Vec<_> = ["bin", "etc", "etc/ssl", "etc/ssl/certs", "usr", "usr/bin"]
        .into_iter()
        .map(|path| Entry::directory(path, 0o755))
        .collect();
    entries.push(Entry::directory("tmp", 0o1777));
    entries.push(Entry::file("etc/passwd", 0o644, PASSWD.into()));
    entries.push(Entry::file("etc/group", 0o644, GROUP.into()));
    entries.push(Entry::file(AUTHORITIES.trim_start_matches('/'), 0o644, authorities));
    entries.extend(image.links.iter().map(|(path, to)| Entry::link(path, to)));
    for (name, path) in programs {
        let program = programs::read_stripped(path)?;
        entries.push(Entry::file(&format!("usr/bin/{name}"), 0o755, program));
    }
    entries.sort_by(|a, b| a.path().cmp(b.path()));
    Ok(entries)
}

/// Files of this machine, at the same paths: the loader looks for them there.
fn files_of_this_machine(paths: BTreeSet<PathBuf>) -> Result<Vec<Entry>> {
    let entry = |path: PathBuf| {
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Entry::file(path.display().to_string().trim_start_matches('/'), 0o755, bytes))
    };
    paths.into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_with_nbdkit_is_built_only_when_it_is_named() {
        assert!(names().iter().all(|name| *name != IMPORTER_VDDK));
        let vddk = image(IMPORTER_VDDK).unwrap();
        assert!(vddk.has_nbdkit && vddk.programs[0] == "cdi-importer");
    }

    #[test]
    fn an_update_finds_an_image_by_its_name_or_package() {
        assert_eq!(update("controller").unwrap().deployment, Some("cdi-deployment"));
        assert_eq!(update("cdi-controller").unwrap().image, "controller");
        assert_eq!(update("importer").unwrap().deployment, None);
        assert!(update("cdi").is_err());
    }

    #[test]
    fn deployments_are_those_of_the_manifests() {
        let manifest = fs::read_to_string(shell::root().join("deploy/30-programs.yaml")).unwrap();
        for image in IMAGES {
            let reference = format!("image: localhost/cdi-{}:dev", image.name);
            let deployment = manifest.split("\n---").find(|object| object.contains(&reference));
            let name = |object: &str| {
                object.lines().find_map(|line| line.strip_prefix("  name: ")).map(str::to_owned)
            };
            assert_eq!(deployment.and_then(name).as_deref(), image.deployment, "{}", image.name);
        }
    }

    #[test]
    fn bytes_are_compressed_in_a_reproducible_way() {
        let bytes = vec![7; 1 << 20];
        let compressed = gzip(&bytes).unwrap();
        assert!(compressed.starts_with(&[0x1f, 0x8b]) && compressed.len() < bytes.len() / 100);
        assert_eq!(gzip(&bytes).unwrap(), compressed);
        assert_eq!(filter("gzip", &["-d"], &compressed).unwrap(), bytes);
        assert!(filter("gzip", &["-d"], b"no gzip").is_err());
    }

    #[test]
    fn bytes_are_hashed() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc").unwrap(), abc);
    }
}
