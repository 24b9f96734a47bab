//! The container images of this project: static programs and the few files that they need. The same commit gives the same
//! bytes on the same machine.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use ociimage::Entry;

use crate::deps::{self, AUTHORITIES};
use crate::shell;

/// Programs are linked with musl: glibc cannot look up names in a static program.
const TARGET: &str = "x86_64-unknown-linux-musl";

/// How thoroughly the programs are optimised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// To be used.
    Release,
    /// To be tried.
    Dev,
    /// As the tests of this workspace have them: built already, and linked with libraries of this machine, which go
    /// into the image too.
    Tests,
}

/// A program's image.
struct Image {
    name: &'static str,
    package: &'static str,
    /// In `/usr/bin`; the first one is started, with `arguments`.
    programs: &'static [&'static str],
    /// Other names of theirs: from where, to which.
    links: &'static [(&'static str, &'static str)],
    arguments: &'static [&'static str],
    /// Unless the pod says otherwise, and importer pods do.
    user: u32,
    /// nbdkit of this machine goes into it, with its plugin for VMware's library.
    has_nbdkit: bool,
}

const IMPORTER_PROGRAMS: &[&str] = &[
    "cdi-importer",
    "cdi-image-size-detection",
    "cdi-containerimage-server",
    "cdi-source-update-poller",
    "openstack-populator",
    "ovirt-populator",
];
/// Pods copy the server by `sh -c "cp …"`, and it knows how. Clients run `sh -c "kill 1"` and `cat` in workers; in the
/// programs of the installation, which have keys mounted, they cannot.
const IMPORTER_LINKS: &[(&str, &str)] = &[
    ("bin/cat", "/usr/bin/cdi-containerimage-server"),
    ("bin/sh", "/usr/bin/cdi-containerimage-server"),
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
    },
    Image {
        name: IMPORTER_VDDK,
        package: "importer",
        programs: IMPORTER_PROGRAMS,
        links: IMPORTER_LINKS,
        arguments: &["-alsologtostderr"],
        user: 1001,
        has_nbdkit: true,
    },
    Image {
        name: "uploadserver",
        package: "uploadserver",
        programs: &["cdi-uploadserver"],
        links: &[("bin/cat", "/usr/bin/cdi-uploadserver"), ("bin/sh", "/usr/bin/cdi-uploadserver")],
        arguments: &["-alsologtostderr"],
        user: 1001,
        has_nbdkit: false,
    },
    Image {
        name: "cloner",
        package: "cloner",
        programs: &["cdi-cloner"],
        // A pod that only mounts a volume is told `bash -c "echo …"`, and the program knows how.
        links: &[
            ("bin/bash", "/usr/bin/cdi-cloner"),
            ("bin/cat", "/usr/bin/cdi-cloner"),
            ("bin/sh", "/usr/bin/cdi-cloner"),
            ("usr/bin/cloner_startup.sh", "/usr/bin/cdi-cloner"),
        ],
        arguments: &["-alsologtostderr"],
        user: 1001,
        has_nbdkit: false,
    },
    Image {
        name: "apiserver",
        package: "apiserver",
        programs: &["cdi-apiserver"],
        links: &[],
        arguments: &[],
        user: 1001,
        has_nbdkit: false,
    },
    Image {
        name: "operator",
        package: "operator",
        programs: &["cdi-operator"],
        links: &[],
        arguments: &[],
        user: 1001,
        has_nbdkit: false,
    },
    Image {
        name: "controller",
        package: "cdi-controller",
        programs: &["cdi-controller"],
        links: &[],
        arguments: &["-alsologtostderr"],
        user: 1001,
        has_nbdkit: false,
    },
    Image {
        name: "uploadproxy",
        package: "uploadproxy",
        programs: &["cdi-uploadproxy"],
        links: &[],
        arguments: &["-alsologtostderr"],
        user: 1001,
        has_nbdkit: false,
    },
];

/// The image for VDDK sources: the importer's, and nbdkit. Built only when it is named, and for the tests: not every
/// distribution has the plugin.
pub const IMPORTER_VDDK: &str = "importer-vddk";
/// What nbdkit is started with beside its plugin.
const NBDKIT_FILTERS: [&str; 2] = ["nbdkit-retry-filter.so", "nbdkit-cacheextents-filter.so"];
const NBDKIT_PLUGIN: &str = "nbdkit-vddk-plugin.so";
/// VMware's library is linked with it, and brings most others along.
const VDDK_LIBRARIES: [&str; 1] = ["libcrypt.so.1"];

