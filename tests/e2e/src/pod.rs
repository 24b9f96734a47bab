//! Pods that run one command of `testpod`, set up as a worker is: user 107, nothing allowed, nothing writable.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use cluster::NodeId;
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use serde_json::{Value, json};

use crate::Test;
use crate::test::pause_since;

/// The image that the cluster brings.
const IMAGE: &str = "cdi.test/testpod:1";
/// The owner of disk images in KubeVirt.
const USER: i64 = 107;
/// How long an admission plugin may take to observe a change.
const LATE: Duration = Duration::from_secs(10);

/// A pod to be created.
#[derive(Clone, Debug)]
pub struct PodPlan {
    name: String,
    words: Vec<String>,
    image: String,
    command: Vec<String>,
    labels: Value,
    restart: &'static str,
    volumes: Vec<Value>,
    mounts: Vec<Value>,
    devices: Vec<Value>,
    node: Option<NodeId>,
}

impl PodPlan {
    /// A pod that runs a command of `testpod`, once.
    pub fn new(name: &str, words: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            words: words.iter().map(|&word| word.to_owned()).collect(),
            image: IMAGE.to_owned(),
            command: Vec::new(),
            labels: json!({"app": name}),
            restart: "Never",
            volumes: Vec::new(),
            mounts: Vec::new(),
            devices: Vec::new(),
            node: None,
        }
    }

    /// On this node, which the scheduler chooses for no other reason.
    #[must_use]
    pub fn on(mut self, node: NodeId) -> Self {
        self.node = Some(node);
        self
    }

    /// Another image than the rig's own.
    #[must_use]
    pub fn image(mut self, reference: &str) -> Self {
        reference.clone_into(&mut self.image);
        self
    }

    /// Another program than that of the image, with its arguments.
    #[must_use]
    pub fn command(mut self, command: &[&str]) -> Self {
        self.command = command.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// Starts again when it ends.
    #[must_use]
    pub fn for_ever(mut self) -> Self {
        self.restart = "Always";
        self
    }

    /// A PVC of a file system, mounted.
    #[must_use]
    pub fn mount(mut self, claim: &str, path: &str) -> Self {
        self.volumes.push(json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}));
        self.mounts.push(json!({"name": claim, "mountPath": path}));
        self
    }

    /// A PVC of a device.
    #[must_use]
    pub fn device(mut self, claim: &str, path: &str) -> Self {
        self.volumes.push(json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}));
        self.devices.push(json!({"name": claim, "devicePath": path}));
        self
    }

    /// A secret with a certificate, where `testpod` looks for it.
    #[must_use]
    pub fn tls(mut self, secret: &str) -> Self {
        self.volumes.push(json!({"name": "tls", "secret": {"secretName": secret}}));
        self.mounts.push(json!({"name": "tls", "mountPath": "/tls", "readOnly": true}));
        self
    }

    fn object(&self) -> Value {
        let selector = self.node.map(|node| json!({"kubernetes.io/hostname": node.name()}));
        json!({
            "metadata": {"name": self.name, "labels": self.labels},
            "spec": {
                "nodeSelector": selector,
                "restartPolicy": self.restart,
                "terminationGracePeriodSeconds": 1,
                "automountServiceAccountToken": false,
                "securityContext": {
                    "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [{
                    "name": "main",
                    "image": self.image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": self.command,
                    "args": self.words,
                    "securityContext": {
                        "allowPrivilegeEscalation": false,
                        "readOnlyRootFilesystem": true,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": self.mounts,
                    "volumeDevices": self.devices,
                }],
                "volumes": self.volumes,
            },
        })
    }

    /// Creates it.
    ///
    /// # Errors
    /// When the API server refuses the request.
    pub async fn make(&self, test: &Test) -> Result<Pod> {
        let begin = Instant::now();
        let mut made = test.create(self.object()).await;
        // The admission plugin observes the removal of a quota a moment later than this test.
        let is_late = |error: &anyhow::Error| format!("{error:#}").contains("must specify");
        while made.as_ref().is_err_and(is_late) && begin.elapsed() < LATE {
            tokio::time::sleep(pause_since(begin)).await;
            made = test.create(self.object()).await;
        }
        made.with_context(|| format!("cannot make the pod {}", self.name))
    }

    /// Creates it and waits until its command runs.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(&self, test: &Test) -> Result<Pod> {
        self.make(test).await?;
        test.wait(&self.name, "running and ready", is_ready).await
    }

    /// Creates it, waits for its end and returns its output.
    ///
    /// # Errors
    /// When its command fails.
    pub async fn output(&self, test: &Test) -> Result<String> {
        self.make(test).await?;
        let ended = |pod: &Pod| matches!(phase(pod), "Succeeded" | "Failed");
        let pod = test.wait(&self.name, "finished", ended).await?;
        let text = test.all::<Pod>().logs(&self.name, &LogParams::default()).await?;
        if phase(&pod) == "Failed" {
            bail!("{} failed: {}", self.name, text.trim());
        }
        Ok(text.trim().to_owned())
    }
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Whether all its containers are ready.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
