//! The fixed newstyle handshake: from a new connection to an export that can be read.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::wire::*;

/// Longer responses to an option are not believed.
const REPLY_LEN_MAX: u32 = 64 << 10;
/// Nor more of them to one option.
const REPLIES_MAX: usize = 64;
/// Larger blocks would make each request a waste.
const BLOCK_MIN_MAX: u32 = 64 << 10;

/// The server's description of the export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Export {
    pub(super) size: u64,
    /// Several connections may read it.
    pub(super) multi: bool,
    /// Requests begin and end at multiples of it.
    pub(super) block_min: u32,
    /// Requests are no longer.
    pub(super) block_max: u32,
    /// Replies come in chunks.
    pub(super) structured: bool,
    /// The server's number for `base:allocation`, if it reports which parts are zero.
    pub(super) allocation: Option<u32>,
}

/// Why there is no export.
#[derive(Debug)]
pub(super) enum Failure {
    Io(io::Error),
    Refused(String),
    /// The server does not keep to the protocol.
    Nonsense(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn nonsense(what: &str) -> Failure {
    Failure::Nonsense(what.to_owned())
}

/// The greetings of both sides.
pub(super) async fn greet<S>(stream: &mut S) -> Result<(), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if stream.read_u64().await? != HELLO {
        return Err(nonsense("it is no NBD server"));
    }
    if stream.read_u64().await? != OPTION {
        return Err(Failure::Refused("it only knows the old handshake".into()));
    }
    let flags = stream.read_u16().await?;
    if flags & FIXED_NEWSTYLE == 0 {
        return Err(Failure::Refused("it only knows the handshake before the fixed one".into()));
    }
    let ours = FIXED_NEWSTYLE | (flags & NO_ZEROES);
    stream.write_all(&u32::from(ours).to_be_bytes()).await?;
    Ok(stream.flush().await?)
}

/// Requests TLS; the stream then belongs to the TLS library.
pub(super) async fn start_tls<S>(stream: &mut S) -> Result<(), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    send(stream, OPT_STARTTLS, &[]).await?;
    match reply(stream, OPT_STARTTLS).await? {
        Reply { kind: REP_ACK, .. } => Ok(()),
        Reply { kind: REP_ERR_UNSUP | REP_ERR_POLICY, .. } => {
            Err(Failure::Refused("it does not speak TLS; use nbd:// instead of nbds://".into()))
        }
        other => Err(other.into_failure("TLS")),
    }
}

/// Chooses the export and all that makes reading it efficient.
pub(super) async fn open<S>(stream: &mut S, name: &str) -> Result<Export, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    send(stream, OPT_STRUCTURED_REPLY, &[]).await?;
    let structured = match reply(stream, OPT_STRUCTURED_REPLY).await? {
        Reply { kind: REP_ACK, .. } => true,
        other if other.is_tls_wanted() => return Err(other.into_failure("structured replies")),
        other if other.is_error() => false,
        other => return Err(other.into_failure("structured replies")),
    };
    let allocation = if structured { ask_for_allocation(stream, name).await? } else { None };
    let mut data = string(name);
    data.extend(1_u16.to_be_bytes());
    data.extend(INFO_BLOCK_SIZE.to_be_bytes());
    send(stream, OPT_GO, &data).await?;
    let (mut found, mut blocks) = (None, (1, u32::MAX));
    for _ in 0..REPLIES_MAX {
        let reply = reply(stream, OPT_GO).await?;
        match reply.kind {
            REP_ACK => {
                let (size, flags) = found.ok_or_else(|| nonsense("an export without a size"))?;
                let (block_min, block_max) = blocks;
                let multi = flags & FLAG_CAN_MULTI_CONN != 0;
                return Ok(Export { size, multi, block_min, block_max, structured, allocation });
            }
            REP_INFO => match be_u16(&reply.data) {
                Some(INFO_EXPORT) => found = Some(export_info(&reply.data)?),
                Some(INFO_BLOCK_SIZE) => blocks = block_sizes(&reply.data)?,
                Some(_) => {}
                None => return Err(nonsense("information without a kind")),
            },
            _ => return Err(reply.into_failure(&format!("the export {name:?}"))),
        }
    }
    Err(nonsense("information without an end"))
}

