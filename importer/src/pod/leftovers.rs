//! What an earlier attempt in the same pod has left, this program's or another's.

use std::fs;
use std::io;
use std::path::Path;

use contract::ImportJob;
use contract::import::ContentType;
use contract::paths;

use super::mounts::{Paths, has_device};

/// Removes what is no volume's content yet: nothing is known of where it came from. What this program has not finished
/// has other names, and a journal with its progress: the pipeline decides about it.
///
/// # Errors
/// When a file is there and cannot be removed.
pub fn remove(job: &ImportJob, paths: &Paths) -> io::Result<()> {
    remove_file(&paths.at(paths::SCRATCH_IMAGE))?;
    let is_disk = job.content != ContentType::Archive && !has_device(paths);
    // A later stage continues with the disk of the stage before.
    if is_disk && job.checkpoints.previous.is_empty() {
        remove_file(&paths.at(paths::DISK))?;
    }
    Ok(())
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => {
            tracing::info!("removed {}, left by an earlier attempt", path.display());
            Ok(())
        }
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(())
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::import::{Checkpoints, SourceKind};

    /// Files that are there, and those that stay.
    fn check(change: impl FnOnce(&mut ImportJob), stays: &[&str]) {
        let root = tempfile::tempdir().unwrap();
        let all = [
            "data/disk.img",
            "data/.disk.img.cdi-partial",
            "data/.disk.img.cdi-journal",
            "scratch/tmpimage",
        ];
        for name in all {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        let mut job = ImportJob::new(SourceKind::Http, "http://host/disk.img");
        change(&mut job);
        remove(&job, &Paths::under(root.path())).unwrap();
        let left: Vec<_> = all.into_iter().filter(|name| root.path().join(name).exists()).collect();
        assert_eq!(left, stays);
        remove(&job, &Paths::under(root.path())).unwrap();
    }

    #[test]
    fn only_leftovers_that_cannot_be_resumed_are_removed() {
        let journal = ["data/.disk.img.cdi-partial", "data/.disk.img.cdi-journal"];
        let all = ["data/disk.img", journal[0], journal[1]];
        check(|_| (), &journal);
        check(|job| job.content = ContentType::Archive, &all);
        let later = Checkpoints { previous: "s1".into(), current: "s2".into(), last: false };
        check(|job| job.checkpoints = later, &all);
    }
}
