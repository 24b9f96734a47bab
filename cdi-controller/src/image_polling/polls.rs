//! Polls sources for newer images, in the background and a few at a time, so that no reconciliation waits for a server.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::annotations::cron as key;
use api::v1beta1::{DataImportCron, DataVolumeSource};
use importer::{
    CallLimit, CancelOnDrop, DialPolicy, HttpValidators, KnownRevision, LatestImage, Warned,
};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::CronJobSpec;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use parking_lot::{Mutex, MutexGuard};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::engine::cache::key_of;
use crate::engine::{Engine, Error};
use crate::image_polling::ask::{
    self, Access, PollPermit, PollPermits, PollRate, PollRequest, PollResults,
};
use controller_core::data_import_cron::{
    PollFailure, PollRequestError, PollResult, Polled, place, poll_needs, polled_host,
    verify_poll_secret,
};
use controller_core::meta;

/// When to reconcile a cron whose source is being polled. Its result queues the cron earlier; this is for a lost
/// result.
const POLLING: Duration = Duration::from_secs(5);
/// When to retry a cron that found too many polls waiting.
const LATER: Duration = Duration::from_secs(60);
/// Polls under way or waiting, of all namespaces and of one. A namespace that has none may always queue one.
const POLLS_QUEUED_MAX: usize = 5000;
const POLLS_OF_NAMESPACE_QUEUED_MAX: usize = 500;

/// The state of polling, by the UID of the cron. None of it has to outlive the process.
#[derive(Default)]
pub struct Polls {
    state: Mutex<State>,
    permits: PollPermits,
    /// Registries that are listed as insecure, and for which a warning was logged.
    warned: Warned,
    /// Polls that run or wait; dropping this ends them.
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Default)]
struct State {
    memory: PollResults,
    rate: PollRate,
    polling: HashMap<String, Polling>,
    /// Polls started so far.
    count: u64,
    /// Results that are not written to the cron yet.
    results: HashMap<String, Polled>,
    /// The CronJobs as last written.
    jobs: HashMap<String, CronJobSpec>,
}

/// A poll that runs or waits. Dropping this ends it.
struct Polling {
    number: u64,
    namespace: String,
    source_polled: PolledSource,
    _cancel: CancelOnDrop,
}

/// What a poll requests. Its result is discarded if this changes.
#[derive(PartialEq, Eq)]
struct PolledSource {
    source: Option<DataVolumeSource>,
    checksums: Option<String>,
}

impl PolledSource {
    fn from_cron(cron: &DataImportCron) -> Self {
        Self {
            source: cron.spec.template.spec.source.clone(),
            checksums: meta::annotation(&cron.metadata, key::CHECKSUMS_URL).map(str::to_owned),
        }
    }
}

impl State {
    fn can_queue(&self, namespace: &str) -> bool {
        let of_namespace = self.polling.values().filter(|poll| poll.namespace == namespace).count();
        let is_first = of_namespace == 0;
        is_first
            || of_namespace < POLLS_OF_NAMESPACE_QUEUED_MAX && self.polling.len() < POLLS_QUEUED_MAX
    }
}

impl Polls {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Counts a poll that is not started by [`start_poll`].
    ///
    /// # Errors
    /// How long to wait, if the rate limit is reached.
    pub fn try_begin(&self, cron: &DataImportCron) -> Result<(), Duration> {
        let (uid, namespace) = (meta::uid(&cron.metadata), meta::namespace(&cron.metadata));
        let mut state = self.state();
        let failures = state.memory.failures(cron);
        state.rate.try_begin(uid, namespace, failures, Instant::now())
    }

    /// Keeps the result of poll `number`, unless the poll has been cancelled. Returns whether it is kept.
    fn record(&self, cron: &DataImportCron, number: u64, outcome: Outcome, at: Timestamp) -> bool {
        let uid = meta::uid(&cron.metadata);
        let mut state = self.state();
        if state.polling.get(uid).is_none_or(|polling| polling.number != number) {
            return false;
        }
        state.polling.remove(uid);
        let result = match outcome {
            Outcome::Sent(result) => {
                if let Err(error) = &result {
                    let (key, error) = (place(cron), runtime::chain(error));
                    // The condition has less: its author chose the server.
                    tracing::info!(object.key = %key, error = %error, "cannot poll the source of DataImportCron {key}");
                }
                state.memory.record(cron, result)
            }
            Outcome::NotSent(error) => state.memory.failed(cron, &error),
            Outcome::Cancelled => state.memory.failed(cron, &PollFailure::Cancelled),
        };
        state.results.insert(uid.to_owned(), Polled { at, result });
        true
    }

