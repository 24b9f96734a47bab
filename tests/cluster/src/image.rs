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

/// Loads an image that holds one static program, `/NAME`, started as its entry point.
///
/// # Errors
/// When the program cannot be read or the image not be loaded.
pub fn load_program(state: &State, program: &Path, reference: &str) -> Result<()> {
    let archive = state.path("image.tar");
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let name = program.file_name().context("a program has a name")?.to_string_lossy();
    let image = Image {
        reference: reference.to_owned(),
        entrypoint: vec![format!("/{name}")],
        user: None,
        files: vec![Entry::file(&name, 0o755, bytes)],
    };
    fs::write(&archive, image.archive(&sha256).context("cannot make an image")?)
        .with_context(|| format!("cannot write {}", archive.display()))?;
    load(state, &archive)?;
    fs::remove_file(&archive).with_context(|| format!("cannot remove {}", archive.display()))
}

fn sha256(bytes: &[u8]) -> io::Result<String> {
    Ok(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}
