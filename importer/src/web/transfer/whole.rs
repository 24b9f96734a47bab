//! An image that can only be had as a whole: after a break it is read again, past what the reader has.

use std::time::Duration;

use super::pump::Pump;
use super::{Sink, Stop, Terms, failed, short};
use crate::error::Error;
use crate::web::client::Wanted;
use crate::web::redirect::Place;
use crate::web::retry::Attempts;
use crate::web::transport::Body;

/// Brings an image from its start to its end.
pub(super) struct Whole<'a> {
    terms: &'a Terms,
    /// What the reader has.
    prefix: Prefix,
    /// Bytes of the image, once an answer has said.
    length: Option<u64>,
    /// Bytes that came more than once.
    repeated: u64,
}

/// What a server without ranges may make us fetch again: so many times what the reader has, and a little.
const REPEATED_TIMES_MAX: u64 = 8;
const REPEATED_ALWAYS: u64 = 64 << 20;

impl<'a> Whole<'a> {
    /// The reader has the kept head, and nothing else.
    pub(super) fn new(terms: &'a Terms) -> Self {
        let mut prefix = Prefix::default();
        prefix.add(&terms.head);
        Self { terms, prefix, length: terms.length, repeated: 0 }
    }

    /// Reads on in what has begun if there is such an answer, then asks, and asks again, until all is with `sink`.
    pub(super) async fn run(
        &mut self,
        mut begun: Option<(Body, Place)>,
        sink: &mut impl Sink,
    ) -> Result<(), Stop> {
        let mut attempts = Attempts::new(&self.terms.policy);
        loop {
            let before = self.prefix.len;
            let patience = attempts.patience(self.terms.stall_timeout);
            let result = match begun.take() {
                Some((body, place)) => self.pass_on(body, &place, sink).await,
                None => self.ask_again(patience, sink).await,
            };
            if self.prefix.len > before {
                attempts.progress();
            }
            match result {
                Ok(()) => return Ok(()),
                Err(Stop::Failed(error)) => {
                    sink.flush();
                    let (url, at) = (self.terms.client.name(), self.prefix.len);
                    if self.repeated
                        > REPEATED_ALWAYS.saturating_add(at.saturating_mul(REPEATED_TIMES_MAX))
                    {
                        let (repeated, source) = (self.repeated, Box::new(error));
                        return Err(Error::TooCostly { url, at, repeated, source }.into());
                    }
                    attempts.wait_after(error, &url, at).await?;
                }
                Err(Stop::Unwanted) => return Err(Stop::Unwanted),
            }
        }
    }

    async fn ask_again(&mut self, patience: Duration, sink: &mut impl Sink) -> Result<(), Stop> {
        let (response, place) = self.terms.client.get(&Wanted::default(), patience).await?;
        let length = self.terms.judge_whole(&response, &place)?;
        self.length = self.length.or(length);
        self.pass_on(response.body, &place, sink).await
    }

    /// Passes on what the reader does not have yet. What it has is read past, and has to be the same.
    async fn pass_on(
        &mut self,
        body: Body,
        place: &Place,
        sink: &mut impl Sink,
    ) -> Result<(), Stop> {
        let mut seen = Prefix::default();
        let mut pump = Pump::new(body, &self.terms.pool, 0);
        while let Some(mut bytes) = pump.next(sink).await.map_err(|source| failed(place, source))? {
            if seen.len < self.prefix.len {
                let room = usize::try_from(self.prefix.len - seen.len).unwrap_or(usize::MAX);
                let again = bytes.split_to(room.min(bytes.len()));
                seen.add(&again);
                self.repeated += again.len() as u64;
                if seen.len == self.prefix.len && seen.sum() != self.prefix.sum() {
                    return Err(self.terms.changed(self.prefix.describe(), seen.describe()).into());
                }
            }
            if !bytes.is_empty() {
                self.prefix.add(&bytes);
                seen = self.prefix.clone();
                sink.put(bytes).await?;
            }
        }
        // HTTP's own framing told the end; what was announced, or came before, has to agree.
        let end = self.length.unwrap_or(self.prefix.len);
        if seen.len < end {
            return Err(short(&pump.body, place, end - seen.len).into());
        }
        if seen.len > end {
            let (before, after) = (format!("{end} bytes long"), format!("{} bytes long", seen.len));
            return Err(self.terms.changed(before, after).into());
        }
        Ok(())
    }
}

/// What the reader has: so many bytes, and what they add up to. Enough to notice that a server which knows no ranges
/// sends something else the second time.
#[derive(Clone, Default)]
struct Prefix {
    len: u64,
    sum: crc32fast::Hasher,
}

impl Prefix {
    fn add(&mut self, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        self.sum.update(bytes);
    }

    fn sum(&self) -> u32 {
        self.sum.clone().finalize()
    }

    fn describe(&self) -> String {
        format!("an image whose first {} bytes have the CRC {:08x}", self.len, self.sum())
    }
}
