//! How large the disk in a file is.

use formats::sniff::{ImageFormat, SNIFF_BYTES, Sniffed, sniff};
use pipeline::plan::raw_virtual_size;
use pipeline::{Error, Options, Source, inspect};

/// The virtual size of the disk that `source` holds. A raw disk may hold anything, a compressed stream too: it is still as
/// large as its file.
///
/// # Errors
/// When it cannot be read, is empty, or is an image that is refused.
pub fn size_of_disk(source: &dyn Source) -> Result<u64, Error> {
    let name = || source.facts().name.clone();
    let unread = |source| Error::Source { name: name(), source };
    let Some(length) = source.facts().length.filter(|length| *length > 0) else {
        return Err(Error::Decode { name: name(), source: formats::Error::Empty { what: "disk" } });
    };
    let mut head = source.open(0, Some(length.min(SNIFF_BYTES as u64)));
    let head = head.next().map_err(unread)?.unwrap_or_default();
    match sniff(&head) {
        Sniffed::Compressed(_) | Sniffed::Foreign(_) | Sniffed::Image(ImageFormat::Raw) => {
            Ok(raw_virtual_size(length))
        }
        Sniffed::Image(_) => {
            let found = inspect(source, &Options::default())?;
            let size = found.virtual_size.filter(|_| found.route != "refused");
            size.ok_or_else(|| unread(found.because.into()))
        }
    }
}
