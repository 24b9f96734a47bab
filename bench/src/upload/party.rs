//! The contenders: a client, and the programs that receive.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::cluster::{Cluster, PORT, claim};
use super::link::{Link, SERVER};
use crate::case::Case;
use crate::party::{Party, logs};
use crate::server;
use crate::shell;
use crate::target::Kind;
use crate::work::WorkFolder;

/// A method to receive an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Contender {
    /// Our proxy and our server, curl as the client.
    Cdi,
    /// The same, with our client.
    CdiUpload,
    /// Upstream CDI's proxy and server, curl as the client.
    #[value(alias = "reference")]
    Upstream,
    /// nginx, which stores the request body.
    Nginx,
    /// nginx before another nginx that stores the request body: as many hops as our pair, and TLS on both.
    NginxPair,
}

pub struct Programs {
    pub ours: PathBuf,
    pub reference: Option<PathBuf>,
}

/// The parameters of a run.
pub struct Setup<'a> {
    pub file: &'a Path,
    /// The target of the disk.
    pub target: &'a Path,
    /// Which kind of target that is.
    pub kind: Kind,
    /// Bytes of the disk.
    pub size: u64,
    pub work: &'a WorkFolder,
    /// Certificates, tokens and names.
    pub cluster: &'a Cluster,
    /// The link to the server.
    pub link: &'a Link,
    pub programs: &'a Programs,
}

const STORAGE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8444);
const FORWARDER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8445);
const PATIENCE: Duration = Duration::from_secs(10);

impl Contender {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 5] =
        [Self::Cdi, Self::CdiUpload, Self::Upstream, Self::Nginx, Self::NginxPair];

    /// As tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cdi => "our proxy and server",
            Self::CdiUpload => "the same, from cdi upload",
            Self::Upstream => "upstream CDI's proxy and server",
            Self::Nginx => "nginx, WebDAV",
            Self::NginxPair => "nginx before nginx, WebDAV",
        }
    }

    /// Where clients of nginx knock.
    fn entrance(self) -> SocketAddr {
        if self == Self::NginxPair { FORWARDER } else { STORAGE }
    }

    /// Whether it can do this at all.
    pub fn can(self, case: Case, kind: Kind, programs: &Programs) -> bool {
        match self {
            Self::Cdi => true,
            Self::CdiUpload => case == Case::Raw,
            Self::Upstream => programs.reference.is_some(),
            Self::Nginx | Self::NginxPair => kind == Kind::File,
        }
    }

    /// Starts the programs that receive, and waits until they listen.
    ///
    /// # Errors
    /// When they do not.
    pub fn receive(self, place: &Setup) -> Result<Vec<Party>> {
        match self {
            Self::Cdi | Self::CdiUpload => pair(place, &place.programs.ours),
            Self::Upstream => {
                let folder = place
                    .programs
                    .reference
                    .as_deref()
                    .context("upstream CDI's programs are not given")?;
                pair(place, folder)
            }
            Self::Nginx => Ok(vec![storage(place)?]),
            Self::NginxPair => Ok(vec![forwarder(place)?, storage(place)?]),
        }
    }

    /// # Errors
    /// When it cannot be started.
    pub fn send(self, place: &Setup) -> Result<Party> {
        let script = match self {
            Self::Cdi | Self::Upstream => {
                r#"curl --silent --show-error --fail-with-body --http1.1 --cacert "$CA" \
--header "Authorization: Bearer $TOKEN" --request POST --upload-file "$FILE" "$URL/v1beta1/upload""#
            }
            Self::CdiUpload => {
                r#"printf %s "$TOKEN" > "$SCRATCH/token"
"$CDI" upload "$FILE" "$CLAIM" --url "$URL" --ca "$CA" --token-file "$SCRATCH/token" --quiet"#
            }
            Self::Nginx | Self::NginxPair => {
                r#"curl --silent --show-error --fail-with-body --http1.1 --cacert "$CA" \
--upload-file "$FILE" "$STORAGE/disk.img""#
            }
        };
        // Everybody's disk is durable at the end; ours is already.
        let script = format!("{script}\nsync \"$TARGET\"");
        let mut command = Command::new("bash");
        command
            .args(["-euo", "pipefail", "-c", &script])
            .env("CA", place.cluster.trusted())
            .env("TOKEN", place.cluster.token()?)
            .env("FILE", place.file)
            .env("TARGET", place.target)
            .env("URL", format!("https://localhost:{PORT}"))
            .env("STORAGE", format!("https://localhost:{}", self.entrance().port()))
            .env("SCRATCH", place.work.path().join("scratch"))
            .env("CDI", place.programs.ours.join("cdi"))
            .env("CLAIM", claim());
        Party::start("client", &mut command, place.work.path())
    }
}

