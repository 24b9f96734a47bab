//! Wakes DataImportCrons when an object changes that they created, and DataSources when the object changes that they
//! refer to.

use api::labels;
use api::v1beta1::DataImportCron;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::engine::Engine;
use crate::engine::cache::{Change, key_of, key_of_metadata};
use crate::engine::index::Term;
use crate::engine::queue::Key;
use controller_core::meta;

/// A DataImportCron, and those that may have waited for its DataSource.
pub fn cron(engine: &Engine, change: &Change<DataImportCron>) {
    let cron = change.object();
    engine.queues.crons.add(key_of(cron));
    let is_gone = matches!(change, Change::Deleted(_));
    if is_gone || cron.metadata.deletion_timestamp.is_some() {
        engine.polls.forget(cron);
    }
    if is_gone {
        let namespace = meta::namespace(&cron.metadata);
        let managed = Key::new(namespace, cron.spec.managed_data_source.as_str());
        for other in engine.api.caches.crons.find(&Term::Manages(managed)) {
            engine.queues.crons.add(key_of(other.as_ref()));
        }
    }
}

/// All DataImportCrons: storage classes or the settings for polling have changed.
pub fn all(engine: &Engine) {
    for cron in engine.api.caches.crons.filter(|_| true) {
        engine.queues.crons.add(key_of(cron.as_ref()));
    }
}

/// A PVC, or its DataVolume.
pub fn claim(engine: &Engine, metadata: &ObjectMeta) {
    created_by_cron(engine, metadata);
    wake_data_sources(engine, &Term::RefersToClaim(key_of_metadata(metadata)));
}

/// A snapshot.
pub fn snapshot(engine: &Engine, metadata: &ObjectMeta) {
    created_by_cron(engine, metadata);
    wake_data_sources(engine, &Term::RefersToSnapshot(key_of_metadata(metadata)));
}

/// A DataSource, and those that point to it.
pub fn data_source(engine: &Engine, metadata: &ObjectMeta) {
    created_by_cron(engine, metadata);
    let key = key_of_metadata(metadata);
    wake_data_sources(engine, &Term::PointsTo(key.clone()));
    engine.queues.data_sources.add(key.clone());
    // A cron that did not create it may wait for one of this name.
    for cron in engine.api.caches.crons.find(&Term::Manages(key)) {
        engine.queues.crons.add(key_of(cron.as_ref()));
    }
}

/// A CronJob that polls for newer images. It is in another namespace than its cron.
pub fn cron_job(engine: &Engine, metadata: &ObjectMeta) {
    let cron = meta::label(metadata, labels::DATA_IMPORT_CRON);
    let namespace = meta::label(metadata, labels::DATA_IMPORT_CRON_NAMESPACE);
    if let (Some(cron), Some(namespace)) = (cron, namespace) {
        engine.queues.crons.add(Key::new(namespace, cron));
    }
}

/// The cron that created an object, even a deleted one: it may have to clean up.
fn created_by_cron(engine: &Engine, metadata: &ObjectMeta) {
    if let Some(cron) = meta::label(metadata, labels::DATA_IMPORT_CRON) {
        engine.queues.crons.add(Key::new(meta::namespace(metadata), cron));
    }
}

/// These DataSources, and those that point to them. Found by the index, as this is called for each change of a PVC, and
/// a tenant may have any number of DataSources.
fn wake_data_sources(engine: &Engine, term: &Term) {
    let data_sources = &engine.api.caches.data_sources;
    for source in data_sources.find(term) {
        let key = key_of(source.as_ref());
        for other in data_sources.find(&Term::PointsTo(key.clone())) {
            engine.queues.data_sources.add(key_of(other.as_ref()));
        }
        engine.queues.data_sources.add(key);
    }
}
