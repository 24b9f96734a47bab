//! Pods without credentials that flood the ports of the installation; and the same from this machine, which is outside the
//! cluster.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use e2e::{PodPlan, Test};
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use serde_json::Value;

use super::is_wanted;
use crate::scenario::Scenario;

const IMAGE: &str = "localhost/neighbour:1";
/// The port of each program.
const PORT: u16 = 8443;
/// Pods of each tenant, each with an address of its own.
const PODS: usize = 2;

/// Program, kind of attack, connections at once and in a second: of each pod. With six pods all programs are given more
/// connections than they take; the handshakes stay below a hundred in a second.
const PLAN: [(&str, &str, usize, &str); 22] = [
    ("cdi-apiserver", "silent", 120, "20"),
    ("cdi-apiserver", "handshake", 40, "5"),
    ("cdi-apiserver", "idle", 30, "2"),
    ("cdi-apiserver", "headers", 30, "2"),
    ("cdi-apiserver", "http2", 40, "2"),
    ("cdi-apiserver", "webhook", 8, "3"),
    ("cdi-apiserver", "large-webhook", 2, "0.2"),
    ("cdi-deployment", "silent", 20, "5"),
    ("cdi-deployment", "handshake", 10, "2"),
    ("cdi-deployment", "idle", 5, "1"),
    ("cdi-deployment", "headers", 5, "1"),
    ("cdi-deployment", "http2", 5, "1"),
    ("cdi-deployment", "health", 10, "1"),
    ("cdi-deployment", "bearer", 4, "3"),
    ("cdi-operator", "silent", 20, "5"),
    ("cdi-operator", "handshake", 10, "2"),
    ("cdi-operator", "http2", 5, "1"),
    ("cdi-operator", "bearer", 4, "1"),
    ("cdi-uploadproxy", "silent", 750, "40"),
    ("cdi-uploadproxy", "headers", 20, "1"),
    ("cdi-uploadproxy", "http2", 20, "1"),
    ("cdi-uploadproxy", "upload", 4, "1"),
];
/// Not at the upload proxy: the victim uploads from this machine.
const FROM_HERE: [(&str, &str, usize, &str); 3] = [
    ("cdi-apiserver", "silent", 200, "20"),
    ("cdi-deployment", "silent", 40, "5"),
    ("cdi-deployment", "http2", 10, "1"),
];

/// The program that attacks.
pub fn neighbour() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_neighbour"))
}

/// Loads its image into the nodes.
pub fn load_neighbour(admin: &Test) -> Result<()> {
    cluster::load_programs(admin.state(), &[("/neighbour", neighbour())], IMAGE)
}

/// The running neighbours.
pub struct Neighbours<'a> {
    tenants: &'a [Test],
    here: Child,
}

impl<'a> Neighbours<'a> {
    /// Starts the pods, and the program here, which exit when the run ends.
    pub async fn start(tenants: &'a [Test], scenario: &Scenario) -> Result<Self> {
        for tenant in tenants {
            for at in 0..PODS {
                let words = words(scenario, &PLAN);
                let words: Vec<_> = words.iter().map(String::as_str).collect();
                PodPlan::new(&name(at), &words).image(IMAGE).start(tenant).await?;
            }
        }
        let here = Command::new(neighbour())
            .args(words(scenario, &FROM_HERE))
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the neighbour on this machine")?;
        Ok(Self { tenants, here })
    }

    /// Waits for their end, and returns what each attack came to.
    pub async fn outcome(self) -> Result<Vec<Value>> {
        let mut rows = Vec::new();
        let finished = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            matches!(phase, Some("Succeeded" | "Failed"))
        };
        for tenant in self.tenants {
            for at in 0..PODS {
                tenant.wait(&name(at), "finished", finished).await?;
                let log = tenant.all::<Pod>().logs(&name(at), &LogParams::default()).await?;
                rows.extend(read(&log).with_context(|| format!("{}: {log}", tenant.namespace()))?);
            }
        }
        let output = tokio::task::spawn_blocking(|| self.here.wait_with_output()).await??;
        rows.extend(read(&String::from_utf8_lossy(&output.stdout))?);
        Ok(rows)
    }
}

/// Fails unless each attack of the plan opened connections: a flood that does not reach its target proves nothing.
pub fn check_floods(rows: &[Value]) -> Result<()> {
    if !is_wanted("neighbours") {
        return Ok(());
    }
    for (_, kind, ..) in PLAN {
        let mut of_kind = rows.iter().filter(|row| row["attack"] == kind);
        let has_opened = of_kind.any(|row| row["opened"].as_u64().is_some_and(|count| count > 0));
        ensure!(has_opened, "no connection of the attack {kind} was opened");
    }
    Ok(())
}

fn name(at: usize) -> String {
    format!("neighbour-{at}")
}

fn words(scenario: &Scenario, plan: &[(&str, &str, usize, &str)]) -> Vec<String> {
    let mut words = vec![scenario.left().as_secs().to_string()];
    if !is_wanted("neighbours") {
        return words;
    }
    for (program, kind, at_once, each_second) in plan {
        let all = scenario.addresses(program);
        words.extend(all.map(|ip| format!("{kind}:{at_once}:{each_second}:{ip}:{PORT}")));
    }
    words
}

fn read(log: &str) -> Result<Vec<Value>> {
    let line = log.lines().last().context("its log is empty")?;
    Ok(serde_json::from_str(line)?)
}
