//! qemu-img and qemu-io as oracles: they write images, and read what a guest would see in them.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use tempfile::{NamedTempFile, TempPath};

use crate::arguments;
use crate::block_options::BlockOptions;
use crate::disk::{Fill, SparseDisk};
use crate::qcow2_options::{Change, Qcow2Options};
use crate::tool::{Tool, require_tool};

/// The pair of programs.
#[derive(Clone, Debug)]
pub struct QemuImg {
    img: Tool,
    io: Tool,
}

/// An image in a temporary file, removed on drop.
#[derive(Debug)]
pub struct Image {
    path: TempPath,
}

impl Image {
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let image = Self::empty();
        std::fs::write(&image.path, bytes).expect("cannot write an image");
        image
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's bytes, as they would travel.
    pub fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).expect("cannot read an image")
    }

    fn empty() -> Self {
        let file = NamedTempFile::with_prefix("testkit-image-").expect("cannot create an image");
        Self { path: file.into_temp_path() }
    }
}

impl QemuImg {
    /// Both programs. `None` where one is missing: the test is skipped.
    pub fn require() -> Option<Self> {
        Some(Self { img: require_tool("qemu-img")?, io: require_tool("qemu-io")? })
    }

    /// Runs `qemu-img` with any arguments, and returns what it printed.
    pub fn run<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, arguments: I) -> Vec<u8> {
        self.img.run(arguments)
    }

    /// A qcow2 file of the disk, after all changes of its history. [`QemuImg::to_raw`] returns what the guest sees then; without
    /// a history that is the disk.
    pub fn qcow2(&self, disk: &SparseDisk, how: &Qcow2Options) -> Image {
        let raw = Image::empty();
        disk.write_to(raw.path());
        let mut flags = vec!["-o".to_owned(), how.option_text()];
        flags.extend(how.compressed.then(|| "-c".to_owned()));
        flags.extend(how.out_of_order.then(|| "-W".to_owned()));
        let image = self.convert(raw.path(), "raw", "qcow2", &flags);
        let mut len = disk.len();
        for change in &how.history {
            len = self.apply(&image, *change, len);
        }
        image
    }

    /// A vmdk, vdi, vhd or vhdx file of the disk, with its later writes.
    /// A qcow2 image whose second cluster of the disk is its first, and the disk in it, of `len` bytes. It is valid, and
    /// cannot be read in one pass, whatever the target.
    pub fn qcow2_with_a_cluster_used_twice(&self, len: u64) -> (Vec<u8>, Vec<u8>) {
        let how = Qcow2Options::default();
        let disk = SparseDisk::new(len).with(0, len, Fill::Pattern);
        let (mut image, mut disk) = (self.qcow2(&disk, &how).bytes(), disk.bytes());
        let offset = |at: usize| {
            let entry = image[at..at + 8].try_into().expect("eight bytes");
            usize::try_from(u64::from_be_bytes(entry) & 0x00ff_ffff_ffff_fe00).expect("an offset")
        };
        let table = offset(offset(40)); // from the L1 table, whose offset is in the header
        image.copy_within(table..table + 8, table + 8);
        let cluster = 1 << how.cluster_bits;
        disk.copy_within(..cluster, cluster);
        (image, disk)
    }

    pub fn blocks(&self, disk: &SparseDisk, how: &BlockOptions) -> Image {
        let raw = Image::empty();
        disk.write_to(raw.path());
        let options =
            if how.options.is_empty() { vec![] } else { vec!["-o", how.options.as_str()] };
        let image = self.convert(raw.path(), "raw", how.format, &options);
        if how.writes.is_empty() {
            return image;
        }
        let mut arguments = arguments!["-f", how.format].to_vec();
        for (at, len, byte) in &how.writes {
            let at = disk.len() / 1024 * at / 512 * 512;
            let len = (disk.len() / 1024 * len / 512 * 512).clamp(512, disk.len() - at);
            arguments.extend(arguments!["-c", format!("write -P {byte} {at} {len}")]);
        }
        arguments.push(image.path().into());
        self.io.run(arguments);
        image
    }

    /// `qemu-img convert` into a new file.
    pub fn convert(&self, source: &Path, from: &str, to: &str, flags: &[impl AsRef<str>]) -> Image {
        let image = Image::empty();
        let flags = flags.iter().map(|flag| flag.as_ref().into());
        let before = arguments!["convert", "-f", from, "-O", to];
        let arguments = before.into_iter().chain(flags).chain(arguments![source, image.path()]);
        self.img.run(arguments);
        image
    }

    /// What a guest would read from an image.
    pub fn to_raw(&self, image: &Path, format: &str) -> Vec<u8> {
        self.convert(image, format, "raw", &[] as &[&str]).bytes()
    }

    /// Do two images hold the same disk? Trailing zeroes do not count.
    pub fn same(&self, left: (&Path, &str), right: (&Path, &str)) -> bool {
        let arguments = arguments!["compare", "-f", left.1, "-F", right.1, left.0, right.0];
        let mut command = self.img.command(arguments);
        let output = command.output();
        let output = output.expect("cannot run qemu-img");
        match output.status.code() {
            Some(0) => true,
            Some(1) => false,
            _ => panic!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }

    /// Runs `qemu-io` commands on a qcow2 file: `write -P 0x55 0 64k`, `discard 0 1M`, `write -c …`.
    pub fn qemu_io(&self, image: &Path, commands: &[&str]) {
        let mut arguments: Vec<OsString> = vec!["-f".into(), "qcow2".into()];
        // Discarded clusters leave the tables only where discards are passed on.
        arguments.extend(["-d".into(), "unmap".into()]);
        arguments.extend(commands.iter().flat_map(|command| ["-c".into(), command.into()]));
        arguments.push(image.into());
        self.io.run(arguments);
    }

    /// Writes the first sector of an image, and dies before it is closed.
    pub fn write_and_die(&self, image: &Image, format: &str) {
        let (write, die) = ("write -P 7 0 512", "abort");
        let path = image.path();
        let mut command = self.io.command(arguments!["-f", format, "-c", write, "-c", die, path]);
        // It exits by SIGABRT, as intended.
        command.output().expect("cannot run qemu-io");
    }

    /// Returns the disk's new length.
    fn apply(&self, image: &Image, change: Change, len: u64) -> u64 {
        let part = |at: u64, part_len: u64| {
            let at = len / 1024 * at / 512 * 512;
            (at, (len / 1024 * part_len / 512 * 512).clamp(512, len - at))
        };
        let io = |command: String| self.qemu_io(image.path(), &[&command]);
        match change {
            Change::Write { at, len, byte } => {
                let (at, len) = part(at, len);
                io(format!("write -P {byte} {at} {len}"));
            }
            Change::Zero { at, len } => {
                let (at, len) = part(at, len);
                io(format!("write -z {at} {len}"));
            }
            Change::Discard { at, len } => {
                let (at, len) = part(at, len);
                io(format!("discard {at} {len}"));
            }
            Change::Snapshot => {
                self.img.run(arguments!["snapshot", "-c", "before", image.path()]);
            }
            Change::Grow(per_cent) => {
                let grown = (len + len * per_cent / 100).next_multiple_of(512);
                let size = grown.to_string();
                self.img.run(arguments!["resize", "-f", "qcow2", image.path(), size]);
                return grown;
            }
            Change::Crash => self.write_and_die(image, "qcow2"),
        }
        len
    }
}
