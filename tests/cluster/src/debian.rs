//! Packages of this machine's distribution, unpacked into a folder: no scripts of theirs run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::shell::{output, program};

/// Of no use to a program.
const LEFT_OUT: &[&str] = &["./usr/share/doc/*", "./usr/share/man/*", "./usr/share/locale/*"];
/// They are links into `usr` in every installation, whatever a package has there.
const LINKED_FOLDERS: &[&str] = &["bin", "sbin", "lib", "lib64"];

/// Downloads packages with all that they depend on, whatever this machine has installed, into the folder `work`.
///
/// # Errors
/// When the lists of packages are missing, or a package is.
pub fn download(packages: &[&str], work: &Path) -> Result<Vec<PathBuf>> {
    let archives = work.join("cache/archives");
    fs::create_dir_all(archives.join("partial"))
        .with_context(|| format!("cannot make {}", archives.display()))?;
    let status = work.join("status");
    fs::write(&status, "").with_context(|| format!("cannot write {}", status.display()))?;
    let settings = [
        format!("Dir::State::status={}", status.display()),
        format!("Dir::Cache={}", work.join("cache").display()),
        "Debug::NoLocking=1".into(),
        "APT::Sandbox::User=root".into(),
    ];
    let mut install = program("apt-get", &["--yes", "--quiet"]);
    for setting in &settings {
        install.args(["--option", setting]);
    }
    install.args(["--no-install-recommends", "--download-only", "install"]).args(packages);
    output(&mut install)
        .context("cannot download packages: `cargo xtask deps` updates the lists")?;
    let mut found = Vec::new();
    for entry in fs::read_dir(&archives)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            found.push(path);
        }
    }
    found.sort();
    ensure!(!found.is_empty(), "apt-get has downloaded nothing to {}", archives.display());
    Ok(found)
}

/// The package of this name that was downloaded.
///
/// # Errors
/// When there is none.
pub fn package<'a>(downloaded: &'a [PathBuf], prefix: &str) -> Result<&'a Path> {
    let is_it = |path: &&PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
    };
    let found = downloaded.iter().find(is_it);
    found.map(PathBuf::as_path).with_context(|| format!("no package {prefix} was downloaded"))
}

/// Unpacks packages into one tree, as an installation has them.
///
/// # Errors
/// When a package or the folder is not as expected.
pub fn unpack<'a>(packages: impl IntoIterator<Item = &'a Path>, root: &Path) -> Result<()> {
    for folder in LINKED_FOLDERS {
        let target = root.join("usr").join(folder);
        fs::create_dir_all(&target).with_context(|| format!("cannot make {}", target.display()))?;
        let link = root.join(folder);
        std::os::unix::fs::symlink(Path::new("usr").join(folder), &link)
            .with_context(|| format!("cannot make {}", link.display()))?;
    }
    for package in packages {
        let mut files = Command::new("dpkg-deb")
            .arg("--fsys-tarfile")
            .arg(package)
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start dpkg-deb")?;
        let stream = files.stdout.take().context("dpkg-deb has no standard output")?;
        let mut tar = program("tar", &["--extract", "--keep-directory-symlink"]);
        tar.args(LEFT_OUT.iter().map(|pattern| format!("--exclude={pattern}")));
        output(tar.arg("--directory").arg(root).stdin(stream))?;
        let status = files.wait().context("cannot wait for dpkg-deb")?;
        ensure!(status.success(), "dpkg-deb {}: {status}", package.display());
    }
    Ok(())
}
