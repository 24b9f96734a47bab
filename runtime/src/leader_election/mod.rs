//! Leader election by a Lease: of several processes one leads.

mod step;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use self::step::{Candidate, LeaseStep, step};
use crate::chain;

/// A leader that has not renewed its lease for this time can be replaced. Only a pod that is lost without a signal is replaced
/// so late: a process that stops resigns, and one that crashes is succeeded by the next one of its container at once.
const DURATION: Duration = Duration::from_secs(40);
/// A leader that could not renew its lease for this time stops. Shorter than [`DURATION`], so that two never lead, and longer
/// than an API server with too little CPU time has been seen not to respond: a leader that stops loses the events that it has not
/// sent, and lists all objects again.
const DEADLINE: Duration = Duration::from_secs(30);
const RENEWAL: Duration = Duration::from_secs(3);
/// Time limit of one attempt: two more renewals, over other connections, begin before the [`DEADLINE`] too.
const ATTEMPT_MAX: Duration = Duration::from_secs(9);
/// Between two failed renewals.
const PAUSE: Duration = Duration::from_millis(500);
/// Between two attempts to win.
const RETRY: Duration = Duration::from_secs(2);

/// One process's part in an election.
#[derive(Clone)]
pub struct Election {
    api: Api<Lease>,
    candidate: Candidate,
    /// Resource version of another process's lease, and since when it is unchanged. Clocks of machines differ, so only the
    /// local one counts.
    unchanged: Option<(Option<String>, Instant)>,
    /// The lease as this process has written it last, unless it may have changed since.
    held: Option<Lease>,
    /// When the attempt began that won or renewed the lease last.
    renewed_at: Instant,
}

impl Election {
    /// `name`: of the Lease. `identity` differs between processes: see [`process_identity`].
    pub fn new(client: Client, namespace: &str, name: &str, identity: String) -> Self {
        let api = Api::namespaced(client, namespace);
        let candidate =
            Candidate { namespace: namespace.to_owned(), name: name.to_owned(), identity };
        Self { api, candidate, unchanged: None, held: None, renewed_at: Instant::now() }
    }

    /// Waits until this process leads.
    pub async fn win(&mut self) {
        while self.attempt_until(Instant::now() + ATTEMPT_MAX).await != Some(true) {
            sleep(RETRY).await;
        }
    }

    /// Renews the lease after [`win`](Self::win). Returns when it is lost: the process must not write any more.
    ///
    /// A task of its own does that: in the task of the controllers, a renewal would wait for all that is to be reconciled.
    pub async fn keep(&self) {
        let mut renewals = JoinSet::new(); // dropped with this future, and the task with it
        renewals.spawn(self.clone().renew());
        renewals.join_next().await;
    }

    async fn renew(mut self) {
        let mut next = self.renewed_at + RENEWAL;
        loop {
            let lost_at = self.renewed_at + DEADLINE;
            sleep_until(next.min(lost_at)).await;
            next = match self.attempt_until(lost_at).await {
                Some(true) => self.renewed_at + RENEWAL,
                Some(false) => return,
                None if Instant::now() >= lost_at => return,
                None => Instant::now() + PAUSE,
            };
        }
    }

    /// Releases the lease, so that the next leader need not wait for its end.
    pub async fn resign(&self) {
        let Ok(Some(mut lease)) = self.api.get_opt(&self.candidate.name).await else { return };
        let Some(spec) = &mut lease.spec else { return };
        if spec.holder_identity.as_ref() != Some(&self.candidate.identity) {
            return;
        }
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        // If this fails, the lease ends by itself.
        let _ = self.api.replace(&self.candidate.name, &PostParams::default(), &lease).await;
    }

    /// Whether this process leads, as of the beginning of the attempt. `None`: the attempt failed, or did not end in time.
    async fn attempt_until(&mut self, end: Instant) -> Option<bool> {
        let begin = Instant::now();
        let cause = match timeout_at(end.min(begin + ATTEMPT_MAX), self.attempt()).await {
            Ok(Ok(leads)) => {
                if leads {
                    self.renewed_at = begin;
                }
                return Some(leads);
            }
            Ok(Err(error)) => chain(&error),
            Err(_) => "no response".to_owned(),
        };
        tracing::warn!("cannot acquire or renew the leader-election lease: {cause}");
        None
    }

    /// Takes or renews the lease, if no other process holds it.
    async fn attempt(&mut self) -> Result<bool, kube::Error> {
        // Who holds it needs no request: it is renewed only if it has not changed.
        if let Some(held) = self.held.take()
            && self.write(Some(&held), false).await?
        {
            return Ok(true);
        }
        let present = self.api.get_opt(&self.candidate.name).await?;
        let is_stale = self.is_stale(present.as_ref());
        self.write(present.as_ref(), is_stale).await
    }

    async fn write(
        &mut self,
        present: Option<&Lease>,
        is_stale: bool,
    ) -> Result<bool, kube::Error> {
        let step = step(&self.candidate, present, is_stale, Timestamp::now());
        let LeaseStep::Take(lease) = step else { return Ok(false) };
        let parameters = PostParams::default();
        let written = match present {
            Some(_) => self.api.replace(&self.candidate.name, &parameters, &lease).await,
            None => self.api.create(&parameters, &lease).await,
        };
        match written {
            Ok(lease) => {
                self.held = Some(lease);
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether another process's lease has not been renewed for its duration.
    fn is_stale(&mut self, lease: Option<&Lease>) -> bool {
        let Some(lease) = lease else { return true };
        let version = lease.metadata.resource_version.clone();
        match &self.unchanged {
            Some((unchanged, since)) if *unchanged == version => {
                let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
                let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
                since.elapsed() >= seconds.map_or(DURATION, Duration::from_secs)
            }
            _ => {
                self.unchanged = Some((version, Instant::now()));
                false
            }
        }
    }
}

/// Differs between processes: name of the pod, process id, and start time.
pub fn process_identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let started = Timestamp::now().as_nanosecond();
    format!("{}_{}_{started:x}", host.trim(), std::process::id())
}
