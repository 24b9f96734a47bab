//! What a person may type behind `cdi upload`. The texts here are the manual.

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

What travels is compressed, without the holes of the file. An upload that is interrupted goes on by itself;
one whose program was ended goes on when the same command is run again on the same file. The exit code is 0
only when the whole disk is durable in the cluster and hashes to what the file does (not compared for an OVA,
nor with --no-verify).

The cluster is asked by kubectl, with whatever credentials that has. With --token-file no cluster is asked.";

/// Upload an image to a DataVolume in a cluster
#[derive(Debug, Args)]
pub struct UploadArgs {
    /// The image: a file, raw or of any format that `cdi import` knows, compressed or not
    pub image: PathBuf,

    /// The DataVolume, which is made if it is not there
    #[arg(value_name = "NAMESPACE/NAME")]
    pub volume: VolumeName,

    /// Size of a new DataVolume, such as 10Gi [default: that of the disk in the image]
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "A new DataVolume")]
    pub size: Option<ByteCount>,

    /// Its storage class [default: the cluster's]
    #[arg(long, value_name = "NAME", help_heading = "A new DataVolume")]
    pub storage_class: Option<String>,

    /// How it can be mounted, such as ReadWriteOnce [default: what suits its storage class]
    #[arg(long, value_name = "MODE", hide_possible_values = true)]
    #[arg(help_heading = "A new DataVolume")]
    pub access_mode: Option<AccessMode>,

    /// `block` or `filesystem` [default: what suits its storage class]
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

    /// Make none: it has to be there
    #[arg(long, help_heading = "A new DataVolume")]
    pub no_create: bool,

    /// Address of the upload proxy [default: the CDIConfig's, or a port forwarded to it]
    #[arg(long, value_name = "URL", help_heading = "The cluster")]
    pub url: Option<String>,

    /// Authorities to trust beside the system's and the cluster's: a file of PEM
    #[arg(long, value_name = "FILE", help_heading = "The cluster")]
    pub ca: Vec<PathBuf>,

    /// Accept any certificate: whoever stands in between can replace the image
    #[arg(long, help_heading = "The cluster")]
    pub insecure: bool,

    /// File with an upload token; it is read again whenever a new one is needed
    #[arg(long, value_name = "FILE", requires = "url", help_heading = "The cluster")]
    pub token_file: Option<PathBuf>,

    /// Context of the kubeconfig [default: the present one]
    #[arg(long, value_name = "NAME", help_heading = "The cluster")]
    pub context: Option<String>,

    /// The program that asks the cluster
    #[arg(long, value_name = "PROGRAM", default_value = "kubectl", help_heading = "The cluster")]
    pub kubectl: PathBuf,

    /// How long to wait for the upload server, and how long an upload may stand still
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = values::duration)]
    pub patience: Duration,

    /// Do not compare what arrives by its hash: TLS alone finds a changed byte
    #[arg(long)]
    pub no_verify: bool,

    /// Print one JSON object about the upload to stdout, and no progress
    #[arg(long)]
    pub json: bool,

    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
}

/// Where a DataVolume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeName {
    /// Of the cluster.
    pub namespace: String,
    /// In that.
    pub name: String,
}

impl FromStr for VolumeName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, name) =
            text.split_once('/').ok_or("it has to be of the form NAMESPACE/NAME")?;
        if !api::metadata::is_namespace_name(namespace) || !api::metadata::is_object_name(name) {
            return Err("no DataVolume can be called that");
        }
        Ok(Self { namespace: namespace.into(), name: name.into() })
    }
}

/// As Kubernetes writes it.
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

/// As Kubernetes writes it, and in lower case.
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
    fn a_volume_has_a_namespace_and_a_name() {
        let parse = |text: &str| text.parse::<VolumeName>();
        let name = parse("vms/db.1").unwrap();
        assert_eq!((&*name.namespace, &*name.name), ("vms", "db.1"));
        for text in ["db", "/db", "vms/", "vms/a/b", "-x/db", "vms/--all", "Vms/db", ""] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
