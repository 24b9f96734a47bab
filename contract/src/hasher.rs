//! Incremental hashing.

use md5::Md5;
use sha1::Sha1;
use sha2::digest::Digest;
use sha2::{Sha256, Sha512};

use crate::checksum::{Algorithm, Checksum};

/// An incremental hash.
#[derive(Clone, Debug)]
pub struct Hasher(State);

/// The four have states of much the same size (100 to 210 bytes), so none is boxed.
#[derive(Clone, Debug)]
enum State {
    Md5(Md5),
    Sha1(Sha1),
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    /// A hasher of no bytes.
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::Md5 => State::Md5(Md5::new()),
            Algorithm::Sha1 => State::Sha1(Sha1::new()),
            Algorithm::Sha256 => State::Sha256(Sha256::new()),
            Algorithm::Sha512 => State::Sha512(Sha512::new()),
        })
    }

    /// SHA-256.
    pub fn sha256() -> Self {
        Self::new(Algorithm::Sha256)
    }

    /// The hash function.
    pub const fn algorithm(&self) -> Algorithm {
        match self.0 {
            State::Md5(_) => Algorithm::Md5,
            State::Sha1(_) => Algorithm::Sha1,
            State::Sha256(_) => Algorithm::Sha256,
            State::Sha512(_) => Algorithm::Sha512,
        }
    }

    /// Appends bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Md5(state) => state.update(bytes),
            State::Sha1(state) => state.update(bytes),
            State::Sha256(state) => state.update(bytes),
            State::Sha512(state) => state.update(bytes),
        }
    }

    /// The hash of all bytes.
    pub fn finish(self) -> Checksum {
        let algorithm = self.algorithm();
        let whole = match self.0 {
            State::Md5(state) => Checksum::new(algorithm, &state.finalize()),
            State::Sha1(state) => Checksum::new(algorithm, &state.finalize()),
            State::Sha256(state) => Checksum::new(algorithm, &state.finalize()),
            State::Sha512(state) => Checksum::new(algorithm, &state.finalize()),
        };
        whole.expect("`Algorithm::length` is the length of what each algorithm returns")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_abc_is_the_published_one() {
        // RFC 1321 A.5; FIPS 180-4 examples.
        for (algorithm, expected) in [
            (Algorithm::Md5, "md5:900150983cd24fb0d6963f7d28e17f72"),
            (Algorithm::Sha1, "sha1:a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                Algorithm::Sha256,
                "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
            (
                Algorithm::Sha512,
                "sha512:ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
                 2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
            ),
        ] {
            let mut hasher = expected.parse::<Checksum>().unwrap().hasher();
            assert_eq!(hasher.algorithm(), algorithm);
            hasher.update(b"a");
            hasher.update(b"bc");
            assert_eq!(hasher.finish().to_string(), expected);
        }
    }
}
