//! Container images without a container engine: one program, one layer, in an OCI archive that containerd imports.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::node::ctr;
use crate::shell;
use crate::state::State;

const BLOCK: usize = 512;

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
    let mut files = vec![(name.clone().into_owned(), read(program)?)];
    for library in libraries(program)? {
        files.push((library.trim_start_matches('/').to_owned(), read(library.as_ref())?));
    }
    fs::write(&archive, image(&name, &files, reference)?)
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

/// An OCI archive: <https://github.com/opencontainers/image-spec/blob/main/image-layout.md>.
fn image(name: &str, files: &[(String, Vec<u8>)], reference: &str) -> Result<Vec<u8>> {
    let mut layer = Vec::new();
    for (path, bytes) in files {
        entry(&mut layer, path, 0o755, bytes)?;
    }
    end(&mut layer);
    let config = json!({
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [format!("/{name}")]},
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
    })
    .to_string();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest(config.as_bytes()),
            "size": config.len(),
        },
        "layers": [{
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": digest(&layer),
            "size": layer.len(),
        }],
    })
    .to_string();
    let index = json!({
        "schemaVersion": 2,
        "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": digest(manifest.as_bytes()),
            "size": manifest.len(),
            "annotations": {"io.containerd.image.name": reference},
        }],
    })
    .to_string();
    let mut archive = Vec::with_capacity(layer.len() + 16 * BLOCK);
    entry(&mut archive, "oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    entry(&mut archive, "index.json", 0o644, index.as_bytes())?;
    for blob in [layer.as_slice(), config.as_bytes(), manifest.as_bytes()] {
        entry(&mut archive, &digest(blob).replace("sha256:", "blobs/sha256/"), 0o644, blob)?;
    }
    end(&mut archive);
    Ok(archive)
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// One regular file of a POSIX tar, owned by root, without a time: the same program gives the same image.
fn entry(archive: &mut Vec<u8>, name: &str, mode: u32, content: &[u8]) -> Result<()> {
    let mut header = [0u8; BLOCK];
    ensure!(name.len() < 100, "{name} is too long a name");
    header[..name.len()].copy_from_slice(name.as_bytes());
    let mut put =
        |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(100, &format!("{mode:07o}\0"));
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{:011o}\0", content.len()));
    put(136, "00000000000\0");
    // The sum is taken with blanks in its own place.
    put(148, "        0");
    put(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    archive.extend_from_slice(&header);
    archive.extend_from_slice(content);
    archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    Ok(())
}

fn end(archive: &mut Vec<u8>) {
    archive.resize(archive.len() + 2 * BLOCK, 0);
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn tar_reads_the_archive_and_the_layer_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let archive = folder.path().join("image.tar");
        let files = [("program".to_owned(), b"#!/bin/sh\n".to_vec())];
        fs::write(&archive, image("program", &files, "example.test/program:1").unwrap()).unwrap();
        let unpack = |file: &Path| {
            let mut tar = Command::new("tar");
            shell::output(tar.arg("-C").arg(folder.path()).arg("-xvf").arg(file)).unwrap()
        };
        let names = unpack(&archive);
        assert!(names.starts_with("oci-layout\nindex.json\nblobs/sha256/"), "{names}");
        let layer = folder.path().join(names.lines().nth(2).unwrap());
        assert_eq!(unpack(&layer), "program\n");
        assert_eq!(fs::read(folder.path().join("program")).unwrap(), b"#!/bin/sh\n");
    }
}
