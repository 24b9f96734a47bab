//! A listener on the loopback of the controllers' pod, and on the address of metadata services there. Nothing but the
//! controllers can connect to it, so each connection is one that a tenant has caused.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::{Program, Test};
use kube::ResourceExt;

use crate::attack::{LINK_LOCAL, neighbour};
use crate::scenario::CANARY_PORT;

/// The listener, active until this is dropped.
pub struct Canary {
    process: Child,
    output: Option<BufReader<std::process::ChildStdout>>,
}

impl Canary {
    /// Starts it in the network namespace of the controllers' pod.
    pub async fn start(admin: &Test, duration: Duration) -> Result<Self> {
        let pod = Program::named(admin, "cdi-deployment").pod().await?;
        let pids = cluster::processes_of_pod(&pod.uid().context("a pod has a UID")?)?;
        let pid = pids.first().context("the controllers' pod has no process")?;
        let network = format!("--net=/proc/{pid}/ns/net");
        let address = format!("{LINK_LOCAL}/32");
        let mut words = vec![network.as_str(), "ip", "address", "replace", &address, "dev", "lo"];
        let status = Command::new("nsenter").args(&words).status().context("no nsenter")?;
        ensure!(status.success(), "the controllers' pod cannot be given {address}");
        let (port, seconds) = (CANARY_PORT.to_string(), duration.as_secs().to_string());
        let program = neighbour().display().to_string();
        words.truncate(1);
        words.extend([program.as_str(), "canary", &port, &seconds]);
        let mut command = Command::new("nsenter");
        let mut process = command.args(&words).stdout(Stdio::piped()).spawn()?;
        let output = process.stdout.take().context("it has an output")?;
        let mut output = BufReader::new(output);
        let mut line = String::new();
        output.read_line(&mut line)?;
        ensure!(line == "listening\n", "the canary does not listen: {line}");
        Ok(Self { process, output: Some(output) })
    }

    /// Stops the listener, and returns the addresses to which clients connected.
    pub fn connections(mut self) -> Result<Vec<String>> {
        let _ = self.process.kill();
        let lines = self.output.take().into_iter().flat_map(BufRead::lines);
        Ok(lines.collect::<std::io::Result<Vec<_>>>()?)
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
