//! Sends a clone to an upload server, as the best stream that the server supports.

mod coding_choice;
mod connection;
mod extent_stream;
mod snappy_stream;
mod upload_server;

use std::io::BufWriter;
use std::thread;
use std::time::Duration;

use clonestream::extents::Preamble;
use clonestream::offer::{self, BLOCK_CLONE, FILESYSTEM_CLONE};
use runtime::chain;

use self::connection::Request;
pub use self::upload_server::UploadServer;
use crate::error::{Error, TransferRecovery};
use crate::progress::Progress;
use crate::volume::{SourceVolume, VolumeContent};

/// Smaller writes are gathered into chunks of this length; larger ones are sent as they are.
const CHUNK_LEN_MIN: usize = 64 << 10;

/// How often a broken transfer is resumed. The count starts again whenever the server has more than at the attempt before.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Not counting the first attempt.
    pub retries_max: u32,
    /// Before the first retry; doubles with each further one.
    pub delay_min: Duration,
    pub delay_max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { retries_max: 8, delay_min: seconds(1), delay_max: seconds(30) }
    }
}

/// Sends a volume, and returns once the server has confirmed that all of it is durable.
///
/// A server that supports only snappy streams gets everything in one request; an interruption fails the clone. The extent
/// stream is resumed after what the server already has on its storage.
pub fn send(
    volume: &SourceVolume,
    preallocate: bool,
    owner_uid: &str,
    server: &UploadServer,
    retries: RetryPolicy,
    progress: &Progress,
) -> Result<(), Error> {
    let survey = volume.survey(preallocate, owner_uid)?;
    progress.set_total(survey.bytes);
    let mut furthest = None;
    let mut failures = 0;
    loop {
        let error = match server.fetch_offer() {
            Ok(None) => {
                tracing::info!("the upload server supports only snappy streams");
                // Not retried: the server cannot resume it.
                send_snappy_stream(volume, preallocate, server, progress)?;
                break;
            }
            Ok(Some(offered)) => {
                let begin = offered.start_for(survey.identity);
                if furthest.is_some_and(|furthest| begin > furthest) {
                    failures = 0;
                }
                furthest = furthest.max(Some(begin));
                tracing::info!(
                    begin.entry,
                    begin.at,
                    "sending an extent stream from entry {}, byte {}",
                    begin.entry,
                    begin.at
                );
                progress.set(0);
                let preamble = Preamble { identity: survey.identity, begin };
                match send_extent_stream(volume, &preamble, server, progress) {
                    Ok(()) => break,
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        if error.recovery() == TransferRecovery::Fail || failures == retries.retries_max {
            return Err(error);
        }
        let delay = retries.delay_min.saturating_mul(1 << failures.min(16)).min(retries.delay_max);
        failures += 1;
        tracing::warn!(error = %chain(&error), "the transfer was interrupted, retrying in {delay:?}");
        thread::sleep(delay);
    }
    progress.finish();
    Ok(())
}

fn send_snappy_stream(
    volume: &SourceVolume,
    preallocate: bool,
    server: &UploadServer,
    progress: &Progress,
) -> Result<(), Error> {
    let request = server.start_post(server.upload_path(), content_header(volume))?;
    let mut out = BufWriter::with_capacity(CHUNK_LEN_MIN, request);
    let written = snappy_stream::write(volume, preallocate, progress, &mut out);
    finish_request(written, out)
}

fn send_extent_stream(
    volume: &SourceVolume,
    preamble: &Preamble,
    server: &UploadServer,
    progress: &Progress,
) -> Result<(), Error> {
    let request = server.start_post(offer::PATH, content_header(volume))?;
    let mut out = BufWriter::with_capacity(CHUNK_LEN_MIN, request);
    let written = extent_stream::write(volume, preamble, progress, &mut out);
    finish_request(written, out)
}

/// Ends a request whose body is complete; otherwise prefers the server's error response to the error of the connection.
fn finish_request(written: Result<(), Error>, out: BufWriter<Request>) -> Result<(), Error> {
    match written {
        Ok(()) => {
            let request = out.into_inner().map_err(|error| Error::Transport {
                what: "send to",
                source: error.into_error(),
            })?;
            request.finish()
        }
        Err(error @ Error::Transport { .. }) => {
            let (mut request, _) = out.into_parts();
            Err(request.read_early_error().unwrap_or(error))
        }
        // Drops the buffered bytes: sending them would look as if more followed.
        Err(other) => {
            drop(out.into_parts());
            Err(other)
        }
    }
}

fn content_header(volume: &SourceVolume) -> &'static str {
    match volume.content {
        VolumeContent::Disk(_) => BLOCK_CLONE,
        VolumeContent::Tree(_) => FILESYSTEM_CLONE,
    }
}
