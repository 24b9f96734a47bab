//! `control-plane`: the resources that the controllers use for many DataVolumes, in a cluster that is an API server
//! only (`cargo xtask cluster up --control-plane-only`). Prints a table.
//!
//! `control-plane CONTROLLER VOLUMES IDLE [FOLDER]`: the program to measure; how many blank DataVolumes are created at
//! once; how many exist during the idle measurement at the end, 0 for none; the directory of the figures.
//!
//! `control-plane CONTROLLER clones CLONES [FOLDER]`: how many clones of one image are created at once, by each method;
//! the directory of the figures.
//!
//! `control-plane blank VOLUMES RUNS [FOLDER]`: in a whole cluster with this project installed (`cargo xtask cluster install
//! --manifests`), how many blank DataVolumes are created at once; how often; the directory of the figures.
//!
//! `control-plane single RUNS [FOLDER]`: in such a cluster, one DataVolume at a time of several kinds; how often; the directory
//! of the figures.
//!
//! `control-plane idle [FOLDER]`: in a cluster where nothing is installed and the images of the release are loaded, the memory of
//! upstream's installation and of ours at rest; the directory of the figures.

mod blank;
mod clones;
mod idle;
mod meter;
mod namespaces;
mod reference;
mod report;
mod requests;
mod single;

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use api::v1beta1::{CdiConfig, DataVolume};
use cluster::State;
use e2e::{phase, results};
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Event, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};

use meter::Meter;

/// Where the controllers would be installed, and where the DataVolumes are.
const NAMESPACES: [&str; 2] = ["cdi", "scale"];
/// As many clients at once as an API server serves without asking them to wait.
const CLIENTS: usize = 16;
const PAUSE: Duration = Duration::from_secs(1);
/// The interval between two checks of what takes seconds.
const GLANCE: Duration = Duration::from_millis(100);
/// Nothing happens for so long.
const IDLE: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(3600);

const HELP: &str = "control-plane CONTROLLER (VOLUMES IDLE [FOLDER] | clones CLONES [FOLDER]), or \
    control-plane (blank VOLUMES RUNS | single RUNS | idle) [FOLDER]";

fn main() -> Result<()> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let state = State::from_environment()?;
    ensure!(cluster::is_up(&state), "there is no cluster");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let about = results::about()?;
    let (kept, text) = match *words.as_slice() {
        ["single", runs, ref folder @ ..] => {
            let figures = runtime.block_on(single::measure(&state, runs.parse()?))?;
            let text = report::of_single(&about, &figures);
            (folder.first().map(|folder| (*folder, "single", figures)), text)
        }
        ["idle", ref folder @ ..] => {
            let figures = runtime.block_on(idle::measure(&state))?;
            let text = report::of_idle(&about, &figures);
            (folder.first().map(|folder| (*folder, "idle", figures)), text)
        }
        ["blank", volumes, runs, ref folder @ ..] => {
            let (volumes, runs) = (volumes.parse()?, runs.parse()?);
            let figures = runtime.block_on(blank::measure(&state, volumes, runs))?;
            let text = report::of_blank(&about, &figures);
            (folder.first().map(|folder| (*folder, "blank", figures)), text)
        }
        [program, "clones", number, ref folder @ ..] => {
            let number = number.parse()?;
            let figures = runtime.block_on(clones::measure(&state, program, number))?;
            let text = report::of_clones(&about, number, &figures);
            (folder.first().map(|folder| (*folder, "clones", vec![figures])), text)
        }
        [program, volumes, idle, ref folder @ ..] => {
            let (volumes, idle) = (volumes.parse::<usize>()?, idle.parse::<usize>()?);
            let idle = (idle > 0).then_some(idle.max(volumes));
            let figures = measure(&state, program, volumes, idle);
            let figures = runtime.block_on(figures)?;
            let text = report::of_one_program(&about, &figures);
            (folder.first().map(|folder| (*folder, "control-plane", vec![figures])), text)
        }
        _ => bail!(HELP),
    };
    println!("{text}");
    match kept {
        Some((folder, what, figures)) => {
            results::keep(Path::new(folder), what, &about, &figures, &text)
        }
        None => Ok(()),
    }
}

/// A client of the administrator, for a cluster that has our CRDs.
async fn connect(state: &State) -> Result<Client> {
    let client = client(state).await?;
    prepare(&client).await?;
    Ok(client)
}

/// The administrator's way in.
async fn client(state: &State) -> Result<Client> {
    Ok(Client::try_from(e2e::config(state).await?)?)
}

/// `idle`: how many exist while nothing happens. `None`: that is not measured, nor a restart.
async fn measure(
    state: &State,
    program: &str,
    volumes: usize,
    idle: Option<usize>,
) -> Result<Value> {
    let client = connect(state).await?;
    let first = Controller::start(state, program)?;
    let meter = Meter::for_process(first.0.id(), &client, NAMESPACES[0]).await?;
    settle(&client).await?;
    let all = Api::<DataVolume>::namespaced(client.clone(), NAMESPACES[1]);

    let (begin, before) = (Instant::now(), meter.read()?);
    make(&all, 0..volumes).await?;
    let made = begin.elapsed();
    wait(&all, volumes).await?;
    let (seconds, after) = (begin.elapsed().as_secs_f64(), meter.read()?);
    let events = event_count(&client).await?;
    let each = |count: f64| count / volumes as f64;
    let at_once = json!({
        "volumes": volumes,
        "seconds_to_make": made.as_secs_f64(),
        "seconds_to_all_succeeded": seconds,
        "writes_each": each((after.writes - before.writes) as f64),
        "events_each": each(events as f64),
        "cpu_ms_each": each(millis(after.usage.cpu - before.usage.cpu)),
        "rss_mib": after.usage.rss_mib,
    });
    let Some(idle) = idle else { return Ok(json!({ "at_once": at_once })) };

    make(&all, volumes..idle).await?;
    wait(&all, idle).await?;
    // The controllers reconcile the last finished objects once more.
    tokio::time::sleep(IDLE / 4).await;
    let at_rest = rest(&meter).await?;

    drop(first);
    let second = Controller::start(state, program)?;
    let meter = Meter::for_process(second.0.id(), &client, NAMESPACES[0]).await?;
    // Until the lease of the first has expired, and each object was reconciled once.
    tokio::time::sleep(IDLE).await;
    let begun = meter.read()?;
    let mut restarted = rest(&meter).await?;
    restarted["cpu_ms_to_begin"] = millis(begun.usage.cpu).into();
    restarted["writes_to_begin"] = begun.writes.into();
    Ok(json!({ "at_once": at_once, "idle": at_rest, "restarted": restarted, "volumes": idle }))
}

