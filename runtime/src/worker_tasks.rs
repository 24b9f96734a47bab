//! Background tasks of a worker pod: serve metrics, log progress, exit on SIGTERM.

use std::io;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use crate::exit::exit_with;
use crate::metrics::{self, Page};
use crate::{MetricsTls, StopSignals};

const LOG_INTERVAL: Duration = Duration::from_secs(1);

// A shell reports 128 + N for a process that signal N ended.
const SIGNAL_EXIT_BASE: i32 = 128;

/// Less than the termination grace period of pods (30 s).
const SHUTDOWN_HOOK_MAX: Duration = Duration::from_secs(25);

/// Called on SIGTERM in place of an immediate exit, for a worker that has to notify its source first. The worker then ends
/// the process itself.
pub type ShutdownHook = Box<dyn FnOnce() + Send>;

/// Starts a thread that runs the tasks as long as the process lives. The signal handlers are installed on return.
/// `percentage` is the progress, once known. Without a hook, the process exits on the first signal: writes that are not
/// durable are lost, and a restarted pod resumes from the journal.
///
/// # Errors
/// When the thread or the signal handlers cannot be created.
pub fn start_worker_tasks(
    listener: Option<TcpListener>,
    tls: MetricsTls,
    page: Page,
    percentage: impl Fn() -> Option<f64> + Send + 'static,
    shutdown_hook: Option<ShutdownHook>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signals = {
        let _within = runtime.enter();
        StopSignals::listen()?
    };
    thread::Builder::new().name("service".into()).spawn(move || {
        runtime.block_on(async move {
            tokio::join!(
                serve_metrics(listener, page, tls),
                log_progress(percentage),
                exit_on_signal(signals, shutdown_hook)
            );
        });
    })?;
    Ok(())
}

// A failure is logged only: the transfer matters more than its metrics.
async fn serve_metrics(listener: Option<TcpListener>, page: Page, tls: MetricsTls) {
    let Some(listener) = listener else { return };
    let Err(error) = metrics::serve(listener, page, tls).await;
    tracing::warn!("cannot serve metrics: {error}");
}

async fn log_progress(percentage: impl Fn() -> Option<f64>) {
    let mut logged = None;
    loop {
        tokio::time::sleep(LOG_INTERVAL).await;
        let now = percentage();
        if let Some(percent) = now.filter(|_| now != logged) {
            tracing::info!(target: "progress", "{percent:.2}");
            logged = now;
        }
    }
}

async fn exit_on_signal(mut signals: StopSignals, shutdown_hook: Option<ShutdownHook>) {
    let signal = signals.next().await;
    tracing::warn!("received signal {signal}, stopping");
    if let Some(run_hook) = shutdown_hook {
        run_hook();
        tokio::time::sleep(SHUTDOWN_HOOK_MAX).await;
    }
    exit_with(SIGNAL_EXIT_BASE + signal);
}
