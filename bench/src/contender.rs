//! The programs that are compared, and their commands: what a user would type. All of them make the disk durable.

use std::path::PathBuf;
use std::process::Command;

use crate::case::{Case, Compression};
use crate::target::Kind;

/// A method to import an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Contender {
    /// This project.
    Cdi,
    /// This project again, with the same object from a plain web server: the difference is the cost of S3.
    CdiHttp,
    /// This project from the local file: like against like, where the others have it local.
    CdiLocal,
    /// Upstream CDI's importer, a program given with `--reference`, in the environment of its pod.
    #[value(alias = "reference")]
    Upstream,
    /// curl to a scratch file, decompress to a scratch file, convert: upstream CDI's steps, where its importer is not given.
    ScratchChain,
    /// qemu-img with its own http driver.
    QemuHttp,
    /// qemu-img from the local file, which no importer has.
    QemuLocal,
    /// The same with 16 requests in flight.
    QemuLocal16,
    /// curl, the fastest common decompressor, and a sparse write, in one pipe.
    Stream,
    /// curl (skopeo, from a registry) and decompressor to a file, then qemu-img without page cache.
    TwoStep,
    /// nbdcopy from nbdkit or qemu-nbd.
    NbdCopy,
    /// aria2c to a file on eight connections, then the steps of [`Contender::Stream`] or [`Contender::TwoStep`]. Only
    /// [`crate::network`] asks for it: on loopback one connection is as fast.
    Aria2,
}

/// The arguments of a command.
pub struct RunPaths {
    /// The image on the web server.
    pub url: String,
    /// The same server as a store: the files are in a bucket of the name `bench`.
    pub store: String,
    /// Host and port of the registry; nothing where none is needed. The image is `bench:latest`.
    pub registry: String,
    /// The same image as a file.
    pub file: PathBuf,
    /// The target of the disk.
    pub target: PathBuf,
    /// Which kind of target that is.
    pub kind: Kind,
    /// An empty folder on the file system of the target.
    pub scratch: PathBuf,
    /// An empty folder to mount on.
    pub root: PathBuf,
    /// Bytes of the disk.
    pub virtual_size: u64,
    /// The program of this project.
    pub cdi: PathBuf,
    /// Upstream CDI's importer.
    pub reference: Option<PathBuf>,
}

impl Contender {
    /// Those that are compared on loopback, in the order of the tables.
    pub const ON_LOOPBACK: [Self; 11] = [
        Self::Cdi,
        Self::CdiHttp,
        Self::CdiLocal,
        Self::Upstream,
        Self::ScratchChain,
        Self::QemuHttp,
        Self::QemuLocal,
        Self::QemuLocal16,
        Self::Stream,
        Self::TwoStep,
        Self::NbdCopy,
    ];

    /// As tables name it.
    pub fn name(self, case: Case) -> String {
        let decompressor = match case.compression() {
            Compression::None => String::new(),
            _ => format!(" + {}", decompressor(case).trim_end_matches(" -dc")),
        };
        match self {
            Self::Cdi => "**cdi import**".into(),
            Self::CdiHttp => "cdi import, the same object over plain http".into(),
            Self::CdiLocal => "cdi import, *local file*".into(),
            Self::Upstream => "upstream CDI's importer, with scratch".into(),
            Self::ScratchChain => "curl to scratch, decompress to scratch, qemu-img convert".into(),
            Self::QemuHttp => "qemu-img convert -W -t none, http".into(),
            Self::QemuLocal => "qemu-img convert -W -t none, *local file*".into(),
            Self::QemuLocal16 => "qemu-img convert -W -m 16 -t none, *local file*".into(),
            Self::Stream => format!("curl{decompressor} + sparse write"),
            Self::TwoStep if case == Case::Registry => {
                "skopeo copy, igzip + tar to a file, qemu-img convert -W -t none".into()
            }
            Self::TwoStep => format!("curl{decompressor} to a file, qemu-img convert -W -t none"),
            Self::NbdCopy if case.format() == "raw" => "nbdcopy from nbdkit curl".into(),
            Self::NbdCopy => "nbdcopy from qemu-nbd, *local file*".into(),
            Self::Aria2 => "aria2c on 8 connections to a file, then the tools".into(),
        }
    }

