//! What the entries of a layer mean for the directory `/disk` of a container disk. No input or output here.

use std::collections::BTreeSet;

use formats::tar::{Entry, Kind};

use super::image_error::ContainerImageError;

const FOLDER: &str = "disk";
/// Before the name of a file that an upper layer removes (OCI image specification, "Whiteouts").
const WHITEOUT: &str = ".wh.";
/// Removes all that lower layers have in a directory.
const OPAQUE: &str = ".wh..wh..opq";
/// Removed names; there is no reason for more than one.
const HIDDEN_MAX: usize = 1024;

/// What upper layers remove from those below them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hidden {
    everything: bool,
    names: BTreeSet<String>,
}

impl Hidden {
    /// Nothing below can show any more.
    pub(super) fn everything(&self) -> bool {
        self.everything
    }
}

/// What an entry is, seen from `/disk`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// Elsewhere, or removed by a layer above.
    Nothing,
    Disk,
}

/// Looks at an entry of a layer; `above` is what layers above remove, `below` what this one removes.
pub(super) fn examine_entry(
    entry: &Entry,
    above: &Hidden,
    below: &mut Hidden,
) -> Result<EntryKind, ContainerImageError> {
    let path = String::from_utf8_lossy(&entry.path);
    if path.starts_with('/') {
        return Ok(EntryKind::Nothing); // as in upstream CDI
    }
    let name = || path.chars().take(256).collect::<String>();
    let parts: Vec<_> =
        path.split('/').filter(|part| !part.is_empty() && *part != ".").take(4).collect();
    match *parts.as_slice() {
        [FOLDER, ..] if path.split('/').any(|part| part == "..") => {
            Err(ContainerImageError::Tainted { name: name() })
        }
        // A whiteout of the directory, or of the directory above it; a file in its place.
        [".wh.disk" | OPAQUE] | [FOLDER, OPAQUE] => {
            below.everything = true;
            Ok(EntryKind::Nothing)
        }
        [FOLDER] => match entry.kind {
            Kind::Directory => Ok(EntryKind::Nothing),
            _ if above.everything => Ok(EntryKind::Nothing),
            _ => Err(not_a_file(entry, name())),
        },
        [FOLDER, file] if file.starts_with(WHITEOUT) => {
            if below.names.len() >= HIDDEN_MAX {
                let because = format!("a layer removes more than {HIDDEN_MAX} files");
                return Err(ContainerImageError::Document { what: "layer", because });
            }
            below.names.insert(file[WHITEOUT.len()..].to_owned());
            Ok(EntryKind::Nothing)
        }
        [FOLDER, file, ..] if above.everything || above.names.contains(file) => {
            Ok(EntryKind::Nothing)
        }
        [FOLDER, _] => match entry.kind {
            Kind::Regular => Ok(EntryKind::Disk),
            Kind::Directory => Err(directory("image directory contains another directory")),
            _ => Err(not_a_file(entry, name())),
        },
        [FOLDER, ..] => Err(directory("image directory contains another directory")),
        _ => Ok(EntryKind::Nothing),
    }
}

/// A second file next to the disk.
pub(super) fn several() -> ContainerImageError {
    directory("image directory contains more than one file")
}

fn directory(because: &'static str) -> ContainerImageError {
    ContainerImageError::DiskFolder { because }
}

fn not_a_file(entry: &Entry, name: String) -> ContainerImageError {
    let what = match entry.kind {
        Kind::Symlink(_) => "a symbolic link",
        Kind::HardLink(_) => "a hard link",
        Kind::Regular => "a file instead of a folder",
        Kind::Directory => "a folder",
        Kind::Other => "a device or the like",
    };
    ContainerImageError::NotAFile { name, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, kind: Kind) -> Entry {
        Entry { path: path.into(), kind, size: 0, mode: 0o644 }
    }

    fn seen(path: &str, kind: Kind, above: &Hidden) -> String {
        match examine_entry(&entry(path, kind), above, &mut Hidden::default()) {
            Ok(found) => format!("{found:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn one_regular_file_in_the_folder_is_the_disk() {
        let link = || Kind::Symlink(b"/etc/shadow".to_vec());
        let table = [
            ("disk/a.img", Kind::Regular, "Disk"),
            ("./disk/a.img", Kind::Regular, "Disk"),
            ("disk//./a.img", Kind::Regular, "Disk"),
            ("/disk/a.img", Kind::Regular, "Nothing"),
            ("disk", Kind::Directory, "Nothing"),
            ("./disk/", Kind::Directory, "Nothing"),
            ("disk.img", Kind::Regular, "Nothing"),
            ("usr/disk/a.img", Kind::Regular, "Nothing"),
            (
                "disk/../etc/passwd",
                Kind::Regular,
                "content filepath is tainted: disk/../etc/passwd",
            ),
            ("disk/a", link(), "disk/a in the container image is a symbolic link"),
            (
                "disk/a",
                Kind::HardLink(b"b".to_vec()),
                "disk/a in the container image is a hard link",
            ),
            ("disk/a", Kind::Other, "disk/a in the container image is a device or the like"),
            ("disk", link(), "disk in the container image is a symbolic link"),
            ("disk/a/", Kind::Directory, "image directory contains another directory"),
            ("disk/a/b", Kind::Regular, "image directory contains another directory"),
        ];
        for (path, kind, expected) in table {
            let found = seen(path, kind, &Hidden::default());
            assert!(found.contains(expected), "{path}: {found}");
        }
    }

    #[test]
    fn whiteouts_hide_what_layers_below_have() {
        let hide = |whiteout: &str| {
            let mut below = Hidden::default();
            let seen =
                examine_entry(&entry(whiteout, Kind::Regular), &Hidden::default(), &mut below);
            assert_eq!(seen.unwrap(), EntryKind::Nothing, "{whiteout}");
            below
        };
        for whiteout in [".wh.disk", "./.wh..wh..opq", "disk/.wh..wh..opq"] {
            let above = hide(whiteout);
            assert!(above.everything(), "{whiteout}");
            assert_eq!(seen("disk/a", Kind::Regular, &above), "Nothing", "{whiteout}");
        }
        let above = hide("disk/.wh.a");
        assert_eq!(seen("disk/a", Kind::Symlink(vec![]), &above), "Nothing");
        assert_eq!(seen("disk/b", Kind::Regular, &above), "Disk");
        assert_eq!(hide("etc/.wh.a"), Hidden::default());
    }
}
