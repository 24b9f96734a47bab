//! Hashing bytes as they pass, and going on with it in a later process.

use md5::Md5;
use sha1::Sha1;
use sha2::digest::Digest;
use sha2::digest::common::hazmat::{SerializableState, SerializedState};
use sha2::{Sha256, Sha512};

use crate::checksum::{Algorithm, Checksum, from_hex, to_hex};

/// A hash in the making. Its state can be saved and restored, so a resumed transfer need not read again what an
/// earlier process has hashed.
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

/// Stands before a saved state: another release line of the hash crates may lay it out differently.
const LAYOUT: &str = "digest-0.11";

impl Hasher {
    /// Of no bytes yet.
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::Md5 => State::Md5(Md5::new()),
            Algorithm::Sha1 => State::Sha1(Sha1::new()),
            Algorithm::Sha256 => State::Sha256(Sha256::new()),
            Algorithm::Sha512 => State::Sha512(Sha512::new()),
        })
    }

    /// Of no bytes yet, with the algorithm for whoever has no reason to take another.
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

    /// These bytes come next.
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

    /// All that [`restore`](Self::restore) needs: one line of text of less than 512 bytes. It says something about the
    /// bytes hashed so far (its last block verbatim), so keep it as private as they are.
    pub fn save(&self) -> String {
        let state = match &self.0 {
            State::Md5(state) => to_hex(&state.serialize()),
            State::Sha1(state) => to_hex(&state.serialize()),
            State::Sha256(state) => to_hex(&state.serialize()),
            State::Sha512(state) => to_hex(&state.serialize()),
        };
        format!("{LAYOUT}:{}:{state}", self.algorithm().name())
    }

    /// The hasher that [`save`](Self::save) wrote down. `None` for anything else, states of another release line included:
    /// hash again from the first byte then.
    pub fn restore(saved: &str) -> Option<Self> {
        let (algorithm, state) = saved.strip_prefix(LAYOUT)?.strip_prefix(':')?.split_once(':')?;
        let state = from_hex(state).ok()?;
        Some(Self(match Algorithm::named(algorithm)? {
            Algorithm::Md5 => State::Md5(deserialize(&state)?),
            Algorithm::Sha1 => State::Sha1(deserialize(&state)?),
            Algorithm::Sha256 => State::Sha256(deserialize(&state)?),
            Algorithm::Sha512 => State::Sha512(deserialize(&state)?),
        }))
    }
}

fn deserialize<H: SerializableState>(state: &[u8]) -> Option<H> {
    let state = SerializedState::<H>::try_from(state).ok()?; // the length is right
    H::deserialize(&state).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Algorithm; 4] =
        [Algorithm::Md5, Algorithm::Sha1, Algorithm::Sha256, Algorithm::Sha512];

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

    /// Fails when a new release of the hash crates lays its state out differently: then [`LAYOUT`] has to change, or
    /// journals written before would be misread.
    #[test]
    fn a_state_saved_by_an_earlier_build_is_still_understood() {
        let mut hasher = Hasher::restore(SAVED).unwrap();
        hasher.update(b"c");
        assert_eq!(
            hasher.finish().to_string(),
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    /// SHA-256 of `ab`.
    const SAVED: &str = "digest-0.11:sha256:\
        67e6096a85ae67bb72f36e3c3af54fa57f520e518c68059babd9831f19cde05b\
        00000000000000000261620000000000000000000000000000000000000000000000000000000000\
        0000000000000000000000000000000000000000000000000000000000000000";

    #[test]
    fn what_was_not_saved_is_not_restored() {
        let good = Hasher::sha256().save();
        assert!(good.len() < 512 && Hasher::new(Algorithm::Sha512).save().len() < 512);
        let short = &good[..good.len() - 2];
        let other_algorithm = good.replace("sha256", "sha512");
        let other_layout = good.replace("0.11", "0.10");
        let no_hex = good.replace("67e6", "67xx");
        for saved in ["", ":", "sha256:", short, &other_algorithm, &other_layout, &no_hex] {
            assert!(Hasher::restore(saved).is_none(), "{saved}");
        }
    }

    proptest! {
        #[test]
        fn a_restored_hasher_goes_on_where_it_stopped(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            cut in 0_usize..400,
        ) {
            let (before, after) = bytes.split_at(cut.min(bytes.len()));
            for algorithm in ALL {
                let mut whole = Hasher::new(algorithm);
                whole.update(&bytes);
                let mut first = Hasher::new(algorithm);
                first.update(before);
                let mut second = Hasher::restore(&first.save()).unwrap();
                second.update(after);
                prop_assert_eq!(second.finish(), whole.finish());
            }
        }

        #[test]
        fn any_text_restores_or_is_refused(text in ".{0,40}", hex in "[0-9a-f]{0,420}") {
            let _ = Hasher::restore(&text);
            for algorithm in ALL {
                let _ = Hasher::restore(&format!("{LAYOUT}:{}:{hex}", algorithm.name()));
            }
        }
    }
}