    /// Whether it can do this at all. (nbdkit's gzip filter unpacks to a file before it begins, and its xz filter
    /// takes no file of one block.)
    pub fn can(self, case: Case) -> bool {
        let plain = case.compression() == Compression::None;
        match case {
            // Upstream CDI sends signed requests only, and this server checks no signature.
            Case::S3 => return matches!(self, Self::Cdi | Self::CdiHttp),
            Case::Registry => return matches!(self, Self::Cdi | Self::Upstream | Self::TwoStep),
            _ => {}
        }
        match self {
            Self::CdiHttp => false,
            Self::Cdi | Self::Upstream | Self::ScratchChain => true,
            Self::CdiLocal | Self::QemuHttp | Self::QemuLocal => plain,
            Self::QemuLocal16 => plain && case != Case::Raw,
            Self::Stream => case.format() == "raw",
            Self::TwoStep => case.format() == "qcow2",
            Self::Aria2 => matches!(case.format(), "raw" | "qcow2"),
            Self::NbdCopy => plain,
        }
    }

    /// The command, after `enter`: shell words that limit it.
    pub fn command(self, case: Case, place: &RunPaths, enter: &str) -> Command {
        let script = match self {
            Self::Cdi => cdi(case).to_owned(),
            Self::CdiHttp => cdi(Case::Qcow2).to_owned(),
            Self::CdiLocal => r#"exec "$CDI" import "$FILE" --to "$TARGET" --json 2>&1"#.to_owned(),
            Self::Upstream => reference(case, place.kind),
            Self::ScratchChain => scratch_chain(case),
            Self::QemuHttp => qemu_img(case, "-W -t none", "$URL"),
            Self::QemuLocal => qemu_img(case, "-W -t none", "$FILE"),
            Self::QemuLocal16 => qemu_img(case, "-W -m 16 -t none", "$FILE"),
            Self::Stream => stream(case),
            Self::TwoStep => two_step(case),
            Self::NbdCopy => nbd_copy(case),
            Self::Aria2 => aria2(case),
        };
        let mut command = Command::new("bash");
        command
            .args(["-euo", "pipefail", "-c", &format!("{enter}{script}")])
            .env("URL", &place.url)
            .env("STORE", &place.store)
            .env("OBJECT", format!("s3://bench/{}", case.file()))
            .env("REGISTRY", &place.registry)
            .env("FILE", &place.file)
            .env("TARGET", &place.target)
            .env("SCRATCH", &place.scratch)
            .env("ROOT", &place.root)
            .env("SIZE", place.virtual_size.to_string())
            .env("CDI", &place.cdi)
            .env("REFERENCE", place.reference.as_deref().unwrap_or("".as_ref()));
        command
    }
}

/// From a store with signatures, although the server does not look at them: they are a part of what it costs.
fn cdi(case: Case) -> &'static str {
    match case {
        Case::S3 => {
            r#"export AWS_ACCESS_KEY_ID=bench AWS_SECRET_ACCESS_KEY=bench
exec "$CDI" import "$OBJECT" --s3-endpoint "$STORE" --to "$TARGET" --json 2>&1"#
        }
        Case::Registry => {
            r#"exec "$CDI" import "docker://$REGISTRY/bench:latest" --insecure --to "$TARGET" --json 2>&1"#
        }
        _ => r#"exec "$CDI" import "$URL" --to "$TARGET" --json 2>&1"#,
    }
}

/// The fastest that the distribution has, for one stream.
fn decompressor(case: Case) -> &'static str {
    match case {
        Case::RawXzBlocks => "xz -T2 -dc",
        _ => match case.compression() {
            Compression::None => "cat",
            Compression::Gzip => "igzip -dc",
            Compression::Xz => "xz -T1 -dc",
            Compression::Zstd => "zstd -dc",
        },
    }
}

/// Upstream CDI streams the download through Go's decoders into a scratch file, and converts that.
fn scratch_chain(case: Case) -> String {
    let decompress = match case.compression() {
        Compression::None => "mv \"$SCRATCH/wire\" \"$SCRATCH/image\"".to_owned(),
        Compression::Gzip => "gzip -dc < \"$SCRATCH/wire\" > \"$SCRATCH/image\"".to_owned(),
        _ => format!("{} < \"$SCRATCH/wire\" > \"$SCRATCH/image\"", decompressor(case)),
    };
    format!(
        r#"curl -sSf "$URL" -o "$SCRATCH/wire"
{decompress}
qemu-img convert -f {} -O raw "$SCRATCH/image" "$TARGET"
sync "$TARGET""#,
        case.format()
    )
}

fn qemu_img(case: Case, how: &str, source: &str) -> String {
    let format = case.format();
    format!("qemu-img convert {how} -f {format} -O raw \"{source}\" \"$TARGET\"\nsync \"$TARGET\"")
}

