//! How large the disk in a file is.

use pipeline::{Error, Options, Source, inspect};

/// The virtual size of the disk that `source` holds. A raw disk may hold anything, a compressed stream too: it is still as
/// large as its file.
///
/// # Errors
/// When it cannot be read, is empty, or is an image that is refused.
pub fn size_of_disk(source: &dyn Source) -> Result<u64, Error> {
    let facts = source.facts();
    let name = || facts.name.clone();
    let found = inspect(source, &Options::default())?;
    let whole = facts.length.filter(|length| *length > 0);
    match (found.compression.is_empty(), found.virtual_size, whole) {
        (true, Some(size), Some(_)) if found.route != "refused" => Ok(size),
        (false, _, Some(length)) => Ok(pipeline::plan::raw_virtual_size(length)),
        (_, _, None) => {
            Err(Error::Decode { name: name(), source: formats::Error::Empty { what: "disk" } })
        }
        _ => Err(Error::Source { name: name(), source: found.because.into() }),
    }
}
