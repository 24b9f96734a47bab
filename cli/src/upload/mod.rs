//! `cdi upload`
//!
//! Uploads an image to a DataVolume by the proxy's resumable uploads (the tus protocol, with zstd bodies). No local state
//! is stored: the server recognizes the upload by the file's fingerprint.

pub mod args;
mod forward;
mod image;
mod kubectl;
mod transfer;
mod wire;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use contract::ByteCount;
use http::HeaderValue;
use importer::HttpOptions;
use parking_lot::Mutex;
use pipeline::{ImageKind, Options, Progress, ProgressPhase};
use serde::Serialize;
use serde_json::Value;

use crate::args::Format;
use crate::progress::{Style, watch};
use crate::{Environment, engine, print};

use args::UploadArgs;
use forward::ForwardedPort;
use image::Image;
use kubectl::{Kubectl, ProxyEndpoint, bearer_header};
use transfer::{Transfer, UploadResult};
use wire::Server;

/// The report of `--json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    /// Bytes of the file.
    image_size: u64,
    /// Bytes of request bodies.
    bytes_sent: u64,
    /// Bytes of the file that an earlier run had uploaded.
    resumed_at: u64,
    interruptions: u32,
    /// `sha256:…` of the file, verified by the server.
    digest: Option<String>,
    /// Elapsed time.
    seconds: f64,
}

/// Uploads the image and prints the report.
///
/// # Errors
/// When the disk is not complete and durable in the cluster.
pub fn run(args: &UploadArgs, environment: &Environment) -> Result<()> {
    let failed = || {
        let (image, volume) = (args.image.display(), &args.volume);
        format!("cannot upload {image} to {}/{}", volume.namespace, volume.name)
    };
    let report = upload(args, environment).with_context(failed)?;
    if args.json {
        let json = serde_json::to_string_pretty(&report).context("cannot write the report")?;
        return print(&format!("{json}\n"));
    }
    if args.quiet {
        return Ok(());
    }
    print(&summary(args, &report))
}

fn upload(args: &UploadArgs, environment: &Environment) -> Result<Report> {
    let began = Instant::now();
    // The server can hash only what it reads as a whole.
    let is_ova = || -> Result<bool> {
        Ok(args.format == Format::Auto && probe_image(&args.image)? == ImageKind::Ova)
    };
    let verify = !args.no_verify && !is_ova()?;
    let image = Image::open(&args.image, verify)?;
    let cluster = args.token_file.is_none().then(|| Kubectl::new(args));
    // Before anything is created: an upload that cannot reach the proxy leaves no DataVolume behind.
    let endpoint = proxy_endpoint(args, cluster.as_ref())?;
    let options = HttpOptions {
        ca_files: args.ca.clone(),
        ca_pem: endpoint.ca_pem.into_iter().collect(),
        insecure_tls: args.insecure,
        proxy: environment.proxy.clone(),
        ..HttpOptions::default()
    };
    let forwarded_to = endpoint.forwarded.as_ref().map(ForwardedPort::address);
    let server = Server::new(&endpoint.url, forwarded_to, &options)?;
    if let Some(cluster) = &cluster {
        prepare(cluster, args)?;
    }
    let style = Style::for_stderr(args.quiet || args.json, environment.no_bar);
    let progress = Arc::new(Progress::default());
    progress.set_read_total(image.length());
    let sent = watch(&progress, style, "", phase_name, || {
        send(args, &server, image, verify, cluster.as_ref(), &progress)
    })?;
    if let Some(cluster) = &cluster {
        cluster.wait(args.patience, "finished", |volume| Ok(phase(volume) == "Succeeded"))?;
    }
    Ok(Report {
        image_size: progress.snapshot().read_total.unwrap_or_default(),
        bytes_sent: sent.wire,
        resumed_at: sent.found,
        interruptions: sent.breaks,
        digest: sent.checksum,
        seconds: began.elapsed().as_secs_f64(),
    })
}

/// The endpoint that the user names, or the cluster's.
fn proxy_endpoint(args: &UploadArgs, cluster: Option<&Kubectl<'_>>) -> Result<ProxyEndpoint> {
    match (&args.url, cluster) {
        (Some(url), _) => Ok(ProxyEndpoint { url: url.clone(), ..ProxyEndpoint::default() }),
        (None, Some(cluster)) => cluster.proxy_endpoint(),
        (None, None) => bail!("--token-file requires --url, the address of the upload proxy"),
    }
}

/// Creates the DataVolume if needed, and waits until it accepts an upload.
fn prepare(cluster: &Kubectl<'_>, args: &UploadArgs) -> Result<()> {
    match cluster.volume()? {
        Some(volume) if volume["spec"]["source"]["upload"].is_null() => {
            bail!("the DataVolume exists, and its source is not upload");
        }
        Some(_) => {}
        None if args.no_create => {
            bail!("the DataVolume does not exist: omit --no-create to create it")
        }
        None => cluster.create(&size(args)?)?,
    }
    cluster.wait(args.patience, "ready", |volume| is_ready(volume, args.bind_now))
}

