//! What goes on beside the clone: answering for its progress, and ending when asked to.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use runtime::metrics::{self, Page};
use runtime::{MetricsKey, StopSignals};

use crate::progress::Progress;

/// How often the log says how far it is.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// What shells call a process that ended by a signal.
const BY_SIGNAL: i32 = 128;

/// Starts the thread that does all this, for as long as the process lives. Signals are minded before it returns.
///
/// # Errors
/// When there is no thread to be had, or no signals.
pub fn start(
    listener: Option<TcpListener>,
    progress: Arc<Progress>,
    owner_uid: String,
    key: Option<MetricsKey>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = {
        let _within = runtime.enter();
        StopSignals::listen()?
    };
    let page: Page = {
        let progress = Arc::clone(&progress);
        Arc::new(move || progress.page(&owner_uid))
    };
    thread::Builder::new().name("service".into()).spawn(move || {
        runtime.block_on(async move {
            let end = async {
                let signal = signals.next().await;
                tracing::warn!("asked to stop by signal {signal}");
                // What the server has is durable or lost; there is nothing to tidy here.
                std::process::exit(BY_SIGNAL + signal);
            };
            tokio::join!(answer(listener, page, key), log(&progress), end);
        });
    })?;
    Ok(())
}

/// A clone that nobody can watch is better than none.
async fn answer(listener: Option<TcpListener>, page: Page, key: Option<MetricsKey>) {
    let Some(listener) = listener else { return };
    let Err(error) = metrics::serve(listener, page, key).await;
    tracing::warn!("no metrics are served: {error}");
}

async fn log(progress: &Progress) {
    let mut said = None;
    loop {
        tokio::time::sleep(LOG_INTERVAL).await;
        let now = progress.value();
        if let Some(percent) = now.filter(|_| now != said) {
            tracing::info!(target: "progress", "{percent:.2}");
            said = now;
        }
    }
}
