//! What a person may type. The texts here are the manual.

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
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Log to stderr what is going on; twice for more
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

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Turn an image from a URL or a file into a raw disk
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(Box<ImportArgs>),
    /// Say what an image is, and how it would be imported
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectArgs),
    /// Make the disks that DataVolume manifests ask for, without a cluster
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
code 0. An import that was interrupted, by kill -9 or a power cut even, goes on where it stopped
when the same command is run again, if the server says what identifies its image (a strong ETag)
and serves ranges; a compressed image has to begin anew.";

/// Turn an image from a URL or a file into a raw disk
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// A http, https, s3, gs or nbd address, docker://IMAGE, oci-archive:FILE, a file, a device, or - for stdin
    pub source: String,

    /// The disk: a file (replaced once the new disk is complete) or a block device
    #[arg(long, value_name = "TARGET")]
    pub to: PathBuf,

    /// Unpack a tar of files, compressed or not, into the folder TARGET, new or empty
    #[arg(long, conflicts_with_all = ["format", "size", "preallocate", "journal", "scratch"])]
    pub archive: bool,

    /// auto: detect the format by content; raw: store the source unchanged
    #[arg(long, value_name = "FORMAT", default_value = "auto", hide_possible_values = true)]
    pub format: Format,

    /// What the image as it is sent has to hash to: md5, sha1, sha256 or sha512
    #[arg(long, value_name = "ALGORITHM:HEX")]
    pub checksum: Option<Checksum>,

    /// Report the SHA-256 of the image as it is sent
    #[arg(long)]
    pub digest: bool,

    /// Grow the disk to at least this size, such as 10Gi; a block device keeps its own
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub size: Option<ByteCount>,

    /// Allocate every byte of the disk, instead of leaving holes where it is zero
    #[arg(long)]
    pub preallocate: bool,

    /// Print one JSON object about the import to stdout, and no progress
    #[arg(long)]
    pub json: bool,

    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,

    /// How to ask a web server.
    #[command(flatten)]
    pub web: WebArgs,

    /// How to ask a registry.
    #[command(flatten)]
    pub registry: RegistryArgs,

    /// How to ask an object store.
    #[command(flatten)]
    pub store: StoreArgs,

    /// Journal of an import [default: beside the disk; of a device in ~/.local/state/cdi]
    #[arg(long, value_name = "FILE", help_heading = "Interrupted imports")]
    pub journal: Option<PathBuf>,

    /// Work that a kill may cost: what is done is noted this often
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = values::duration)]
    #[arg(help_heading = "Interrupted imports")]
    pub checkpoint_every: Duration,

    /// Begin anew, whatever an earlier run left behind
    #[arg(long, help_heading = "Interrupted imports")]
    pub no_resume: bool,

    /// How much memory, and where the rest goes.
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

/// How to ask a web server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Web servers")]
pub struct WebArgs {
    /// Name for basic authentication; the password is in CDI_PASSWORD or --password-file
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,

    /// File with the password; a line end at its end is no part of it
    #[arg(long, value_name = "FILE", requires = "user")]
    pub password_file: Option<PathBuf>,

    /// Request header; visible to whoever lists processes, so for nothing secret
    #[arg(long, value_name = "NAME: VALUE")]
    pub header: Vec<String>,

    /// File of request headers, one a line; their values appear in no log or message
    #[arg(long, value_name = "FILE")]
    pub header_file: Vec<PathBuf>,

    /// Authorities to trust beside the system's: a file of PEM, or a folder of them
    #[arg(long, value_name = "PATH")]
    pub ca: Vec<PathBuf>,

    /// Accept any certificate: whoever stands in between can replace the image
    #[arg(long)]
    pub insecure: bool,

    /// The most connections at a time
    #[arg(long, value_name = "NUMBER", default_value = "8")]
    pub connections: NonZeroUsize,
}

/// How to ask a registry.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Registries")]
pub struct RegistryArgs {
    /// Which image of an index, such as amd64 or arm64 [default: this machine's]
    #[arg(long, value_name = "NAME")]
    pub architecture: Option<String>,

    /// Credentials as Docker, Podman and pull secrets have them; helpers are not run
    #[arg(long, value_name = "FILE")]
    pub registry_config: Option<PathBuf>,

    /// Where images are asked for first, as in docker.io=mirror:5000/cache
    #[arg(long, value_name = "REGISTRY=HOST")]
    pub mirror: Vec<Mirror>,

    /// A registry that may have any certificate, or no TLS at all
    #[arg(long, value_name = "HOST[:PORT]")]
    pub insecure_registry: Vec<String>,
}

/// How to ask an object store.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Object stores")]
pub struct StoreArgs {
    /// Address of another S3 than Amazon's, such as https://minio.example:9000
    #[arg(long, value_name = "URL")]
    pub s3_endpoint: Option<String>,

    /// Region of the bucket [default: found out]
    #[arg(long, value_name = "NAME")]
    pub s3_region: Option<String>,

    /// The bucket is a part of the endpoint's host name, and not of the path
    #[arg(long)]
    pub s3_virtual_host: bool,

