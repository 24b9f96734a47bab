//! One test: its namespace, its objects, its waits.

use std::fmt::Debug;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use cluster::{Chaos, State};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config, Resource};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{RwLock, RwLockReadGuard};

use crate::{config, report};

/// Nothing in a cluster of one idle node takes longer, even beside a build on both cores. Longer than the failed component waits
/// before another try.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// Between two looks.
pub const PAUSE: Duration = Duration::from_millis(100);

/// Tests that disturb the whole cluster hold it for writing, all others for reading.
static CLUSTER: RwLock<()> = RwLock::const_new(());
static COUNT: AtomicU32 = AtomicU32::new(0);

/// A test at work.
pub struct Test {
    client: Client,
    namespace: String,
    state: State,
    /// The namespaces that were made beside it.
    beside: Mutex<Vec<String>>,
    /// Keeps tests away that need the cluster for themselves.
    shared: tokio::sync::Mutex<Option<RwLockReadGuard<'static, ()>>>,
}

/// Runs a test in a namespace of its own, beside others.
///
/// # Panics
/// When the test fails, or there is no cluster.
pub fn run<F>(name: &str, test: impl FnOnce(std::sync::Arc<Test>) -> F)
where
    F: Future<Output = Result<()>>,
{
    run_held(name, Some(CLUSTER.blocking_read()), test);
}

/// As [`run`], with no other test at work: for those that pause or restart what all depend on.
///
/// # Panics
/// As [`run`].
pub fn run_alone<F>(name: &str, test: impl FnOnce(std::sync::Arc<Test>) -> F)
where
    F: Future<Output = Result<()>>,
{
    let _alone = CLUSTER.blocking_write();
    run_held(name, None, test);
}

fn run_held<F>(
    name: &str,
    shared: Option<RwLockReadGuard<'static, ()>>,
    test: impl FnOnce(std::sync::Arc<Test>) -> F,
) where
    F: Future<Output = Result<()>>,
{
    let state = State::from_environment().expect("the state folder is named rightly");
    assert!(cluster::is_up(&state), "there is no cluster; `cargo xtask cluster up` makes one");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.expect("a runtime can be made").block_on(async {
        let test_at_work = std::sync::Arc::new(Test::begin(name, state, shared).await?);
        let outcome = Caught(Box::pin(test(test_at_work.clone()))).await;
        if let Err(error) = &outcome {
            eprintln!("{name} failed: {error:#}\n");
            for namespace in test_at_work.namespaces() {
                report::namespace(&test_at_work.client, &namespace).await;
            }
        }
        let ended = test_at_work.end().await;
        outcome.and(ended)
    });
    if let Err(error) = outcome {
        panic!("{error:#}");
    }
}

/// A future whose panic is an error, so that the report still comes.
struct Caught<F>(Pin<Box<F>>);

impl<F: Future<Output = Result<()>>> Future for Caught<F> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Result<()>> {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(context)));
        polled.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
            Poll::Ready(Err(anyhow::anyhow!(text.unwrap_or_else(|| "a panic".into()))))
        })
    }
}

impl Test {
    async fn begin(
        name: &str,
        state: State,
        shared: Option<RwLockReadGuard<'static, ()>>,
    ) -> Result<Self> {
        let client = Client::try_from(config(&state).await?).context("cannot make a client")?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("{name}-{}-{count}", std::process::id());
        let (beside, shared) = (Mutex::default(), shared.into());
        let test = Self { client, namespace, state, beside, shared };
        test.move_in().await?;
        Ok(test)
    }

    /// Sleeps, and lets tests that need the cluster for themselves run meanwhile.
    pub async fn sleep_beside_all(&self, time: Duration) {
        let mut shared = self.shared.lock().await;
        let was_held = shared.take().is_some();
        tokio::time::sleep(time).await;
        if was_held {
            *shared = Some(CLUSTER.read().await);
        }
    }

    async fn move_in(&self) -> Result<()> {
        let namespace = json!({"metadata": {
            "name": self.namespace,
            // Workers have to do with the strictest profile.
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        }});
        self.create_global::<Namespace>(namespace).await?;
        self.wait::<ServiceAccount>("default", "there", |_| true).await.map(|_| ())
    }

