//! Reads replies and passes their content to the requester.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::time::timeout;

use super::connection::{Kind, Pending, State, Table};
use super::handshake::Export;
use super::wire::*;

/// Why there are no more replies.
#[derive(Debug)]
pub(super) enum End {
    Io(io::Error),
    /// No reply for too long while a request was pending.
    Stalled,
    /// The server does not keep to the protocol.
    Nonsense(String),
}

/// Capacity for the heads of replies. Data is read past it, directly into its buffer.
const INBOX_LEN: usize = 16 << 10;
/// The most descriptors in a chunk that are read: as many as nbdkit sends.
const DESCRIPTORS_MAX: u32 = 1 << 20;
/// Ranges kept of a reply at most, neighbours merged. The rest is requested again.
const STATES_MAX: usize = 1 << 14;

/// Reads until the connection ends or makes no sense.
pub(super) async fn receive<R: AsyncRead + Unpin>(
    stream: R,
    table: &Table,
    export: &Export,
    patience: Duration,
) -> End {
    let reader = BufReader::with_capacity(INBOX_LEN, stream);
    let mut replies = Replies { reader, table, export, patience };
    loop {
        if let Err(end) = replies.one().await {
            return end;
        }
    }
}

struct Replies<'a, R> {
    reader: BufReader<R>,
    table: &'a Table,
    export: &'a Export,
    patience: Duration,
}

fn nonsense<T>(what: impl Into<String>) -> Result<T, End> {
    Err(End::Nonsense(what.into()))
}

