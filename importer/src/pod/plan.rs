//! What a job comes to on the volume available.

use contract::import::{ContentType, SourceKind};
use contract::{ByteCount, Fit, ImportJob, Volume};

use super::mounts::Mounts;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportAction {
    /// An empty disk of this size.
    Blank {
        size: ByteCount,
        /// Every byte is allocated.
        preallocate: bool,
    },
    /// A disk from an image.
    Disk(DiskTarget),
    /// The files of an archive, into the volume's directory.
    Archive,
}

/// How a disk has to fit its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskTarget {
    /// The largest virtual size that fits.
    pub available: ByteCount,
    /// A smaller disk is grown to this.
    pub grow_to: Option<ByteCount>,
    /// Every byte is allocated.
    pub preallocate: bool,
}

/// Why a job is not begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such source.
    UnknownSource(String),
    /// An empty disk has no files.
    BlankArchive,
    /// The source brings disks and nothing else.
    ContentType { source: SourceKind },
    /// Files cannot be unpacked here.
    Archive {
        /// The reason, as a clause.
        because: &'static str,
    },
}

/// What to do about a job, or why nothing.
///
/// # Errors
/// See [`Refusal`].
pub fn plan_job(job: &ImportJob, mounts: &Mounts) -> Result<ImportAction, Refusal> {
    match &job.source {
        SourceKind::Blank => plan_blank(job, mounts),
        SourceKind::Http => match (job.content, mounts.volume) {
            (ContentType::Archive, Volume::Directory { .. }) => Ok(ImportAction::Archive),
            (ContentType::Archive, Volume::Device { .. }) => {
                Err(Refusal::Archive { because: "a block device has no place for files" })
            }
            (ContentType::Kubevirt | ContentType::Other, _) => {
                Ok(ImportAction::Disk(disk(job, mounts)))
            }
        },
        SourceKind::Registry | SourceKind::Imageio if job.content != ContentType::Kubevirt => {
            Err(Refusal::ContentType { source: job.source.clone() })
        }
        SourceKind::S3 | SourceKind::Gcs if job.content == ContentType::Archive => {
            Err(Refusal::Archive { because: "an object store brings disks and nothing else" })
        }
        SourceKind::S3
        | SourceKind::Gcs
        | SourceKind::Registry
        | SourceKind::Imageio
        | SourceKind::Vddk => Ok(ImportAction::Disk(disk(job, mounts))),
        SourceKind::Unknown(_) => Err(Refusal::UnknownSource(job.source.name().to_owned())),
    }
}

fn plan_blank(job: &ImportJob, mounts: &Mounts) -> Result<ImportAction, Refusal> {
    if job.content == ContentType::Archive {
        return Err(Refusal::BlankArchive);
    }
    let preallocate = job.preallocation;
    let DiskTarget { available, grow_to, .. } = disk(job, mounts);
    Ok(match mounts.volume {
        // All of it: a device may hold the disk of its last owner.
        Volume::Device { size } => ImportAction::Blank { size, preallocate },
        Volume::Directory { .. } => ImportAction::Blank {
            size: grow_to.unwrap_or(job.overhead.usable(available)),
            preallocate,
        },
    })
}

fn disk(job: &ImportJob, mounts: &Mounts) -> DiskTarget {
    let Fit { available, grow_to } = mounts.volume.fit(job.image_size, job.overhead);
    DiskTarget { available, grow_to, preallocate: job.preallocation }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: ByteCount = ByteCount::MIB;

    fn mib(count: u64) -> ByteCount {
        ByteCount::mebibytes(count)
    }

    fn directory(available: ByteCount) -> Mounts {
        Mounts { volume: Volume::Directory { available }, scratch: false }
    }

    fn device(size: ByteCount) -> Mounts {
        Mounts { volume: Volume::Device { size }, scratch: false }
    }

    fn job(source: SourceKind, change: impl FnOnce(&mut ImportJob)) -> ImportJob {
        let mut job = ImportJob::new(source, "http://host/disk");
        job.image_size = Some(mib(100));
        job.overhead = "0.055".parse().unwrap();
        change(&mut job);
        job
    }

    #[test]
    fn a_disk_fits_its_volume() {
        let job = job(SourceKind::Http, |job| job.preallocation = true);
        let (available, grow_to) = (mib(100), Some(mib(94)));
        let expected = DiskTarget { available, grow_to, preallocate: true };
        assert_eq!(plan_job(&job, &directory(mib(200))), Ok(ImportAction::Disk(expected)));
    }

    #[test]
    fn disks_of_machines_fit_as_images_do() {
        for source in [SourceKind::Imageio, SourceKind::Vddk] {
            let of = |source| plan_job(&job(source, |_| ()), &directory(mib(200)));
            assert_eq!(of(source), of(SourceKind::Http));
        }
    }

    #[test]
    fn files_are_unpacked_where_there_is_a_file_system() {
        let archive = job(SourceKind::Http, |job| job.content = ContentType::Archive);
        assert_eq!(plan_job(&archive, &directory(MIB)), Ok(ImportAction::Archive));
        assert!(matches!(plan_job(&archive, &device(MIB)), Err(Refusal::Archive { .. })));
    }

    #[test]
    fn an_empty_disk_fills_its_pvc() {
        let blank = |size, preallocate| Ok(ImportAction::Blank { size: mib(size), preallocate });
        type Change = fn(&mut ImportJob);
        let table: [(&str, Change, Mounts, Result<ImportAction, Refusal>); 8] = [
            ("in a folder", |_| (), directory(mib(200)), blank(94, false)),
            ("in a small folder", |_| (), directory(mib(50)), blank(47, false)),
            ("no claim known", |job| job.image_size = None, directory(mib(200)), blank(189, false)),
            ("preallocated", |job| job.preallocation = true, directory(mib(200)), blank(94, true)),
            ("on a device", |_| (), device(mib(200)), blank(200, false)),
            (
                "a device to be filled",
                |job| job.preallocation = true,
                device(mib(200)),
                blank(200, true),
            ),
            ("a device smaller than its claim", |_| (), device(mib(5)), blank(5, false)),
            (
                "an archive",
                |job| job.content = ContentType::Archive,
                directory(MIB),
                Err(Refusal::BlankArchive),
            ),
        ];
        for (case, change, mounts, expected) in table {
            assert_eq!(plan_job(&job(SourceKind::Blank, change), &mounts), expected, "{case}");
        }
    }

    #[test]
    fn sources_that_are_not_there_are_named() {
        for name in ["glance", "", "HTTP"] {
            let job = job(SourceKind::Unknown(name.into()), |_| ());
            let refused = Err(Refusal::UnknownSource(name.into()));
            assert_eq!(plan_job(&job, &directory(MIB)), refused, "{name}");
        }
        for source in [SourceKind::Registry, SourceKind::Imageio] {
            for content in [ContentType::Archive, ContentType::Other] {
                let job = job(source.clone(), |job| job.content = content);
                let refused = Err(Refusal::ContentType { source: source.clone() });
                assert_eq!(plan_job(&job, &directory(MIB)), refused);
            }
        }
    }
}