    /// Another namespace, as of another tenant, for as long as this test is at work.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn beside(&self) -> Result<Self> {
        let namespace = {
            let mut beside = self.beside.lock();
            let name = format!("{}-beside-{}", self.namespace, beside.len());
            beside.push(name.clone());
            name
        };
        let (client, state) = (self.client.clone(), self.state.clone());
        let test = Self { client, namespace, state, beside: Mutex::default(), shared: None.into() };
        test.move_in().await?;
        Ok(test)
    }

    /// Its own namespace, and those beside it.
    fn namespaces(&self) -> Vec<String> {
        let beside = self.beside.lock();
        [std::slice::from_ref(&self.namespace), &beside[..]].concat()
    }

    async fn end(&self) -> Result<()> {
        let namespaces = Api::<Namespace>::all(self.client.clone());
        for name in self.namespaces() {
            match namespaces.delete(&name, &DeleteParams::default()).await {
                // The test has left already.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                outcome => outcome.map(drop).context("cannot remove the namespace")?,
            }
        }
        Ok(())
    }

    /// Removes the namespace and waits until nothing of it is left.
    ///
    /// # Errors
    /// When something stays.
    pub async fn leave(&self) -> Result<()> {
        self.end().await?;
        self.wait_until_gone(&Api::<Namespace>::all(self.client.clone()), &self.namespace).await
    }

    /// The name of the namespace; also good as a prefix of what has none.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The cluster's state directory.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// What breaks things.
    pub fn chaos(&self) -> Chaos {
        Chaos::new(self.state.clone())
    }

    /// The administrator's way in.
    ///
    /// # Errors
    /// When its file cannot be read.
    pub async fn config(&self) -> Result<Config> {
        config(&self.state).await
    }

    /// Has everything from now on done with the rights of another client.
    pub(crate) fn use_client(&mut self, client: Client) {
        self.client = client;
    }

    /// A client with all rights, unless the test is a tenant's.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The objects of a kind in the test's namespace.
    pub fn all<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The objects of a kind that has no type here, in the test's namespace.
    pub fn all_of(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind)
    }

    /// Makes an object in the test's namespace.
    ///
    /// # Errors
    /// As the API server says.
    pub async fn create<K>(&self, object: Value) -> Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Kind,
    {
        let object = serde_json::from_value(object).context("not such an object")?;
        Ok(self.all::<K>().create(&PostParams::default(), &object).await?)
    }

    /// Makes an object that belongs to no namespace. The test has to remove it; see [`Test::remove_global`].
    ///
    /// # Errors
    /// As the API server says.
    pub async fn create_global<K>(&self, object: Value) -> Result<K>
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType = ()> + Kind,
    {
        let object = serde_json::from_value(object).context("not such an object")?;
        Ok(Api::all(self.client.clone()).create(&PostParams::default(), &object).await?)
    }

    /// Removes an object that belongs to no namespace.
    ///
    /// # Errors
    /// As the API server says.
    pub async fn remove_global<K>(&self, name: &str) -> Result<()>
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType = ()> + Kind,
    {
        let all = Api::<K>::all(self.client.clone());
        all.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until an object is as the test wants it.
    ///
    /// # Errors
    /// When it does not become so; the error holds what it was at the end.
    pub async fn wait<K>(&self, name: &str, what: &str, good: impl Fn(&K) -> bool) -> Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Kind,
    {
        wait_in(&self.all::<K>(), name, what, good).await
    }

    /// As [`Test::wait`], for objects elsewhere or of a kind without a type.
    ///
    /// # Errors
    /// As [`Test::wait`].
    pub async fn wait_among<K: Kind>(
        &self,
        all: &Api<K>,
        name: &str,
        what: &str,
        good: impl Fn(&K) -> bool,
    ) -> Result<K> {
        wait_in(all, name, what, good).await
    }

    /// Waits until there is no such object.
    ///
    /// # Errors
    /// When it stays.
    pub async fn wait_until_gone<K>(&self, all: &Api<K>, name: &str) -> Result<()>
    where
        K: Kind,
    {
        let begin = Instant::now();
        loop {
            match all.get_opt(name).await {
                Ok(None) => return Ok(()),
                _ if begin.elapsed() < PATIENCE => tokio::time::sleep(PAUSE).await,
                Ok(Some(object)) => bail!("{name} is still there: {}", shown(&object)),
                Err(error) => bail!("cannot check whether {name} is deleted: {error}"),
            }
        }
    }

    /// Waits for an event in the namespace that says something.
    ///
    /// # Errors
    /// When no such event is recorded.
    pub async fn wait_for_event(&self, says: &str) -> Result<()> {
        let events = self.all::<k8s_openapi::api::core::v1::Event>();
        let begin = Instant::now();
        loop {
            let list = events.list(&ListParams::default()).await?;
            let mut messages = list.iter().filter_map(|event| event.message.as_deref());
            if messages.any(|message| message.contains(says)) {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                bail!("no event says {says:?}");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// What the bounds above have in common.
pub trait Kind: Clone + Debug + DeserializeOwned + Serialize {}
impl<K: Clone + Debug + DeserializeOwned + Serialize> Kind for K {}

async fn wait_in<K: Kind>(
    all: &Api<K>,
    name: &str,
    what: &str,
    good: impl Fn(&K) -> bool,
) -> Result<K> {
    let begin = Instant::now();
    loop {
        let now = all.get_opt(name).await;
        match &now {
            Ok(Some(object)) if good(object) => return Ok(object.clone()),
            _ if begin.elapsed() < PATIENCE => tokio::time::sleep(PAUSE).await,
            Ok(Some(object)) => bail!("{name} is not {what}, but: {}", shown(object)),
            Ok(None) => bail!("{name} is not {what}: there is none"),
            Err(error) => bail!("{name} is not {what}: {error}"),
        }
    }
}

fn shown<K: Serialize>(object: &K) -> String {
    serde_json::to_string(object).unwrap_or_else(|error| error.to_string())
}
