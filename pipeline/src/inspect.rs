//! Describes an image and how it would be imported, without importing it.

use contract::ByteCount;
use formats::sniff::ImageFormat;

use crate::error::Error;
use crate::options::{Inspection, Options};
use crate::ova::Member;
use crate::plan::{TargetFacts, plan_import, raw_virtual_size};
use crate::probe::probe;
use crate::routes::{indexed, raw};
use crate::source::Source;

/// Describes what `source` holds and what [`import`](crate::import()) would do with it.
///
/// # Errors
/// When the source cannot be read. An image that would be refused is no error: `route` is then `refused`.
pub fn inspect(source: &dyn Source, options: &Options) -> Result<Inspection, Error> {
    inspect_as(source, options, "")
}

/// As [`inspect`]; `wrapped` is appended to the name of the format.
fn inspect_as(source: &dyn Source, options: &Options, wrapped: &str) -> Result<Inspection, Error> {
    let facts = source.facts();
    let mut inspection = Inspection {
        source: facts.name.clone(),
        wire_size: facts.length,
        route: "refused".into(),
        ..Inspection::default()
    };
    let mut image = match probe(source, None, options.format) {
        Ok(image) => image,
        Err(error @ Error::Unsupported { .. }) => {
            inspection.because = error.to_string();
            return Ok(inspection);
        }
        Err(Error::Decode { source, .. }) => {
            inspection.because = source.to_string();
            return Ok(inspection);
        }
        Err(error) => return Err(error),
    };
    if let (Some(head), "") = (image.ova.take(), wrapped) {
        inspection.format = "ova".into();
        return match Member::find(source, image.stream.take(), &head) {
            Ok(member) => inspect_as(&member, options, " in ova"),
            Err(Error::Unsupported { what }) => {
                inspection.because = Error::Unsupported { what }.to_string();
                Ok(inspection)
            }
            Err(error) => Err(error),
        };
    }
    let plain = image.facts.compressions.is_empty();
    inspection.format = format!("{}{wrapped}", image.facts.format);
    inspection.compression = image.facts.compressions.iter().map(ToString::to_string).collect();
    inspection.virtual_size = match &image.facts.layout {
        Some(layout) => Some(layout.virtual_size()),
        None => facts.length.filter(|_| plain).map(raw_virtual_size),
    };
    if let (Some(layout), true, true) = (&image.facts.layout, plain, facts.ranges) {
        match indexed::allocated(source, &**layout) {
            Ok(allocated) => inspection.allocated_size = Some(allocated),
            Err(Error::Decode { source, .. }) => {
                inspection.because = source.to_string();
                return Ok(inspection);
            }
            Err(error) => return Err(error),
        }
    }
    let raw = image.facts.format == ImageFormat::Raw && plain && facts.ranges;
    if let Some(length) = facts.length.filter(|_| raw) {
        inspection.allocated_size = raw::allocated(source, length)?;
    }
    let target = TargetFacts { available: ByteCount::new(u64::MAX) };
    match plan_import(&image.facts, facts, target, options.hasher().is_some()) {
        Ok(plan) => {
            inspection.route = plan.route.name().into();
            inspection.because = plan.because.into();
        }
        Err(error) => inspection.because = error.to_string(),
    }
    Ok(inspection)
}
