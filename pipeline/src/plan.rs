//! Decides from facts alone how an image is read.

use std::sync::Arc;

use contract::ByteCount;
use formats::index::Layout;
use formats::sniff::{Compression, ImageFormat};

use crate::error::Error;
use crate::source::SourceFacts;

/// What the first bytes of an image show.
#[derive(Clone, Debug)]
pub struct ImageFacts {
    /// Outermost first.
    pub compressions: Vec<Compression>,
    /// Below all compressions.
    pub format: ImageFormat,
    /// `None` exactly if the format is raw.
    pub layout: Option<Arc<dyn Layout>>,
    /// The only compression, if its stream consists of parts that can be decoded in parallel.
    pub splittable: Option<Compression>,
}

/// What the target offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetFacts {
    /// The largest virtual size that fits.
    pub available: ByteCount,
}

/// How an image is read, with what that takes.
#[derive(Clone, Debug)]
pub enum Route {
    /// Several streams fetch only what holds data, and each part is written straight to its guest address.
    Ranges {
        /// `None`: a raw image.
        layout: Option<Arc<dyn Layout>>,
    },
    /// The bytes are the disk, in order.
    Stream {
        /// Outermost first, possibly none.
        compressions: Vec<Compression>,
    },
    /// As `Stream`, but parts of the compressed stream are decoded in parallel.
    Parts {
        /// The only one.
        compression: Compression,
    },
    /// An indexed image is decoded while it is read in order. Clusters that come before their table are parked.
    OnePass {
        /// Tables and encoding of the image.
        layout: Arc<dyn Layout>,
        /// Outermost first, possibly none.
        compressions: Vec<Compression>,
    },
}

impl Route {
    /// Name in reports, in the output of `inspect`, and in journals.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ranges { .. } => "ranges",
            Self::Stream { .. } => "stream",
            Self::Parts { .. } => "parallel parts",
            Self::OnePass { .. } => "one pass",
        }
    }

    /// Of an image with an index.
    pub fn layout(&self) -> Option<&Arc<dyn Layout>> {
        match self {
            Self::Ranges { layout } => layout.as_ref(),
            Self::OnePass { layout, .. } => Some(layout),
            Self::Stream { .. } | Self::Parts { .. } => None,
        }
    }
}

/// How an image is going to be imported.
#[derive(Clone, Debug)]
pub struct ImportPlan {
    /// How the image is read.
    pub route: Route,
    /// Why that route: a clause that follows "because".
    pub because: &'static str,
    /// Bytes of the guest's disk, if known before the body is read.
    pub virtual_size: Option<u64>,
    /// A killed process can be continued.
    pub resumable: bool,
}

/// Chooses the route of an image into a target.
///
/// `in_order`: all wire bytes have to be read in order, to be hashed.
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
    let virtual_size = match &image.layout {
        Some(layout) => Some(layout.virtual_size()),
        None => source.length.filter(|_| plain).map(raw_virtual_size),
    };
    if let Some(needed) = virtual_size.filter(|size| *size > target.available.get()) {
        return Err(Error::TooLarge { needed: ByteCount::new(needed), offered: target.available });
    }
    let seekable = plain && source.ranges && !in_order;
    let compressions = image.compressions.clone();
    let (route, because) = match (&image.layout, image.splittable) {
        (None, _) if seekable => {
            (Route::Ranges { layout: None }, "the image is raw and its source serves ranges")
        }
        (None, Some(compression)) => {
            (Route::Parts { compression }, "the compressed stream is made of independent parts")
        }
        (None, None) => {
            let because = match (plain, in_order) {
                (true, true) => "every byte of the image has to be hashed in order",
                (true, false) => "the source cannot serve ranges",
                (false, _) => "a compressed stream has to be decoded from its start",
            };
            (Route::Stream { compressions }, because)
        }
        (Some(layout), _) if seekable => {
            let layout = Some(Arc::clone(layout));
            (Route::Ranges { layout }, "the image has an index and its source serves ranges")
        }
        (Some(layout), _) => {
            let because = match (plain, in_order) {
                (false, _) => "an image inside a compressed stream can only be read in order",
                (true, true) => "every byte of the image has to be hashed in order",
                (true, false) => "the source cannot serve ranges",
            };
            (Route::OnePass { layout: Arc::clone(layout), compressions }, because)
        }
    };
    let one_pass = matches!(route, Route::OnePass { .. });
    let resumable = plain && source.ranges && source.validator.is_some() && !one_pass;
    Ok(ImportPlan { route, because, virtual_size, resumable })
}

