//! Estimates before an import whether the data of a sparse disk fits into the free space of a file system.

use std::path::Path;

use contract::ByteCount;

use crate::error::Error;
use crate::probe::ProbedImage;
use crate::routes::{indexed, raw};
use crate::source::Source;

/// Upper bound of the bytes of the disk that hold data. `None` if it takes reading the whole image.
///
/// # Errors
/// Of the source, and of an image whose tables are refused.
pub fn data_bytes(source: &dyn Source, image: &ProbedImage) -> Result<Option<ByteCount>, Error> {
    let facts = source.facts();
    if !facts.ranges || !image.facts.compressions.is_empty() {
        return Ok(None);
    }
    let bytes = match (&image.facts.layout, facts.length) {
        (Some(layout), _) => Some(indexed::allocated(source, &**layout)?),
        (None, Some(length)) => raw::allocated(source, length)?,
        (None, None) => None,
    };
    Ok(bytes.map(ByteCount::new))
}

/// The warning for a disk of `size` that is larger than the `free` space. `None` if its `data` is known to fit.
pub fn warning(
    path: &Path,
    size: ByteCount,
    data: Option<ByteCount>,
    free: ByteCount,
) -> Option<String> {
    let name = path.display();
    let (size, available) = (size.human(), free.human());
    match data {
        Some(data) if data <= free => None,
        Some(data) => Some(format!(
            "{name} may not fit: its disk of {size} holds up to {} of data, and {available} are free",
            data.human()
        )),
        None => Some(format!(
            "{name} may not fit: its disk has {size}, and {available} are free; zeroes take no space"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_whose_data_may_not_fit_gets_a_warning() {
        let mib = ByteCount::mebibytes;
        let warn = |data| warning(Path::new("disk.img"), mib(1024), data, mib(32));
        assert_eq!(warn(Some(mib(32))), None, "equality fits");
        assert_eq!(
            warn(Some(mib(33))).unwrap(),
            "disk.img may not fit: its disk of 1 GiB holds up to 33 MiB of data, and 32 MiB are free"
        );
        assert_eq!(
            warn(None).unwrap(),
            "disk.img may not fit: its disk has 1 GiB, and 32 MiB are free; zeroes take no space"
        );
    }
}
