//! One test: its namespace, its objects, its waits.

use std::fmt::Debug;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use cluster::{Chaos, InUse, State};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config, Resource};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::sharing::{CLUSTER, Together};
use crate::{config, report};

/// How long a wait lasts at most. Nothing in a cluster of one idle node takes longer, even during a build on both
/// cores. Longer than the back-off of a failed component.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// Between two requests of a short wait.
pub const PAUSE: Duration = Duration::from_millis(100);

/// Between two requests of a wait that began then. Requests of all tests share the processors with what they wait for, so those of a
/// long wait are fewer.
pub fn pause_since(begin: Instant) -> Duration {
    (begin.elapsed() / 16).clamp(PAUSE, 10 * PAUSE)
}

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A running test.
pub struct Test {
    client: Client,
    namespace: String,
    state: State,
    /// The namespaces that the test created in addition to its own.
    other_namespaces: Mutex<Vec<String>>,
    /// Keeps tests away that need the cluster for themselves.
    shared: tokio::sync::Mutex<Option<Together<'static>>>,
}

/// Runs a test in a namespace of its own, concurrently with others.
///
/// # Panics
/// When the test fails, or there is no cluster.
pub fn run<F>(name: &str, test: impl FnOnce(std::sync::Arc<Test>) -> F)
where
    F: Future<Output = Result<()>>,
{
    run_held(name, Some(CLUSTER.together()), test);
}

/// As [`run`], while no other test runs: for tests that pause or restart what all depend on.
///
/// # Panics
/// As [`run`].
pub fn run_alone<F>(name: &str, test: impl FnOnce(std::sync::Arc<Test>) -> F)
where
    F: Future<Output = Result<()>>,
{
    let _alone = CLUSTER.alone();
    run_held(name, None, test);
}

fn run_held<F>(
    name: &str,
    shared: Option<Together<'static>>,
    test: impl FnOnce(std::sync::Arc<Test>) -> F,
) where
    F: Future<Output = Result<()>>,
{
    let state = State::from_environment().expect("the name of the state directory is valid");
    assert!(cluster::is_up(&state), "there is no cluster; `cargo xtask cluster up` creates one");
    let _in_use = InUse::hold(&state).expect("the state directory of the cluster can be written");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.expect("a runtime can be created").block_on(async {
        let running_test = std::sync::Arc::new(Test::in_new_namespace(name, state, shared).await?);
        let outcome = Caught(Box::pin(test(running_test.clone()))).await;
        if let Err(error) = &outcome {
            eprintln!("{name} failed: {error:#}\n");
            for namespace in running_test.namespaces() {
                report::namespace(&running_test.client, &namespace).await;
            }
        }
        let ended = running_test.end().await;
        outcome.and(ended)
    });
    if let Err(error) = outcome {
        panic!("{error:#}");
    }
}

