//! The command line. Its doc comments are the `--help` texts, reviewed in `snapshots/`.

#![allow(rustdoc::bare_urls)] // they are read in a terminal

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use contract::{ByteCount, Checksum, Overhead};
use importer::Mirror;
use pipeline::SourceFormat;

use crate::upload::args::{self as upload, UploadArgs};
use crate::values;

/// Turn disk images from anywhere into raw disks, in one pass and without scratch space
#[derive(Debug, Parser)]
#[command(name = "cdi", version, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,

    /// Log to stderr; given twice, log more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
}

const EXAMPLES: &str = "\
Examples:
  cdi import https://host/debian.qcow2 --to disk.img
  cdi import docker://quay.io/containerdisks/fedora:latest --to disk.img
  cdi inspect https://host/debian.qcow2
  cdi apply -f datavolume.yaml --volumes ./volumes
  cdi upload debian.qcow2 default/debian

Compression (gzip, xz, zstd) and format (qcow2, vmdk, vhd, vhdx, vdi, OVA, raw, ISO) are found by content.
Run `cdi help COMMAND` for all options and more examples.";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Turn an image from a URL or a file into a raw disk
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(Box<ImportArgs>),
    /// Show the format of an image, and how it would be imported
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectArgs),
    /// Create the disks of DataVolume manifests, without a cluster
    #[command(after_help = APPLY_EXAMPLES)]
    Apply(ApplyArgs),
    /// Upload an image to a DataVolume in a cluster
    #[command(after_help = upload::EXAMPLES)]
    Upload(Box<UploadArgs>),
    /// Print completions for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: Shell,
    },
}

const IMPORT_EXAMPLES: &str = "\
Examples:
  cdi import https://host/debian.qcow2 --to disk.img
  cdi import ./windows.raw.xz --to /dev/loop7 --checksum sha256:9f86d081…
  cdi import https://host/fedora.raw.zst --to disk.img --size 20Gi --json
  cdi import https://host/private.img --to disk.img --user anna --password-file secret.txt
  cdi import docker://quay.io/containerdisks/fedora:latest --to disk.img --architecture arm64
  cdi import --archive https://host/files.tar.gz --to ./files
  cdi import s3://bucket/debian.qcow2 --to disk.img --s3-endpoint https://minio.example:9000
  zcat disk.img.gz | cdi import - --to disk.img
  cdi import 'nbd+unix:///?socket=/tmp/nbd.sock' --to disk.img

The disk appears under its name only when it is complete and durable, and only then is the exit
code 0. An interrupted import (even by kill -9 or a power cut) resumes where it stopped
when the same command is run again, if the server identifies its image (by a strong ETag)
and serves ranges; the import of a compressed image starts again.";

/// Turn an image from a URL or a file into a raw disk
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// A URL (http, https, s3, gs, nbd), docker://IMAGE, oci-archive:FILE, a file, a device, or - for stdin
    pub source: String,

    /// The disk: a file (replaced once the new disk is complete) or a block device
    #[arg(long, value_name = "TARGET")]
    pub to: PathBuf,

    /// Unpack a tar archive, compressed or not, into the directory TARGET, new or empty
    #[arg(long, conflicts_with_all = ["format", "size", "preallocate", "journal", "scratch"])]
    pub archive: bool,

    /// auto: detect the format by content; raw: store the source unchanged
    #[arg(long, value_name = "FORMAT", default_value = "auto", hide_possible_values = true)]
    pub format: Format,

    /// Expected checksum of the bytes before decompression: md5, sha1, sha256 or sha512
    #[arg(long, value_name = "ALGORITHM:HEX")]
    pub checksum: Option<Checksum>,

    /// Report the SHA-256 of the bytes before decompression
    #[arg(long)]
    pub digest: bool,

    /// Grow the disk to at least this size, such as 10Gi; a block device keeps its own
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub size: Option<ByteCount>,

    /// Allocate all blocks of the disk, instead of leaving holes for zeroes
    #[arg(long)]
    pub preallocate: bool,

    /// Print one JSON object about the import to stdout, and no progress
    #[arg(long)]
    pub json: bool,

    /// Print only errors
    #[arg(long, short)]
    pub quiet: bool,

    #[command(flatten)]
    pub web: WebArgs,

    #[command(flatten)]
    pub registry: RegistryArgs,

    #[command(flatten)]
    pub store: StoreArgs,

    /// Journal of the import [default: next to the disk; for a device in ~/.local/state/cdi]
    #[arg(long, value_name = "FILE", help_heading = "Interrupted imports")]
    pub journal: Option<PathBuf>,

    /// Interval of journal entries: the most work that a killed import repeats
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = values::duration)]
    #[arg(help_heading = "Interrupted imports")]
    pub checkpoint_every: Duration,

    /// Start again, even if an earlier run can be resumed
    #[arg(long, help_heading = "Interrupted imports")]
    pub no_resume: bool,

    #[command(flatten)]
    pub resources: ResourceArgs,
}