/// The usage of a controller while nothing happens.
async fn rest(meter: &Meter) -> Result<Value> {
    let before = meter.read()?;
    tokio::time::sleep(IDLE).await;
    let after = meter.read()?;
    Ok(json!({
        "seconds": IDLE.as_secs(),
        "writes": after.writes - before.writes,
        "cpu_ms": millis(after.usage.cpu - before.usage.cpu),
        "rss_mib": after.usage.rss_mib,
        "peak_mib": after.usage.peak_mib,
    }))
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Waits until the controllers have created the objects that they create once.
async fn settle(client: &Client) -> Result<()> {
    let configs = Api::<CdiConfig>::all(client.clone());
    let begin = Instant::now();
    let is_there = |config: CdiConfig| config.status.is_some();
    while !configs.get_opt("config").await?.is_some_and(is_there) {
        ensure!(begin.elapsed() < IDLE, "the controllers do not begin; see their log");
        tokio::time::sleep(PAUSE).await;
    }
    tokio::time::sleep(PAUSE * 3).await;
    Ok(())
}

/// Kinds and namespaces.
async fn prepare(client: &Client) -> Result<()> {
    let kinds = Api::<CustomResourceDefinition>::all(client.clone());
    for kind in api::v1beta1::crds() {
        unless_there(kinds.create(&PostParams::default(), &kind).await)?;
    }
    let namespaces = Api::<Namespace>::all(client.clone());
    for name in NAMESPACES {
        let namespace = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
        unless_there(namespaces.create(&PostParams::default(), &namespace).await)?;
    }
    let all = Api::<DataVolume>::all(client.clone());
    let begin = Instant::now();
    while all.list(&ListParams::default().limit(1)).await.is_err() {
        ensure!(begin.elapsed() < PATIENCE, "DataVolumes are not served");
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

fn unless_there<K>(made: kube::Result<K>) -> Result<()> {
    match made {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The program that is measured, until this is dropped.
struct Controller(Child);

impl Controller {
    fn start(state: &State, program: &str) -> Result<Self> {
        let log = File::create(state.path("logs/cdi-controller.log")).context("no log")?;
        let mut command = Command::new(program);
        command
            .arg(format!("-kubeconfig={}", state.kubeconfig().display()))
            .arg(format!("-namespace={}", NAMESPACES[0]))
            .arg(format!("-metrics-port={}", meter::PORT))
            .arg("-health-port=0")
            .arg(format!("-ready-file={}", state.text("cdi-controller-ready")))
            .env("IMPORTER_IMAGE", "cdi.test/importer:1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        Ok(Self(command.spawn().with_context(|| format!("cannot start {program}"))?))
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn make(all: &Api<DataVolume>, numbers: std::ops::Range<usize>) -> Result<()> {
    let object = |number: usize| {
        serde_json::from_value::<DataVolume>(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
            "metadata": { "name": format!("disk-{number}") },
            "spec": { "source": { "blank": {} }, "pvc": {
                "storageClassName": "csi", "accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
                "resources": { "requests": { "storage": "1Gi" } },
            } },
        }))
    };
    stream::iter(numbers.map(|number| async move {
        all.create(&PostParams::default(), &object(number)?).await?;
        Ok(())
    }))
    .buffer_unordered(CLIENTS)
    .try_collect::<()>()
    .await
}

/// Until so many have succeeded.
async fn wait(all: &Api<DataVolume>, volumes: usize) -> Result<()> {
    let begin = Instant::now();
    loop {
        // From the API server's own memory, and seldom where there are many: the measurement must not change what is measured.
        let asked = Instant::now();
        let found = all.list(&ListParams::default().match_any()).await?.items;
        let done = found.iter().filter(|volume| phase(volume) == "Succeeded").count();
        if done >= volumes {
            return Ok(());
        }
        eprintln!("{done} of {volumes} after {} s", begin.elapsed().as_secs());
        ensure!(begin.elapsed() < PATIENCE, "only {done} of {volumes} have succeeded");
        tokio::time::sleep(PAUSE.max(asked.elapsed() * 9)).await;
    }
}

/// How many events the controllers have created.
async fn event_count(client: &Client) -> Result<usize> {
    let events = Api::<Event>::namespaced(client.clone(), NAMESPACES[1]);
    let is_ours = |event: &&Event| {
        let component = event.source.as_ref().and_then(|source| source.component.as_deref());
        component.is_some_and(|name| {
            name.starts_with("datavolume-")
                || name.ends_with("-populator")
                || name == "import-controller"
                || name == "clone-controller"
        })
    };
    Ok(events.list(&ListParams::default()).await?.items.iter().filter(is_ours).count())
}
