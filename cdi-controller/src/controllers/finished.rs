//! The end of a DataVolume whose claim stays.

use std::sync::Arc;

use api::events;
use api::v1beta1::DataVolume;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::engine::{Engine, Error};
use controller_core::event::Event;
use controller_core::meta;
use controller_core::ownership::without_owner;
use controller_core::plan::{Plan, Requeue, Write};

/// Lets go of the claim, and then deletes the DataVolume. What the cluster collects with an owner it looks up first, so that
/// a claim that is nobody's by then is safe.
pub async fn let_go(
    engine: &Engine,
    component: &'static str,
    volume: &DataVolume,
    claim: Option<Arc<PersistentVolumeClaim>>,
) -> Result<Requeue, Error> {
    let Some(claim) = claim else { return Ok(Requeue::OnChange) };
    let released = without_owner(&claim, meta::uid(&volume.metadata));
    let mut plan = Plan::writes(released.into_iter().chain(Write::delete(volume)));
    let name = meta::name(&volume.metadata);
    let message = format!("The DataVolume {name} has had its time; its claim stays");
    let event = Event::normal(events::DATA_VOLUME_COLLECTED, message);
    plan.record(component, claim.as_ref(), [event]);
    engine.execute_and_report(plan).await
}