/// Format of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Detected by content
    #[default]
    Auto,
    /// The disk itself, stored unchanged
    Raw,
}

impl From<Format> for SourceFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Auto => Self::Detect,
            Format::Raw => Self::Raw,
        }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Web servers")]
pub struct WebArgs {
    /// User name for basic authentication; the password is in CDI_PASSWORD or --password-file
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,

    /// File with the password, without a trailing line end
    #[arg(long, value_name = "FILE", requires = "user")]
    pub password_file: Option<PathBuf>,

    /// Request header; not for secrets, as other users can list the arguments of processes
    #[arg(long, value_name = "NAME: VALUE")]
    pub header: Vec<String>,

    /// File of request headers, one per line; their values appear in no log or message
    #[arg(long, value_name = "FILE")]
    pub header_file: Vec<PathBuf>,

    /// CA certificates to trust besides the system's: a PEM file, or a directory of them
    #[arg(long, value_name = "PATH")]
    pub ca: Vec<PathBuf>,

    /// Do not verify the server's certificate: a machine in the middle can replace the image
    #[arg(long)]
    pub insecure: bool,

    /// Maximum number of connections
    #[arg(long, value_name = "NUMBER", default_value = "8")]
    pub connections: NonZeroUsize,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Registries")]
pub struct RegistryArgs {
    /// Architecture to choose from an index, such as arm64 [default: this machine's]
    #[arg(long, value_name = "NAME")]
    pub architecture: Option<String>,

    /// Credentials as for Docker and Podman or in a pull secret; helpers are not run
    #[arg(long, value_name = "FILE")]
    pub registry_config: Option<PathBuf>,

    /// Mirror to try first, as in docker.io=mirror:5000/cache
    #[arg(long, value_name = "REGISTRY=HOST")]
    pub mirror: Vec<Mirror>,

    /// Registry without a verifiable certificate, or without TLS
    #[arg(long, value_name = "HOST[:PORT]")]
    pub insecure_registry: Vec<String>,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Object stores")]
pub struct StoreArgs {
    /// Endpoint of an S3-compatible store, such as https://minio.example:9000 [default: Amazon S3]
    #[arg(long, value_name = "URL")]
    pub s3_endpoint: Option<String>,

    /// Region of the bucket [default: detected]
    #[arg(long, value_name = "NAME")]
    pub s3_region: Option<String>,

    /// Put the bucket in the endpoint's host name instead of the path
    #[arg(long)]
    pub s3_virtual_host: bool,

    /// Endpoint of a store compatible with Google Cloud Storage
    #[arg(long, value_name = "URL")]
    pub gcs_endpoint: Option<String>,

    /// JSON key of a service account [default: $GOOGLE_APPLICATION_CREDENTIALS]
    #[arg(long, value_name = "FILE")]
    pub gcs_key: Option<PathBuf>,

    /// Send no credentials, for public objects; otherwise S3 credentials come from the environment
    #[arg(long)]
    pub anonymous: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Resources")]
pub struct ResourceArgs {
    /// Memory for all buffers
    #[arg(long, value_name = "SIZE", default_value = "32Mi", value_parser = values::size)]
    pub memory: ByteCount,

    /// Directory for the rare image that cannot be read in one pass [default: refuse it]
    #[arg(long, value_name = "DIRECTORY")]
    pub scratch: Option<PathBuf>,
}

const INSPECT_EXAMPLES: &str = "\
Examples:
  cdi inspect https://host/image.qcow2
  cdi inspect ./windows.raw.xz --json
  cdi inspect docker://quay.io/containerdisks/fedora:latest

Only the start of the image and its tables are read. The route is how `cdi import` would read it:
  ranges          several streams, and only the parts that hold data
  stream          from the first byte to the last
  parallel parts  the same, decompressed on all cores
  one pass        a disk image with an index, decoded while it streams
  refused         cannot be imported, with the reason";

/// Show the format of an image, and how it would be imported
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A URL (http, https, s3, gs, nbd), docker://IMAGE, oci-archive:FILE, a file or a block device
    pub source: String,