impl<R: AsyncRead + Unpin> Replies<'_, R> {
    /// One reply, or one chunk of it.
    async fn one(&mut self) -> Result<(), End> {
        self.wait_for_reply().await?;
        match self.u32().await? {
            SIMPLE_REPLY => self.simple().await,
            STRUCTURED_REPLY if self.export.structured => self.chunk().await,
            other => nonsense(format!("a reply with the magic number {other:#x}")),
        }
    }

    /// Silence between replies is no failure unless a request is pending.
    async fn wait_for_reply(&mut self) -> Result<(), End> {
        loop {
            match timeout(self.patience, self.reader.fill_buf()).await {
                Ok(Ok([])) => {
                    let text = "the server closed the connection";
                    return Err(End::Io(io::Error::new(io::ErrorKind::UnexpectedEof, text)));
                }
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => return Err(End::Io(error)),
                Err(_) => {
                    if self.table.longest_wait().is_some_and(|waited| waited >= self.patience) {
                        return Err(End::Stalled);
                    }
                }
            }
        }
    }

    async fn simple(&mut self) -> Result<(), End> {
        let (error, handle) = (self.u32().await?, self.u64().await?);
        let mut pending = self.pending(handle)?;
        let taken = self.take_simple(&mut pending, error).await;
        self.give(handle, pending, taken.map(|()| true))
    }

    async fn take_simple(&mut self, pending: &mut Pending, error: u32) -> Result<(), End> {
        let len = pending.len;
        match &pending.kind {
            _ if error != 0 => {
                pending.error = Some(error_name(error));
                Ok(())
            }
            Kind::Read { .. } if self.export.structured => {
                nonsense("data that did not come in chunks")
            }
            Kind::Read { .. } => self.data(pending, 0, len).await,
            Kind::Status { .. } => nonsense("a status that did not come in chunks"),
        }
    }

    async fn chunk(&mut self) -> Result<(), End> {
        let (flags, kind) = (self.u16().await?, self.u16().await?);
        let (handle, len) = (self.u64().await?, self.u32().await?);
        let mut pending = self.pending(handle)?;
        let is_last = flags & CHUNK_DONE != 0;
        let taken = self.take_chunk(&mut pending, kind, len, is_last).await;
        self.give(handle, pending, taken.map(|()| is_last))
    }

    /// Ends a request whose reply is complete. Any other has to be found again: for its next chunk, or when everybody
    /// gets the reason.
    fn give(&self, handle: u64, pending: Pending, complete: Result<bool, End>) -> Result<(), End> {
        match complete {
            Ok(true) => pending.finish(),
            Ok(false) | Err(_) => self.table.put_back(handle, pending),
        }
        complete.map(drop)
    }

    async fn take_chunk(
        &mut self,
        pending: &mut Pending,
        kind: u16,
        len: u32,
        is_last: bool,
    ) -> Result<(), End> {
        match kind {
            CHUNK_NONE if len == 0 && is_last => Ok(()),
            CHUNK_OFFSET_DATA if len > 8 => {
                let at = self.u64().await?;
                let offset = inside(pending, at, len - 8)?;
                self.data(pending, offset, len - 8).await
            }
            CHUNK_OFFSET_HOLE if len == 12 => {
                let (at, hole_len) = (self.u64().await?, self.u32().await?);
                let offset = inside(pending, at, hole_len)?;
                let Kind::Read { buffer, covered, .. } = &mut pending.kind else {
                    return nonsense("a hole that was not requested");
                };
                if !covered.add(offset..offset + hole_len) {
                    return nonsense("the same bytes twice");
                }
                buffer.spare()[offset as usize..][..hole_len as usize].fill(0);
                Ok(())
            }
            CHUNK_BLOCK_STATUS if len >= 12 && len % 8 == 4 => {
                self.status(pending, (len - 4) / 8).await
            }
            _ if kind & CHUNK_ERROR != 0 => {
                let text = self.error_chunk(len).await?;
                pending.error.get_or_insert(text);
                Ok(())
            }
            _ => nonsense(format!("a chunk of kind {kind} and {len} bytes")),
        }
    }

    /// Moves `len` bytes to where they belong.
    async fn data(&mut self, pending: &mut Pending, offset: u32, len: u32) -> Result<(), End> {
        let Kind::Read { buffer, covered, .. } = &mut pending.kind else {
            return nonsense("data that was not requested");
        };
        if !covered.add(offset..offset + len) {
            return nonsense("the same bytes twice");
        }
        let mut out = &mut buffer.spare()[offset as usize..][..len as usize];
        while !out.is_empty() {
            let count = patiently(self.patience, self.reader.read(out)).await?;
            if count == 0 {
                return Err(End::Io(io::ErrorKind::UnexpectedEof.into()));
            }
            out = &mut out[count..];
        }
        Ok(())
    }

    async fn status(&mut self, pending: &mut Pending, count: u32) -> Result<(), End> {
        let context = self.u32().await?;
        if count > DESCRIPTORS_MAX {
            return nonsense(format!("{count} extents in one reply"));
        }
        let Pending { at, len, kind: Kind::Status { states, .. }, .. } = pending else {
            return nonsense("a status that was not requested");
        };
        if Some(context) != self.export.allocation || !states.is_empty() {
            return nonsense("a status of something else");
        }
        let (mut next, end) = (*at, *at + u64::from(*len));
        for _ in 0..count {
            let (part_len, flags) = (self.u32().await?, self.u32().await?);
            if part_len == 0 {
                return nonsense("an extent without bytes");
            }
            let part_end = (next + u64::from(part_len)).min(end);
            if next < part_end {
                add(states, next, part_end, flags & STATE_ZERO != 0);
            }
            next = part_end;
        }
        Ok(())
    }

    async fn error_chunk(&mut self, len: u32) -> Result<String, End> {
        /// Number, length of the text, the text, and where it happened.
        const LEN_MAX: u32 = 4 + 2 + STRING_MAX as u32 + 8;
        if !(6..=LEN_MAX).contains(&len) {
            return nonsense(format!("an error of {len} bytes"));
        }
        let mut bytes = vec![0; len as usize];
        let mut out = &mut bytes[..];
        while !out.is_empty() {
            let count = patiently(self.patience, self.reader.read(out)).await?;
            if count == 0 {
                return Err(End::Io(io::ErrorKind::UnexpectedEof.into()));
            }
            out = &mut out[count..];
        }
        let number = be_u32(&bytes).unwrap_or_default();
        let text_len = be_u16(&bytes[4..]).unwrap_or_default() as usize;
        let text = bytes.get(6..6 + text_len).unwrap_or_default();
        let name = error_name(number);
        Ok(if text.is_empty() { name } else { format!("{name} ({})", readable(text)) })
    }

    fn pending(&self, handle: u64) -> Result<Pending, End> {
        let found = self.table.take_pending(handle);
        found.ok_or_else(|| End::Nonsense("a reply to something that was not requested".into()))
    }

    async fn u16(&mut self) -> Result<u16, End> {
        patiently(self.patience, self.reader.read_u16()).await
    }

    async fn u32(&mut self) -> Result<u32, End> {
        patiently(self.patience, self.reader.read_u32()).await
    }

    async fn u64(&mut self) -> Result<u64, End> {
        patiently(self.patience, self.reader.read_u64()).await
    }
}

/// In the middle of a reply something has to come.
async fn patiently<T>(
    patience: Duration,
    read: impl Future<Output = io::Result<T>>,
) -> Result<T, End> {
    timeout(patience, read).await.map_or(Err(End::Stalled), |read| read.map_err(End::Io))
}

/// Where in the request a piece of its reply belongs.
fn inside(pending: &Pending, at: u64, len: u32) -> Result<u32, End> {
    let offset = at.checked_sub(pending.at).and_then(|offset| u32::try_from(offset).ok());
    match offset {
        Some(offset) if offset.checked_add(len).is_some_and(|end| end <= pending.len) => Ok(offset),
        _ => nonsense("bytes that were not requested"),
    }
}

/// Appends a range, merged with the one before if both are alike.
fn add(states: &mut Vec<State>, from: u64, to: u64, zero: bool) {
    let full = states.len() == STATES_MAX;
    match states.last_mut() {
        Some((range, before)) if *before == zero && range.end == from => range.end = to,
        Some((range, _)) if range.end != from => {} // what came before was too much already
        _ if full => {}
        _ => states.push((from..to, zero)),
    }
}
