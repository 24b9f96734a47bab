//! How the two sides agree on a stream: the sender asks for an offer; upstream CDI's upload server responds with 404.
//!
//! ```text
//! GET /v1beta1/clone        ► 404                            upstream: snappy stream, to its own path
//!                           ► 200, x-cdi-clone-stream: 1     ours: extent stream, from the start
//!                           ► 200, x-cdi-clone-stream: 1 <identity> <entry> <at>
//!                                                            ours, and that source is durable up to this position
//! POST /v1beta1/clone       ► 200                            all of it is durable
//! ```

use std::fmt;
use std::str::FromStr;

/// Where the extent stream is offered and sent.
pub const PATH: &str = "/v1beta1/clone";
/// Response header with the [`StreamOffer`].
pub const HEADER: &str = "x-cdi-clone-stream";
/// Request header of every clone stream: [`BLOCK_CLONE`] or [`FILESYSTEM_CLONE`]. Upstream CDI has the same.
pub const CONTENT_HEADER: &str = "x-cdi-content-type";
pub const BLOCK_CLONE: &str = "blockdevice-clone";
pub const FILESYSTEM_CLONE: &str = "filesystem-clone";
/// Latest version of the extent stream.
pub const VERSION: u16 = 1;

/// Identifies a source and its state: a stream is resumed only for the source that it was started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceIdentity(pub [u8; 16]);

impl fmt::Display for SourceIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl FromStr for SourceIdentity {
    type Err = BadStreamOffer;

    fn from_str(text: &str) -> Result<Self, BadStreamOffer> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let mut bytes = [0; 16];
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return Err(BadStreamOffer);
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            let digit = |character: u8| char::from(character).to_digit(16).ok_or(BadStreamOffer);
            *byte = (digit(*high)? << 4 | digit(*low)?) as u8;
        }
        Ok(Self(bytes))
    }
}

/// A position in a source: everything before it has been transferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamPosition {
    /// Index of the entry, from 0.
    pub entry: u64,
    /// Byte offset in the content of that entry.
    pub at: u64,
}

/// What a receiver supports, and what it already has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOffer {
    /// The latest version that it supports.
    pub version: u16,
    /// Up to which position it has a source.
    pub durable: Option<(SourceIdentity, StreamPosition)>,
}

impl StreamOffer {
    /// Where a sender of this source starts.
    pub fn start_for(&self, identity: SourceIdentity) -> StreamPosition {
        match self.durable {
            Some((known, position)) if known == identity => position,
            _ => StreamPosition::default(),
        }
    }
}

impl fmt::Display for StreamOffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.version)?;
        match self.durable {
            Some((identity, StreamPosition { entry, at })) => {
                write!(formatter, " {identity} {entry} {at}")
            }
            None => Ok(()),
        }
    }
}

/// The text is not an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an offer of a clone stream")]
pub struct BadStreamOffer;

impl FromStr for StreamOffer {
    type Err = BadStreamOffer;

    fn from_str(text: &str) -> Result<Self, BadStreamOffer> {
        let words: Vec<_> = text.split_ascii_whitespace().take(5).collect();
        let number = |text: &str| -> Result<u64, BadStreamOffer> {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_plain).ok_or(BadStreamOffer)
        };
        let version = |text| u16::try_from(number(text)?).map_err(|_| BadStreamOffer);
        match words[..] {
            [only] => Ok(Self { version: version(only)?, durable: None }),
            [first, identity, entry, at] => {
                let position = StreamPosition { entry: number(entry)?, at: number(at)? };
                Ok(Self { version: version(first)?, durable: Some((identity.parse()?, position)) })
            }
            _ => Err(BadStreamOffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offer_survives_its_text() {
        let position = StreamPosition { entry: 3, at: 1 << 40 };
        for durable in [None, Some((SourceIdentity([0xa5; 16]), position))] {
            let offer = StreamOffer { version: VERSION, durable };
            assert_eq!(offer.to_string().parse(), Ok(offer));
        }
        let identity = "0123456789abcdef0123456789ABCDEF";
        assert!(identity.parse::<SourceIdentity>().is_ok());
        for text in [
            "",
            "x",
            "-1",
            "+1",
            "65536",
            "1 2",
            "1 0123 1 2",
            &format!("1 {identity} 1"),
            &format!("1 {identity} 1 x"),
            &format!("1 {identity} 1 2 3"),
            &format!("1 {identity}0 1 2"),
        ] {
            assert_eq!(text.parse::<StreamOffer>(), Err(BadStreamOffer), "{text:?}");
        }
    }

    #[test]
    fn only_the_same_source_resumes() {
        let position = StreamPosition { entry: 0, at: 7 };
        let offer = StreamOffer { version: 1, durable: Some((SourceIdentity([1; 16]), position)) };
        assert_eq!(offer.start_for(SourceIdentity([1; 16])), position);
        assert_eq!(offer.start_for(SourceIdentity([2; 16])), StreamPosition::default());
    }
}
