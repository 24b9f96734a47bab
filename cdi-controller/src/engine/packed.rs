//! Objects as compressed JSON.
//!
//! Objects of one kind have most of their JSON in common: names of fields and annotations, and their usual values. A sample
//! of each numerous kind (`samples/*.json`) is the dictionary of the compression, so that an object takes little more memory
//! than what distinguishes it. The sample decides about the size alone: an object that resembles it in nothing is restored
//! to what it was all the same.

use lz4_flex::block::{
    DecompressError, compress_prepend_size_with_dict, decompress_size_prepended_with_dict,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::api_client::Kind;

/// The length of the JSON as a little-endian `u32`, and then one block of LZ4.
pub struct PackedObject(Box<[u8]>);

/// The object cannot be restored, which is a bug.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("cannot decompress it")]
    Decompress(#[from] DecompressError),
    #[error("cannot decode its JSON")]
    Decode(#[from] serde_json::Error),
}

impl PackedObject {
    /// # Errors
    /// The type cannot be encoded as JSON.
    pub fn pack<K: Kind>(object: &K) -> Result<Self, serde_json::Error> {
        let json = serde_json::to_vec(object)?;
        let compressed = compress_prepend_size_with_dict(&json, K::sample());
        // A copy: the compressor's buffer is as large as the JSON, and one that shrinks leaves a gap behind itself.
        Ok(Self(Box::from(compressed.as_slice())))
    }

    /// # Errors
    /// See [`UnpackError`].
    pub fn unpack<K: Kind>(&self) -> Result<K, UnpackError> {
        let json = decompress_size_prepended_with_dict(&self.0, K::sample())?;
        Ok(serde_json::from_slice(&json)?)
    }

    /// In bytes.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// The dictionary of a kind: the objects of a JSON array as they are cached. Empty if the array cannot be decoded, which a
/// test excludes.
pub fn dictionary<K: Serialize + DeserializeOwned>(samples: &str) -> Vec<u8> {
    let samples: Vec<K> = serde_json::from_str(samples).unwrap_or_default();
    samples.iter().filter_map(|sample| serde_json::to_vec(sample).ok()).flatten().collect()
}

#[cfg(test)]
mod tests {
    use api::v1beta1::{DataVolume, VolumeUploadSource};
    use controller_core::volume::PersistentVolume;
    use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
    use serde_json::{Value, json};

    use super::*;

    /// No sample has a field that its type does not know, or writes otherwise.
    #[test]
    fn samples_are_written_as_objects_of_the_cache_are() {
        fn check<K: Kind>(document: &str) {
            let written = serde_json::Deserializer::from_slice(K::sample()).into_iter();
            let written: Vec<Value> = written.map(Result::unwrap).collect();
            let expected: Vec<Value> = serde_json::from_str(document).unwrap();
            assert_eq!(written, expected, "{}", K::kind(&()));
        }
        check::<DataVolume>(include_str!("samples/data_volume.json"));
        check::<PersistentVolumeClaim>(include_str!("samples/persistent_volume_claim.json"));
        check::<PersistentVolume>(include_str!("samples/persistent_volume.json"));
        check::<Pod>(include_str!("samples/pod.json"));
    }

    #[test]
    fn object_unlike_its_sample_is_restored_unchanged() {
        fn check<K: Kind + PartialEq>(object: &Value) {
            let object: K = serde_json::from_value(object.clone()).unwrap();
            let packed = PackedObject::pack(&object).unwrap();
            assert_eq!(packed.unpack::<K>().unwrap(), object);
        }
        // Nothing that repeats, runs of every length, and characters of several bytes.
        let mut word = 1u64;
        let mut noise = String::new();
        for len in 0..300 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            noise.push_str(&format!("{:x}ä\"\n", word >> 20));
            let metadata = json!({
                "name": "a", "annotations": { "noise": noise, "run": "x".repeat(len) },
            });
            let spec = json!({ "source": { "blank": {} } });
            check::<DataVolume>(&json!({ "metadata": metadata, "spec": spec }));
            check::<PersistentVolume>(&json!({ "metadata": metadata }));
            // A kind that has no sample.
            check::<VolumeUploadSource>(&json!({ "metadata": metadata, "spec": {} }));
        }
    }

    #[test]
    fn damaged_object_is_an_error() {
        for bytes in
            [&[][..], &[1, 0, 0], &[4, 0, 0, 0], &[4, 0, 0, 0, 0x40, b'n', b'u', b'l', b'!']]
        {
            let packed = PackedObject(Box::from(bytes));
            assert!(packed.unpack::<VolumeUploadSource>().is_err(), "{bytes:?}");
        }
    }
}