/// The proxy and the server of one folder.
fn pair(place: &Setup, folder: &Path) -> Result<Vec<Party>> {
    let work = place.work.path();
    let root = work.join("root");
    let server = place
        .cluster
        .server_pod(&root, &folder.join("cdi-uploadserver"), place.size)
        .within(place.link.network())
        .with("LISTEN_ADDRESS", SERVER)
        .upload_target(place.kind, place.target, &work.join("scratch"));
    let proxy = place.cluster.proxy_pod(&root, &folder.join("cdi-uploadproxy"));
    let parties = vec![
        Party::start("proxy", &mut proxy.command(), work)?,
        Party::start("server", &mut server.command(), work)?,
    ];
    wait_for_response(&format!("https://127.0.0.1:{PORT}/healthz"), work)?;
    wait_for_response(&format!("https://{SERVER}:{PORT}/healthz"), work)?;
    Ok(parties)
}

/// An nginx that stores the request body.
fn storage(place: &Setup) -> Result<Party> {
    let folder = place.target.parent().context("a file is in a folder")?;
    let location = "dav_methods PUT;";
    // Bodies wait on the same file system, so that they get their name by a rename.
    nginx(place, ("server", "storage"), STORAGE, folder, &folder.join("bodies"), location)
}

/// An nginx that forwards requests without buffering them.
fn forwarder(place: &Setup) -> Result<Party> {
    let work = place.work.path();
    let authority = place.cluster.trusted();
    let location = format!(
        "proxy_pass https://localhost:{port};
            proxy_http_version 1.1;
            proxy_request_buffering off;
            proxy_ssl_verify on;
            proxy_ssl_name localhost;
            proxy_ssl_protocols TLSv1.3;
            proxy_ssl_trusted_certificate {authority};",
        port = STORAGE.port(),
        authority = authority.display(),
    );
    let scratch = work.join("forwarded");
    nginx(place, ("proxy", "forwarder"), FORWARDER, work, &scratch, &location)
}

/// One nginx, by its name in tables and the folder of its settings.
fn nginx(
    place: &Setup,
    (name, home): (&'static str, &str),
    listen: SocketAddr,
    root: &Path,
    bodies: &Path,
    location: &str,
) -> Result<Party> {
    let work = place.work.path();
    let certificate = place.work.file("storage.crt", &place.cluster.proxy.certificate)?;
    let key = place.work.file("storage.key", &place.cluster.proxy.key)?;
    let settings = format!(
        "client_max_body_size 0;
    client_body_buffer_size 1m;
    server {{
        listen {listen} ssl;
        ssl_certificate {certificate};
        ssl_certificate_key {key};
        ssl_protocols TLSv1.3;
        root {root};
        location / {{ {location} }}
    }}",
        root = root.display(),
        certificate = certificate.display(),
        key = key.display(),
    );
    let mut command = server::command(&work.join(home), bodies, &settings)?;
    let party = Party::start(name, &mut command, work)?;
    wait_for_response(&format!("https://localhost:{}/", listen.port()), work)?;
    Ok(party)
}

/// Waits until a server responds, with any status. The logs of its program are in `work`.
///
/// # Errors
/// When none does in time.
pub fn wait_for_response(url: &str, work: &Path) -> Result<()> {
    let begin = Instant::now();
    let arguments = ["--silent", "--insecure", "--max-time", "2", "--output", "/dev/null", url];
    while shell::output("curl", &arguments).is_err() {
        if begin.elapsed() > PATIENCE {
            bail!("no response from {url}: {}", logs(work));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
