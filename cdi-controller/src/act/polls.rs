//! What sources say of newer images: asked for in the background, a few at a time, so that no work waits for a server.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::v1beta1::DataImportCron;
use importer::{Known, Marks, Newest, Warned};
use k8s_openapi::api::batch::v1::CronJobSpec;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use tokio::task::JoinSet;

use super::store::key_of;
use super::{Context, Error};
use crate::data_import_cron::ask::{self, Access, BadOrder, Memory, NoAnswer, Order, Turns};
use crate::data_import_cron::{Answer, Polled};
use crate::meta;

/// What is known of sources, by the UID of their cron. Nothing of it has to outlive the process.
#[derive(Default)]
pub struct Polls {
    state: Mutex<State>,
    turns: Turns,
    /// Registries that are listed as insecure, and were warned of.
    warned: Warned,
    /// Whoever asks at the moment; ended with this.
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Default)]
struct State {
    memory: Memory,
    asking: HashSet<String>,
    /// Answers that are not written down yet.
    answers: HashMap<String, Polled>,
    /// CronJobs as they were written last.
    jobs: HashMap<String, CronJobSpec>,
}

impl Polls {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer for a cron, until it is written down.
    pub fn answer(&self, cron: &DataImportCron) -> Option<Polled> {
        self.state().answers.get(meta::uid(&cron.metadata)).cloned()
    }

    /// Keeps an answer that was found at once.
    pub fn keep(&self, cron: &DataImportCron, answer: Polled) {
        self.state().answers.insert(meta::uid(&cron.metadata).to_owned(), answer);
    }

    /// This answer is written down.
    pub fn settle(&self, cron: &DataImportCron, answer: &Polled) {
        let mut state = self.state();
        let uid = meta::uid(&cron.metadata);
        if state.answers.get(uid) == Some(answer) {
            state.answers.remove(uid);
        }
    }

    /// The newest image, as somebody found it in the cluster.
    pub fn found(&self, cron: &DataImportCron, digest: &str) -> Answer {
        let known = Known { digest: digest.to_owned(), marks: Marks::default() };
        self.state().memory.note(cron, Ok(Newest::Found(known)))
    }

    /// Nobody could say what the newest image is.
    pub fn failed(&self, cron: &DataImportCron, error: &dyn std::error::Error) -> Answer {
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

    /// The cron is gone.
    pub fn forget(&self, cron: &DataImportCron) {
        let uid = meta::uid(&cron.metadata);
        let mut state = self.state();
        state.memory.forget(uid);
        state.asking.remove(uid);
        state.answers.remove(uid);
        state.jobs.remove(uid);
    }
}

/// Has somebody ask the source of a cron, unless somebody does. Its answer announces the cron.
pub fn begin(context: &Arc<Context>, cron: &Arc<DataImportCron>) {
    let uid = meta::uid(&cron.metadata).to_owned();
    if !context.polls.state().asking.insert(uid.clone()) {
        return;
    }
    let (shared, cron) = (Arc::clone(context), Arc::clone(cron));
    let mut tasks = context.polls.tasks.lock().unwrap_or_else(PoisonError::into_inner);
    while tasks.try_join_next().is_some() {}
    tasks.spawn(async move {
        let answer = ask(&shared, &cron).await;
        let polled = Polled { at: shared.now(), answer };
        let mut state = shared.polls.state();
        // A cron that went meanwhile waits for no answer.
        if state.asking.remove(&uid) {
            state.answers.insert(uid, polled);
        }
        drop(state);
        shared.queues.crons.add(key_of(cron.as_ref()));
    });
}

async fn ask(context: &Context, cron: &DataImportCron) -> Answer {
    let _turn = context.polls.turns.take(&ask::server(cron)).await;
    let order = match order(context, cron).await {
        Ok(order) => order.warned_of(&context.polls.warned),
        Err(error) => return context.polls.failed(cron, &error),
    };
    let known = context.polls.state().memory.known(cron);
    match tokio::task::spawn_blocking(move || order.ask(known.as_ref())).await {
        Ok(said) => context.polls.state().memory.note(cron, said),
        Err(_) => context.polls.failed(cron, &NoAnswer::BrokenOff),
    }
}

/// A Secret of the installation, if the cron may use it.
async fn secret(
    context: &Context,
    cron: &DataImportCron,
    name: &str,
) -> Result<Option<Secret>, Error> {
    let namespace = &context.settings.installation.namespace;
    let found = context.cluster.get::<Secret>(namespace, name).await?;
    if let Some(secret) = &found {
        ask::may_use(&secret.metadata, cron).map_err(Error::Source)?;
    }
    Ok(found)
}

/// Whether a cron may use what it names, where not this process but a Job asks the source.
pub async fn allow(context: &Context, cron: &DataImportCron) -> Result<(), Error> {
    match ask::needs(cron).secret {
        Some(name) => secret(context, cron, &name).await.map(|_| ()),
        None => Ok(()),
    }
}

/// Reads what a source asks for, and no more: most ask for nothing.
async fn order(context: &Context, cron: &DataImportCron) -> Result<Order, Error> {
    let namespace = &context.settings.installation.namespace;
    let needs = ask::needs(cron);
    let config = context.config();
    let secret = match &needs.secret {
        Some(name) => secret(context, cron, name).await?,
        None => None,
    };
    let mut headers = Vec::new();
    for name in &needs.headers {
        headers.extend(self::secret(context, cron, name).await?);
    }
    let mut authorities = Vec::new();
    if let Some(name) = &needs.authorities {
        let found = context.cluster.get::<ConfigMap>(namespace, name).await?;
        let missing = || Error::Source(BadOrder::NoAuthorities { name: name.clone() });
        authorities.push(found.ok_or_else(missing)?);
    }
    let proxy = config.as_ref().and_then(|config| config.status.as_ref()?.import_proxy.as_ref());
    let of_proxy = proxy.and_then(|proxy| proxy.trusted_ca_proxy.as_ref());
    if let Some(name) = of_proxy.filter(|name| !name.is_empty()) {
        authorities.extend(context.cluster.get::<ConfigMap>(namespace, name).await?);
    }
    let access = Access {
        secret: secret.as_ref().and_then(|secret| secret.data.as_ref()),
        authorities: authorities.iter().filter_map(|found| found.data.as_ref()).collect(),
        headers: headers.iter().filter_map(|found| found.data.as_ref()).collect(),
        config: config.as_deref(),
    };
    ask::order(cron, &access).map_err(Error::Source)
}
