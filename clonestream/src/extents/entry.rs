//! The entries of a stream: one disk, or the files, directories and links of a volume.

use super::frame::u64_at;

/// Of a path, and of a link's target, in bytes: Linux's `PATH_MAX` without NUL.
const PATH_LEN_MAX: usize = 4095;
const FIXED_LEN: usize = 24;
const PERMISSIONS: u32 = 0o7777;

/// Maximum bytes of an entry's payload.
pub(super) const PAYLOAD_MAX: usize = FIXED_LEN + 2 * PATH_LEN_MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the root of the volume, without `..`. Empty for a disk.
    pub path: Vec<u8>,
    pub kind: EntryKind,
    /// Bytes of content; 0 for directories and links.
    pub size: u64,
    /// Permission bits only.
    pub mode: u32,
    /// Modification time: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A whole device.
    Disk,
    Regular,
    Directory,
    /// The target, verbatim: it may point out of the volume.
    Symlink(Vec<u8>),
    /// Path of an earlier entry.
    HardLink(Vec<u8>),
}

impl Entry {
    pub fn disk(size: u64) -> Self {
        Self { path: Vec::new(), kind: EntryKind::Disk, size, mode: 0, modified: (0, 0) }
    }

    /// `None` for an entry that [`Entry::parse`] would reject.
    pub(super) fn to_payload(&self) -> Option<Vec<u8>> {
        self.check().ok()?;
        let none = &Vec::new();
        let (kind, link) = match &self.kind {
            EntryKind::Disk => (0, none),
            EntryKind::Regular => (1, none),
            EntryKind::Directory => (2, none),
            EntryKind::Symlink(target) => (3, target),
            EntryKind::HardLink(target) => (4, target),
        };
        let (seconds, nanoseconds) = self.modified;
        let mut bytes = vec![kind, 0, 0, 0];
        bytes.extend((self.mode & PERMISSIONS).to_le_bytes());
        bytes.extend(seconds.to_le_bytes());
        bytes.extend(nanoseconds.to_le_bytes());
        bytes.extend((self.path.len() as u16).to_le_bytes());
        bytes.extend((link.len() as u16).to_le_bytes());
        bytes.extend(&self.path);
        bytes.extend(link);
        Some(bytes)
    }

    pub(super) fn parse(payload: &[u8], size: u64) -> Result<Self, &'static str> {
        const SHORT: &str = "an entry is shorter than its names";
        let (fixed, names) = payload.split_at_checked(FIXED_LEN).ok_or(SHORT)?;
        let u16_at = |at: usize| usize::from(u16::from_le_bytes([fixed[at], fixed[at + 1]]));
        let u32_at = |at: usize| (u64_at(fixed, at) & u64::from(u32::MAX)) as u32;
        let (path, link) = names.split_at_checked(u16_at(20)).ok_or(SHORT)?;
        if link.len() != u16_at(22) {
            return Err("an entry is longer than its names");
        }
        let kind = match fixed[0] {
            0 => EntryKind::Disk,
            1 => EntryKind::Regular,
            2 => EntryKind::Directory,
            3 => EntryKind::Symlink(link.to_vec()),
            4 => EntryKind::HardLink(link.to_vec()),
            _ => return Err("an entry has an unknown kind"),
        };
        let has_link = matches!(kind, EntryKind::Symlink(_) | EntryKind::HardLink(_));
        if !has_link && !link.is_empty() || fixed[1..4] != [0; 3] {
            return Err("an entry uses reserved fields");
        }
        let modified = (u64_at(fixed, 8).cast_signed(), u32_at(16));
        let entry = Self { path: path.to_vec(), kind, size, mode: u32_at(4), modified };
        entry.check()?;
        Ok(entry)
    }

    fn check(&self) -> Result<(), &'static str> {
        let has_content = matches!(self.kind, EntryKind::Disk | EntryKind::Regular);
        if !has_content && self.size > 0 {
            return Err("an entry without content has a size");
        }
        if self.size > i64::MAX as u64 {
            return Err("an entry is larger than 2^63 - 1 bytes");
        }
        if self.mode & !PERMISSIONS != 0 || self.modified.1 >= 1_000_000_000 {
            return Err("an entry has an invalid mode or time");
        }
        match &self.kind {
            EntryKind::Disk if self.path.is_empty() => return Ok(()),
            EntryKind::Disk => return Err("a disk has a path"),
            EntryKind::Symlink(target) if target.is_empty() => return Err("a link has no target"),
            EntryKind::Symlink(target) if target.len() > PATH_LEN_MAX || target.contains(&0) => {
                return Err("a link has an invalid target");
            }
            EntryKind::HardLink(target) => check_path(target)?,
            EntryKind::Symlink(_) | EntryKind::Regular | EntryKind::Directory => {}
        }
        check_path(&self.path)
    }
}

/// Accepts only relative paths without `.` and `..`.
fn check_path(path: &[u8]) -> Result<(), &'static str> {
    let is_part = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && part.len() <= 255;
    let leads_down = path.split(|byte| *byte == b'/').all(is_part);
    if path.len() > PATH_LEN_MAX || path.contains(&0) || !leads_down {
        return Err("a path is invalid or leads out of the volume");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_out_of_the_volume_are_neither_sent_nor_accepted() {
        let long = "x/".repeat(2100);
        for (path, good) in [
            ("disk.img", true),
            ("a/b/c", true),
            ("...", true),
            ("", false),
            ("/a", false),
            ("a/", false),
            ("a//b", false),
            ("./a", false),
            ("a/../b", false),
            ("..", false),
            ("a\0b", false),
            (&long, false),
            (&"y".repeat(256), false),
        ] {
            for kind in [EntryKind::Regular, EntryKind::HardLink(path.into())] {
                let entry = Entry { path: path.into(), kind, size: 0, mode: 0, modified: (0, 0) };
                assert_eq!(entry.to_payload().is_some(), good, "{path:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let file = || Entry {
            path: b"a".into(),
            kind: EntryKind::Regular,
            size: 5,
            mode: 0o644,
            modified: (-7, 999_999_999),
        };
        let good = file().to_payload().unwrap();
        assert_eq!(Entry::parse(&good, 5), Ok(file()));
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            Entry::parse(&bytes, 5)
        };
        for (at, byte) in [(0, 5), (0, 2), (1, 1), (5, 0x80), (19, 0xff), (20, 2), (22, 1), (24, 0)]
        {
            assert!(with(at, byte).is_err(), "{at} {byte}");
        }
        assert!(Entry::parse(&good[..good.len() - 1], 5).is_err());
        assert!(Entry::parse(&good, u64::MAX).is_err());
        assert!(Entry { size: 1, kind: EntryKind::Directory, ..file() }.to_payload().is_none());
        assert!(Entry { kind: EntryKind::Disk, ..file() }.to_payload().is_none());
        assert!(Entry { kind: EntryKind::Symlink(vec![]), ..file() }.to_payload().is_none());
    }
}
