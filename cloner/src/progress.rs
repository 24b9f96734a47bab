//! The progress of a clone, as a metric.

use std::sync::atomic::{AtomicU64, Ordering};

/// Name of the metric; upstream's controller looks for it too.
const METRIC: &str = "kubevirt_cdi_clone_progress_total";

/// Bytes that were read, of those that have to be read.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    /// 0: unknown.
    total: AtomicU64,
    /// The maximum so far, in hundredths of a percent, plus one; 0: unknown.
    max_shown: AtomicU64,
}

impl Progress {
    pub fn set_total(&self, bytes: u64) {
        self.total.store(bytes.max(1), Ordering::Relaxed);
    }

    pub fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Resets the count when a transfer is resumed. The shown value does not fall.
    pub(crate) fn set(&self, bytes: u64) {
        self.done.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn finish(&self) {
        self.max_shown.store(10_001, Ordering::Relaxed);
    }

    /// In percent; never falls. `None` while the total is unknown.
    pub fn value(&self) -> Option<f64> {
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        if total > 0 {
            let hundredths = u128::from(done.min(total)) * 10_000 / u128::from(total);
            self.max_shown.fetch_max(hundredths as u64 + 1, Ordering::Relaxed);
        }
        let max_shown = self.max_shown.load(Ordering::Relaxed);
        max_shown.checked_sub(1).map(|hundredths| hundredths as f64 / 100.0)
    }

    /// In the Prometheus text format.
    pub fn page(&self, owner_uid: &str) -> String {
        let help = "The clone progress in percentage";
        runtime::metrics::counter(METRIC, help, ("ownerUID", owner_uid), self.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_unknown_at_first_and_never_falls() {
        let progress = Progress::default();
        assert_eq!(progress.value(), None);
        assert!(!progress.page("1-2").contains("ownerUID"));
        progress.set_total(3000);
        assert_eq!(progress.value(), Some(0.0));
        progress.add(1000);
        assert_eq!(progress.value(), Some(33.33));
        progress.set(500);
        assert_eq!(progress.value(), Some(33.33));
        progress.add(u64::from(u32::MAX));
        assert_eq!(progress.value(), Some(100.0));
        let line = "\nkubevirt_cdi_clone_progress_total{ownerUID=\"1-2\"} 100\n";
        assert!(progress.page("1-2").ends_with(line));
        let empty = Progress::default();
        empty.set_total(0);
        assert_eq!(empty.value(), Some(0.0));
        empty.finish();
        assert_eq!(empty.value(), Some(100.0));
    }
}
