//! The file system in memory that the guest's kernel starts with, as a cpio archive of the kind "newc".

/// The type of an entry, in its mode.
const DIRECTORY: u32 = 0o040_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
const REGULAR: u32 = 0o100_000;
/// Major and minor number of `/dev/console`.
const CONSOLE: (usize, usize) = (5, 1);

/// An archive in the making.
pub struct Initramfs {
    bytes: Vec<u8>,
    entries: usize,
}

impl Initramfs {
    /// With the folders that an init program mounts file systems on, and the console that the kernel opens for it.
    pub fn new() -> Self {
        let mut new = Self { bytes: Vec::new(), entries: 0 };
        for name in ["bin", "dev", "modules", "proc", "sys"] {
            new.add(name, DIRECTORY | 0o755, &[], (0, 0));
        }
        new.add("dev/console", CHARACTER_DEVICE | 0o600, &[], CONSOLE);
        new
    }

    /// Adds a file, which is executable.
    pub fn file(&mut self, name: &str, content: &[u8]) {
        self.add(name, REGULAR | 0o755, content, (0, 0));
    }

    /// The complete archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, &[], (0, 0));
        self.bytes
    }

    fn add(&mut self, name: &str, mode: u32, content: &[u8], device: (usize, usize)) {
        self.entries += 1;
        let (major, minor) = device;
        self.bytes.extend_from_slice(b"070701");
        let links = 1;
        let number = [
            self.entries,
            mode as usize,
            0, // user
            0, // group
            links,
            0, // time
            content.len(),
            0, // the device that the archive was made on
            0,
            major,
            minor,
            name.len() + 1,
            0, // checksum, which this kind has not
        ];
        for field in number {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_the_last_one_ends_the_archive() {
        let mut archive = Initramfs::new();
        archive.file("init", b"12345");
        let bytes = archive.finish();
        let header = |at: usize, field: usize| {
            let text = std::str::from_utf8(&bytes[at + 6 + 8 * field..][..8]).unwrap();
            usize::from_str_radix(text, 16).unwrap()
        };
        let (mut at, mut names) = (0, Vec::new());
        while at < bytes.len() {
            assert_eq!(&bytes[at..at + 6], b"070701", "at {at}");
            let (content_len, name_len) = (header(at, 6), header(at, 11));
            let name = &bytes[at + 110..][..name_len - 1];
            names.push(String::from_utf8_lossy(name).into_owned());
            at = (at + 110 + name_len).next_multiple_of(4) + content_len.next_multiple_of(4);
        }
        let expected =
            ["bin", "dev", "modules", "proc", "sys", "dev/console", "init", "TRAILER!!!"];
        assert_eq!(names, expected);
    }
}
