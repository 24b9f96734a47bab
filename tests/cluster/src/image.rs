//! Container images for the cluster, as archives that containerd imports.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use ociimage::{Entry, Image};
use sha2::{Digest, Sha256};

use crate::node::ctr;
use crate::shell;
use crate::state::State;

/// Puts the images of an OCI or Docker archive where kubelet finds them, and returns their names.
///
/// # Errors
/// When the cluster is not up or containerd does not take the archive.
pub fn load(state: &State, archive: &Path) -> Result<String> {
    let archive = fs::canonicalize(archive)
        .with_context(|| format!("there is no image archive {}", archive.display()))?;
    let path = archive.display().to_string();
    shell::output(&mut ctr(state, &["images", "import", "--all-platforms", &path])?)
}

/// Loads an image that holds one program, `/NAME`, started as its entry point, and the libraries of this machine that it
/// is linked with.
///
/// # Errors
/// When the program cannot be read or the image not be loaded.
pub fn load_program(state: &State, program: &Path, reference: &str) -> Result<()> {
    // Tests may load at the same time.
    let label: String = reference.chars().filter(char::is_ascii_alphanumeric).collect();
    let archive = state.path(&format!("image-{label}.tar"));
    let read =
        |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let name = program.file_name().context("a program has a name")?.to_string_lossy();
    let mut files = vec![Entry::file(&name, 0o755, read(program)?)];
    for library in libraries(program)? {
        let path = library.trim_start_matches('/');
        files.push(Entry::file(path, 0o755, read(library.as_ref())?));
    }
    let image = Image {
        reference: reference.to_owned(),
        entrypoint: vec![format!("/{name}")],
        user: None,
        files,
    };
    fs::write(&archive, image.archive(&sha256).context("cannot make an image")?)
        .with_context(|| format!("cannot write {}", archive.display()))?;
    load(state, &archive)?;
    fs::remove_file(&archive).with_context(|| format!("cannot remove {}", archive.display()))
}

/// Where the loader of this machine finds what a program is linked with. Nothing, for a static one.
fn libraries(program: &Path) -> Result<Vec<String>> {
    let output = std::process::Command::new("ldd").arg(program).output();
    let output = output.context("cannot run ldd")?;
    if !output.status.success() {
        return Ok(Vec::new()); // "not a dynamic executable"
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // `name => /path (0x…)`, or the loader itself: `/path (0x…)`.
    let path = |line: &str| {
        let found = line.split(" => ").last()?.split(" (").next()?.trim();
        found.starts_with('/').then(|| found.to_owned())
    };
    Ok(text.lines().filter_map(path).collect())
}

fn sha256(bytes: &[u8]) -> io::Result<String> {
    Ok(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}
