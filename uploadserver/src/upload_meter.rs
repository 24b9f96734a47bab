//! Progress of the running transfer, as metrics and in the log.

use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use pipeline::Progress;
use runtime::metrics::counter;

/// In percent.
const PROGRESS: &str = "kubevirt_cdi_upload_progress_total";
const RECEIVED: &str = "kubevirt_cdi_upload_received_bytes_total";
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Of a failed transfer nothing is on the volume, so its counters are dropped.
#[derive(Debug, Default)]
pub struct UploadMeter {
    owner: String,
    present: Mutex<Weak<Progress>>,
}

impl UploadMeter {
    /// `owner`: UID of the object that shows the progress.
    pub fn new(owner: &str) -> Self {
        Self { owner: owner.to_owned(), present: Mutex::default() }
    }

    /// Counters of a new transfer. They are exported until the caller drops them.
    pub fn start_transfer(&self) -> Arc<Progress> {
        let progress = Arc::new(Progress::default());
        *self.present.lock() = Arc::downgrade(&progress);
        progress
    }

    fn percent(&self) -> Option<f64> {
        let fraction = self.present().snapshot().fraction()?;
        Some((fraction * 10_000.0).floor() / 100.0)
    }

    /// In the Prometheus text format.
    pub fn page(&self) -> String {
        let label = ("ownerUID", &*self.owner);
        let received = self.present().snapshot().read;
        let progress =
            counter(PROGRESS, "The upload progress in percentage", label, self.percent());
        let help = "Bytes of the present upload that have arrived";
        // An f64 is exact up to 2^53 bytes.
        progress + &counter(RECEIVED, help, label, Some(received as f64))
    }

    /// Logs changes of the progress while it is polled.
    pub async fn log_progress(&self) -> Infallible {
        let mut logged = None;
        loop {
            tokio::time::sleep(LOG_INTERVAL).await;
            let now = self.percent();
            if let Some(percent) = now.filter(|_| now != logged) {
                tracing::info!(target: "progress", "{percent:.2}");
            }
            logged = now;
        }
    }

    fn present(&self) -> Arc<Progress> {
        let present = self.present.lock();
        present.upgrade().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_transfer_starts_at_zero() {
        let meter = UploadMeter::new("1-2");
        assert!(!meter.page().contains("progress_total{"), "nothing is known yet");
        let first = meter.start_transfer();
        first.set_read_total(200);
        first.add_read(50);
        let page = meter.page();
        assert!(
            page.contains("kubevirt_cdi_upload_progress_total{ownerUID=\"1-2\"} 25\n"),
            "{page}"
        );
        assert!(page.contains("kubevirt_cdi_upload_received_bytes_total{ownerUID=\"1-2\"} 50\n"));
        let second = meter.start_transfer();
        second.set_read_total(1);
        assert!(meter.page().contains("progress_total{ownerUID=\"1-2\"} 0\n"));
        drop(second); // it has failed
        let page = meter.page();
        assert!(!page.contains("progress_total{"), "{page}");
        assert!(page.contains("received_bytes_total{ownerUID=\"1-2\"} 0\n"), "{page}");
    }
}
