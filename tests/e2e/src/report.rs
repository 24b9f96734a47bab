//! The report of a failed test: objects, events and logs of its namespace.

use api::v1beta1::{DataImportCron, DataSource, DataVolume};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod, Service};
use kube::api::{Api, ListParams, LogParams};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Lines of a container's log that are worth reading.
const LINES: i64 = 50;

/// Prints objects, events and the logs of pods. A failed request is reported, and the rest printed.
pub async fn namespace(client: &Client, namespace: &str) {
    objects::<DataImportCron>(client, namespace).await;
    objects::<DataSource>(client, namespace).await;
    objects::<DataVolume>(client, namespace).await;
    objects::<PersistentVolumeClaim>(client, namespace).await;
    objects::<Service>(client, namespace).await;
    objects::<Pod>(client, namespace).await;
    match list::<Event>(client, namespace).await {
        Ok(events) => {
            for event in events {
                eprintln!(
                    "event {} {}: {} {}",
                    event.involved_object.kind.as_deref().unwrap_or_default(),
                    event.involved_object.name.as_deref().unwrap_or_default(),
                    event.reason.as_deref().unwrap_or_default(),
                    event.message.as_deref().unwrap_or_default(),
                );
            }
        }
        Err(error) => eprintln!("no events: {error}"),
    }
    logs(client, namespace).await;
    programs(client, namespace).await;
}

/// The lines of the logs of the installed programs that name the namespace or report an error.
async fn programs(client: &Client, namespace: &str) {
    let pods = Api::<Pod>::namespaced(client.clone(), crate::NAMESPACE);
    for pod in list::<Pod>(client, crate::NAMESPACE).await.unwrap_or_default() {
        let name = pod.name_any();
        restarts(&pods, &pod).await;
        let text = pods.logs(&name, &LogParams::default()).await.unwrap_or_default();
        let matters = |line: &&str| line.contains(namespace) || line.contains("rror");
        let lines: Vec<_> = text.lines().filter(matters).collect();
        let from = lines.len().saturating_sub(LINES as usize);
        eprintln!("log of {name}, as far as it matters:\n{}", lines[from..].join("\n"));
    }
}

/// How a program ended that was restarted: a test that has not restarted it does not expect that.
async fn restarts(pods: &Api<Pod>, pod: &Pod) {
    let name = pod.name_any();
    let previous = LogParams { previous: true, tail_lines: Some(LINES), ..LogParams::default() };
    let containers = pod.status.iter().flat_map(|status| &status.container_statuses).flatten();
    for container in containers.filter(|container| container.restart_count > 0) {
        let (count, last) = (container.restart_count, &container.last_state);
        let text = pods.logs(&name, &previous).await.unwrap_or_else(|error| error.to_string());
        eprintln!("{name} was restarted {count} times: {last:?}; its log before:\n{text}");
    }
}

async fn list<K>(client: &Client, namespace: &str) -> kube::Result<Vec<K>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let all = Api::<K>::namespaced(client.clone(), namespace);
    Ok(all.list(&ListParams::default()).await?.items)
}

async fn objects<K>(client: &Client, namespace: &str)
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize,
{
    match list::<K>(client, namespace).await {
        Ok(found) => {
            for mut object in found {
                object.meta_mut().managed_fields = None;
                let text = serde_json::to_string(&object).unwrap_or_default();
                eprintln!("{} {}: {text}", K::kind(&()), object.name_any());
            }
        }
        Err(error) => eprintln!("no list of {}: {error}", K::kind(&())),
    }
}

async fn logs(client: &Client, namespace: &str) {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    for pod in list::<Pod>(client, namespace).await.unwrap_or_default() {
        let name = pod.name_any();
        let last = LogParams { tail_lines: Some(LINES), ..LogParams::default() };
        match pods.logs(&name, &last).await {
            Ok(text) => eprintln!("log of {name}:\n{text}"),
            Err(error) => eprintln!("no log of {name}: {error}"),
        }
    }
}
