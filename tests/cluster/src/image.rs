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

/// Stores an image that was loaded in the cluster's registry.
///
/// # Errors
/// When there is no image of that name.
pub fn push(state: &State, reference: &str) -> Result<()> {
    let words = ["images", "push", "--plain-http", reference];
    shell::output(&mut ctr(state, &words)?).map(|_| ())
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
    for library in ociimage::libraries(program).context("cannot run ldd")? {
        let path = library.display().to_string();
        files.push(Entry::file(path.trim_start_matches('/'), 0o755, read(&library)?));
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

fn sha256(bytes: &[u8]) -> io::Result<String> {
    Ok(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}
