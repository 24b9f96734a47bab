//! The writes of a populator.

use api::events;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::{Facts, PopulatorPlan, PrimeProgress};
use crate::bound;
use crate::components::populator_of;
use crate::event::Event;
use crate::meta;
use crate::object::{Key, ObjectKind};
use crate::plan::{Plan, Requeue, Write};
use crate::refusal::{CauseText, OnRefused, PvcNote, RefusalReport, ReportedFailures};

/// The writes of the plan for these facts.
pub fn populator_writes(facts: &Facts, plan: PopulatorPlan) -> Plan {
    match plan {
        PopulatorPlan::Ignore | PopulatorPlan::Wait => Plan::default(),
        PopulatorPlan::Create { prime, created } => creation(facts.target, *prime, created),
        PopulatorPlan::Follow(progress) => follow(facts, progress),
    }
}

fn creation(target: &PersistentVolumeClaim, prime: PersistentVolumeClaim, created: Event) -> Plan {
    let component = populator_of(target);
    let metadata = &target.metadata;
    let report = RefusalReport {
        which: ReportedFailures::All,
        kind: ObjectKind::PersistentVolumeClaim,
        reason: events::PRIME_FAILED,
        prefix: String::new(),
        cause: CauseText::Message,
        audience: bound::audience(component, target, None),
        // The DataVolume's condition reports it too.
        note: Some((Key::new(meta::namespace(metadata), meta::name(metadata)), PvcNote::NotBound)),
    };
    let mut plan = Plan {
        writes: vec![Write::create(prime)],
        // The event of an object that exists was recorded when it was created.
        requeue_if_exists: Some(Requeue::OnChange),
        on_refused: OnRefused::Report(Box::new(report)),
        ..Plan::default()
    };
    plan.record(component, target, [created]);
    plan
}

/// Labels come with the annotations in one write: a client that sees that the content is there also sees its labels.
/// Then the volume, so that a client that sees it sees both; the prime PVC last, which keeps the volume until then.
fn follow(facts: &Facts, progress: PrimeProgress) -> Plan {
    let PrimeProgress { labels, annotations, rebind, delete_prime, events, look_again } = progress;
    let noted = Write::metadata(facts.target, &labels, &annotations);
    let rebound = rebind.as_ref().zip(facts.volume);
    let rebound = rebound.map(|(owner, volume)| Write::rebind(volume, owner));
    let deleted = facts.prime.filter(|_| delete_prime).and_then(Write::delete);
    let mut plan = Plan {
        writes: noted.into_iter().chain(rebound).chain(deleted).collect(),
        requeue: Requeue::after(look_again),
        ..Plan::default()
    };
    plan.record(populator_of(facts.target), facts.target, events);
    plan
}