    /// Address of another store than Google's that speaks like it
    #[arg(long, value_name = "URL")]
    pub gcs_endpoint: Option<String>,

    /// Key of a service account, in JSON [default: $GOOGLE_APPLICATION_CREDENTIALS]
    #[arg(long, value_name = "FILE")]
    pub gcs_key: Option<PathBuf>,

    /// Ask without keys, for what is public; otherwise S3 is asked with those of the environment
    #[arg(long)]
    pub anonymous: bool,
}

/// How much memory, and where the rest goes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Resources")]
pub struct ResourceArgs {
    /// Memory for all buffers together
    #[arg(long, value_name = "SIZE", default_value = "32Mi", value_parser = values::size)]
    pub memory: ByteCount,

    /// Folder for the rare image that cannot be read in one pass [default: refuse it]
    #[arg(long, value_name = "FOLDER")]
    pub scratch: Option<PathBuf>,
}

const INSPECT_EXAMPLES: &str = "\
Examples:
  cdi inspect https://host/image.qcow2
  cdi inspect ./windows.raw.xz --json
  cdi inspect docker://quay.io/containerdisks/fedora:latest

Only the beginning of the image and its tables are read. The route is how `cdi import` would read it:
  ranges          several streams, and only the parts that hold data
  stream          from the first byte to the last
  parallel parts  the same, decompressed on all cores
  one pass        a disk image with an index, decoded as it streams by
  refused         not at all, for the reason given";

/// Say what an image is, and how it would be imported
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A http, https, s3, gs or nbd address, docker://IMAGE, oci-archive:FILE, a file or a block device
    pub source: String,

    /// Print one JSON object to stdout
    #[arg(long)]
    pub json: bool,

    /// How to ask a web server.
    #[command(flatten)]
    pub web: WebArgs,

    /// How to ask a registry.
    #[command(flatten)]
    pub registry: RegistryArgs,

    /// How to ask an object store.
    #[command(flatten)]
    pub store: StoreArgs,
}

const APPLY_EXAMPLES: &str = "\
Examples:
  cdi apply -f datavolume.yaml --volumes ./volumes
  kubectl get datavolume fedora-root -o yaml | cdi apply -f - --volumes ./volumes
  cdi apply -f credentials.yaml -f datavolume.yaml --volumes ./volumes --json

Each DataVolume becomes FOLDER/NAMESPACE/NAME/disk.img, with the size that it would have in a
cluster; with contentType archive, the files lie in FOLDER/NAMESPACE/NAME/data. Sources are http
(file:///… addresses work too), s3, gcs, registry and blank; the Secrets and ConfigMaps that a
source names have to be in the manifests as well. A disk that is complete is left alone, so the
command can be repeated; to make one anew, delete its folder. The exit code is 0 only when all
disks are complete and durable.";

/// Make the disks that DataVolume manifests ask for, without a cluster
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// Manifest in YAML or JSON, or - for standard input
    #[arg(long, short, value_name = "FILE", required = true)]
    pub file: Vec<PathBuf>,

    /// Folder of the volumes, made if need be
    #[arg(long, value_name = "FOLDER")]
    pub volumes: PathBuf,

    /// Share of a volume that is left to its file system, from 0 to 1
    #[arg(long, value_name = "FRACTION", default_value_t)]
    pub filesystem_overhead: Overhead,

    /// Print one JSON object about all volumes to stdout, and no progress
    #[arg(long)]
    pub json: bool,

    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,

    /// The most connections at a time
    #[arg(long, value_name = "NUMBER", default_value = "8")]
    pub connections: NonZeroUsize,

    /// How to ask a registry.
    #[command(flatten)]
    pub registry: RegistryArgs,

    /// How much memory, and where the rest goes.
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
    fn the_arguments_fit_together() {
        Cli::command().debug_assert();
    }

    /// The manual as it was reviewed. To accept a change: `UPDATE_SNAPSHOTS=1 cargo test -p cli`.
    #[test]
    fn the_manual_reads_as_reviewed() {
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
    fn a_bad_value_is_explained_in_the_words_users_know() {
        let complaint = |args: &[&str]| Cli::try_parse_from(args).unwrap_err().to_string();
        let text = complaint(&["cdi", "import", "a", "--to", "b", "--checksum", "md5:12"]);
        assert!(
            text.contains("invalid md5 hash length: expected 32 hex characters, got 2"),
            "{text}"
        );
        let text = complaint(&[
            "cdi",
            "apply",
            "-f",
            "a",
            "--volumes",
            "b",
            "--filesystem-overhead",
            "5%",
        ]);
        assert!(text.contains("a fraction from 0 to 1"), "{text}");
        let text = complaint(&["cdi", "import", "a", "--to", "b", "--size", "10GB"]);
        assert!(text.contains("its suffix has to be one of"), "{text}");
    }

    #[test]
    fn there_is_no_way_to_give_a_password_as_an_argument() {
        let mut command = Cli::command();
        command.build();
        let mut all = vec![&command];
        while let Some(command) = all.pop() {
            assert!(command.get_arguments().all(|argument| argument.get_id() != "password"));
            all.extend(command.get_subcommands());
        }
    }
}
