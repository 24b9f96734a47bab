//! The objects that the next step of a transfer depends on.

use super::*;

/// Everything that the next step depends on.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) record: Option<Record>,
    pub(super) claim: Option<PersistentVolumeClaim>,
    pub(super) volume: Option<PersistentVolume>,
    pub(super) is_used: bool,
    pub(super) target_claim: Option<PersistentVolumeClaim>,
    pub(super) is_reserved: bool,
    pub(super) data_volume: Option<DataVolume>,
    pub(super) target_data_volume: Option<DataVolume>,
    pub(super) child: Option<ObjectTransfer>,
}

impl Seen {
    pub(super) async fn of(engine: &Engine, transfer: &ObjectTransfer) -> Result<Self, Error> {
        let cluster = &engine.api;
        let (source, target) = (plan::source(&transfer.spec), plan::target(&transfer.spec));
        let mut seen = Self { record: Record::noted(transfer), ..Self::default() };
        let is_of_data_volume = plan::moved(&transfer.spec) == Some(Moved::DataVolume);
        if is_of_data_volume {
            seen.data_volume = cluster.get(&source.namespace, &source.name).await?;
            seen.target_data_volume = cluster.get(&target.namespace, &target.name).await?;
        }
        seen.claim = cluster.get(&source.namespace, &source.name).await?;
        seen.target_claim = cluster.get(&target.namespace, &target.name).await?;
        match &seen.record {
            // Its claim is the business of another transfer.
            Some(record) if is_of_data_volume => {
                let child = plan::transfer_of_claim(transfer, record);
                seen.child = cluster.get("", meta::name(&child.metadata)).await?;
                return Ok(seen);
            }
            Some(record) => seen.volume = cluster.get("", &record.volume_name).await?,
            None => {
                let spec = seen.claim.as_ref().and_then(|claim| claim.spec.as_ref());
                if let Some(name) = spec.and_then(|spec| spec.volume_name.clone()) {
                    seen.volume = cluster.get("", &name).await?;
                }
            }
        }
        if seen.claim.is_some() {
            let pods = workers::pods_with(engine, &source.namespace, &source.name).await?;
            seen.is_used = !pods.is_empty();
        }
        let marked = if is_of_data_volume {
            seen.data_volume.as_ref().map(|volume| &volume.metadata)
        } else {
            seen.claim.as_ref().map(|claim| &claim.metadata)
        };
        let other = marked.and_then(plan::reserved_by);
        if let Some(other) = other.filter(|name| *name != meta::name(&transfer.metadata)) {
            let other = cluster.get::<ObjectTransfer>("", other).await?;
            seen.is_reserved = other.is_some_and(|other| !plan::is_over(&other));
        }
        Ok(seen)
    }

    pub(super) fn facts(&self) -> Facts<'_> {
        Facts {
            record: self.record.as_ref(),
            claim: self.claim.as_ref(),
            volume: self.volume.as_ref(),
            is_used: self.is_used,
            target_claim: self.target_claim.as_ref(),
            is_reserved: self.is_reserved,
            data_volume: self.data_volume.as_ref(),
            target_data_volume: self.target_data_volume.as_ref(),
            child: self.child.as_ref(),
        }
    }
}
