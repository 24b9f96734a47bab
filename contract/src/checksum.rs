//! Expected checksums of images: `algorithm:hex`.

use std::fmt;
use std::str::FromStr;

use crate::hasher::Hasher;

/// A hash function. MD5 and SHA-1 are there for old mirrors only: they detect a broken download, not a forged one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// 16 bytes.
    Md5,
    /// 20 bytes.
    Sha1,
    /// 32 bytes.
    Sha256,
    /// 64 bytes.
    Sha512,
}

impl Algorithm {
    /// As spelled before the colon.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// Length of a hash, in bytes.
    pub const fn length(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha512 => LENGTH_MAX,
        }
    }

    /// The algorithm of that lower-case name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Md5, Self::Sha1, Self::Sha256, Self::Sha512].into_iter().find(|a| a.name() == name)
    }
}

const LENGTH_MAX: usize = 64;

/// A checksum of an image, spelled `algorithm:hex`. Always has the length of its algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Checksum {
    algorithm: Algorithm,
    /// The hash, then zeroes.
    bytes: [u8; LENGTH_MAX],
}

impl Checksum {
    /// `None` if `hash` does not have the length of `algorithm`.
    pub(crate) fn new(algorithm: Algorithm, hash: &[u8]) -> Option<Self> {
        let mut bytes = [0; LENGTH_MAX];
        if hash.len() != algorithm.length() {
            return None;
        }
        bytes[..hash.len()].copy_from_slice(hash);
        Some(Self { algorithm, bytes })
    }

    /// The hash function.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The hash, without the algorithm.
    pub fn hash(&self) -> &[u8] {
        &self.bytes[..self.algorithm.length()]
    }

    /// A hasher of the same algorithm.
    pub fn hasher(&self) -> Hasher {
        Hasher::new(self.algorithm)
    }
}

/// Why a text is not a checksum. Users and tests of upstream CDI know these texts; the prefix differs by context
/// (`invalid checksum: ` in an importer).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadChecksum {
    /// No colon.
    #[error("invalid checksum format: expected 'algorithm:hash', got '{got}'")]
    Format {
        /// The whole text.
        got: String,
    },
    /// Another algorithm.
    #[error(
        "unsupported hash algorithm '{algorithm}': supported algorithms are: md5, sha1, sha256, sha512"
    )]
    Algorithm {
        /// In lower case.
        algorithm: String,
    },
    /// No text after the colon.
    #[error("checksum hash value cannot be empty")]
    Empty,
    /// Another number of digits than the algorithm has.
    #[error("invalid {algorithm} hash length: expected {expected} hex characters, got {got}")]
    Length {
        /// Its name.
        algorithm: &'static str,
        /// Number of digits of the algorithm.
        expected: usize,
        /// Number of bytes found.
        got: usize,
    },
    /// A character that is not a hexadecimal digit.
    #[error("checksum hash is not valid hexadecimal: invalid digit {digit:?}")]
    Digit {
        /// The first wrong one.
        digit: char,
    },
}

/// Ignores case, and blanks around either half.
impl FromStr for Checksum {
    type Err = BadChecksum;

    fn from_str(text: &str) -> Result<Self, BadChecksum> {
        let (algorithm, digits) =
            text.split_once(':').ok_or_else(|| BadChecksum::Format { got: text.to_owned() })?;
        let (name, digits) = (algorithm.trim().to_ascii_lowercase(), digits.trim());
        let Some(algorithm) = Algorithm::named(&name) else {
            return Err(BadChecksum::Algorithm { algorithm: name });
        };
        if digits.is_empty() {
            return Err(BadChecksum::Empty);
        }
        let (name, expected) = (algorithm.name(), algorithm.length() * 2);
        let length = BadChecksum::Length { algorithm: name, expected, got: digits.len() };
        if digits.len() != expected {
            return Err(length);
        }
        let hash = from_hex(digits).map_err(|digit| BadChecksum::Digit { digit })?;
        Self::new(algorithm, &hash).ok_or(length)
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.algorithm.name(), to_hex(self.hash()))
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Checksum({self})")
    }
}

/// Bytes from an even number of digits; an odd last digit is a byte of its own. The error is the first wrong digit.
pub(crate) fn from_hex(digits: &str) -> Result<Vec<u8>, char> {
    let values = digits
        .chars()
        .map(|digit| digit.to_digit(16).and_then(|value| u8::try_from(value).ok()).ok_or(digit))
        .collect::<Result<Vec<u8>, char>>()?;
    Ok(values.chunks(2).map(|pair| pair.iter().fold(0, |byte, value| byte << 4 | value)).collect())
}

/// Two lower-case digits for each byte.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // a String takes all that is written
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_checksum_is_shown_as_it_is_read() {
        for text in [
            ABC,
            "md5:900150983cd24fb0d6963f7d28e17f72",
            "sha1:a9993e364706816aba3e25717850c26c9cd0d89d",
            &format!("sha512:{}", "0f".repeat(64)),
        ] {
            assert_eq!(text.parse::<Checksum>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn case_and_blanks_do_not_matter() {
        let expected: Checksum = ABC.parse().unwrap();
        let shouted = ABC.to_uppercase().replace(':', " : ");
        assert_eq!(format!("  {shouted}\n").parse(), Ok(expected));
    }

    #[test]
    fn each_mistake_has_the_sentence_users_know() {
        for (text, expected) in [
            ("", "invalid checksum format: expected 'algorithm:hash', got ''"),
            ("d41d8cd9", "invalid checksum format: expected 'algorithm:hash', got 'd41d8cd9'"),
            (
                "CRC32:1234",
                "unsupported hash algorithm 'crc32': supported algorithms are: md5, sha1, sha256, sha512",
            ),
            (
                ":",
                "unsupported hash algorithm '': supported algorithms are: md5, sha1, sha256, sha512",
            ),
            ("md5: ", "checksum hash value cannot be empty"),
            ("md5:abc", "invalid md5 hash length: expected 32 hex characters, got 3"),
            (
                "sha1:900150983cd24fb0d6963f7d28e17f72",
                "invalid sha1 hash length: expected 40 hex characters, got 32",
            ),
            (
                "md5:900150983cd24fb0d6963f7d28e17fzz",
                "checksum hash is not valid hexadecimal: invalid digit 'z'",
            ),
            (
                "md5:900150983cd24fb0d6963f7d28e17fé",
                "checksum hash is not valid hexadecimal: invalid digit 'é'",
            ),
        ] {
            assert_eq!(text.parse::<Checksum>().unwrap_err().to_string(), expected, "{text}");
        }
    }
}
