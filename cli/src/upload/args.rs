//! The arguments of `cdi upload`. Doc comments are `--help` texts.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use contract::ByteCount;
use serde::Serialize;

use crate::args::Format;
use crate::values;

/// The end of the manual.
pub const EXAMPLES: &str = "\
Examples:
  cdi upload debian.qcow2 default/debian
  cdi upload disk.img vms/db --size 100Gi --storage-class fast --volume-mode block
  cdi upload disk.img vms/db --no-create
  cdi upload disk.img vms/db --url proxy.example:8443 --ca proxy.pem --token-file token.txt

The upload is compressed and omits the holes of the file. An interrupted upload resumes by itself;
if the program was killed, the upload resumes when the same command is run again on the same file. The exit code is 0
only if the whole disk is durable in the cluster and its checksum is that of the file (not compared for an OVA,
nor with --no-verify).

The cluster is accessed by kubectl, with its credentials; not at all with --token-file.";

/// Upload an image to a DataVolume in a cluster
#[derive(Debug, Args)]
pub struct UploadArgs {
    /// The image: a file, raw or of any format that `cdi import` knows, compressed or not
    pub image: PathBuf,

    /// The DataVolume, created if it does not exist
    #[arg(value_name = "NAMESPACE/NAME")]
    pub volume: VolumeName,

    /// Size of a new DataVolume, such as 10Gi [default: that of the disk in the image]
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "A new DataVolume")]
    pub size: Option<ByteCount>,

    /// Storage class [default: the cluster's]
    #[arg(long, value_name = "NAME", help_heading = "A new DataVolume")]
    pub storage_class: Option<String>,

    /// Access mode, such as ReadWriteOnce [default: from the storage class's profile]
    #[arg(long, value_name = "MODE", hide_possible_values = true)]
    #[arg(help_heading = "A new DataVolume")]
    pub access_mode: Option<AccessMode>,

    /// `block` or `filesystem` [default: from the storage class's profile]
    #[arg(long, value_name = "MODE", hide_possible_values = true)]
    #[arg(help_heading = "A new DataVolume")]
    pub volume_mode: Option<VolumeMode>,

    /// Do not wait for a first consumer
    #[arg(long, help_heading = "A new DataVolume")]
    pub bind_now: bool,

    /// auto: detect the format by content; raw: store the image unchanged
    #[arg(long, value_name = "FORMAT", default_value = "auto", hide_possible_values = true)]
    #[arg(conflicts_with = "no_create", help_heading = "A new DataVolume")]
    pub format: Format,

    /// Do not create it: it has to exist
    #[arg(long, help_heading = "A new DataVolume")]
    pub no_create: bool,

    /// Address of the upload proxy [default: the CDIConfig's, or a port forwarded to it]
    #[arg(long, value_name = "URL", help_heading = "The cluster")]
    pub url: Option<String>,

    /// CA certificates to trust besides the system's and the cluster's: a PEM file
    #[arg(long, value_name = "FILE", help_heading = "The cluster")]
    pub ca: Vec<PathBuf>,

    /// Do not verify the proxy's certificate: a machine in the middle can replace the image
    #[arg(long, help_heading = "The cluster")]
    pub insecure: bool,

    /// File with an upload token; read again when a new one is needed
    #[arg(long, value_name = "FILE", requires = "url", help_heading = "The cluster")]
    pub token_file: Option<PathBuf>,

    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME", help_heading = "The cluster")]
    pub context: Option<String>,

    /// The kubectl program
    #[arg(long, value_name = "PROGRAM", default_value = "kubectl", help_heading = "The cluster")]
    pub kubectl: PathBuf,

    /// How long to wait for the upload server, and how long an upload may stall
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = values::duration)]
    pub patience: Duration,

    /// Do not compare checksums: only TLS detects a changed byte
    #[arg(long)]
    pub no_verify: bool,

    /// Print one JSON object about the upload to stdout, and no progress
    #[arg(long)]
    pub json: bool,

    /// Print only errors
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeName {
    pub namespace: String,
    pub name: String,
}

impl FromStr for VolumeName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, name) = text.split_once('/').ok_or("expected NAMESPACE/NAME")?;
        if !api::metadata::is_namespace_name(namespace) || !api::metadata::is_object_name(name) {
            return Err("invalid name of a namespace or DataVolume");
        }
        Ok(Self { namespace: namespace.into(), name: name.into() })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[value(rename_all = "PascalCase")]
pub enum AccessMode {
    /// By one node
    ReadWriteOnce,
    /// By many nodes
    ReadWriteMany,
    /// By one pod
    ReadWriteOncePod,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
pub enum VolumeMode {
    /// A device
    Block,
    /// A file system with the disk in a file
    Filesystem,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_name_needs_namespace_and_name() {
        let parse = |text: &str| text.parse::<VolumeName>();
        let name = parse("vms/db.1").unwrap();
        assert_eq!((&*name.namespace, &*name.name), ("vms", "db.1"));
        for text in ["db", "/db", "vms/", "vms/a/b", "-x/db", "vms/--all", "Vms/db", ""] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
