//! What goes on beside the work of a worker: answering for its progress, logging it, and ending when asked to.

use std::io;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use crate::metrics::{self, Page};
use crate::{MetricsKey, StopSignals};

/// How often the log says how far it is.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// What shells call a process that ended by a signal.
const BY_SIGNAL: i32 = 128;

/// The longest that a goodbye may take: less than pods are given to stop.
const GOODBYE_MAX: Duration = Duration::from_secs(25);

/// What a worker is told that wants to end the process itself, because somebody else has to hear of it.
pub type Goodbye = Box<dyn FnOnce() + Send>;

/// Starts the thread that does all this, for as long as the process lives. Signals are minded before it returns.
/// `percentage` is how far the work is, once that is known. Without a goodbye the process ends at once when it is asked
/// to: what is not durable yet is lost, and what is can be gone on with.
///
/// # Errors
/// When there is no thread to be had, or no signals.
pub fn start(
    listener: Option<TcpListener>,
    key: Option<MetricsKey>,
    page: Page,
    percentage: impl Fn() -> Option<f64> + Send + 'static,
    goodbye: Option<Goodbye>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signals = {
        let _within = runtime.enter();
        StopSignals::listen()?
    };
    thread::Builder::new().name("service".into()).spawn(move || {
        runtime.block_on(async move {
            tokio::join!(
                answer(listener, page, key),
                log(percentage),
                end_when_asked(signals, goodbye)
            );
        });
    })?;
    Ok(())
}

/// Work that nobody can watch is better than none.
async fn answer(listener: Option<TcpListener>, page: Page, key: Option<MetricsKey>) {
    let Some(listener) = listener else { return };
    let Err(error) = metrics::serve(listener, page, key).await;
    tracing::warn!("no metrics are served: {error}");
}

async fn log(percentage: impl Fn() -> Option<f64>) {
    let mut said = None;
    loop {
        tokio::time::sleep(LOG_INTERVAL).await;
        let now = percentage();
        if let Some(percent) = now.filter(|_| now != said) {
            tracing::info!(target: "progress", "{percent:.2}");
            said = now;
        }
    }
}

async fn end_when_asked(mut signals: StopSignals, goodbye: Option<Goodbye>) {
    let signal = signals.next().await;
    tracing::warn!("asked to stop by signal {signal}");
    if let Some(goodbye) = goodbye {
        goodbye();
        tokio::time::sleep(GOODBYE_MAX).await;
    }
    std::process::exit(BY_SIGNAL + signal);
}
