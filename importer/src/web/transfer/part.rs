//! A part of an image, resumed where it broke.

use std::time::Duration;

use super::pump::Pump;
use super::{Sink, Stop, Terms, failed, short};
use crate::web::client::Wanted;
use crate::web::retry::Attempts;

/// Brings `at..end`.
pub(super) struct Part<'a> {
    pub(super) terms: &'a Terms,
    /// The first byte that is still missing.
    pub(super) at: u64,
    pub(super) end: u64,
}

impl Part<'_> {
    /// Asks, and asks again, until all is with `sink`.
    pub(super) async fn run(&mut self, sink: &mut impl Sink) -> Result<(), Stop> {
        let mut attempts = Attempts::new(&self.terms.policy);
        while self.at < self.end {
            let before = self.at;
            let patience = attempts.patience(self.terms.stall_timeout);
            let result = self.attempt(patience, sink).await;
            if self.at > before {
                attempts.progress();
            }
            match result {
                Ok(()) => {}
                Err(Stop::Failed(error)) => {
                    sink.flush();
                    attempts.wait_after(error, &self.terms.client.name(), self.at).await?;
                }
                Err(Stop::Unwanted) => return Err(Stop::Unwanted),
            }
        }
        Ok(())
    }

    /// One request, and as much of its answer as comes.
    async fn attempt(&mut self, patience: Duration, sink: &mut impl Sink) -> Result<(), Stop> {
        let Terms { client, validator, pool, .. } = self.terms;
        let wanted = Wanted {
            part: Some((self.at, self.end)),
            validator: validator.clone(),
            ..Wanted::default()
        };
        let (response, place) = client.get(&wanted, patience).await?;
        let end = self.terms.judge_part(self.at, self.end, &response, &place)?;
        let mut pump = Pump::new(response.body, pool, self.at);
        while self.at < end {
            let next = pump.next(sink).await.map_err(|source| failed(&place, source))?;
            let Some(mut bytes) = next else {
                return Err(short(&pump.body, &place, end - self.at).into());
            };
            // More than announced would be other bytes than those asked for: never passed on.
            bytes.truncate(usize::try_from(end - self.at).unwrap_or(usize::MAX));
            self.at += bytes.len() as u64;
            sink.put(bytes).await?;
        }
        Ok(())
    }
}