async fn ask_for_allocation<S>(stream: &mut S, name: &str) -> Result<Option<u32>, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut data = string(name);
    data.extend(1_u32.to_be_bytes());
    data.extend(string(ALLOCATION));
    send(stream, OPT_SET_META_CONTEXT, &data).await?;
    let mut found = None;
    for _ in 0..REPLIES_MAX {
        let reply = reply(stream, OPT_SET_META_CONTEXT).await?;
        match reply.kind {
            REP_ACK => return Ok(found),
            REP_META_CONTEXT => {
                let id =
                    be_u32(&reply.data).ok_or_else(|| nonsense("a context without a number"))?;
                if &reply.data[4..] == ALLOCATION.as_bytes() {
                    found = Some(id);
                }
            }
            _ if reply.is_error() => return Ok(None),
            _ => return Err(reply.into_failure("a context")),
        }
    }
    Err(nonsense("contexts without an end"))
}

fn export_info(data: &[u8]) -> Result<(u64, u16), Failure> {
    let (Some(size), Some(flags), 12) =
        (data.get(2..).and_then(be_u64), data.get(10..).and_then(be_u16), data.len())
    else {
        return Err(nonsense("an export whose information is not 12 bytes long"));
    };
    if i64::try_from(size).is_err() {
        return Err(nonsense("an export larger than any disk"));
    }
    Ok((size, flags))
}

fn block_sizes(data: &[u8]) -> Result<(u32, u32), Failure> {
    let number = |at: usize| data.get(at..).and_then(be_u32);
    let (Some(min), Some(max), 14) = (number(2), number(10), data.len()) else {
        return Err(nonsense("block sizes that are not 14 bytes long"));
    };
    if !min.is_power_of_two() || min > BLOCK_MIN_MAX || max < min {
        return Err(nonsense(&format!("blocks of {min} to {max} bytes")));
    }
    Ok((min, max / min * min))
}

async fn send<S: AsyncWrite + Unpin>(
    stream: &mut S,
    number: u32,
    data: &[u8],
) -> Result<(), Failure> {
    stream.write_all(&option(number, data)).await?;
    Ok(stream.flush().await?)
}

/// One answer to an option.
struct Reply {
    kind: u32,
    data: Vec<u8>,
}

impl Reply {
    fn is_error(&self) -> bool {
        self.kind & REP_ERROR != 0
    }

    fn is_tls_wanted(&self) -> bool {
        self.kind == REP_ERR_TLS_REQD
    }

    fn into_failure(self, what: &str) -> Failure {
        if !self.is_error() {
            return nonsense(&format!("a reply of kind {} about {what}", self.kind));
        }
        let because = match self.kind & !REP_ERROR {
            1 => "it does not know how",
            2 => "its policy forbids it",
            3 => "it calls the request invalid",
            4 => "its platform does not support it",
            5 => "it wants TLS; use nbds:// instead of nbd://",
            6 => "there is no such export",
            7 => "it is shutting down",
            8 => "it wants other block sizes",
            9 => "it calls the request too big",
            _ => "it gives no reason",
        };
        let message = readable(&self.data);
        let message = if message.is_empty() { message } else { format!(" ({message})") };
        Failure::Refused(format!("{what}: {because}{message}"))
    }
}

async fn reply<S: AsyncRead + Unpin>(stream: &mut S, requested: u32) -> Result<Reply, Failure> {
    if stream.read_u64().await? != OPTION_REPLY {
        return Err(nonsense("a reply without its magic number"));
    }
    if stream.read_u32().await? != requested {
        return Err(nonsense("a reply to something that was not requested"));
    }
    let kind = stream.read_u32().await?;
    let len = stream.read_u32().await?;
    if len > REPLY_LEN_MAX {
        return Err(nonsense(&format!("a reply of {len} bytes")));
    }
    let mut data = vec![0; len as usize];
    stream.read_exact(&mut data).await?;
    Ok(Reply { kind, data })
}
