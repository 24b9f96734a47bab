//! How the two sides agree on a stream: the sender asks, and an old receiver does not know what it is asked for.
//!
//! ```text
//! GET /v1beta1/clone        ► 404                            an old one: the old streams, to the old path
//!                           ► 200, x-cdi-clone-stream: 1     ours: the new stream, from the beginning
//!                           ► 200, x-cdi-clone-stream: 1 <identity> <entry> <at>
//!                                                            ours, and so much of that source is durable already
//! POST /v1beta1/clone       ► 200                            all of it is durable
//! ```

use std::fmt;
use std::str::FromStr;

/// Where the new stream is offered and sent, in the place of the path that the old ones go to.
pub const PATH: &str = "/v1beta1/clone";
/// The header with the [`Offer`].
pub const HEADER: &str = "x-cdi-clone-stream";
/// The header that says whether a device or a file system is sent, as the old streams have it too.
pub const CONTENT_HEADER: &str = "x-cdi-content-type";
/// Value of [`CONTENT_HEADER`].
pub const BLOCK_CLONE: &str = "blockdevice-clone";
/// Value of [`CONTENT_HEADER`].
pub const FILESYSTEM_CLONE: &str = "filesystem-clone";
/// The version that is spoken here.
pub const VERSION: u16 = 1;

/// Tells one source from all others: a stream is only gone on with by who began it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity(pub [u8; 16]);

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl FromStr for Identity {
    type Err = BadOffer;

    fn from_str(text: &str) -> Result<Self, BadOffer> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let mut bytes = [0; 16];
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return Err(BadOffer);
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            let digit = |character: u8| char::from(character).to_digit(16).ok_or(BadOffer);
            *byte = (digit(*high)? << 4 | digit(*low)?) as u8;
        }
        Ok(Self(bytes))
    }
}

/// A place in what is sent: all before it is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Number of the entry, from 0.
    pub entry: u64,
    /// The byte of its content.
    pub at: u64,
}

/// What a receiver says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The latest stream that it understands.
    pub version: u16,
    /// What it has already: of which source, and how far.
    pub durable: Option<(Identity, Position)>,
}

impl Offer {
    /// Where a sender of this source begins.
    pub fn begin_for(&self, identity: Identity) -> Position {
        match self.durable {
            Some((of, position)) if of == identity => position,
            _ => Position::default(),
        }
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.version)?;
        match self.durable {
            Some((identity, Position { entry, at })) => {
                write!(formatter, " {identity} {entry} {at}")
            }
            None => Ok(()),
        }
    }
}

/// Not what a receiver says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("that is no offer of a clone stream")]
pub struct BadOffer;

impl FromStr for Offer {
    type Err = BadOffer;

    fn from_str(text: &str) -> Result<Self, BadOffer> {
        let words: Vec<_> = text.split_ascii_whitespace().take(5).collect();
        let number = |text: &str| -> Result<u64, BadOffer> {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_plain).ok_or(BadOffer)
        };
        let version = |text| u16::try_from(number(text)?).map_err(|_| BadOffer);
        match words[..] {
            [only] => Ok(Self { version: version(only)?, durable: None }),
            [first, identity, entry, at] => {
                let position = Position { entry: number(entry)?, at: number(at)? };
                Ok(Self { version: version(first)?, durable: Some((identity.parse()?, position)) })
            }
            _ => Err(BadOffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_read_as_it_was_written() {
        let position = Position { entry: 3, at: 1 << 40 };
        for durable in [None, Some((Identity([0xa5; 16]), position))] {
            let offer = Offer { version: VERSION, durable };
            assert_eq!(offer.to_string().parse(), Ok(offer));
        }
        let identity = "0123456789abcdef0123456789ABCDEF";
        assert!(identity.parse::<Identity>().is_ok());
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
            assert_eq!(text.parse::<Offer>(), Err(BadOffer), "{text:?}");
        }
    }

    #[test]
    fn only_who_began_goes_on() {
        let position = Position { entry: 0, at: 7 };
        let offer = Offer { version: 1, durable: Some((Identity([1; 16]), position)) };
        assert_eq!(offer.begin_for(Identity([1; 16])), position);
        assert_eq!(offer.begin_for(Identity([2; 16])), Position::default());
    }
}
