//! The progress of an import, for controllers and for users.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pipeline::Progress;
use runtime::MetricsTls;
use runtime::metrics::{self, Page};
use runtime::worker_tasks::{self, ShutdownHook};

use crate::stage::StopFlag;

/// What every controller looks for, and what it means.
const METRIC: (&str, &str) =
    ("kubevirt_cdi_import_progress_total", "The import progress in percentage");

/// Where the time goes.
const TIME_METRIC: (&str, &str) = (
    "kubevirt_cdi_import_activity_seconds_total",
    "Seconds that the threads of the import have spent on an activity or waited for it",
);

/// The share of the disk that is in place, from 0 to 100, which never falls.
#[derive(Debug)]
pub struct Percentage {
    /// Name, and what it means.
    metric: (&'static str, &'static str),
    progress: Arc<Progress>,
    owner: String,
    /// The most so far, in hundredths; 0 while nothing is known, else one more than that.
    most: AtomicU32,
}

impl Percentage {
    /// Of `progress`, for the object with the UID `owner`.
    pub fn new(progress: Arc<Progress>, owner: &str) -> Self {
        Self::under(METRIC, progress, owner)
    }

    /// The same under another name, with a sentence on it.
    pub fn under(
        metric: (&'static str, &'static str),
        progress: Arc<Progress>,
        owner: &str,
    ) -> Self {
        Self { metric, progress, owner: owner.to_owned(), most: AtomicU32::new(0) }
    }

    /// Serves and logs it from now on, and handles signals. `stop` is for an import that has to notify its source before
    /// the process ends.
    ///
    /// # Errors
    /// When there is no thread to be had, or no signals.
    pub fn attend(
        self,
        listener: Option<TcpListener>,
        tls: MetricsTls,
        stop: Option<StopFlag>,
    ) -> io::Result<()> {
        let percentage = Arc::new(self);
        let page: Page = {
            let percentage = Arc::clone(&percentage);
            Arc::new(move || percentage.page())
        };
        let shutdown_hook = stop.map(|stop| Box::new(move || stop.set()) as ShutdownHook);
        worker_tasks::start_worker_tasks(
            listener,
            tls,
            page,
            move || percentage.value(),
            shutdown_hook,
        )
    }

    /// `None` before anything is known, which is shown as `N/A`.
    pub fn value(&self) -> Option<f64> {
        if let Some(share) = self.progress.snapshot().fraction() {
            let hundredths = (share.clamp(0.0, 1.0) * 10_000.0).floor() as u32;
            self.most.fetch_max(hundredths + 1, Ordering::Relaxed);
        }
        let most = self.most.load(Ordering::Relaxed);
        most.checked_sub(1).map(|hundredths| f64::from(hundredths) / 100.0)
    }

    pub fn page(&self) -> String {
        let (name, help) = self.metric;
        let owner = ("ownerUID", self.owner.as_str());
        let spent = self.progress.time_spent().by_activity();
        let spent = spent.map(|(activity, seconds)| ([owner, ("activity", activity)], seconds));
        let (time_name, time_help) = TIME_METRIC;
        metrics::counters(time_name, time_help, &spent)
            + &metrics::counter(name, help, owner, self.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipeline::ProgressPhase;

    #[test]
    fn time_is_reported_by_activity() {
        let page = Percentage::new(Arc::default(), "1-2").page();
        for activity in ["network_wait", "decompression", "decoding", "write_wait", "sync"] {
            let sample =
                format!("{}{{ownerUID=\"1-2\",activity=\"{activity}\"}} 0\n", TIME_METRIC.0);
            assert!(page.contains(&sample), "{page}");
        }
    }

    #[test]
    fn progress_is_unknown_at_first_and_never_falls() {
        let progress = Arc::new(Progress::default());
        let percentage = Percentage::new(Arc::clone(&progress), "1-2");
        assert_eq!(percentage.value(), None);
        let sample = format!("{}{{", METRIC.0);
        assert!(!percentage.page().contains(&sample));
        progress.set_guest_total(3000);
        assert_eq!(percentage.value(), Some(0.0));
        progress.add_written(1000);
        assert_eq!(percentage.value(), Some(33.33));
        progress.set_guest_total(1_000_000);
        assert_eq!(percentage.value(), Some(33.33));
        progress.enter(ProgressPhase::Done);
        assert!(
            percentage
                .page()
                .ends_with("kubevirt_cdi_import_progress_total{ownerUID=\"1-2\"} 100\n")
        );
    }
}