/// Pods run workers as this user, and a name makes logs and shells friendlier.
const PASSWD: &str = "root:x:0:0:root:/:/sbin/nologin\nqemu:x:107:107:qemu:/:/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nqemu:x:107:\n";

/// The names of all images that can be built on every machine.
pub fn names() -> impl Iterator<Item = &'static str> {
    IMAGES.iter().filter(|image| !image.has_nbdkit).map(|image| image.name)
}

/// The names of the images that an installation has: with that for VDDK sources where it can be built, or where the tests bring a
/// plugin of their own.
pub fn installed(profile: Profile) -> Result<Vec<&'static str>> {
    let has_nbdkit = shell::find("nbdkit").is_some();
    let has_vddk = has_nbdkit && (profile == Profile::Tests || nbdkit_plugin()?.is_some());
    Ok(names().chain(has_vddk.then_some(IMPORTER_VDDK)).collect())
}

/// Builds the image of that name: `target/images/NAME.tar`, an OCI image layout that `docker load` understands too.
///
/// # Errors
/// When there is no such image, or a program cannot be built.
pub fn build(name: &str, profile: Profile) -> Result<PathBuf> {
    let Some(image) = IMAGES.iter().find(|image| image.name == name) else {
        let names: Vec<_> = IMAGES.iter().map(|image| image.name).collect();
        bail!("there is no image {name:?}, only {}", names.join(", "));
    };
    let programs = build_programs(image, profile)?;
    let folder = shell::root().join("target/images");
    fs::create_dir_all(&folder).context("cannot make the folder of images")?;
    let entrypoint: Vec<_> = [format!("/usr/bin/{}", image.programs[0])]
        .into_iter()
        .chain(image.arguments.iter().map(|argument| (*argument).to_owned()))
        .collect();
    let reference = format!("localhost/cdi-{name}:dev");
    let user = Some(image.user);
    let mut files = files(image, &programs)?;
    let mut linked = BTreeSet::new();
    if profile == Profile::Tests {
        for (_, program) in &programs {
            linked.extend(ociimage::libraries(program).context("cannot run ldd")?);
        }
    }
    if image.has_nbdkit {
        let nbdkit = nbdkit_files(profile)?;
        for path in &nbdkit {
            linked.extend(ociimage::libraries(path).context("cannot run ldd")?);
        }
        linked.extend(nbdkit);
    }
    files.extend(of_this_machine(linked)?);
    let archive = ociimage::Image { reference, entrypoint, user, files }.archive(&sha256);
    let path = folder.join(format!("{name}.tar"));
    fs::write(&path, archive.context("cannot make an image")?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// By the program that every distribution has, so that this crate needs no library for it.
fn sha256(bytes: &[u8]) -> io::Result<String> {
    let mut command = shell::program("sha256sum", &["--binary"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(bytes)?;
    }
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let digest = text.split_whitespace().next().filter(|digest| digest.len() == 64);
    digest.map(str::to_owned).ok_or_else(|| io::Error::other("sha256sum gives no digest"))
}

/// Builds the programs and returns where they lie. Installs first what that takes.
fn build_programs(image: &Image, profile: Profile) -> Result<Vec<(&'static str, PathBuf)>> {
    if profile == Profile::Tests {
        let folder = shell::root().join("target/debug");
        return Ok(image.programs.iter().map(|program| (*program, folder.join(program))).collect());
    }
    deps::install(deps::IMAGES)?;
    let has_target = shell::output(&mut shell::program("rustc", &["--print", "sysroot"]))
        .is_ok_and(|sysroot| Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET).is_dir());
    if !has_target {
        shell::run(&mut shell::program("rustup", &["target", "add", TARGET]))?;
    }
    let mut cargo =
        shell::cargo(&["build", "--locked", "--target", TARGET, "--package", image.package]);
    if profile == Profile::Release {
        cargo.arg("--release");
    }
    for program in image.programs {
        cargo.args(["--bin", program]);
    }
    shell::run(&mut cargo)?;
    let folder = if profile == Profile::Release { "release" } else { "debug" };
    let folder = shell::root().join("target").join(TARGET).join(folder);
    Ok(image.programs.iter().map(|program| (*program, folder.join(program))).collect())
}

/// Everything in the image, folders before what is in them.
fn files(image: &Image, programs: &[(&str, PathBuf)]) -> Result<Vec<Entry>> {
    let authorities = fs::read(AUTHORITIES).with_context(|| {
        format!("cannot read {AUTHORITIES}: install the package ca-certificates")
    })?;
    let mut entries: Vec<_> = ["bin", "etc", "etc/ssl", "etc/ssl/certs", "usr", "usr/bin"]
        .into_iter()
        .map(|path| Entry::folder(path, 0o755))
        .collect();
    entries.push(Entry::folder("tmp", 0o1777));
    entries.push(Entry::file("etc/passwd", 0o644, PASSWD.into()));
    entries.push(Entry::file("etc/group", 0o644, GROUP.into()));
    entries.push(Entry::file(AUTHORITIES.trim_start_matches('/'), 0o644, authorities));
    entries.extend(image.links.iter().map(|(path, to)| Entry::link(path, to)));
    for (name, path) in programs {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        entries.push(Entry::file(&format!("usr/bin/{name}"), 0o755, stripped(path, bytes)?));
    }
    entries.sort_by(|a, b| a.path().cmp(b.path()));
    eprintln!("xtask: the image {} holds {} files and folders", image.name, entries.len());
    Ok(entries)
}

/// Files of this machine, where their loader looks for them.
fn of_this_machine(paths: BTreeSet<PathBuf>) -> Result<Vec<Entry>> {
    let entry = |path: PathBuf| {
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Entry::file(path.display().to_string().trim_start_matches('/'), 0o755, bytes))
    };
    paths.into_iter().map(entry).collect()
}

/// nbdkit with what VDDK sources need of it. The tests bring a plugin of their own, which needs no library of VMware's.
fn nbdkit_files(profile: Profile) -> Result<Vec<PathBuf>> {
    let config = nbdkit_config()?;
    let setting = |name: &str| -> Result<PathBuf> {
        let value = nbdkit_setting(&config, name);
        value.map(PathBuf::from).with_context(|| format!("`nbdkit --dump-config` has no {name}"))
    };
    let filters = setting("filterdir")?;
    let mut files = vec![setting("binary")?];
    files.extend(NBDKIT_FILTERS.iter().map(|name| filters.join(name)));
    match nbdkit_plugin()? {
        Some(plugin) => files.push(plugin),
        None if profile == Profile::Tests => {}
        None => bail!(
            "nbdkit has no {NBDKIT_PLUGIN} in {}: install nbdkit-plugin-vddk (Debian 13, Ubuntu 25.04) or nbdkit-vddk-plugin \
             (Fedora, CentOS Stream)",
            setting("plugindir")?.display()
        ),
    }
    let libraries = setting("libdir")?;
    let found = VDDK_LIBRARIES.iter().map(|name| libraries.join(name)).filter(|path| path.exists());
    files.extend(found);
    Ok(files)
}

/// The plugin for VMware's library, where the distribution's nbdkit has it.
fn nbdkit_plugin() -> Result<Option<PathBuf>> {
    let config = nbdkit_config()?;
    let folder = nbdkit_setting(&config, "plugindir").map(PathBuf::from);
    Ok(folder.map(|folder| folder.join(NBDKIT_PLUGIN)).filter(|plugin| plugin.exists()))
}

fn nbdkit_config() -> Result<String> {
    shell::output(&mut shell::program("nbdkit", &["--dump-config"]))
        .context("nbdkit is needed for this image: install the package nbdkit")
}

/// A line `NAME=VALUE` of `nbdkit --dump-config`.
fn nbdkit_setting<'a>(config: &'a str, name: &str) -> Option<&'a str> {
    config.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

