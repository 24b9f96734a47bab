//! Whose work it is when something changes that a DataImportCron has made, or that a DataSource stands for.

use api::labels;
use api::v1beta1::{DataImportCron, DataSource, ObjectSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Context;
use super::queue::Key;
use super::store::{Change, key_of};
use crate::meta;

/// A DataImportCron, and those that may have waited for its DataSource.
pub fn cron(context: &Context, change: &Change<DataImportCron>) {
    let cron = change.object();
    context.queues.crons.add(key_of(cron));
    if let Change::Deleted(_) = change {
        context.polls.forget(cron);
        let wants = |other: &DataImportCron| {
            other.metadata.namespace == cron.metadata.namespace
                && other.spec.managed_data_source == cron.spec.managed_data_source
        };
        for other in context.cluster.stores.crons.filter(wants) {
            context.queues.crons.add(key_of(other.as_ref()));
        }
    }
}

/// All of them: what storage there is, or how sources are reached, has changed.
pub fn all(context: &Context) {
    for cron in context.cluster.stores.crons.filter(|_| true) {
        context.queues.crons.add(key_of(cron.as_ref()));
    }
}

/// A claim, or the DataVolume that fills it.
pub fn claim(context: &Context, metadata: &ObjectMeta) {
    made(context, metadata);
    stands_for(context, metadata, |source| source.spec.source.pvc.as_ref());
}

/// A snapshot.
pub fn snapshot(context: &Context, metadata: &ObjectMeta) {
    made(context, metadata);
    stands_for(context, metadata, |source| source.spec.source.snapshot.as_ref());
}

/// A DataSource, and those that point to it.
pub fn data_source(context: &Context, metadata: &ObjectMeta) {
    made(context, metadata);
    let (namespace, name) = (meta::namespace(metadata), meta::name(metadata));
    context.queues.data_sources.add(Key::new(namespace, name));
    again(context, |other| {
        let pointer = other.spec.source.data_source.as_ref();
        meta::namespace(&other.metadata) == namespace
            && pointer.is_some_and(|pointer| pointer.name == name)
    });
    // One of this name may be missed by a cron that did not make it.
    let manages = |cron: &DataImportCron| {
        meta::namespace(&cron.metadata) == namespace && cron.spec.managed_data_source == name
    };
    for cron in context.cluster.stores.crons.filter(manages) {
        context.queues.crons.add(key_of(cron.as_ref()));
    }
}

/// What looks for newer images stands in another namespace than its cron.
pub fn cron_job(context: &Context, metadata: &ObjectMeta) {
    let cron = meta::label(metadata, labels::DATA_IMPORT_CRON);
    let namespace = meta::label(metadata, labels::DATA_IMPORT_CRON_NAMESPACE);
    if let (Some(cron), Some(namespace)) = (cron, namespace) {
        context.queues.crons.add(Key::new(namespace, cron));
    }
}

/// The cron that has made something, also one that is gone: it may have something to tidy.
fn made(context: &Context, metadata: &ObjectMeta) {
    if let Some(cron) = meta::label(metadata, labels::DATA_IMPORT_CRON) {
        context.queues.crons.add(Key::new(meta::namespace(metadata), cron));
    }
}

/// DataSources that stand for this.
fn stands_for(
    context: &Context,
    metadata: &ObjectMeta,
    member: fn(&DataSource) -> Option<&ObjectSource>,
) {
    again(context, |source| {
        let Some(place) = member(source) else { return false };
        let own = meta::namespace(&source.metadata);
        let namespace = if place.namespace.is_empty() { own } else { place.namespace.as_str() };
        place.name == meta::name(metadata) && namespace == meta::namespace(metadata)
    });
}

/// These DataSources, and those that point to them.
fn again(context: &Context, wanted: impl Fn(&DataSource) -> bool) {
    let stores = &context.cluster.stores;
    for source in stores.data_sources.filter(wanted) {
        let key = key_of(source.as_ref());
        let points_here = |other: &DataSource| {
            let pointer = other.spec.source.data_source.as_ref();
            meta::namespace(&other.metadata) == key.namespace
                && pointer.is_some_and(|pointer| pointer.name == key.name)
        };
        for other in stores.data_sources.filter(points_here) {
            context.queues.data_sources.add(key_of(other.as_ref()));
        }
        context.queues.data_sources.add(key);
    }
}
