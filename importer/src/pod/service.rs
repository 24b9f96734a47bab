//! What goes on beside the import: answering for its progress, and ending when asked to.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use runtime::metrics::{self, Page};
use runtime::{MetricsKey, StopSignals};

use super::progress::Percentage;
use crate::stage::StopFlag;

/// How often the log says how far it is.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// What shells call a process that ended by a signal.
const BY_SIGNAL: i32 = 128;

/// The longest that a source's goodbye may take: less than pods are given to stop.
const GOODBYE_MAX: Duration = Duration::from_secs(25);

/// Starts the thread that does all this, for as long as the process lives. Signals are minded before it returns. `told`
/// is for an import that ends the process itself when it is told to stop, because its source wants to know.
///
/// # Errors
/// When there is no thread to be had, or no signals.
pub fn start(
    listener: Option<TcpListener>,
    key: Option<MetricsKey>,
    percentage: Arc<Percentage>,
    told: Option<StopFlag>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signals = {
        let _within = runtime.enter();
        StopSignals::listen()?
    };
    thread::Builder::new().name("service".into()).spawn(move || {
        runtime.block_on(async move {
            let page: Page = {
                let percentage = Arc::clone(&percentage);
                Arc::new(move || percentage.page())
            };
            tokio::join!(
                answer(listener, page, key),
                log(&percentage),
                end_when_asked(signals, told)
            );
        });
    })?;
    Ok(())
}

/// An import that nobody can watch is better than none.
async fn answer(listener: Option<TcpListener>, page: Page, key: Option<MetricsKey>) {
    let Some(listener) = listener else { return };
    let Err(error) = metrics::serve(listener, page, key).await;
    tracing::warn!("no metrics are served: {error}");
}

async fn log(percentage: &Percentage) {
    let mut said = None;
    loop {
        tokio::time::sleep(LOG_INTERVAL).await;
        let now = percentage.value();
        if let Some(percent) = now.filter(|_| now != said) {
            tracing::info!(target: "progress", "{percent:.2}");
            said = now;
        }
    }
}

/// What is not durable yet is lost, and what is can be gone on with: there is nothing to tidy here, but at some sources.
async fn end_when_asked(mut signals: StopSignals, told: Option<StopFlag>) {
    let signal = signals.next().await;
    tracing::warn!("asked to stop by signal {signal}");
    if let Some(stop) = told {
        stop.set();
        tokio::time::sleep(GOODBYE_MAX).await;
    }
    std::process::exit(BY_SIGNAL + signal);
}
