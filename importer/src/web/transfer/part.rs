//! A part of an image, resumed where it broke.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::pump::Pump;
use super::{Sink, TransferSettings, TransferStop, failed, short};
use crate::web::client::GetRequest;
use crate::web::retry::Attempts;

/// Brings `at..end`.
pub(super) struct Part<'a> {
    pub(super) settings: &'a TransferSettings,
    /// The first byte that is still missing.
    pub(super) at: u64,
    pub(super) end: u64,
    /// What allows further attempts.
    pub(super) allowed_by: ProgressOf,
}

/// Whose new bytes allow further attempts after failures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgressOf {
    /// Only those of this part: its failure is handled by the caller, which requests less at a time then.
    ThisPart,
    /// Those of any part of the source: a server may refuse some of the requests that are sent at the same time.
    AnyPart,
}

impl Part<'_> {
    /// Requests and retries until `sink` has everything.
    pub(super) async fn transfer(&mut self, sink: &mut impl Sink) -> Result<(), TransferStop> {
        let mut attempts = Attempts::new(&self.settings.policy);
        let received = || self.settings.received.load(Ordering::Relaxed);
        let mut received_before = received();
        while self.at < self.end {
            let before = self.at;
            let patience = attempts.patience(self.settings.stall_timeout);
            let result = self.attempt(patience, sink).await;
            if self.at > before {
                attempts.progress();
            } else if self.allowed_by == ProgressOf::AnyPart && received() > received_before {
                attempts.other_progress();
            }
            received_before = received();
            match result {
                Ok(()) => {}
                Err(TransferStop::Failed(error)) => {
                    sink.flush();
                    attempts.wait_after(error, &self.settings.client.name(), self.at).await?;
                }
                Err(TransferStop::Unwanted) => return Err(TransferStop::Unwanted),
            }
        }
        Ok(())
    }

    /// One request, and as much of its response as comes.
    async fn attempt(
        &mut self,
        patience: Duration,
        sink: &mut impl Sink,
    ) -> Result<(), TransferStop> {
        let TransferSettings { client, validator, pool, .. } = self.settings;
        let request = GetRequest {
            part: Some((self.at, self.end)),
            validator: validator.clone(),
            ..GetRequest::default()
        };
        let (response, target) = client.get(&request, patience).await?;
        let end = self.settings.check_part_response(self.at, self.end, &response, &target)?;
        let mut pump = Pump::new(response.body, pool, self.at);
        while self.at < end {
            let next = pump.next(sink).await.map_err(|source| failed(&target, source))?;
            let Some(mut bytes) = next else {
                return Err(short(&pump.body, &target, end - self.at).into());
            };
            // More than announced would be other bytes than those requested: never passed on.
            bytes.truncate(usize::try_from(end - self.at).unwrap_or(usize::MAX));
            self.at += bytes.len() as u64;
            self.settings.received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            sink.put(bytes).await?;
        }
        Ok(())
    }
}
