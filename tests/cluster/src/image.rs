//! Container images for the cluster, as archives that containerd imports.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use ociimage::{Entry, Image};
use sha2::{Digest, Sha256};

use crate::node::ctr;
use crate::node_id::NodeId;
use crate::shell;
use crate::state::State;

/// Puts the images of an OCI or Docker archive where the kubelet of each node finds them, and returns their names.
///
/// # Errors
/// When the cluster is not up or containerd does not take the archive.
pub fn load(state: &State, archive: &Path) -> Result<String> {
    let archive = fs::canonicalize(archive)
        .with_context(|| format!("there is no image archive {}", archive.display()))?;
    let path = archive.display().to_string();
    let mut names = String::new();
    for node in state.nodes() {
        names = import(state, node, &path)?;
    }
    Ok(names)
}

fn import(state: &State, node: NodeId, path: &str) -> Result<String> {
    shell::output(&mut ctr(state, node, &["images", "import", "--all-platforms", path])?)
}

/// Stores an image that was loaded in the cluster's registry.
///
/// # Errors
/// When there is no image of that name.
pub fn push(state: &State, reference: &str) -> Result<()> {
    let words = ["images", "push", "--plain-http", reference];
    shell::output(&mut ctr(state, NodeId::First, &words)?).map(|_| ())
}

/// Loads an image that holds one program, `/NAME`, started as its entry point, and the libraries of this machine that it
/// is linked with.
///
/// # Errors
/// When the program cannot be read or the image not be loaded.
pub fn load_program(state: &State, program: &Path, reference: &str) -> Result<()> {
    let name = program.file_name().context("a program has a name")?.to_string_lossy();
    load_programs(state, &[(&format!("/{name}"), program)], reference)
}

/// The same of several programs, each where the image has it: the first is the entry point.
///
/// # Errors
/// As [`load_program`].
pub fn load_programs(state: &State, programs: &[(&str, &Path)], reference: &str) -> Result<()> {
    let file = |name: &str, path: &Path| -> Result<Entry> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Entry::file(name.trim_start_matches('/'), 0o755, bytes))
    };
    let mut files = vec![Entry::directory("tmp", 0o1777)];
    let mut libraries = BTreeSet::new();
    for (name, path) in programs {
        files.push(file(name, path)?);
        libraries.extend(ociimage::libraries(path).context("cannot run ldd")?);
    }
    for library in libraries {
        files.push(file(&library.display().to_string(), &library)?);
    }
    let (entry_point, _) = programs.first().context("an image holds a program")?;
    let image = Image {
        reference: reference.to_owned(),
        entrypoint: vec![(*entry_point).to_owned()],
        user: None,
        files,
    };
    load_image(state, &image)
}

/// Loads an image.
///
/// # Errors
/// When its archive cannot be written, or the cluster is not up.
pub fn load_image(state: &State, image: &Image) -> Result<()> {
    // Tests may load at the same time.
    let label: String = image.reference.chars().filter(char::is_ascii_alphanumeric).collect();
    let archive = state.path(&format!("image-{label}.tar"));
    fs::write(
        &archive,
        image.archive(&|bytes| Ok(sha256(bytes)), None).context("cannot build an image")?,
    )
    .with_context(|| format!("cannot write {}", archive.display()))?;
    load(state, &archive)?;
    fs::remove_file(&archive).with_context(|| format!("cannot remove {}", archive.display()))
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
