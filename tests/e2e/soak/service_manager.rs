//! What the service manager of a node does.

use std::convert::Infallible;
use std::time::Duration;

use cluster::Process;
use e2e::Test;

const PAUSE: Duration = Duration::from_secs(1);

/// Starts programs of the cluster again that have ended by themselves, as a provisioner does when its driver is restarted, and the
/// API server when it finds no etcd for a while.
pub async fn run(test: &Test) -> Infallible {
    loop {
        let programs = Process::all(test.state()).unwrap_or_default();
        for program in programs.iter().filter(|program| !program.is_running()) {
            let outcome = test.chaos().restart(&program.name);
            eprintln!("{} had ended and is started again: {outcome:?}", program.name);
        }
        tokio::time::sleep(PAUSE).await;
    }
}
