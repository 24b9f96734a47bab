//! Many blank DataVolumes at once in a whole cluster, by our controllers and by upstream CDI's alternately: the time
//! until all have succeeded, and the requests that the cluster got for it.

use e2e::Usage;
use reference::{Programs, Whose};
use requests::Requests;

use super::*;

/// For the cleanup after the last has succeeded.
const REST: Duration = Duration::from_secs(5);
/// A run that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(600);
/// Half of them in files, half on devices.
const MODES: [&str; 2] = ["Filesystem", "Block"];

/// What so many DataVolumes cost, `runs` times by each: a figure for each run.
pub async fn measure(state: &State, volumes: usize, runs: usize) -> Result<Vec<Value>> {
    let client = client(state).await?;
    let programs = Programs::load_next_to_ours(&client, state).await?;
    let mut figures = Vec::new();
    for run in 0..runs {
        for whose in Whose::in_turn(run) {
            let namespace = format!("blank-{run}-{}", whose.name());
            let figure = measure_run(&client, &programs, whose, &namespace, volumes).await;
            let mut figure = figure.with_context(|| namespace)?;
            figure["run"] = run.into();
            eprintln!("{figure}");
            figures.push(figure);
        }
    }
    programs.leave().await?;
    Ok(figures)
}

/// One run, in a namespace that is deleted afterwards.
async fn measure_run(
    client: &Client,
    programs: &Programs,
    whose: Whose,
    namespace: &str,
    volumes: usize,
) -> Result<Value> {
    let pod = programs.turn(whose).await?;
    namespaces::create(client, namespace).await?;
    let all = Api::<DataVolume>::namespaced(client.clone(), namespace);
    // A controller that has created one of each leads, has filled its caches, and its images are on the node.
    make_all(&all, "first", MODES.len()).await?;
    wait_for(&all, MODES.len()).await?;
    tokio::time::sleep(REST).await;

    let (before, used_before) = (Requests::read(client).await?, Usage::of_pod(&pod)?);
    let begin = Instant::now();
    make_all(&all, "disk", volumes).await?;
    let made = begin.elapsed();
    wait_for(&all, MODES.len() + volumes).await?;
    let seconds = begin.elapsed().as_secs_f64();
    tokio::time::sleep(REST).await;
    let (asked, used) = (Requests::read(client).await? - before, Usage::of_pod(&pod)?);
    namespaces::remove(client, namespace).await?;

    let each = |count: u64| count as f64 / volumes as f64;
    Ok(json!({
        "by": whose.name(),
        "volumes": volumes,
        "seconds_to_make": made.as_secs_f64(),
        "seconds_to_all_succeeded": seconds,
        "writes_each": each(asked.writes),
        "events_each": each(asked.events),
        "reads_each": each(asked.reads),
        "cpu_ms_each": millis(used.cpu - used_before.cpu) / volumes as f64,
        "rss_mib": used.rss_mib,
    }))
}

async fn make_all(all: &Api<DataVolume>, name: &str, volumes: usize) -> Result<()> {
    let object = |number: usize| {
        serde_json::from_value::<DataVolume>(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
            "metadata": { "name": format!("{name}-{number}") },
            "spec": { "source": { "blank": {} }, "pvc": {
                "storageClassName": "csi", "accessModes": ["ReadWriteOnce"],
                "volumeMode": MODES[number % MODES.len()],
                "resources": { "requests": { "storage": "64Mi" } },
            } },
        }))
    };
    let made = stream::iter((0..volumes).map(|number| async move {
        all.create(&PostParams::default(), &object(number)?).await?;
        Ok(())
    }));
    made.buffer_unordered(CLIENTS).try_collect::<()>().await
}

async fn wait_for(all: &Api<DataVolume>, volumes: usize) -> Result<()> {
    let begin = Instant::now();
    loop {
        let found = all.list(&ListParams::default().match_any()).await?.items;
        let done = found.iter().filter(|volume| phase(volume) == "Succeeded").count();
        if done >= volumes {
            return Ok(());
        }
        ensure!(begin.elapsed() < PATIENCE, "only {done} of {volumes} have succeeded");
        tokio::time::sleep(GLANCE).await;
    }
}