/// A future whose panic is an error, so that the report is still printed.
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
    async fn in_new_namespace(
        name: &str,
        state: State,
        shared: Option<Together<'static>>,
    ) -> Result<Self> {
        let client = Client::try_from(config(&state).await?).context("cannot create a client")?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("{name}-{}-{count}", std::process::id());
        let (other_namespaces, shared) = (Mutex::default(), shared.into());
        let test = Self { client, namespace, state, other_namespaces, shared };
        test.move_in().await?;
        Ok(test)
    }

    /// Sleeps, and lets tests that need the cluster for themselves run meanwhile.
    pub async fn sleep_without_cluster_lock(&self, time: Duration) {
        let mut shared = self.shared.lock().await;
        let was_held = shared.take().is_some();
        tokio::time::sleep(time).await;
        while was_held && shared.is_none() {
            tokio::time::sleep(PAUSE).await;
            *shared = CLUSTER.try_together();
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

    /// Creates another namespace, as of another tenant. It is deleted when this test ends.
    ///
    /// # Errors
    /// When it cannot be created.
    pub async fn other_namespace(&self) -> Result<Self> {
        let namespace = {
            let mut others = self.other_namespaces.lock();
            let name = format!("{}-other-{}", self.namespace, others.len());
            others.push(name.clone());
            name
        };
        let (client, state) = (self.client.clone(), self.state.clone());
        let other_namespaces = Mutex::default();
        let test = Self { client, namespace, state, other_namespaces, shared: None.into() };
        test.move_in().await?;
        Ok(test)
    }

    /// Its own namespace, and the other ones that it created.
    fn namespaces(&self) -> Vec<String> {
        let others = self.other_namespaces.lock();
        [std::slice::from_ref(&self.namespace), &others[..]].concat()
    }

    async fn end(&self) -> Result<()> {
        let namespaces = Api::<Namespace>::all(self.client.clone());
        for name in self.namespaces() {
            match namespaces.delete(&name, &DeleteParams::default()).await {
                // The test has deleted it already.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                outcome => outcome.map(drop).context("cannot remove the namespace")?,
            }
        }
        Ok(())
    }

    /// Removes the namespace and waits until nothing of it is left.
    ///
    /// # Errors
    /// When an object remains.
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

    /// The client configuration of the administrator.
    ///
    /// # Errors
    /// When its file cannot be read.
    pub async fn config(&self) -> Result<Config> {
        config(&self.state).await
    }

    /// Sends all requests from now on with the permissions of another client.
    pub(crate) fn use_client(&mut self, client: Client) {
        self.client = client;
    }

    /// A client with all permissions, unless the test is a tenant's.
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

    /// Creates an object in the test's namespace.
    ///
    /// # Errors
    /// When the API server refuses the request.
    pub async fn create<K>(&self, object: Value) -> Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Kind,
    {
        let object = serde_json::from_value(object).context("not such an object")?;
        Ok(self.all::<K>().create(&PostParams::default(), &object).await?)
    }

    /// Creates an object that belongs to no namespace. The test has to remove it; see [`Test::remove_global`].
    ///
    /// # Errors
    /// When the API server refuses the request.
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
    /// When the API server refuses the request.
    pub async fn remove_global<K>(&self, name: &str) -> Result<()>
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType = ()> + Kind,
    {
        let all = Api::<K>::all(self.client.clone());
        all.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until `good` holds for an object.
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
    /// When it remains.
    pub async fn wait_until_gone<K>(&self, all: &Api<K>, name: &str) -> Result<()>
    where
        K: Kind,
    {
        let begin = Instant::now();
        loop {
            match all.get_opt(name).await {
                Ok(None) => return Ok(()),
                _ if begin.elapsed() < PATIENCE => tokio::time::sleep(pause_since(begin)).await,
                Ok(Some(object)) => bail!("{name} is still there: {}", shown(&object)),
                Err(error) => bail!("cannot check whether {name} is deleted: {error}"),
            }
        }
    }

    /// Waits for an event in the namespace whose message contains `text`.
    ///
    /// # Errors
    /// When no such event is recorded.
    pub async fn wait_for_event(&self, text: &str) -> Result<()> {
        let events = self.all::<k8s_openapi::api::core::v1::Event>();
        let begin = Instant::now();
        loop {
            let list = events.list(&ListParams::default()).await?;
            let mut messages = list.iter().filter_map(|event| event.message.as_deref());
            if messages.any(|message| message.contains(text)) {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                bail!("no event contains {text:?}");
            }
            tokio::time::sleep(pause_since(begin)).await;
        }
    }
}

/// The bounds that the functions above share.
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
            _ if begin.elapsed() < PATIENCE => tokio::time::sleep(pause_since(begin)).await,
            Ok(Some(object)) => bail!("{name} is not {what}, but: {}", shown(object)),
            Ok(None) => bail!("{name} is not {what}: there is none"),
            Err(error) => bail!("{name} is not {what}: {error}"),
        }
    }
}

fn shown<K: Serialize>(object: &K) -> String {
    serde_json::to_string(object).unwrap_or_else(|error| error.to_string())
}
