//! Header extensions: type, length and data after the fixed header. Only the names of features are of use here.

use crate::Error;
use crate::bytes::{be_u32, be_u64};

const END: u32 = 0;
const FEATURE_NAMES: u32 = 0x6803_f857;
/// Kind of feature, bit number, and a name padded with zeroes.
const FEATURE_LEN: usize = 48;
const INCOMPATIBLE: u8 = 0;

/// What the image calls its feature bits.
#[derive(Debug, Default)]
pub(super) struct FeatureNames(Vec<(u8, String)>);

impl FeatureNames {
    /// Names for the incompatible feature `bits`, for a message.
    pub(super) fn describe(&self, bits: u64) -> String {
        let name = |bit: u8| {
            let named = self.0.iter().find(|(number, _)| *number == bit);
            named.map_or_else(|| format!("incompatible feature {bit}"), |(_, name)| name.clone())
        };
        let names: Vec<String> = (0..64).filter(|bit| bits & (1 << bit) != 0).map(name).collect();
        names.join(", ")
    }
}

/// Walks the extensions behind a header of `length` bytes, up to the end of its cluster or the backing file's name.
/// Those behind the end of `head` are passed over: none of them changes what the image means.
pub(super) fn feature_names(
    head: &[u8],
    length: u32,
    cluster_size: u64,
) -> Result<FeatureNames, Error> {
    let end = match be_u64(head, 8) {
        0 => cluster_size,
        backing_name => backing_name.min(cluster_size),
    } as usize; // at most 2 MiB
    let mut names = FeatureNames::default();
    let mut at = length as usize;
    while at + 8 <= end.min(head.len()) {
        let (kind, data_len) = (be_u32(head, at), be_u32(head, at + 4) as usize);
        if kind == END {
            break;
        }
        let data = at + 8;
        if data_len > end - data {
            return Err(Error::ExtensionTruncated { at: at as u64 });
        }
        if kind == FEATURE_NAMES {
            let known = &head[data..(data + data_len).min(head.len())];
            names.0.extend(known.chunks_exact(FEATURE_LEN).filter_map(feature_name));
        }
        at = data + data_len.next_multiple_of(8);
    }
    Ok(names)
}

fn feature_name(feature: &[u8]) -> Option<(u8, String)> {
    let name = feature[2..].split(|&byte| byte == 0).next().unwrap_or_default();
    (feature[0] == INCOMPATIBLE && !name.is_empty()).then(|| (feature[1], readable(name)))
}

/// Text out of an image, safe to print.
pub(super) fn readable(text: &[u8]) -> String {
    String::from_utf8_lossy(text).escape_debug().to_string()
}
