//! The checksum that a store reports for an object, compared with that of the received bytes.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest as Crc};
use pipeline::{ByteStream, SourceError};
use sha2::{Digest as _, Sha256};

use crate::error::Error;

/// The checksum of a whole object that its store reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectChecksum {
    algorithm: Algorithm,
    /// Big endian, as stores send it.
    value: Vec<u8>,
}

/// The ways in which stores hash whole objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Sha256,
    Crc64Nvme,
    Crc32c,
    Crc32,
}

impl Algorithm {
    fn len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Crc64Nvme => 8,
            Self::Crc32c | Self::Crc32 => 4,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Sha256 => "sha256",
            Self::Crc64Nvme => "crc64nvme",
            Self::Crc32c => "crc32c",
            Self::Crc32 => "crc32",
        })
    }
}

impl ObjectChecksum {
    /// From base64, as headers have it. `None` for what is no value of this kind: one made of the checksums of parts
    /// (`…-7`) does not describe the whole.
    pub(crate) fn parse(algorithm: Algorithm, text: &str) -> Option<Self> {
        let value = STANDARD.decode(text.trim()).ok()?;
        (value.len() == algorithm.len()).then_some(Self { algorithm, value })
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl fmt::Display for ObjectChecksum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:", self.algorithm)?;
        self.value.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// Hashes with the algorithm of an [`ObjectChecksum`].
enum Hasher {
    Sha256(Sha256),
    Crc(Crc),
}

impl Hasher {
    fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha256 => Self::Sha256(Sha256::new()),
            Algorithm::Crc64Nvme => Self::Crc(Crc::new(CrcAlgorithm::Crc64Nvme)),
            Algorithm::Crc32c => Self::Crc(Crc::new(CrcAlgorithm::Crc32Iscsi)),
            Algorithm::Crc32 => Self::Crc(Crc::new(CrcAlgorithm::Crc32IsoHdlc)),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(sha) => sha.update(bytes),
            Self::Crc(crc) => crc.update(bytes),
        }
    }

    fn finish(self, algorithm: Algorithm) -> ObjectChecksum {
        let value = match self {
            Self::Sha256(sha) => sha.finalize().to_vec(),
            Self::Crc(crc) => {
                let bytes = crc.finalize().to_be_bytes();
                bytes[bytes.len() - algorithm.len()..].to_vec()
            }
        };
        ObjectChecksum { algorithm, value }
    }
}

/// A stream of a whole object, which ends with an error if the checksum differs from the expected one.
pub(crate) struct Verified {
    inner: Box<dyn ByteStream>,
    expected: ObjectChecksum,
    name: String,
    /// `None` after the end.
    hasher: Option<Hasher>,
}

impl Verified {
    pub(crate) fn new(inner: Box<dyn ByteStream>, expected: ObjectChecksum, name: String) -> Self {
        let hasher = Some(Hasher::new(expected.algorithm));
        Self { inner, expected, name, hasher }
    }
}

impl ByteStream for Verified {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        let bytes = self.inner.next()?;
        match &bytes {
            Some(bytes) => {
                if let Some(hasher) = &mut self.hasher {
                    hasher.update(bytes);
                }
            }
            None => {
                let Some(hasher) = self.hasher.take() else { return Ok(None) };
                let calculated = hasher.finish(self.expected.algorithm);
                if calculated != self.expected {
                    let (name, expected) = (self.name.clone(), self.expected.to_string());
                    let calculated = calculated.to_string();
                    return Err(Box::new(Error::Corrupt { name, expected, calculated }));
                }
                tracing::debug!("{} has the {} of its store", self.name, self.expected.algorithm);
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pieces(Vec<&'static [u8]>);

    impl ByteStream for Pieces {
        fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
            Ok((!self.0.is_empty()).then(|| Bytes::from_static(self.0.remove(0))))
        }
    }

    fn read(pieces: &[&'static [u8]], expected: &ObjectChecksum) -> Result<usize, String> {
        let pieces = Box::new(Pieces(pieces.to_vec()));
        let mut stream = Verified::new(pieces, expected.clone(), "s3://b/k".into());
        let mut len = 0;
        while let Some(bytes) = stream.next().map_err(|error| error.to_string())? {
            len += bytes.len();
        }
        assert!(matches!(stream.next(), Ok(None)), "an end stays one");
        Ok(len)
    }

    /// Check values of the nine digits: RFC 3720 B.4 for CRC-32C, the catalogue of parametrised CRCs for the others, and
    /// sha256sum.
    const TABLE: [(Algorithm, &str); 4] = [
        (Algorithm::Crc32, "y/Q5Jg=="),
        (Algorithm::Crc32c, "4waSgw=="),
        (Algorithm::Crc64Nvme, "rosUhgp5mIg="),
        (Algorithm::Sha256, "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
    ];

    #[test]
    fn a_whole_object_passes_and_another_does_not() {
        for (algorithm, value) in TABLE {
            let expected = ObjectChecksum::parse(algorithm, value).unwrap();
            assert_eq!(read(&[b"1234", b"56789"], &expected), Ok(9), "{algorithm}");
            let error = read(&[b"1234", b"56780"], &expected).unwrap_err();
            let start = format!(
                "checksum validation failed: checksum mismatch: expected {expected}, calculated {algorithm}:"
            );
            assert!(error.starts_with(&start) && error.contains("s3://b/k"), "{error}");
        }
    }

    #[test]
    fn checksums_of_parts_are_ignored() {
        for text in ["y/Q5Jg==-3", "y/Q5", "", "????????", "y/Q5JgAA"] {
            assert_eq!(ObjectChecksum::parse(Algorithm::Crc32, text), None, "{text}");
        }
    }
}
