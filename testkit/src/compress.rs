//! The system's compressors, in every shape of stream that they and `cat` produce.

use std::io::Write;
use std::process::Stdio;

use crate::tool::require_tool;

/// Which program compresses, how hard, and into how many pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressor {
    /// `gzip`, `pigz`, `xz`, `pixz`, `zstd`, `bzip2` or `lz4`.
    pub program: &'static str,
    /// As on the command line: 1 to 9, for zstd to 19.
    pub level: u8,
    /// The shape of the stream.
    pub pieces: Pieces,
}

/// The shape of a compressed stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pieces {
    /// As the program does it: one member, one stream of one block (pixz: several), one frame.
    One,
    /// The input in so many parts, each compressed separately, and concatenated.
    Concatenated(u64),
    /// One xz stream of blocks of so many input bytes, with their sizes in the block headers (`xz -T2`).
    Blocks(u64),
    /// As `Concatenated`, with what the format allows between the parts: null bytes between xz streams, a skippable
    /// frame between frames of zstd and lz4. For gzip and bzip2 there is nothing.
    Padded(u64),
}

impl Compressor {
    /// One gzip member.
    pub const GZIP: Self = Self { program: "gzip", level: 6, pieces: Pieces::One };
    /// One gzip member of blocks that begin afresh, each ended by a flush.
    pub const PIGZ: Self = Self { program: "pigz", level: 6, pieces: Pieces::One };
    /// One xz stream of one block.
    pub const XZ: Self = Self { program: "xz", level: 1, pieces: Pieces::One };
    /// One xz stream of blocks of 1 MiB.
    pub const XZ_BLOCKS: Self = Self { program: "xz", level: 1, pieces: Pieces::Blocks(1 << 20) };
    /// One zstd frame.
    pub const ZSTD: Self = Self { program: "zstd", level: 3, pieces: Pieces::One };
    /// One bzip2 stream of blocks of 900 kB.
    pub const BZIP2: Self = Self { program: "bzip2", level: 9, pieces: Pieces::One };
    /// One lz4 frame of blocks of 4 MiB.
    pub const LZ4: Self = Self { program: "lz4", level: 1, pieces: Pieces::One };

    /// In pieces of another shape.
    #[must_use]
    pub const fn pieces(self, pieces: Pieces) -> Self {
        Self { pieces, ..self }
    }

    /// Harder or softer.
    #[must_use]
    pub const fn level(self, level: u8) -> Self {
        Self { level, ..self }
    }
}

/// Compresses `bytes`. `None` where the program is missing: the test is skipped.
///
/// # Panics
/// When the program fails.
pub fn compress(how: Compressor, bytes: &[u8]) -> Option<Vec<u8>> {
    require_tool(how.program)?;
    match how.pieces {
        Pieces::One | Pieces::Blocks(_) => compress_part(how, bytes),
        Pieces::Concatenated(count) => concatenate(how, bytes, count, &[]),
        Pieces::Padded(count) => concatenate(how, bytes, count, padding(how.program)),
    }
}

fn concatenate(how: Compressor, bytes: &[u8], count: u64, between: &[u8]) -> Option<Vec<u8>> {
    let part_len = bytes.len().div_ceil(count.max(1) as usize).max(1);
    let mut stream = Vec::new();
    for part in bytes.chunks(part_len) {
        stream.extend(compress_part(how, part)?);
        stream.extend(between);
    }
    Some(stream)
}

fn padding(program: &str) -> &'static [u8] {
    match program {
        // The .xz file format 1.2, section 2.2: stream padding is a multiple of four null bytes.
        "xz" | "pixz" => &[0; 8],
        // RFC 8878, section 3.1.2, and lz4 as well: magic, length, user data.
        "zstd" | "lz4" => b"\x53\x2a\x4d\x18\x05\0\0\0hello",
        _ => &[],
    }
}

fn compress_part(how: Compressor, bytes: &[u8]) -> Option<Vec<u8>> {
    let level = format!("-{}", how.level);
    let mut arguments = match how.program {
        // pixz compresses stdin to stdout when it is given no name, and would add a tar index.
        "pixz" => vec!["-t".to_owned(), "-p1".to_owned(), level],
        "pigz" => vec!["-c".to_owned(), "-p2".to_owned(), level],
        "zstd" => vec!["-q".to_owned(), "-c".to_owned(), level],
        _ => vec!["-c".to_owned(), level],
    };
    match how.pieces {
        Pieces::Blocks(len) => arguments.extend(["-T2".to_owned(), format!("--block-size={len}")]),
        _ if how.program == "xz" => arguments.push("-T1".to_owned()),
        _ => {}
    }
    let mut input = tempfile::tempfile().expect("cannot create a temporary file");
    input.write_all(bytes).expect("cannot write a temporary file");
    std::io::Seek::rewind(&mut input).expect("cannot rewind a temporary file");
    let mut command = require_tool(how.program)?.command(arguments);
    let output =
        command.stdin(input).stderr(Stdio::inherit()).output().expect("cannot run a compressor");
    assert!(output.status.success(), "{command:?} failed: {}", output.status);
    Some(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments;
    use crate::disk::SparseDisk;

    fn decompressed(program: &str, bytes: &[u8]) -> Vec<u8> {
        let mut input = tempfile::tempfile().unwrap();
        input.write_all(bytes).unwrap();
        std::io::Seek::rewind(&mut input).unwrap();
        let tool = require_tool(program).unwrap();
        let output = tool.command(["-dc"]).stdin(input).output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    #[test]
    fn every_shape_is_accepted_by_its_program() {
        let disk = SparseDisk::mixed(3 << 20, 1).bytes();
        for (how, program) in [
            (Compressor::GZIP, "gzip"),
            (Compressor::GZIP.pieces(Pieces::Concatenated(3)), "gzip"),
            (Compressor::PIGZ.level(9), "gzip"),
            (Compressor::XZ, "xz"),
            (Compressor::XZ_BLOCKS, "xz"),
            (Compressor::XZ.pieces(Pieces::Padded(2)), "xz"),
            (Compressor { program: "pixz", ..Compressor::XZ }, "xz"),
            (Compressor::ZSTD, "zstd"),
            (Compressor::ZSTD.pieces(Pieces::Padded(4)), "zstd"),
            (Compressor::BZIP2, "bzip2"),
            (Compressor::BZIP2.pieces(Pieces::Concatenated(3)), "bzip2"),
            (Compressor::LZ4, "lz4"),
            (Compressor::LZ4.pieces(Pieces::Padded(3)), "lz4"),
        ] {
            let Some(stream) = compress(how, &disk) else { continue };
            assert!(stream.len() < disk.len(), "{how:?}");
            assert_eq!(decompressed(program, &stream), disk, "{how:?}");
        }
    }

    #[test]
    fn blocks_are_several() {
        let Some(xz) = require_tool("xz") else { return };
        let stream =
            compress(Compressor::XZ_BLOCKS, &SparseDisk::mixed(3 << 20, 1).bytes()).unwrap();
        let file = tempfile::Builder::new().suffix(".xz").tempfile().unwrap();
        std::fs::write(file.path(), stream).unwrap();
        let listing = xz.run(arguments!["--robot", "--list", file.path()]);
        let listing = String::from_utf8(listing).unwrap();
        assert!(listing.contains("totals\t1\t3\t"), "{listing}"); // one stream, three blocks
    }
}