/// A download on several connections, before anything is decoded.
fn aria2(case: Case) -> String {
    let fetch = r#"aria2c --quiet --no-conf --split=8 --max-connection-per-server=8 --min-split-size=1M \
    --file-allocation=none --dir="$SCRATCH" --out=wire "$URL""#;
    let read = "cat \"$SCRATCH/wire\"";
    match case.format() {
        "raw" => format!("{fetch}\n{}", sparse_write(read, case)),
        _ => format!("{fetch}\n{}", convert(read, case)),
    }
}

fn stream(case: Case) -> String {
    sparse_write("curl -sSf \"$URL\"", case)
}

/// Decompresses what `read` prints. Runs of zeroes become holes in steps of 64 KiB, the size of a cluster.
fn sparse_write(read: &str, case: Case) -> String {
    let write = "dd of=\"$TARGET\" iflag=fullblock bs=64K conv=sparse,notrunc,fsync status=none";
    let decompress = match case.compression() {
        Compression::None => String::new(),
        _ => format!(" | {}", decompressor(case)),
    };
    // A disk that ends in zeroes has its length set at last.
    format!(
        "{read}{decompress} | {write}\n\
         if [ -f \"$TARGET\" ]; then truncate --size=\"$SIZE\" \"$TARGET\"; sync \"$TARGET\"; fi"
    )
}

fn two_step(case: Case) -> String {
    if case == Case::Registry {
        return r#"skopeo copy --quiet --insecure-policy --src-tls-verify=false \
    "docker://$REGISTRY/bench:latest" "dir:$SCRATCH/image"
layer=$(ls -S "$SCRATCH/image" | head -1)
igzip -dc "$SCRATCH/image/$layer" | tar --extract --to-stdout disk/disk.qcow2 > "$SCRATCH/disk.qcow2"
qemu-img convert -W -t none -f qcow2 -O raw "$SCRATCH/disk.qcow2" "$TARGET"
sync "$TARGET""#
            .into();
    }
    convert("curl -sSf \"$URL\"", case)
}

/// Decompresses what `read` prints to a file, and converts that.
fn convert(read: &str, case: Case) -> String {
    let decompress = match case.compression() {
        Compression::None => String::new(),
        _ => format!(" | {}", decompressor(case)),
    };
    format!(
        r#"{read}{decompress} > "$SCRATCH/image"
qemu-img convert -W -t none -f {} -O raw "$SCRATCH/image" "$TARGET"
sync "$TARGET""#,
        case.format()
    )
}

fn nbd_copy(case: Case) -> String {
    match case.format() {
        "raw" => {
            r#"nbdkit --readonly -U - curl "$URL" --run 'nbdcopy --flush "$uri" "$TARGET"'"#.into()
        }
        format => format!(
            r#"nbdcopy --flush -- [ qemu-nbd --read-only --format={format} "$FILE" ] "$TARGET""#
        ),
    }
}

/// What a pod gives to upstream CDI's importer: volumes, environment, a termination message file. All of it in
/// a mount namespace of its own, over a root that is thrown away.
fn reference(case: Case, kind: Kind) -> String {
    let (source, endpoint, insecure) = match case {
        Case::Registry => ("registry", "docker://$REGISTRY/bench:latest", "true"),
        _ => ("http", "$URL", "false"),
    };
    let volume = match kind {
        Kind::File | Kind::Network => r#"mount --bind "$(dirname "$TARGET")" "$ROOT/data""#,
        Kind::Loop => {
            r#"mknod "$ROOT/dev/cdi-block-volume" b "0x$(stat -c %t "$TARGET")" "0x$(stat -c %T "$TARGET")""#
        }
    };
    format!(
        r#"exec unshare --mount bash -euo pipefail -c '
mount -t tmpfs none "$ROOT"
mkdir "$ROOT"/{{usr,etc,proc,sys,dev,tmp,data,scratch}}
for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$ROOT/$folder"; done
for folder in usr etc proc sys; do mount --rbind "/$folder" "$ROOT/$folder"; done
mknod "$ROOT/dev/null" c 1 3; mknod "$ROOT/dev/urandom" c 1 9; touch "$ROOT/dev/termination-log"
mount --bind "$SCRATCH" "$ROOT/scratch"
{volume}
cp --link "$REFERENCE" "$ROOT/tmp/importer" 2>/dev/null || cp "$REFERENCE" "$ROOT/tmp/importer"
export IMPORTER_SOURCE={source} IMPORTER_ENDPOINT="{endpoint}" IMPORTER_CONTENTTYPE=kubevirt IMPORTER_IMAGE_SIZE="$SIZE"
export OWNER_UID=bench FILESYSTEM_OVERHEAD=0 INSECURE_TLS={insecure} PREALLOCATION=false HOME=/tmp
exec chroot "$ROOT" /tmp/importer -v=1 > "$SCRATCH/../reference.log" 2>&1
'"#
    )
}