/// The same for a delta, which changes only parts of the target. After a failure all of it is repeated.
///
/// # Errors
/// [`Error::Unsupported`] when the image can only be read in order, or its format does not distinguish what became zero
/// from what is unchanged.
pub fn plan_delta(plan: ImportPlan, format: ImageFormat) -> Result<ImportPlan, Error> {
    if !matches!(format, ImageFormat::Raw | ImageFormat::Qcow2) {
        return Err(Error::Unsupported { what: format!("a delta in a {format} image") });
    }
    if !matches!(plan.route, Route::Ranges { .. }) {
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

    use formats::image::{KnownBytes, Opened, open};

    type Change = fn(&mut ImageFacts, &mut SourceFacts);

    fn plan(change: Change, in_order: bool) -> Result<ImportPlan, Error> {
        let mut image = ImageFacts {
            compressions: vec![],
            format: ImageFormat::Raw,
            layout: None,
            splittable: None,
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

    /// The layout of an empty qcow2 of version 2.
    fn layout(virtual_size: u64) -> Arc<dyn Layout> {
        let mut head = b"QFI\xfb\0\0\0\x02".to_vec();
        head.extend([0; 12]); // backing file: none
        head.extend(16_u32.to_be_bytes()); // cluster bits
        head.extend(virtual_size.to_be_bytes());
        head.extend(0_u32.to_be_bytes()); // encryption: none
        head.extend(1_u32.to_be_bytes()); // entries of the L1 table, and its offset
        head.extend(0x10000_u64.to_be_bytes());
        head.extend(0x20000_u64.to_be_bytes()); // offset and clusters of the refcount table
        head.extend(1_u32.to_be_bytes());
        head.extend([0; 12]); // snapshots: none
        head.resize(0x30000, 0);
        match open(ImageFormat::Qcow2, &KnownBytes::new(head, None)).unwrap() {
            Opened::Layout(layout) => layout,
            Opened::Needs(range) => panic!("{range:?}"),
        }
    }

    fn qcow2(image: &mut ImageFacts) {
        (image.format, image.layout) = (ImageFormat::Qcow2, Some(layout(1024)));
    }

    #[test]
    fn import_decision_table() {
        let gz: Change = |image, _| image.compressions = vec![Compression::Gzip];
        let xz_parts: Change = |image, _| {
            image.compressions = vec![Compression::Xz];
            image.splittable = Some(Compression::Xz);
        };
        let qcow2_gz: Change = |image, _| {
            qcow2(image);
            image.compressions = vec![Compression::Gzip];
        };
        let qcow2_stream: Change = |image, source| {
            qcow2(image);
            source.ranges = false;
        };
        let table: [(&str, Change, bool, &str, bool); 9] = [
            ("raw, ranges", |_, _| (), false, "ranges", true),
            ("raw, no ranges", |_, source| source.ranges = false, false, "stream", false),
            ("raw to be hashed", |_, _| (), true, "stream", true),
            ("raw.gz", gz, false, "stream", false),
            ("raw.xz in blocks", xz_parts, false, "parallel parts", false),
            ("qcow2, ranges", |image, _| qcow2(image), false, "ranges", true),
            ("qcow2 to be hashed", |image, _| qcow2(image), true, "one pass", false),
            ("qcow2, no ranges", qcow2_stream, false, "one pass", false),
            ("qcow2.gz", qcow2_gz, false, "one pass", false),
        ];
        for (case, change, in_order, route, resumable) in table {
            let plan = plan(change, in_order).unwrap();
            assert_eq!((plan.route.name(), plan.resumable), (route, resumable), "{case}");
        }
    }

    #[test]
    fn a_disk_that_cannot_fit_is_rejected_before_the_body_is_fetched() {
        let exact = plan(|_, source| source.length = Some(1024), false).unwrap();
        assert_eq!(exact.virtual_size, Some(1024), "equality fits");
        let error = plan(|_, source| source.length = Some(1025), false).unwrap_err();
        assert!(matches!(error, Error::TooLarge { needed, .. } if needed.get() == 1536), "{error}");
        let larger: Change = |image, _| {
            (image.format, image.layout) = (ImageFormat::Qcow2, Some(layout(1536)));
        };
        assert!(matches!(plan(larger, false), Err(Error::TooLarge { .. })));
    }

    #[test]
    fn the_route_of_an_indexed_image_does_not_depend_on_its_format() {
        use ImageFormat::{Qcow2, Vdi, Vhd, Vhdx, Vmdk};
        for format in [Qcow2, Vmdk, Vdi, Vhd, Vhdx] {
            for (ranges, compressed, in_order) in [
                (false, false, false),
                (false, true, false),
                (true, true, true),
                (true, false, false),
            ] {
                let compressions = if compressed { vec![Compression::Xz] } else { vec![] };
                let image = ImageFacts {
                    compressions,
                    format,
                    layout: Some(layout(512)),
                    splittable: None,
                };
                let source = SourceFacts { ranges, ..SourceFacts::default() };
                let target = TargetFacts { available: ByteCount::new(512) };
                let plan = plan_import(&image, &source, target, in_order).unwrap();
                let by_ranges = ranges && !compressed && !in_order;
                let route = if by_ranges { "ranges" } else { "one pass" };
                assert_eq!(plan.route.name(), route, "{format} {ranges} {compressed} {in_order}");
            }
        }
    }
}
