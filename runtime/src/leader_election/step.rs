//! What a candidate does with the lease that it finds.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

use super::DURATION;

/// Who asks for which lease.
#[derive(Clone)]
pub struct Candidate {
    /// Of the Lease.
    pub namespace: String,
    pub name: String,
    /// Differs between processes.
    pub identity: String,
}

/// What to do with a lease.
#[derive(Debug, PartialEq)]
pub enum LeaseStep {
    /// Another process leads.
    Wait,
    /// Write this. The process leads if no other one was faster.
    Take(Box<Lease>),
}

/// `is_stale`: another process's lease has not been renewed for its duration.
pub fn step(
    candidate: &Candidate,
    present: Option<&Lease>,
    is_stale: bool,
    now: Timestamp,
) -> LeaseStep {
    let old = present.and_then(|lease| lease.spec.clone()).unwrap_or_default();
    let holder = old.holder_identity.as_deref().unwrap_or_default();
    let identity = candidate.identity.as_str();
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
            name: Some(candidate.name.clone()),
            namespace: Some(candidate.namespace.clone()),
            ..ObjectMeta::default()
        },
        |lease| lease.metadata.clone(),
    );
    LeaseStep::Take(Box::new(Lease { metadata, spec: Some(spec) }))
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

    #[test]
    fn lease_is_taken_if_no_process_holds_it() {
        let me = Candidate {
            namespace: "cdi".to_owned(),
            name: "lease".to_owned(),
            identity: "me".to_owned(),
        };
        let now = Timestamp::from_second(1).unwrap();
        let transitions = |lease: Option<&Lease>, is_stale| match step(&me, lease, is_stale, now) {
            LeaseStep::Wait => None,
            LeaseStep::Take(lease) => lease.spec.unwrap().lease_transitions,
        };
        assert_eq!(transitions(None, true), Some(1));
        assert_eq!(transitions(Some(&held_by("other")), false), None);
        assert_eq!(transitions(Some(&held_by("other")), true), Some(4));
        assert_eq!(transitions(Some(&held_by("")), false), Some(4));
        assert_eq!(transitions(Some(&held_by("me")), false), Some(3));
        let LeaseStep::Take(lease) = step(&me, Some(&held_by("me")), false, now) else { panic!() };
        // A write of another process in between makes this one fail.
        assert_eq!(lease.metadata.resource_version.as_deref(), Some("7"));
        let LeaseStep::Take(lease) = step(&me, None, true, now) else { panic!() };
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