    /// The result for a cron, until it is written to the cron.
    pub fn result(&self, cron: &DataImportCron) -> Option<Polled> {
        self.state().results.get(meta::uid(&cron.metadata)).cloned()
    }

    /// Keeps a result that was available at once.
    pub fn keep(&self, cron: &DataImportCron, result: Polled) {
        self.state().results.insert(meta::uid(&cron.metadata).to_owned(), result);
    }

    /// Drops a result that is written to the cron.
    pub fn discard(&self, cron: &DataImportCron, result: &Polled) {
        let mut state = self.state();
        let uid = meta::uid(&cron.metadata);
        if state.results.get(uid) == Some(result) {
            state.results.remove(uid);
        }
    }

    /// The newest image, as found in the cluster.
    pub fn found(&self, cron: &DataImportCron, digest: &str) -> PollResult {
        let known = KnownRevision { digest: digest.to_owned(), marks: HttpValidators::default() };
        self.state().memory.record(cron, Ok(LatestImage::Found(known)))
    }

    /// The newest image could not be determined.
    pub fn failed(&self, cron: &DataImportCron, error: &dyn std::error::Error) -> PollResult {
        self.state().memory.failed(cron, error)
    }

    /// Whether this is the CronJob that was written last.
    pub fn is_written(&self, cron: &DataImportCron, spec: &CronJobSpec) -> bool {
        self.state().jobs.get(meta::uid(&cron.metadata)) == Some(spec)
    }

    /// The CronJob was written.
    pub fn wrote(&self, cron: &DataImportCron, spec: &CronJobSpec) {
        self.state().jobs.insert(meta::uid(&cron.metadata).to_owned(), spec.clone());
    }

    /// Whether a poll runs or waits.
    #[cfg(test)]
    pub fn is_polling(&self, cron: &DataImportCron) -> bool {
        self.state().polling.contains_key(meta::uid(&cron.metadata))
    }

    /// The cron is deleted.
    pub fn forget(&self, cron: &DataImportCron) {
        let uid = meta::uid(&cron.metadata);
        let mut state = self.state();
        state.memory.forget(uid);
        state.rate.forget(uid);
        state.polling.remove(uid);
        state.results.remove(uid);
        state.jobs.remove(uid);
    }
}

/// Polls the source of a cron in the background, unless a poll runs already. Its result queues the cron. Returns when
/// to reconcile the cron at the latest.
pub fn start_poll(engine: &Arc<Engine>, cron: &Arc<DataImportCron>) -> Duration {
    let (uid, namespace) = (meta::uid(&cron.metadata), meta::namespace(&cron.metadata));
    let source_polled = PolledSource::from_cron(cron);
    let mut state = engine.polls.state();
    if state.polling.get(uid).is_some_and(|polling| polling.source_polled == source_polled) {
        return POLLING;
    }
    // A poll of the former source ends here.
    state.polling.remove(uid);
    // The watch removes a deleted cron from the cache before it calls `forget`, so no poll of such a cron stays.
    let present = engine.api.caches.crons.get(namespace, meta::name(&cron.metadata));
    let is_same = |present: &DataImportCron| {
        present.metadata.uid == cron.metadata.uid && present.metadata.deletion_timestamp.is_none()
    };
    if !present.is_some_and(|present| is_same(&present)) {
        return POLLING;
    }
    if !state.can_queue(namespace) {
        return LATER;
    }
    let failures = state.memory.failures(cron);
    if let Err(wait) = state.rate.try_begin(uid, namespace, failures, Instant::now()) {
        return wait;
    }
    let (limit, cancel) = CallLimit::cancellable();
    state.count += 1;
    let number = state.count;
    let polling =
        Polling { number, namespace: namespace.to_owned(), source_polled, _cancel: cancel };
    state.polling.insert(uid.to_owned(), polling);
    drop(state);
    let (shared, cron) = (Arc::clone(engine), Arc::clone(cron));
    let mut tasks = engine.polls.tasks.lock();
    while tasks.try_join_next().is_some() {}
    tasks.spawn(async move {
        let outcome = tokio::select! {
            biased;
            // The cron is deleted or has another source.
            () = limit.cancelled() => return,
            outcome = poll(&shared, &cron, &limit) => outcome,
        };
        if shared.polls.record(&cron, number, outcome, shared.now()) {
            shared.queues.crons.add(key_of(cron.as_ref()));
        }
    });
    POLLING
}

