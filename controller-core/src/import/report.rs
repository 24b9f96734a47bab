//! Reads the status of a worker pod: whether it runs, how it ended, and its termination message.

use crate::meta;
use api::PodPhase;
use api::conditions::reason;
use contract::ByteCount;
use contract::import::texts::{LARGER_THAN, TOO_SMALL};
use contract::termination::ExitMessage;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodStatus,
};

/// The message for every error that means that an image does not fit. Clients match it; the sizes follow it.
const TOO_SMALL_MESSAGE: &str = "DataVolume too small to contain image";
const PULL_FAILED: &str = "failed to pull image";
const PULL_REASONS: [&str; 3] = ["ImagePullBackOff", "ErrImagePull", "InvalidImageName"];
const CRASH_LOOP: &str = "CrashLoopBackOff";
/// The kubelet's reason for a pod that is not ready although its containers are.
const GATES_NOT_READY: &str = "ReadinessGatesNotReady";
/// The control plane's reason for a pod that it deletes for a taint, as that of a node that is lost.
const DELETED_BY_TAINT: &str = "DeletionByTaintManager";

/// The parts of a pod's status that matter to its PVC.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    pub phase: PodPhase,
    /// Restarts of the worker's container.
    pub restarts: i32,
    /// The scheduler's message if the pod fits on no node.
    pub unschedulable: Option<String>,
    /// The kernel has killed it for lack of memory, in this or in the last run.
    pub is_out_of_memory: bool,
    /// How it ended, in this run or in the last one if it has not been restarted yet.
    pub exit: Option<Exit>,
    /// Whether it runs, with reason and message; `None`: keep the recorded condition.
    pub running: Option<(bool, String, String)>,
}

/// How a worker ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Exit {
    /// With a termination message in JSON.
    Message(Box<ExitMessage>),
    /// With any other text.
    Text {
        /// CamelCase, for the condition.
        reason: String,
        /// The termination message, simplified.
        text: String,
        code: i32,
    },
}

/// Whether a pod has nothing to report yet: the PVC already records that its worker was created. A young pod may be
/// unschedulable, as its volume has to be provisioned first.
pub fn is_starting(pod: &Pod, is_young: bool) -> bool {
    let report = report(pod);
    let is_usual = report.running.as_ref().is_none_or(|(running, reason, _)| {
        !running && matches!(reason.as_str(), "" | "ContainerCreating" | "PodInitializing")
    });
    let is_schedulable = report.unschedulable.is_none() || is_young;
    is_usual && report.exit.is_none() && is_schedulable && !report.is_out_of_memory
}

/// Reads a pod. The worker is the first container; the kubelet sorts the statuses by name.
pub fn report(pod: &Pod) -> Report {
    let Some(status) = &pod.status else { return Report::default() };
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    let phase = meta::worker_pod_phase(pod);
    let scheduled = status.conditions.iter().flatten().find(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some(reason::UNSCHEDULABLE)
    });
    let unschedulable = scheduled.filter(|_| phase == PodPhase::Pending);
    let unschedulable =
        unschedulable.map(|condition| condition.message.clone().unwrap_or_default());
    let mut report = Report { phase, unschedulable, ..Report::default() };
    let Some(worker) = containers.first() else { return report };
    report.restarts = worker.restart_count;
    report.is_out_of_memory = [worker.state.as_ref(), worker.last_state.as_ref()]
        .into_iter()
        .flatten()
        .filter_map(|state| state.terminated.as_ref())
        .any(|end| end.reason.as_deref() == Some(reason::OOM_KILLED));
    let mut all = status.init_container_statuses.iter().flatten().chain(containers);
    report.running = all.find_map(pull_failure);
    if report.running.is_some() {
        return report;
    }
    if is_node_lost(status) {
        report.running = Some((false, reason::NODE_LOST.into(), node_lost(pod)));
        return report;
    }
    if is_evicted(status) && containers.iter().all(is_running) {
        report.running = Some((false, reason::POD_EVICTED.into(), evicted(pod)));
        return report;
    }
    if containers.iter().all(is_running) {
        report.running = Some((true, reason::POD_RUNNING.into(), String::new()));
        return report;
    }
    let Some(state) = &worker.state else { return report };
    let waiting = state.waiting.as_ref();
    let waiting_reason = waiting.and_then(|waiting| waiting.reason.as_deref()).unwrap_or_default();
    if let Some(end) = &state.terminated {
        report.exit = Some(exit(end));
    } else if waiting_reason == CRASH_LOOP {
        // The next attempt may be minutes away; until then, the end of the last one is reported.
        let last = worker.last_state.as_ref().and_then(|last| last.terminated.as_ref());
        report.exit = last.map(exit);
    } else if let Some(waiting) = waiting {
        let message = simplified(waiting.message.as_deref().unwrap_or_default());
        report.running = Some((false, waiting_reason.to_owned(), message));
    }
    report
}