/// Whether a DataVolume accepts an upload. An error if it never will.
fn is_ready(volume: &Value, bind_now: bool) -> Result<bool> {
    match phase(volume) {
        "UploadReady" => Ok(true),
        "Succeeded" => bail!("the DataVolume is complete already"),
        "Failed" => bail!("the DataVolume has failed: see `kubectl describe`"),
        phase @ ("WaitForFirstConsumer" | "PendingPopulation") if !bind_now => bail!(
            "the DataVolume waits for a first consumer ({phase}): start one, or create it again with --bind-now"
        ),
        _ => Ok(false),
    }
}

fn phase(volume: &Value) -> &str {
    volume["status"]["phase"].as_str().unwrap_or_default()
}

/// Size of a new DataVolume, as a quantity.
fn size(args: &UploadArgs) -> Result<String> {
    if let Some(size) = args.size {
        return Ok(size.get().to_string());
    }
    let options = Options { format: args.format.into(), ..Options::default() };
    let found = engine::inspect(&path(&args.image), &HttpOptions::default(), &options)?;
    let size = found.virtual_size.with_context(|| {
        if found.because.is_empty() {
            "cannot detect the size of the disk from the start of the image: set --size".to_owned()
        } else {
            format!("cannot detect the size of the disk ({}): set --size", found.because)
        }
    })?;
    Ok(size.to_string())
}

/// A path that cannot be mistaken for a URL.
fn path(image: &Path) -> String {
    let text = image.to_string_lossy();
    if image.is_absolute() { text.into_owned() } else { format!("./{text}") }
}

fn probe_image(image: &Path) -> Result<ImageKind> {
    use std::io::Read;

    let failed = || format!("cannot read {}", image.display());
    let file = std::fs::File::open(image).with_context(failed)?;
    let length = file.metadata().with_context(failed)?.len();
    let mut head = Vec::new();
    file.take(pipeline::HEAD_LEN as u64).read_to_end(&mut head).with_context(failed)?;
    Ok(pipeline::image_kind(&head, head.len() as u64 == length))
}

fn send(
    args: &UploadArgs,
    server: &Server,
    image: Image,
    verify: bool,
    cluster: Option<&Kubectl<'_>>,
    progress: &Arc<Progress>,
) -> Result<UploadResult> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the async runtime")?;
    let mut tokens = || token(args, cluster);
    let transfer = Transfer {
        server,
        length: image.length(),
        fingerprint: image.fingerprint(),
        image: Arc::new(Mutex::new(image)),
        verify,
        patience: args.patience,
        tokens: &mut tokens,
        progress,
    };
    runtime.block_on(transfer.run())
}

fn token(args: &UploadArgs, cluster: Option<&Kubectl<'_>>) -> Result<HeaderValue> {
    match (&args.token_file, cluster) {
        (Some(path), _) => {
            let text = std::fs::read_to_string(path);
            bearer_header(
                &text.with_context(|| format!("cannot read the token in {}", path.display()))?,
            )
        }
        (None, Some(cluster)) => cluster.token(),
        (None, None) => bail!("missing token"),
    }
}

fn phase_name(stage: ProgressPhase) -> &'static str {
    match stage {
        ProgressPhase::Connecting => "Connecting",
        ProgressPhase::Transferring => "Uploading",
        ProgressPhase::Finishing => "Finishing",
        ProgressPhase::Done => "Done",
    }
}

/// The report as text.
fn summary(args: &UploadArgs, report: &Report) -> String {
    let size = |bytes| ByteCount::new(bytes).human();
    let volume = &args.volume;
    let mut text = format!(
        "{}/{} is complete: {} sent as {}, in {:.1} s",
        volume.namespace,
        volume.name,
        size(report.image_size - report.resumed_at),
        size(report.bytes_sent),
        report.seconds
    );
    if report.resumed_at > 0 {
        text += &format!("; {} were there from an earlier run", size(report.resumed_at));
    }
    if report.interruptions > 0 {
        text += &format!("; interrupted {} times", report.interruptions);
    }
    text.push('\n');
    if let Some(digest) = &report.digest {
        text += &format!("{digest}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn readiness_decision_table() {
        for (phase, bind_now, expected) in [
            ("", false, Some(false)),
            ("Pending", false, Some(false)),
            ("UploadScheduled", false, Some(false)),
            ("UploadReady", false, Some(true)),
            ("PendingPopulation", true, Some(false)),
            ("PendingPopulation", false, None),
            ("WaitForFirstConsumer", false, None),
            ("Succeeded", false, None),
            ("Failed", true, None),
        ] {
            let volume = json!({ "status": { "phase": phase } });
            assert_eq!(is_ready(&volume, bind_now).ok(), expected, "{phase}");
        }
        assert_eq!(is_ready(&json!({}), false).ok(), Some(false));
    }

    #[test]
    fn file_is_never_mistaken_for_a_url() {
        assert_eq!(path(Path::new("a.img")), "./a.img");
        assert_eq!(path(Path::new("/a.img")), "/a.img");
        assert_eq!(path(Path::new("http://host/a")), "./http://host/a");
    }
}