/// Without what only a debugger reads, which is most of it.
fn stripped(path: &Path, bytes: Vec<u8>) -> Result<Vec<u8>> {
    if shell::find("strip").is_none() {
        return Ok(bytes);
    }
    let small = path.with_extension("stripped");
    let mut strip = shell::program("strip", &["--strip-all", "-o"]);
    shell::output(strip.arg(&small).arg(path))?;
    let bytes = fs::read(&small).with_context(|| format!("cannot read {}", small.display()))?;
    fs::remove_file(&small).context("cannot remove a stripped program")?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_with_nbdkit_is_built_only_when_it_is_named() {
        assert!(names().all(|name| name != IMPORTER_VDDK));
        let vddk = IMAGES.iter().find(|image| image.name == IMPORTER_VDDK).unwrap();
        assert!(vddk.has_nbdkit && vddk.programs[0] == "cdi-importer");
    }

    #[test]
    fn settings_of_nbdkit_are_lines_with_their_names() {
        let config = "binary=/usr/bin/nbdkit\nlibdir=/usr/lib64\nplugindir=/p/plugins\n";
        assert_eq!(nbdkit_setting(config, "plugindir"), Some("/p/plugins"));
        assert_eq!(nbdkit_setting(config, "dir"), None);
        assert_eq!(nbdkit_setting(config, "plugin"), None);
    }

    #[test]
    fn bytes_are_hashed() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc").unwrap(), abc);
    }
}