    /// Print one JSON object to stdout
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub web: WebArgs,

    #[command(flatten)]
    pub registry: RegistryArgs,

    #[command(flatten)]
    pub store: StoreArgs,
}

const APPLY_EXAMPLES: &str = "\
Examples:
  cdi apply -f datavolume.yaml --volumes ./volumes
  kubectl get datavolume fedora-root -o yaml | cdi apply -f - --volumes ./volumes
  cdi apply -f credentials.yaml -f datavolume.yaml --volumes ./volumes --json

Each DataVolume becomes DIRECTORY/NAMESPACE/NAME/disk.img, with the size that it would have in a
cluster; with contentType archive, the files are in DIRECTORY/NAMESPACE/NAME/data. Sources are http
(also file:///…), s3, gcs, registry and blank; the Secrets and ConfigMaps that a
source names have to be in the manifests as well. A complete disk is not changed, so the
command can be repeated; to create one again, delete its directory. The exit code is 0 only if all
disks are complete and durable.";

/// Create the disks of DataVolume manifests, without a cluster
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// Manifest in YAML or JSON, or - for standard input
    #[arg(long, short, value_name = "FILE", required = true)]
    pub file: Vec<PathBuf>,

    /// Directory of the volumes, created if missing
    #[arg(long, value_name = "DIRECTORY")]
    pub volumes: PathBuf,

    /// Share of a volume that its file system needs, from 0 to 1
    #[arg(long, value_name = "FRACTION", default_value_t)]
    pub filesystem_overhead: Overhead,

    /// Print one JSON object about all volumes to stdout, and no progress
    #[arg(long)]
    pub json: bool,

    /// Print only errors
    #[arg(long, short)]
    pub quiet: bool,

    /// Maximum number of connections
    #[arg(long, value_name = "NUMBER", default_value = "8")]
    pub connections: NonZeroUsize,

    #[command(flatten)]
    pub registry: RegistryArgs,

    #[command(flatten)]
    pub resources: ResourceArgs,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  source <(cdi completions bash)
  cdi completions zsh > ~/.zfunc/_cdi
  cdi completions fish > ~/.config/fish/completions/cdi.fish";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    /// To accept a change: `UPDATE_SNAPSHOTS=1 cargo test --workspace --lib -p cli args::`.
    #[test]
    fn help_texts_match_the_snapshots() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots");
        let mut command = Cli::command().term_width(0);
        command.build();
        let subcommands = command.get_subcommands().map(|sub| sub.get_name().to_owned());
        let mut texts: Vec<_> = subcommands
            .filter(|name| name != "help")
            .map(|name| {
                let sub = command.find_subcommand(&name).unwrap().clone();
                (format!("help-{name}.txt"), sub.term_width(0).render_help().to_string())
            })
            .collect();
        texts.push(("help.txt".into(), command.render_help().to_string()));
        for (file, text) in texts {
            let path = format!("{folder}/{file}");
            if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
                std::fs::write(&path, &text).unwrap();
            }
            assert_eq!(text, std::fs::read_to_string(&path).unwrap(), "{path}");
            let widest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
            assert!(widest.chars().count() <= 120, "too wide: {widest}");
        }
    }

    #[test]
    fn invalid_value_is_explained() {
        let error_of = |args: &[&str]| Cli::try_parse_from(args).unwrap_err().to_string();
        let text = error_of(&["cdi", "import", "a", "--to", "b", "--checksum", "md5:12"]);
        assert!(
            text.contains("invalid md5 hash length: expected 32 hex characters, got 2"),
            "{text}"
        );
        let text =
            error_of(&["cdi", "apply", "-f", "a", "--volumes", "b", "--filesystem-overhead", "5%"]);
        assert!(text.contains("a fraction from 0 to 1"), "{text}");
        let text = error_of(&["cdi", "import", "a", "--to", "b", "--size", "10GB"]);
        assert!(text.contains("its suffix has to be one of"), "{text}");
    }

    #[test]
    fn password_cannot_be_an_argument() {
        let mut command = Cli::command();
        command.build();
        let mut all = vec![&command];
        while let Some(command) = all.pop() {
            assert!(command.get_arguments().all(|argument| argument.get_id() != "password"));
            all.extend(command.get_subcommands());
        }
    }
}
