//! One controller at a time: whoever holds the lease.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::time::Instant;

use crate::engine::Error;
use crate::engine::error::chain;

/// The name that the controllers before this one use too, so that never both are at work.
const NAME: &str = "cdi-controller-leader-election-helper";
/// Who has been silent for so long leads no more.
const DURATION: Duration = Duration::from_secs(15);
/// Who could not say for so long that it leads stops before anybody else may begin.
const DEADLINE: Duration = Duration::from_secs(10);
const RENEWAL: Duration = Duration::from_secs(4);
const RETRY: Duration = Duration::from_secs(2);

/// What to do about a lease as it is.
#[derive(Debug, PartialEq)]
enum Step {
    /// Somebody else leads.
    Wait,
    /// Write this: it is ours from then on, unless somebody else was faster.
    Take(Box<Lease>),
}

/// Our part in the election.
pub struct Election {
    api: Api<Lease>,
    namespace: String,
    identity: String,
    /// The lease of somebody else as it was seen, and since when: clocks of machines differ, so only ours counts.
    seen: Option<(Option<String>, Instant)>,
}

impl Election {
    /// `identity` is another for each process.
    pub fn new(client: Client, namespace: &str, identity: String) -> Self {
        let api = Api::namespaced(client, namespace);
        Self { api, namespace: namespace.to_owned(), identity, seen: None }
    }

    /// Waits until this process leads.
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

    /// Keeps the lease, until that fails.
    pub async fn keep(&mut self) -> Error {
        let mut held_at = Instant::now();
        loop {
            tokio::time::sleep(RENEWAL).await;
            // An attempt that hangs is one that failed.
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

    /// Gives the lease up, so that the next one need not wait for its end.
    pub async fn resign(&self) {
        let Ok(Some(mut lease)) = self.api.get_opt(NAME).await else { return };
        let Some(spec) = &mut lease.spec else { return };
        if spec.holder_identity.as_ref() != Some(&self.identity) {
            return;
        }
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        // It ends by itself too.
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

    /// Whether the lease of somebody else has not been renewed for as long as it lasts.
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

/// Whether the holder was the first process of this very pod, as this one is: then it has ended, or this one would not
/// have been started. Nobody need wait for the end of its lease.
fn was_here(holder: &str, identity: &str) -> bool {
    // pod_pid_moment
    let place = |text: &str| {
        let (place, _) = text.rsplit_once('_')?;
        place.ends_with("_1").then(|| place.to_owned())
    };
    let holder = place(holder);
    holder.is_some() && holder == place(identity)
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
    fn a_lease_is_taken_when_nobody_holds_it_any_more() {
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
        // Whoever wrote meanwhile makes this one fail.
        assert_eq!(lease.metadata.resource_version.as_deref(), Some("7"));
    }
    #[test]
    fn a_process_that_crashed_is_followed_by_its_successor_at_once() {
        for (holder, identity, expected) in [
            ("cdi-deployment-a_1_10", "cdi-deployment-a_1_20", true),
            ("cdi-deployment-a_1_10", "cdi-deployment-b_1_20", false),
            // On one machine there may be several, and they may be alive.
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
