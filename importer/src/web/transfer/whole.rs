//! An image that can only be had as a whole: after a break it is read again, past what the reader has.

use std::time::Duration;

use super::pump::Pump;
use super::{Sink, TransferSettings, TransferStop, failed, short};
use crate::error::Error;
use crate::web::client::GetRequest;
use crate::web::redirect::RedirectTarget;
use crate::web::retry::Attempts;
use crate::web::transport::Body;

/// Brings an image from its start to its end.
pub(super) struct Whole<'a> {
    settings: &'a TransferSettings,
    prefix: Prefix,
    /// Bytes of the image, once a response contains it.
    length: Option<u64>,
    /// Bytes that came more than once.
    repeated: u64,
}

/// What a server without ranges may make us fetch again: so many times what the reader has, and a little.
const REPEATED_TIMES_MAX: u64 = 8;
const REPEATED_ALWAYS: u64 = 64 << 20;

impl<'a> Whole<'a> {
    /// The reader has the kept head, and nothing else.
    pub(super) fn new(settings: &'a TransferSettings) -> Self {
        let mut prefix = Prefix::default();
        prefix.add(&settings.head);
        Self { settings, prefix, length: settings.length, repeated: 0 }
    }

    /// Continues with `begun` if there is one, then requests and retries until `sink` has everything.
    pub(super) async fn transfer(
        &mut self,
        mut begun: Option<(Body, RedirectTarget)>,
        sink: &mut impl Sink,
    ) -> Result<(), TransferStop> {
        let mut attempts = Attempts::new(&self.settings.policy);
        loop {
            let before = self.prefix.len;
            let patience = attempts.patience(self.settings.stall_timeout);
            let result = match begun.take() {
                Some((body, target)) => self.pass_on(body, &target, sink).await,
                None => self.ask_again(patience, sink).await,
            };
            if self.prefix.len > before {
                attempts.progress();
            }
            match result {
                Ok(()) => return Ok(()),
                Err(TransferStop::Failed(error)) => {
                    sink.flush();
                    let (url, at) = (self.settings.client.name(), self.prefix.len);
                    if self.repeated
                        > REPEATED_ALWAYS.saturating_add(at.saturating_mul(REPEATED_TIMES_MAX))
                    {
                        let (repeated, source) = (self.repeated, Box::new(error));
                        return Err(Error::TooCostly { url, at, repeated, source }.into());
                    }
                    attempts.wait_after(error, &url, at).await?;
                }
                Err(TransferStop::Unwanted) => return Err(TransferStop::Unwanted),
            }
        }
    }

    async fn ask_again(
        &mut self,
        patience: Duration,
        sink: &mut impl Sink,
    ) -> Result<(), TransferStop> {
        let (response, target) = self.settings.client.get(&GetRequest::default(), patience).await?;
        let length = self.settings.check_whole_response(&response, &target)?;
        self.length = self.length.or(length);
        self.pass_on(response.body, &target, sink).await
    }

    /// Passes on what the reader does not have yet. What it has is read past, and has to be the same.
    async fn pass_on(
        &mut self,
        body: Body,
        target: &RedirectTarget,
        sink: &mut impl Sink,
    ) -> Result<(), TransferStop> {
        let mut seen = Prefix::default();
        let mut pump = Pump::new(body, &self.settings.pool, 0);
        while let Some(mut bytes) =
            pump.next(sink).await.map_err(|source| failed(target, source))?
        {
            if seen.len < self.prefix.len {
                let missing = usize::try_from(self.prefix.len - seen.len).unwrap_or(usize::MAX);
                let again = bytes.split_to(missing.min(bytes.len()));
                seen.add(&again);
                self.repeated += again.len() as u64;
                if seen.len == self.prefix.len && seen.sum() != self.prefix.sum() {
                    return Err(self
                        .settings
                        .changed(self.prefix.describe(), seen.describe())
                        .into());
                }
            }
            if !bytes.is_empty() {
                self.prefix.add(&bytes);
                seen = self.prefix.clone();
                sink.put(bytes).await?;
            }
        }
        // HTTP's framing gives the end. It has to agree with the announced length and with earlier responses.
        let end = self.length.unwrap_or(self.prefix.len);
        if seen.len < end {
            return Err(short(&pump.body, target, end - seen.len).into());
        }
        if seen.len > end {
            let (before, after) = (format!("{end} bytes long"), format!("{} bytes long", seen.len));
            return Err(self.settings.changed(before, after).into());
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
