//! Which way an image takes, decided from facts alone.

use formats::sniff::{Compression, ImageFormat};

use contract::ByteCount;

use crate::error::Error;
use crate::source::SourceFacts;

/// What the first bytes told about the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFacts {
    /// Outermost first.
    pub compressions: Vec<Compression>,
    /// What is inside.
    pub format: ImageFormat,
    /// Bytes of the guest's disk, where a header tells.
    pub virtual_size: Option<u64>,
    /// The outermost compression consists of parts that can be decoded beside each other.
    pub parts: bool,
}

/// What the target offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetFacts {
    /// The largest virtual size that fits.
    pub available: ByteCount,
}

/// The way through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Several streams fetch what holds data; nothing else is fetched, and each part goes straight to its place.
    Ranges,
    /// The bytes are the disk, in order.
    Stream,
    /// As `Stream`, but parts of the compressed stream are decoded beside each other.
    Parts,
    /// An indexed image is decoded while it streams by, parking what comes before its table.
    OnePass,
}

impl Route {
    /// As `inspect` and reports say it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ranges => "ranges",
            Self::Stream => "stream",
            Self::Parts => "parallel parts",
            Self::OnePass => "one pass",
        }
    }
}

/// What is going to be done, and why that way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportPlan {
    /// The way through.
    pub route: Route,
    /// A clause that follows "because".
    pub because: &'static str,
    /// Bytes of the guest's disk where they are known before the body is read.
    pub virtual_size: Option<u64>,
    /// A killed process can be continued.
    pub resumable: bool,
}

/// The way an image takes into a target, or why it is refused.
///
/// `in_order`: all wire bytes are wanted in order, to be hashed.
///
/// # Errors
/// [`Error::TooLarge`] when the disk cannot fit.
pub fn plan_import(
    image: &ImageFacts,
    source: &SourceFacts,
    target: TargetFacts,
    in_order: bool,
) -> Result<ImportPlan, Error> {
    let plain = image.compressions.is_empty();
    let virtual_size = match (image.format, plain) {
        (ImageFormat::Raw, true) => source.length.map(raw_virtual_size),
        _ => image.virtual_size,
    };
    if let Some(needed) = virtual_size.filter(|size| *size > target.available.get()) {
        return Err(Error::TooLarge { needed: ByteCount::new(needed), offered: target.available });
    }
    let seekable = plain && source.ranges && !in_order;
    let (route, because) = match image.format {
        ImageFormat::Raw if seekable => {
            (Route::Ranges, "the image is raw and its source serves ranges")
        }
        ImageFormat::Raw if image.parts => {
            (Route::Parts, "the compressed stream is made of independent parts")
        }
        ImageFormat::Raw if plain && in_order => {
            (Route::Stream, "every byte of the image has to be hashed in order")
        }
        ImageFormat::Raw if plain => (Route::Stream, "the source cannot serve ranges"),
        ImageFormat::Raw => (Route::Stream, "a compressed stream has to be decoded from its start"),
        // All others have an index.
        _ if seekable => (Route::Ranges, "the image has an index and its source serves ranges"),
        _ if !plain => {
            (Route::OnePass, "an image inside a compressed stream can only be read in order")
        }
        _ if in_order => (Route::OnePass, "every byte of the image has to be hashed in order"),
        _ => (Route::OnePass, "the source cannot serve ranges"),
    };
    let resumable = plain && source.ranges && source.validator.is_some() && route != Route::OnePass;
    Ok(ImportPlan { route, because, virtual_size, resumable })
}

/// The same for a delta. It changes only some parts of the target, so it has to say which; and all of it is done again
/// after a failure, which is no loss.
///
/// # Errors
/// [`Error::Unsupported`] when the image can only be read in order, or its format does not tell what became zero from what
/// stayed as it was.
pub fn plan_delta(plan: ImportPlan, format: ImageFormat) -> Result<ImportPlan, Error> {
    if !matches!(format, ImageFormat::Raw | ImageFormat::Qcow2) {
        return Err(Error::Unsupported { what: format!("a delta in a {format} image") });
    }
    if plan.route != Route::Ranges {
        let what = format!("a delta that is read in one go ({})", plan.because);
        return Err(Error::Unsupported { what });
    }
    Ok(ImportPlan { resumable: false, ..plan })
}

