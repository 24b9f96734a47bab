//! `cdi upload`
//!
//! An image goes to a DataVolume by the resumable uploads of the proxy (the tus protocol, with bodies in zstd). Nothing
//! about it is kept here: the server knows the upload again by the file's fingerprint.

pub mod args;
mod forward;
mod image;
mod kubectl;
mod transfer;
mod wire;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use contract::ByteCount;
use http::HeaderValue;
use importer::HttpOptions;
use pipeline::{ImageKind, Options, Progress, ProgressPhase};
use serde::Serialize;
use serde_json::Value;

use crate::args::Format;
use crate::progress::{Style, watch};
use crate::{Environment, engine, print};

use args::UploadArgs;
use forward::ForwardedPort;
use image::Image;
use kubectl::{Kubectl, ProxyEndpoint, bearer};
use transfer::{Sent, Transfer};
use wire::Server;

/// What was done, as `--json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    /// Of the file.
    image_size: u64,
    /// On the wire, of bodies.
    bytes_sent: u64,
    /// Of the file, which were there already.
    resumed_at: u64,
    /// How often it was interrupted.
    interruptions: u32,
    /// `sha256:…` of the file, as the server has found it too.
    digest: Option<String>,
    /// Wall time.
    seconds: f64,
}

/// Uploads, and prints what was done.
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
    // Only what is read whole by the server can be hashed there.
    let is_ova = || -> Result<bool> {
        Ok(args.format == Format::Auto && nature(&args.image)? == ImageKind::Ova)
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
    let sent = watch(&progress, style, "", words, || {
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
        (None, None) => bail!("--token-file needs --url, the address of the upload proxy"),
    }
}

/// Makes the DataVolume if need be, and waits until something can be sent.
fn prepare(cluster: &Kubectl<'_>, args: &UploadArgs) -> Result<()> {
    match cluster.volume()? {
        Some(volume) if volume["spec"]["source"]["upload"].is_null() => {
            bail!("the DataVolume is there, and its source is no upload");
        }
        Some(_) => {}
        None if args.no_create => bail!("there is no such DataVolume"),
        None => cluster.create(&size(args)?)?,
    }
    cluster.wait(args.patience, "ready", |volume| is_ready(volume, args.bind_now))
}

/// Whether a DataVolume takes an upload. It is an error if it never will.
fn is_ready(volume: &Value, bind_now: bool) -> Result<bool> {
    match phase(volume) {
        "UploadReady" => Ok(true),
        "Succeeded" => bail!("the DataVolume is complete already"),
        "Failed" => bail!("the DataVolume has failed; `kubectl describe` says why"),
        phase @ ("WaitForFirstConsumer" | "PendingPopulation") if !bind_now => bail!(
            "the DataVolume waits for a first consumer ({phase}): start one, or make it anew with --bind-now"
        ),
        _ => Ok(false),
    }
}

fn phase(volume: &Value) -> &str {
    volume["status"]["phase"].as_str().unwrap_or_default()
}

/// Of a new DataVolume, as Kubernetes writes it.
fn size(args: &UploadArgs) -> Result<String> {
    if let Some(size) = args.size {
        return Ok(size.get().to_string());
    }
    let options = Options { format: args.format.into(), ..Options::default() };
    let found = engine::inspect(&path(&args.image), &HttpOptions::default(), &options)?;
    let size = found.virtual_size.with_context(|| match found.because.is_empty() {
        true => "its beginning does not tell how large the disk is; --size does".to_owned(),
        false => format!("it does not tell how large the disk is ({})", found.because),
    })?;
    Ok(size.to_string())
}

/// What tells a file from an address.
fn path(image: &Path) -> String {
    let text = image.to_string_lossy();
    if image.is_absolute() { text.into_owned() } else { format!("./{text}") }
}

fn nature(image: &Path) -> Result<ImageKind> {
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
) -> Result<Sent> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start")?;
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
            bearer(&text.with_context(|| format!("cannot read the token in {}", path.display()))?)
        }
        (None, Some(cluster)) => cluster.token(),
        (None, None) => bail!("there is no token"),
    }
}

fn words(stage: ProgressPhase) -> &'static str {
    match stage {
        ProgressPhase::Connecting => "Connecting",
        ProgressPhase::Transferring => "Uploading",
        ProgressPhase::Finishing => "Finishing",
        ProgressPhase::Done => "Done",
    }
}

/// What was done, in a line or two.
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
        text += &format!("; {} were there already", size(report.resumed_at));
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
    fn a_volume_is_ready_will_be_or_never_will() {
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
    fn a_file_is_never_taken_for_an_address() {
        assert_eq!(path(Path::new("a.img")), "./a.img");
        assert_eq!(path(Path::new("/a.img")), "/a.img");
        assert_eq!(path(Path::new("http://host/a")), "./http://host/a");
    }
}
