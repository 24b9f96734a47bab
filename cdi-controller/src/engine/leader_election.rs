//! Leader election: only the process that holds the lease runs the controllers.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::time::Instant;

use crate::engine::Error;
use crate::engine::error::chain;

/// Upstream CDI uses the same name, so that both never run at the same time.
const NAME: &str = "cdi-controller-leader-election-helper";
/// The lease expires unless it is renewed within this time.
const DURATION: Duration = Duration::from_secs(15);
/// A leader that could not renew the lease for this long stops, before another process can acquire the lease.
const DEADLINE: Duration = Duration::from_secs(10);
const RENEWAL: Duration = Duration::from_secs(4);
const RETRY: Duration = Duration::from_secs(2);

/// What to do about the lease.
#[derive(Debug, PartialEq)]
enum Step {
    /// Another process holds the lease.
    Wait,
    /// Write this lease: this process then holds it, unless another one was faster.
    Take(Box<Lease>),
}

/// This process as a candidate.
pub struct Election {
    api: Api<Lease>,
    namespace: String,
    identity: String,
    /// The observed version of another process's lease, and since when, by the local clock, as clocks differ.
    seen: Option<(Option<String>, Instant)>,
}

impl Election {
    /// `identity` is unique to the process.
    pub fn new(client: Client, namespace: &str, identity: String) -> Self {
        let api = Api::namespaced(client, namespace);
        Self { api, namespace: namespace.to_owned(), identity, seen: None }
    }

    /// Waits until this process holds the lease.
    pub async fn win(&mut self) {
        loop {
            match self.attempt().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!("cannot take part in the election: {}", chain(error));
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Renews the lease until that fails.
    pub async fn keep(&mut self) -> Error {
        let mut held_at = Instant::now();
        loop {
            tokio::time::sleep(RENEWAL).await;
            // An attempt that hangs has failed.
            match tokio::time::timeout(RENEWAL, self.attempt()).await {
                Ok(Ok(true)) => held_at = Instant::now(),
                Ok(Ok(false)) => return Error::LeadershipLost,
                Ok(Err(error)) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!("cannot renew the lease: {}", chain(error));
                }
                Err(_) => tracing::warn!("cannot renew the lease: no answer"),
            }
            if held_at.elapsed() >= DEADLINE {
                return Error::LeadershipLost;
            }
        }
    }

    /// Releases the lease, so that the next process need not wait for it to expire.
    pub async fn resign(&self) {
        let Ok(Some(mut lease)) = self.api.get_opt(NAME).await else { return };
        let Some(spec) = &mut lease.spec else { return };
        if spec.holder_identity.as_ref() != Some(&self.identity) {
            return;
        }
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        // The lease expires anyway.
        let _ = self.api.replace(NAME, &PostParams::default(), &lease).await;
    }

    async fn attempt(&mut self) -> Result<bool, kube::Error> {
        let present = self.api.get_opt(NAME).await?;
        let is_stale = self.is_stale(present.as_ref());
        let step =
            step(present.as_ref(), &self.namespace, &self.identity, is_stale, Timestamp::now());
        let Step::Take(lease) = step else { return Ok(false) };
        let parameters = PostParams::default();
        let written = match present {
            Some(_) => self.api.replace(NAME, &parameters, &lease).await,
            None => self.api.create(&parameters, &lease).await,
        };
        match written {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether another process's lease has expired.
    fn is_stale(&mut self, lease: Option<&Lease>) -> bool {
        let Some(lease) = lease else { return true };
        let version = lease.metadata.resource_version.clone();
        match &self.seen {
            Some((seen, since)) if *seen == version => {
                let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
                let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
                since.elapsed() >= seconds.map_or(DURATION, Duration::from_secs)
            }
            _ => {
                self.seen = Some((version, Instant::now()));
                false
            }
        }
    }
}

fn step(
    present: Option<&Lease>,
    namespace: &str,
    identity: &str,
    is_stale: bool,
    now: Timestamp,
) -> Step {
    let old = present.and_then(|lease| lease.spec.clone()).unwrap_or_default();
    let holder = old.holder_identity.as_deref().unwrap_or_default();
    let is_ours = holder == identity;
    if !is_ours && !holder.is_empty() && !is_stale && !was_here(holder, identity) {
        return Step::Wait;
    }
    let now = MicroTime(now);
    let transitions = old.lease_transitions.unwrap_or(0);
    let spec = LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
        acquire_time: if is_ours { old.acquire_time } else { Some(now.clone()) },
        renew_time: Some(now),
        lease_transitions: Some(if is_ours { transitions } else { transitions + 1 }),
        ..LeaseSpec::default()
    };
    let metadata = present.map_or_else(
        || ObjectMeta {
            name: Some(NAME.into()),
            namespace: Some(namespace.into()),
            ..ObjectMeta::default()
        },
        |lease| lease.metadata.clone(),
    );
    Step::Take(Box::new(Lease { metadata, spec: Some(spec) }))
}

/// Whether the holder was the first process of the same pod, as this one is: then it has ended, or the kubelet would
/// not have started this one, and its lease can be taken before it expires.
fn was_here(holder: &str, identity: &str) -> bool {
    // pod_pid_time
    let container = |text: &str| {
        let (container, _) = text.rsplit_once('_')?;
        container.ends_with("_1").then(|| container.to_owned())
    };
    let holder = container(holder);
    holder.is_some() && holder == container(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str) -> Lease {
        Lease {
            metadata: ObjectMeta { resource_version: Some("7".into()), ..ObjectMeta::default() },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.into()),
                lease_transitions: Some(3),
                ..LeaseSpec::default()
            }),
        }
    }

    #[test]
    fn lease_is_taken_when_it_is_free_or_expired() {
        let now = Timestamp::from_second(1).unwrap();
        let taken = |lease: Option<&Lease>, is_stale| match step(lease, "cdi", "me", is_stale, now)
        {
            Step::Wait => None,
            Step::Take(lease) => lease.spec.unwrap().lease_transitions,
        };
        assert_eq!(taken(None, true), Some(1));
        assert_eq!(taken(Some(&held_by("other")), false), None);
        assert_eq!(taken(Some(&held_by("other")), true), Some(4));
        assert_eq!(taken(Some(&held_by("")), false), Some(4));
        assert_eq!(taken(Some(&held_by("me")), false), Some(3));
        let Step::Take(lease) = step(Some(&held_by("me")), "cdi", "me", false, now) else {
            panic!()
        };
        // A concurrent write makes this one fail.
        assert_eq!(lease.metadata.resource_version.as_deref(), Some("7"));
    }
    #[test]
    fn restarted_container_takes_its_lease_at_once() {
        for (holder, identity, expected) in [
            ("cdi-deployment-a_1_10", "cdi-deployment-a_1_20", true),
            ("cdi-deployment-a_1_10", "cdi-deployment-b_1_20", false),
            // Several processes on one machine may be running.
            ("laptop_77_10", "laptop_78_20", false),
            ("laptop_77_10", "laptop_77_20", false),
            ("laptop_11_10", "laptop_11_20", false),
            ("cdi-deployment-a", "cdi-deployment-a", false),
            ("", "cdi-deployment-a_1_20", false),
        ] {
            assert_eq!(was_here(holder, identity), expected, "{holder:?} {identity:?}");
        }
    }
}
