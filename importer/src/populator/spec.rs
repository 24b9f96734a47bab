//! The flags, which are those of the programs that forklift has always started.

use std::path::PathBuf;

use runtime::Flags;

use crate::error::Error;

/// Those with a value, of both programs.
pub(super) const FLAGS: &[&str] = &[
    "volume-path",
    "secret-name",
    "owner-uid",
    "pvc-size",
    "cr-name",
    "cr-namespace",
    "endpoint",
    "image-id",
    "engine-url",
    "disk-id",
];

/// The flags that both programs have in common.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PopulatorSpec {
    /// A file to be created, or a block device.
    pub(super) volume: PathBuf,
    /// Label of the metric.
    pub(super) owner_uid: String,
    /// Bytes of the claim.
    pub(super) claim_size: u64,
}

impl PopulatorSpec {
    pub(super) fn read(flags: &Flags) -> Result<Self, Error> {
        let size = required(flags, "pvc-size")?;
        let claim_size = size.parse().ok().filter(|size| *size > 0);
        let claim_size = claim_size.ok_or_else(|| Error::Option {
            what: format!("--pvc-size has to be a count of bytes, not {size:?}"),
        })?;
        Ok(Self {
            volume: required(flags, "volume-path")?.into(),
            owner_uid: flags.get("owner-uid").unwrap_or_default().to_owned(),
            claim_size,
        })
    }
}

/// A flag that has to be there.
pub(super) fn required<'a>(flags: &'a Flags, name: &str) -> Result<&'a str, Error> {
    let value = flags.get(name).filter(|value| !value.is_empty());
    value.ok_or_else(|| Error::Option { what: format!("--{name} is missing") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<PopulatorSpec, Error> {
        PopulatorSpec::read(&Flags::parse(line.split_whitespace().map(str::to_owned), FLAGS))
    }

    #[test]
    fn populator_spec_has_volume_owner_and_size() {
        let line = "--volume-path=/mnt/disk.img --endpoint=https://k/v3 --secret-name=s --image-id=i \
                    --owner-uid=1-2 --pvc-size=1073741824 --cr-name=c --cr-namespace=n";
        let spec = PopulatorSpec {
            volume: "/mnt/disk.img".into(),
            owner_uid: "1-2".into(),
            claim_size: 1 << 30,
        };
        assert_eq!(read(line).unwrap(), spec);
        for (line, phrase) in [
            ("--volume-path=/mnt/disk.img", "--pvc-size is missing"),
            ("--pvc-size=1", "--volume-path is missing"),
            ("--volume-path=/a --pvc-size=0", "has to be a count of bytes, not \"0\""),
            ("--volume-path=/a --pvc-size=1Gi", "has to be a count of bytes, not \"1Gi\""),
        ] {
            assert!(read(line).unwrap_err().to_string().contains(phrase), "{line}");
        }
    }
}
