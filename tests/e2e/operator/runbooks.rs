//! The commands of the runbooks `CDINotReady` and `CDIOperatorDown`, as an administrator types them.

use anyhow::{Context, Result, ensure};
use e2e::{NAMESPACE, PAUSE, Test};

use crate::installation::{PATIENCE, kubectl};

/// The output of a command line without `kubectl`.
fn output(test: &Test, line: &str) -> Result<String> {
    let words: Vec<_> = line.split(' ').collect();
    let (succeeded, output) = kubectl(test, &words, "")?;
    ensure!(succeeded, "kubectl {line}: {output}");
    Ok(output)
}

/// `kubectl get deployment -A | grep cdi-operator | awk '{print $1}'`
fn installation_namespace(test: &Test) -> Result<String> {
    let deployments = output(test, "get deployment -A")?;
    let line = deployments.lines().find(|line| line.contains("cdi-operator"));
    let namespace = line.and_then(|line| line.split_whitespace().next());
    namespace.map(str::to_owned).with_context(|| format!("no cdi-operator: {deployments}"))
}

/// Prints the operator's pods until `is_so`: the answer of the runbook to the question whether it runs.
async fn wait_for_pods(test: &Test, is_so: impl Fn(&str) -> bool) -> Result<()> {
    let begin = std::time::Instant::now();
    loop {
        let pods = output(test, &format!("-n {NAMESPACE} get pods -l name=cdi-operator"))?;
        if is_so(&pods) {
            return Ok(());
        }
        ensure!(begin.elapsed() < PATIENCE, "the operator's pods are {pods}");
        tokio::time::sleep(PAUSE).await;
    }
}

fn is_log(text: &str) -> bool {
    [" INFO ", " WARN "].iter().any(|level| text.contains(level))
}

/// What the commands print of programs that work, and of an operator that is down.
pub async fn commands_show_programs_and_operator(test: &Test) -> Result<()> {
    let namespace = installation_namespace(test)?;
    ensure!(namespace == NAMESPACE, "{namespace}");
    let programs = output(test, &format!("-n {NAMESPACE} get deploy -l cdi.kubevirt.io"))?;
    for name in ["cdi-apiserver", "cdi-deployment", "cdi-uploadproxy"] {
        let line = programs.lines().find(|line| line.starts_with(name));
        let ready = line.and_then(|line| line.split_whitespace().nth(1)?.split_once('/'));
        ensure!(ready.is_some_and(|(ready, all)| ready == all && all != "0"), "{name}: {programs}");
        let program = output(test, &format!("-n {NAMESPACE} describe deployment/{name}"))?;
        ensure!(program.contains("MinimumReplicasAvailable"), "{name}: {program}");
    }
    let log = output(test, &format!("logs -n {NAMESPACE} deployment/cdi-deployment"))?;
    ensure!(is_log(&log), "the controller's log is {log:?}");

    wait_for_pods(test, |pods| pods.contains("1/1") && pods.contains("Running")).await?;
    let pods = output(test, &format!("-n {NAMESPACE} describe pods -l name=cdi-operator"))?;
    let pods: Vec<_> = pods.split_whitespace().collect();
    let pods = pods.join(" ");
    for words in ["Name: cdi-operator-", "Status: Running", "Ready: True"] {
        ensure!(pods.contains(words), "{words:?} is not in {pods}");
    }
    let log = output(test, &format!("-n {NAMESPACE} logs -l name=cdi-operator"))?;
    ensure!(is_log(&log), "the operator's log is {log:?}");

    output(test, &format!("-n {NAMESPACE} scale deployment/cdi-operator --replicas=0"))?;
    wait_for_pods(test, |pods| pods.contains("No resources found")).await?;
    ensure!(installation_namespace(test)? == NAMESPACE, "the Deployment shows where it was");
    output(test, &format!("-n {NAMESPACE} scale deployment/cdi-operator --replicas=1"))?;
    wait_for_pods(test, |pods| pods.contains("1/1") && pods.contains("Running")).await
}
