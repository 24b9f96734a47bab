//! Compiles the programs that go into images: all of them by one `cargo build`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result};

use super::{IMAGES, Image, Profile};
use crate::{deps, shell};

/// Programs are linked with musl: glibc cannot look up names in a static program.
const TARGET: &str = "x86_64-unknown-linux-musl";

/// Compiles the programs of these images. For [`Profile::Tests`] they are compiled already.
///
/// # Errors
/// When a tool is missing or a program does not compile.
pub fn compile(images: &[&Image], profile: Profile) -> Result<()> {
    if profile == Profile::Tests {
        return Ok(());
    }
    deps::install(deps::IMAGES)?;
    let has_target = shell::output(&mut shell::program("rustc", &["--print", "sysroot"]))
        .is_ok_and(|sysroot| Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET).is_dir());
    if !has_target {
        shell::run(&mut shell::program("rustup", &["target", "add", TARGET]))?;
    }
    let mut cargo = shell::cargo(&["build", "--locked", "--target", TARGET]);
    if profile == Profile::Release {
        cargo.arg("--release");
    }
    cargo.args(selection(images));
    shell::run(&mut cargo)
}

/// The packages of all images, and the programs of these. Cargo chooses the features of dependencies by the packages that it
/// is given, so a program is the same whether it is built alone or with all others, and no dependency is compiled twice.
fn selection(images: &[&Image]) -> Vec<&'static str> {
    let packages: BTreeSet<_> = IMAGES.iter().map(|image| image.package).collect();
    let programs: BTreeSet<_> = images.iter().flat_map(|image| image.programs).copied().collect();
    let packages = packages.into_iter().flat_map(|package| ["--package", package]);
    packages.chain(programs.into_iter().flat_map(|program| ["--bin", program])).collect()
}

/// Where the programs of an image are after [`compile`].
pub fn compiled(image: &Image, profile: Profile) -> Vec<(&'static str, PathBuf)> {
    let target = shell::root().join("target");
    let folder = match profile {
        Profile::Release => target.join(TARGET).join("release"),
        Profile::Dev => target.join(TARGET).join("debug"),
        Profile::Tests => target.join("debug"),
    };
    image.programs.iter().map(|program| (*program, folder.join(program))).collect()
}

/// Reads a program without its symbols and debug information, which are most of it.
///
/// # Errors
/// When it cannot be read or stripped.
pub fn read_stripped(path: &Path) -> Result<Vec<u8>> {
    let read =
        |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    if shell::find("strip").is_none() {
        return read(path);
    }
    let stripped = path.with_extension(format!("stripped-{}", process::id()));
    let mut strip = shell::program("strip", &["--strip-all", "-o"]);
    shell::output(strip.arg(&stripped).arg(path))?;
    let bytes = read(&stripped)?;
    fs::remove_file(&stripped).context("cannot remove a stripped program")?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_image_is_built_with_the_packages_of_all() {
        let cloner: Vec<_> = IMAGES.iter().filter(|image| image.name == "cloner").collect();
        let selected = selection(&cloner);
        let packages = selected.iter().filter(|word| **word == "--package").count();
        assert_eq!(packages, 7, "the importer's package has two images");
        assert_eq!(selected[packages * 2..], ["--bin", "cdi-cloner"]);
    }
}
