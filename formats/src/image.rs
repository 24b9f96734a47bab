//! From the first bytes of an image with an index to its [`Layout`].
//!
//! Most formats have all metadata in their first bytes. For others the caller fetches the missing part and calls again.

use std::ops::Range;
use std::sync::Arc;

use crate::index::Layout;
use crate::sniff::ImageFormat;
use crate::{Error, qcow2, vdi, vhd, vhdx, vmdk};

/// The parts of an image that are available.
#[derive(Debug)]
pub struct KnownBytes {
    head: Vec<u8>,
    others: Vec<(u64, Vec<u8>)>,
    file_len: Option<u64>,
    seekable: bool,
    backing: Option<String>,
}

/// What [`open`] came to.
#[derive(Debug)]
pub enum Opened {
    /// The image, ready to be read.
    Layout(Arc<dyn Layout>),
    /// These bytes of it have to be [added](KnownBytes::add) first. There are never many of them.
    Needs(Range<u64>),
}

/// Why a header was not read to its end.
#[derive(Debug)]
pub(crate) enum Stop {
    Needs(Range<u64>),
    Refused(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl KnownBytes {
    /// The first bytes of an image: 64 KiB of them, or all there are. `file_len` is its length, where it is known before its
    /// end.
    pub fn new(head: Vec<u8>, file_len: Option<u64>) -> Self {
        Self { head, others: Vec::new(), file_len, seekable: false, backing: None }
    }

    /// Declares that any part of the image can be read.
    #[must_use]
    pub fn seekable(self) -> Self {
        Self { seekable: true, ..self }
    }

    /// Declares that the image holds only the changes since the image with the file name `backing`. Only qcow2 can.
    #[must_use]
    pub fn above(self, backing: &str) -> Self {
        Self { backing: Some(backing.to_owned()), ..self }
    }

    /// Adds the bytes that were needed.
    pub fn add(&mut self, at: u64, bytes: Vec<u8>) {
        self.others.push((at, bytes));
    }

    /// Replaces the first bytes by more of them.
    pub fn set_head(&mut self, head: Vec<u8>) {
        self.head = head;
    }

    pub(crate) fn file_len(&self) -> Option<u64> {
        self.file_len
    }

    pub(crate) fn is_seekable(&self) -> bool {
        self.seekable
    }

    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// These bytes of the image, which are of `what`.
    pub(crate) fn bytes(&self, range: Range<u64>, what: &'static str) -> Result<&[u8], Stop> {
        if let Some(file_len) = self.file_len.filter(|&file_len| range.end > file_len) {
            return Err(if range.start < file_len {
                Error::Truncated { what, at: file_len }
            } else {
                Error::OutsideFile { what, at: range.start, file_len }
            }
            .into());
        }
        let head = (0, &self.head);
        let others = self.others.iter().map(|(at, bytes)| (*at, bytes));
        for (at, bytes) in std::iter::once(head).chain(others) {
            let part = range.start.checked_sub(at).zip(range.end.checked_sub(at));
            if let Some((start, end)) = part
                && let Some(part) = bytes.get(start as usize..end as usize)
            {
                return Ok(part);
            }
        }
        Err(Stop::Needs(range))
    }
}

/// Reads and checks the header of an image with an index.
///
/// # Errors
/// For whatever the header alone is reason to refuse: see [`Error`].
pub fn open(format: ImageFormat, known: &KnownBytes) -> Result<Opened, Error> {
    let opened: Result<Arc<dyn Layout>, Stop> = match format {
        ImageFormat::Raw => Err(Error::NotThisFormat { format: "disk" }.into()),
        ImageFormat::Qcow2 => {
            let header = match &known.backing {
                None => qcow2::Header::parse(&known.head, known.file_len),
                Some(backing) => qcow2::Header::parse_delta(&known.head, known.file_len, backing),
            };
            match header {
                Ok(header) => Ok(Arc::new(header)),
                Err(error) => Err(error.into()),
            }
        }
        ImageFormat::Vmdk => vmdk::open(known),
        ImageFormat::Vdi => vdi::open(known),
        ImageFormat::Vhd => vhd::open(known),
        ImageFormat::Vhdx => vhdx::open(known),
    };
    match opened {
        Ok(layout) => Ok(Opened::Layout(layout)),
        Err(Stop::Needs(range)) => Ok(Opened::Needs(range)),
        Err(Stop::Refused(error)) => Err(error),
    }
}
