//! Disks in images of the cluster's registry.

use std::io;

use anyhow::Result;
use ociimage::{Entry, Image};

use crate::{REGISTRY, Test, sha256};

/// An image in the cluster's registry.
#[derive(Clone, Debug)]
pub struct Pushed {
    /// `host/name:tag`.
    pub reference: String,
    /// `sha256:…` of its manifest.
    pub digest: String,
}

impl Pushed {
    /// As a source of a DataVolume names it.
    pub fn url(&self) -> String {
        format!("docker://{}", self.reference)
    }
}

/// What an image of a disk holds: `/disk/disk.img`.
pub fn files_of_disk(disk: Vec<u8>) -> Vec<Entry> {
    vec![Entry::directory("disk", 0o755), Entry::file("disk/disk.img", 0o644, disk)]
}

/// The libraries that the server is linked with that nodes run in images: pods of this project bring the program along,
/// and those of tests are not static.
///
/// # Errors
/// When they cannot be read.
pub fn files_for_nodes() -> Result<Vec<Entry>> {
    let mut files = Vec::new();
    for library in ociimage::libraries(testkit::cdi_containerimage_server())? {
        let path = library.display().to_string();
        files.push(Entry::file(path.trim_start_matches('/'), 0o755, std::fs::read(&library)?));
    }
    Ok(files)
}

impl Test {
    /// Stores an image of the test's own in the cluster's registry, in place of another of that repository and tag.
    ///
    /// # Errors
    /// When the registry refuses it.
    pub fn push(&self, repository: &str, tag: &str, files: Vec<Entry>) -> Result<Pushed> {
        self.push_as(&format!("{}/{repository}:{tag}", self.namespace()), files)
    }

    /// The same for an image of a program.
    ///
    /// # Errors
    /// As [`Test::push`].
    pub fn push_program(
        &self,
        repository: &str,
        tag: &str,
        entrypoint: Vec<String>,
        files: Vec<Entry>,
    ) -> Result<Pushed> {
        self.push_image(&format!("{}/{repository}:{tag}", self.namespace()), entrypoint, files)
    }

    /// The same under a name that other tests may see too.
    ///
    /// # Errors
    /// As [`Test::push`].
    pub fn push_as(&self, name: &str, files: Vec<Entry>) -> Result<Pushed> {
        self.push_image(name, vec![], files)
    }

    fn push_image(&self, name: &str, entrypoint: Vec<String>, files: Vec<Entry>) -> Result<Pushed> {
        let reference = format!("{REGISTRY}/{name}");
        let image = Image { reference: reference.clone(), entrypoint, user: None, files };
        let hash = |bytes: &[u8]| -> io::Result<String> { Ok(sha256(bytes)) };
        let archive = self.state().path(&format!("{}.tar", name.replace(['/', ':'], "-")));
        std::fs::write(&archive, image.archive(&hash, None)?)?;
        cluster::load(self.state(), &archive)?;
        std::fs::remove_file(&archive)?;
        cluster::push(self.state(), &reference)?;
        Ok(Pushed { reference, digest: image.digest(&hash)? })
    }
}