/// The outcome of a poll.
enum Outcome {
    /// The request was sent.
    Sent(Result<LatestImage, importer::Error>),
    /// The request could not be created.
    NotSent(Error),
    Cancelled,
}

async fn poll(engine: &Engine, cron: &DataImportCron, limit: &CallLimit) -> Outcome {
    let permit = permit(engine, cron).await;
    let request = match read_request(engine, cron).await {
        Ok(request) => request.warned_of(&engine.polls.warned),
        Err(error) => return Outcome::NotSent(error),
    };
    let known = engine.polls.state().memory.known(cron);
    let limit = limit.clone();
    // The permit goes with the thread, which a cancelled poll leaves at once.
    let sent = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        request.send(known.as_ref(), limit)
    });
    sent.await.map_or(Outcome::Cancelled, Outcome::Sent)
}

/// Waits until this cron may poll its server. A name is resolved first, which counts as a poll of the namespace: the name
/// server may be a slow one of the cron's author, too.
async fn permit(engine: &Engine, cron: &DataImportCron) -> PollPermit {
    let (permits, namespace) = (&engine.polls.permits, meta::namespace(&cron.metadata));
    let host = polled_host(cron);
    let servers = if ask::needs_lookup(&host, engine.config().as_deref()) {
        let _permit = permits.acquire(namespace, &[]).await;
        ask::look_up(&host).await
    } else {
        vec![host]
    };
    permits.acquire(namespace, &servers).await
}

/// A Secret of the installation, if the cron may use it.
async fn secret(
    engine: &Engine,
    cron: &DataImportCron,
    name: &str,
) -> Result<Option<Secret>, Error> {
    let settings = &engine.settings;
    let namespace = &settings.installation.namespace;
    let found = engine.api.get::<Secret>(namespace, name).await?;
    let metadata = found.as_ref().map(|secret| &secret.metadata);
    verify_poll_secret(name, metadata, cron, namespace, settings.poll_secrets)
        .map_err(Error::Source)?;
    Ok(found)
}

/// Whether a cron may use the Secret that it names, where a Job polls the source instead of this process.
pub async fn verify_secret_access(engine: &Engine, cron: &DataImportCron) -> Result<(), Error> {
    match poll_needs(cron).secret {
        Some(name) => secret(engine, cron, &name).await.map(|_| ()),
        None => Ok(()),
    }
}

/// Reads the Secrets and ConfigMaps that a source requires: most require none.
async fn read_request(engine: &Engine, cron: &DataImportCron) -> Result<PollRequest, Error> {
    let namespace = &engine.settings.installation.namespace;
    let needs = poll_needs(cron);
    let config = engine.config_with_credentials();
    let secret = match &needs.secret {
        Some(name) => secret(engine, cron, name).await?,
        None => None,
    };
    let mut headers = Vec::new();
    for name in &needs.headers {
        headers.extend(self::secret(engine, cron, name).await?);
    }
    let mut authorities = Vec::new();
    if let Some(name) = &needs.authorities {
        let found = engine.api.get::<ConfigMap>(namespace, name).await?;
        let missing = || Error::Source(PollRequestError::NoAuthorities { name: name.clone() });
        authorities.push(found.ok_or_else(missing)?);
    }
    let proxy = config.as_ref().and_then(|config| config.status.as_ref()?.import_proxy.as_ref());
    let of_proxy = proxy.and_then(|proxy| proxy.trusted_ca_proxy.as_ref());
    if let Some(name) = of_proxy.filter(|name| !name.is_empty()) {
        authorities.extend(engine.api.get::<ConfigMap>(namespace, name).await?);
    }
    let access = Access {
        secret: secret.as_ref().and_then(|secret| secret.data.as_ref()),
        authorities: authorities.iter().filter_map(|found| found.data.as_ref()).collect(),
        headers: headers.iter().filter_map(|found| found.data.as_ref()).collect(),
        config: config.as_deref(),
        dial_policy: DialPolicy::Guarded(engine.settings.poll_networks.clone()),
    };
    ask::poll_request(cron, &access).map_err(Error::Source)
}
