//! How far the present transfer is, for controllers and for the log.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use pipeline::Progress;
use runtime::metrics::counter;

/// The share of the transfer that is done, in percent.
const PROGRESS: &str = "kubevirt_cdi_upload_progress_total";
/// Bytes of the body so far.
const RECEIVED: &str = "kubevirt_cdi_upload_received_bytes_total";
/// How often the log says how far it is.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Counts the present transfer. Of one that has failed nothing is on the volume, and nothing is told.
#[derive(Debug, Default)]
pub struct Meter {
    owner: String,
    present: Mutex<Weak<Progress>>,
}

impl Meter {
    /// For the object with the UID `owner`.
    pub fn new(owner: &str) -> Self {
        Self { owner: owner.to_owned(), present: Mutex::default() }
    }

    /// Counters of another transfer, from now on and for as long as that keeps them.
    pub fn begin(&self) -> Arc<Progress> {
        let progress = Arc::new(Progress::default());
        *self.present.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&progress);
        progress
    }

    fn percent(&self) -> Option<f64> {
        let fraction = self.present().snapshot().fraction()?;
        Some((fraction * 10_000.0).floor() / 100.0)
    }

    /// The page of metrics.
    pub fn page(&self) -> String {
        let label = ("ownerUID", &*self.owner);
        let received = self.present().snapshot().read;
        let progress =
            counter(PROGRESS, "The upload progress in percentage", label, self.percent());
        let help = "Bytes of the present upload that have arrived";
        // A float holds every number of bytes that a volume has.
        progress + &counter(RECEIVED, help, label, Some(received as f64))
    }

    /// Says now and then how far it is, for as long as it is polled.
    pub async fn log(&self) -> Infallible {
        let mut said = None;
        loop {
            tokio::time::sleep(LOG_INTERVAL).await;
            let now = self.percent();
            if let Some(percent) = now.filter(|_| now != said) {
                tracing::info!(target: "progress", "{percent:.2}");
            }
            said = now;
        }
    }

    fn present(&self) -> Arc<Progress> {
        let present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        present.upgrade().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_transfer_is_counted_from_its_beginning() {
        let meter = Meter::new("1-2");
        assert!(!meter.page().contains("progress_total{"), "nothing is known yet");
        let first = meter.begin();
        first.set_read_total(200);
        first.add_read(50);
        let page = meter.page();
        assert!(
            page.contains("kubevirt_cdi_upload_progress_total{ownerUID=\"1-2\"} 25\n"),
            "{page}"
        );
        assert!(page.contains("kubevirt_cdi_upload_received_bytes_total{ownerUID=\"1-2\"} 50\n"));
        let second = meter.begin();
        second.set_read_total(1);
        assert!(meter.page().contains("progress_total{ownerUID=\"1-2\"} 0\n"));
        drop(second); // it has failed
        let page = meter.page();
        assert!(!page.contains("progress_total{"), "{page}");
        assert!(page.contains("received_bytes_total{ownerUID=\"1-2\"} 0\n"), "{page}");
    }
}
