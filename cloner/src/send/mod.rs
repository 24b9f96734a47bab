//! To an upload server: in the best stream that it understands.

mod connection;
mod extents;
mod old;
mod peer;

use std::io::BufWriter;
use std::thread;
use std::time::Duration;

use clonestream::extents::Preamble;
use clonestream::offer::{self, BLOCK_CLONE, FILESYSTEM_CLONE};

use self::connection::Request;
pub use self::peer::Peer;
use crate::error::{Error, Next, chain};
use crate::progress::Progress;
use crate::volume::{Kind, Volume};

/// Less is gathered before it goes out; more goes out as it is.
const GATHER: usize = 64 << 10;

/// How often something that breaks is tried again. Whenever the server has more than the time before, it counts anew.
#[derive(Clone, Copy, Debug)]
pub struct Retries {
    /// Times, after the first.
    pub most: u32,
    /// Before the first of them; each time twice as long.
    pub delay: Duration,
    /// And no longer than that.
    pub delay_max: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { most: 8, delay: seconds(1), delay_max: seconds(30) }
    }
}

/// Sends a volume, and returns once the server has said that all of it is durable.
///
/// A server that takes only the old streams gets everything in one go: a connection that breaks ends it. With one that
/// takes the new stream, what is durable there is not sent again.
///
/// # Errors
/// When the source cannot be read or sent, or the server cannot be reached or refuses it.
pub fn send(
    volume: &Volume,
    preallocate: bool,
    owner_uid: &str,
    peer: &Peer,
    retries: Retries,
    progress: &Progress,
) -> Result<(), Error> {
    let survey = volume.survey(preallocate, owner_uid)?;
    progress.set_total(survey.bytes);
    let mut furthest = None;
    let mut failures = 0;
    loop {
        let error = match peer.offer() {
            Ok(None) => {
                tracing::info!("the server takes the old streams");
                // What breaks here cannot be gone on with by anybody.
                old(volume, preallocate, peer, progress)?;
                break;
            }
            Ok(Some(offered)) => {
                let begin = offered.begin_for(survey.identity);
                if furthest.is_some_and(|furthest| begin > furthest) {
                    failures = 0;
                }
                furthest = furthest.max(Some(begin));
                tracing::info!(
                    begin.entry,
                    begin.at,
                    "the server takes what is data, from here on"
                );
                progress.set(0);
                let preamble = Preamble { identity: survey.identity, begin };
                match extents(volume, &preamble, peer, progress) {
                    Ok(()) => break,
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        if error.next() == Next::Fail {
            return Err(error);
        }
        if failures == retries.most {
            return Err(error);
        }
        let delay = retries.delay.saturating_mul(1 << failures.min(16)).min(retries.delay_max);
        failures += 1;
        tracing::warn!("{}; trying again in {delay:?}", chain(&error));
        thread::sleep(delay);
    }
    progress.finish();
    Ok(())
}

fn old(volume: &Volume, preallocate: bool, peer: &Peer, progress: &Progress) -> Result<(), Error> {
    let request = peer.post(peer.upload_path(), content_of(volume))?;
    let mut out = BufWriter::with_capacity(GATHER, request);
    let written = old::write(volume, preallocate, progress, &mut out);
    end(written, out)
}

fn extents(
    volume: &Volume,
    preamble: &Preamble,
    peer: &Peer,
    progress: &Progress,
) -> Result<(), Error> {
    let request = peer.post(offer::PATH, content_of(volume))?;
    let mut out = BufWriter::with_capacity(GATHER, request);
    let written = extents::write(volume, preamble, progress, &mut out);
    end(written, out)
}

/// Ends a request whose body was written, and hears what the server says of one that was not.
fn end(written: Result<(), Error>, out: BufWriter<Request>) -> Result<(), Error> {
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
            Err(request.refusal().unwrap_or(error))
        }
        // Nothing of what was gathered may go out: it would look as if more were to come.
        Err(other) => {
            drop(out.into_parts());
            Err(other)
        }
    }
}

fn content_of(volume: &Volume) -> &'static str {
    match volume.kind {
        Kind::Disk(_) => BLOCK_CLONE,
        Kind::Tree(_) => FILESYSTEM_CLONE,
    }
}
