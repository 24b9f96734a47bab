//! Leader election by a Lease: of several processes one leads.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::time::Instant;

use crate::chain;

/// A leader that has not renewed its lease for this time can be replaced.
const DURATION: Duration = Duration::from_secs(15);
/// A leader that could not renew its lease for this time stops. Shorter than [`DURATION`], so that two never lead.
const DEADLINE: Duration = Duration::from_secs(10);
const RENEWAL: Duration = Duration::from_secs(4);
const RETRY: Duration = Duration::from_secs(2);

/// What to do with a lease.
#[derive(Debug, PartialEq)]
enum LeaseStep {
    /// Another process leads.
    Wait,
    /// Write this. The process leads if no other one was faster.
    Take(Box<Lease>),
}

/// One process's part in an election.
pub struct Election {
    api: Api<Lease>,
    namespace: String,
    name: String,
    identity: String,
    /// Resource version of another process's lease, and since when it is unchanged. Clocks of machines differ, so only the
    /// local one counts.
    unchanged: Option<(Option<String>, Instant)>,
}

impl Election {
    /// `name`: of the Lease. `identity` differs between processes: see [`process_identity`].
    pub fn new(client: Client, namespace: &str, name: &str, identity: String) -> Self {
        let api = Api::namespaced(client, namespace);
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Self { api, namespace, name, identity, unchanged: None }
    }

    /// Waits until this process leads.
    pub async fn win(&mut self) {
        loop {
            match self.attempt().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!("cannot take part in the leader election: {}", chain(&error));
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Renews the lease. Returns when it is lost: the process must not write any more.
    pub async fn keep(&mut self) {
        let mut held_at = Instant::now();
        loop {
            tokio::time::sleep(RENEWAL).await;
            // An attempt that takes longer counts as a failure.
            match tokio::time::timeout(RENEWAL, self.attempt()).await {
                Ok(Ok(true)) => held_at = Instant::now(),
                Ok(Ok(false)) => return,
                Ok(Err(error)) => {
                    tracing::warn!("cannot renew the leader-election lease: {}", chain(&error));
                }
                Err(_) => tracing::warn!("cannot renew the leader-election lease: no response"),
            }
            if held_at.elapsed() >= DEADLINE {
                return;
            }
        }
    }

    /// Releases the lease, so that the next leader need not wait for its end.
    pub async fn resign(&self) {
        let Ok(Some(mut lease)) = self.api.get_opt(&self.name).await else { return };
        let Some(spec) = &mut lease.spec else { return };
        if spec.holder_identity.as_ref() != Some(&self.identity) {
            return;
        }
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        // If this fails, the lease ends by itself.
        let _ = self.api.replace(&self.name, &PostParams::default(), &lease).await;
    }

    async fn attempt(&mut self) -> Result<bool, kube::Error> {
        let present = self.api.get_opt(&self.name).await?;
        let is_stale = self.is_stale(present.as_ref());
        let step = self.step(present.as_ref(), is_stale, Timestamp::now());
        let LeaseStep::Take(lease) = step else { return Ok(false) };
        let parameters = PostParams::default();
        let written = match present {
            Some(_) => self.api.replace(&self.name, &parameters, &lease).await,
            None => self.api.create(&parameters, &lease).await,
        };
        match written {
            Ok(_) => Ok(true),
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

    fn step(&self, present: Option<&Lease>, is_stale: bool, now: Timestamp) -> LeaseStep {
        let old = present.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let holder = old.holder_identity.as_deref().unwrap_or_default();
        let identity = self.identity.as_str();
        let is_ours = holder == identity;
        if !is_ours && !holder.is_empty() && !is_stale && !is_predecessor(holder, identity) {
            return LeaseStep::Wait;
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
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            |lease| lease.metadata.clone(),
        );
        LeaseStep::Take(Box::new(Lease { metadata, spec: Some(spec) }))
    }
}

/// Differs between processes: name of the pod, process id, and start time.
pub fn process_identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let started = Timestamp::now().as_nanosecond();
    format!("{}_{}_{started:x}", host.trim(), std::process::id())
}

/// Whether the holder was the first process of the container in which this one is the first, too. Then it has ended, as
/// this one would not run otherwise, and there is no need to wait for the end of its lease.
fn is_predecessor(holder: &str, identity: &str) -> bool {
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

    struct Unreachable;

    impl tower_service::Service<http::Request<kube::client::Body>> for Unreachable {
        type Response = http::Response<kube::client::Body>;
        type Error = std::convert::Infallible;
        type Future = std::future::Pending<Result<Self::Response, Self::Error>>;

        fn poll_ready(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), Self::Error>> {
            std::task::Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: http::Request<kube::client::Body>) -> Self::Future {
            std::future::pending()
        }
    }

    #[tokio::test]
    async fn lease_is_taken_if_no_process_holds_it() {
        let client = Client::new(Unreachable, "cdi");
        let election = Election::new(client, "cdi", "lease", "me".into());
        let now = Timestamp::from_second(1).unwrap();
        let transitions =
            |lease: Option<&Lease>, is_stale| match election.step(lease, is_stale, now) {
                LeaseStep::Wait => None,
                LeaseStep::Take(lease) => lease.spec.unwrap().lease_transitions,
            };
        assert_eq!(transitions(None, true), Some(1));
        assert_eq!(transitions(Some(&held_by("other")), false), None);
        assert_eq!(transitions(Some(&held_by("other")), true), Some(4));
        assert_eq!(transitions(Some(&held_by("")), false), Some(4));
        assert_eq!(transitions(Some(&held_by("me")), false), Some(3));
        let LeaseStep::Take(lease) = election.step(Some(&held_by("me")), false, now) else {
            panic!()
        };
        // A write of another process in between makes this one fail.
        assert_eq!(lease.metadata.resource_version.as_deref(), Some("7"));
        let LeaseStep::Take(lease) = election.step(None, true, now) else { panic!() };
        assert_eq!(lease.metadata.name.as_deref(), Some("lease"));
    }

    #[test]
    fn restarted_container_replaces_its_earlier_process_at_once() {
        for (holder, identity, expected) in [
            ("cdi-deployment-a_1_10", "cdi-deployment-a_1_20", true),
            ("cdi-deployment-a_1_10", "cdi-deployment-b_1_20", false),
            // One machine may run several, all of them alive.
            ("laptop_77_10", "laptop_78_20", false),
            ("laptop_77_10", "laptop_77_20", false),
            ("laptop_11_10", "laptop_11_20", false),
            ("cdi-deployment-a", "cdi-deployment-a", false),
            ("", "cdi-deployment-a_1_20", false),
        ] {
            assert_eq!(is_predecessor(holder, identity), expected, "{holder:?} {identity:?}");
        }
    }
}