/// Whether the control plane has lost the node of a running pod. It then sets the condition `Ready` to false and leaves what the
/// kubelet has reported last: containers that are ready. The kubelet itself reports that only of a pod with a readiness gate, and
/// names it as the reason.
fn is_node_lost(status: &PodStatus) -> bool {
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    let mut conditions = status.conditions.iter().flatten();
    let is_not_ready = conditions.any(|condition| {
        condition.type_ == "Ready"
            && condition.status == "False"
            && condition.reason.as_deref() != Some(GATES_NOT_READY)
    });
    is_not_ready && containers.iter().all(|container| container.ready && is_running(container))
}

fn node_lost(pod: &Pod) -> String {
    format!(
        "the node {} of the pod {} does not respond; waiting until it does or the pod is deleted",
        node_name(pod),
        meta::name(&pod.metadata)
    )
}

/// Whether the control plane has deleted a pod for a taint of its node. Five minutes after a node was lost, that is all that the
/// status of a pod that was never ready has of it. On a node that responds, the pod ends within its grace period.
fn is_evicted(status: &PodStatus) -> bool {
    status.conditions.iter().flatten().any(|condition| {
        condition.type_ == "DisruptionTarget"
            && condition.status == "True"
            && condition.reason.as_deref() == Some(DELETED_BY_TAINT)
    })
}

fn evicted(pod: &Pod) -> String {
    format!(
        "the pod {} is evicted by a taint of the node {} and has not ended; waiting until the node reports its end or the pod is deleted",
        meta::name(&pod.metadata),
        node_name(pod)
    )
}

fn node_name(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

fn is_running(container: &ContainerStatus) -> bool {
    container.state.as_ref().is_some_and(|state| state.running.is_some())
}

fn pull_failure(container: &ContainerStatus) -> Option<(bool, String, String)> {
    let ContainerState { waiting, .. } = container.state.as_ref()?;
    let reason = waiting.as_ref()?.reason.as_deref()?;
    PULL_REASONS.contains(&reason).then(|| {
        let message = format!("{PULL_FAILED}: {}", container.image);
        (false, reason::IMAGE_PULL_FAILED.to_owned(), message)
    })
}

fn exit(end: &ContainerStateTerminated) -> Exit {
    let text = end.message.as_deref().unwrap_or_default();
    if end.exit_code == 0
        && let Some(message) = ExitMessage::from_json(text)
    {
        return Exit::Message(Box::new(message));
    }
    let reason = match end.reason.as_deref() {
        _ if text.contains(PULL_FAILED) => reason::IMAGE_PULL_FAILED,
        Some(reason) if !reason.is_empty() => reason,
        _ if end.exit_code == 0 => reason::COMPLETED,
        _ => reason::ERROR,
    };
    Exit::Text { reason: reason.to_owned(), text: simplified(text), code: end.exit_code }
}

fn simplified(text: &str) -> String {
    if !TOO_SMALL.iter().any(|sign| text.contains(sign)) {
        return text.trim_end().to_owned();
    }
    match sizes(text) {
        Some((needed, available)) => format!(
            "{TOO_SMALL_MESSAGE}: the image needs {needed} bytes, the volume has {available} bytes"
        ),
        None => TOO_SMALL_MESSAGE.to_owned(),
    }
}

/// What the image needs and what the volume has. `None` if the worker does not know: the volume was full before the end
/// of an image whose size no header states.
fn sizes(text: &str) -> Option<(ByteCount, ByteCount)> {
    let (before, after) = text.split_once(LARGER_THAN)?;
    let needed = before.rsplit(|c: char| !c.is_ascii_digit()).next()?;
    let available = after.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((ByteCount::new(needed.parse().ok()?), ByteCount::new(available.parse().ok()?)))
}