/// A raw disk is counted in sectors of 512 bytes; the missing part of the last one reads as zeroes.
pub fn raw_virtual_size(length: u64) -> u64 {
    length.checked_next_multiple_of(512).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(
        change: fn(&mut ImageFacts, &mut SourceFacts),
        in_order: bool,
    ) -> Result<ImportPlan, Error> {
        let mut image = ImageFacts {
            compressions: vec![],
            format: ImageFormat::Raw,
            virtual_size: None,
            parts: false,
        };
        let mut source = SourceFacts {
            name: "test".into(),
            length: Some(1000),
            ranges: true,
            validator: Some("v".into()),
            streams_max: 8,
        };
        change(&mut image, &mut source);
        plan_import(&image, &source, TargetFacts { available: ByteCount::new(1024) }, in_order)
    }

    fn qcow2(image: &mut ImageFacts) {
        image.format = ImageFormat::Qcow2;
        image.virtual_size = Some(1024);
    }

    #[test]
    fn import_decision_table() {
        type Change = fn(&mut ImageFacts, &mut SourceFacts);
        let gz: Change = |image, _| image.compressions = vec![Compression::Gzip];
        let xz_parts: Change = |image, _| {
            image.compressions = vec![Compression::Xz];
            image.parts = true;
        };
        let qcow2_gz: Change = |image, _| {
            qcow2(image);
            image.compressions = vec![Compression::Gzip];
        };
        let qcow2_stream: Change = |image, source| {
            qcow2(image);
            source.ranges = false;
        };
        let table: [(&str, Change, bool, Route, bool); 9] = [
            ("raw, ranges", |_, _| (), false, Route::Ranges, true),
            ("raw, no ranges", |_, source| source.ranges = false, false, Route::Stream, false),
            ("raw to be hashed", |_, _| (), true, Route::Stream, true),
            ("raw.gz", gz, false, Route::Stream, false),
            ("raw.xz in blocks", xz_parts, false, Route::Parts, false),
            ("qcow2, ranges", |image, _| qcow2(image), false, Route::Ranges, true),
            ("qcow2 to be hashed", |image, _| qcow2(image), true, Route::OnePass, false),
            ("qcow2, no ranges", qcow2_stream, false, Route::OnePass, false),
            ("qcow2.gz", qcow2_gz, false, Route::OnePass, false),
        ];
        for (case, change, in_order, route, resumable) in table {
            let plan = plan(change, in_order).unwrap();
            assert_eq!((plan.route, plan.resumable), (route, resumable), "{case}");
        }
    }

    #[test]
    fn what_cannot_fit_is_refused_before_the_body_is_fetched() {
        let exact = plan(|_, source| source.length = Some(1024), false).unwrap();
        assert_eq!(exact.virtual_size, Some(1024), "equality fits");
        let error = plan(|_, source| source.length = Some(1025), false).unwrap_err();
        assert!(matches!(error, Error::TooLarge { needed, .. } if needed.get() == 1536), "{error}");
        let error = plan(
            |image, _| {
                qcow2(image);
                image.virtual_size = Some(1536);
            },
            false,
        );
        assert!(matches!(error, Err(Error::TooLarge { .. })));
    }

    #[test]
    fn every_format_with_an_index_takes_the_same_ways() {
        use ImageFormat::{Qcow2, Vdi, Vhd, Vhdx, Vmdk};
        for format in [Qcow2, Vmdk, Vdi, Vhd, Vhdx] {
            for (ranges, compressed, in_order) in [
                (false, false, false),
                (false, true, false),
                (true, true, true),
                (true, false, false),
            ] {
                let compressions = if compressed { vec![Compression::Xz] } else { vec![] };
                let virtual_size = Some(512);
                let image = ImageFacts { compressions, format, virtual_size, parts: false };
                let source = SourceFacts { ranges, ..SourceFacts::default() };
                let target = TargetFacts { available: ByteCount::new(512) };
                let plan = plan_import(&image, &source, target, in_order).unwrap();
                let by_ranges = ranges && !compressed && !in_order;
                let route = if by_ranges { Route::Ranges } else { Route::OnePass };
                assert_eq!(plan.route, route, "{format} {ranges} {compressed} {in_order}");
            }
        }
    }
}
