//! The progress of a transfer, as users and programs read it.

use std::time::Duration;

/// Interval of reading a state that no watch reports, such as progress.
pub const POLL: Duration = Duration::from_secs(2);
/// The same for an upload server without a client: it may wait for days.
pub const POLL_IDLE: Duration = Duration::from_secs(10);

/// The progress is unknown.
pub const UNKNOWN: &str = "N/A";
pub const ALL: &str = "100.0%";

/// A percentage as it is shown: `42.00%`.
pub fn percent(value: f64) -> String {
    format!("{:.2}%", value.clamp(0.0, 100.0))
}

/// The progress to show while a worker runs: never 100 %, since the worker has to finish.
pub fn while_running(shown: Option<&str>) -> &str {
    match shown {
        Some(text) if !text.is_empty() && !text.starts_with("100") => text,
        _ => UNKNOWN,
    }
}

/// When to request the progress of an upload server again: sooner while it changes. `shown` is the last one reported.
pub fn upload_poll(measured: Option<f64>, shown: Option<&str>) -> Duration {
    match measured.map(percent) {
        Some(now) if shown != Some(now.as_str()) => POLL,
        _ => POLL_IDLE,
    }
}

/// The percentage in the metrics of a worker, from lines such as
/// `kubevirt_cdi_import_progress_total{ownerUID="uid"} 13.5`.
pub fn measured(metrics: &str, name: &str, owner_uid: &str) -> Option<f64> {
    metrics.lines().find_map(|line| {
        let labels = line.strip_prefix(name)?.strip_prefix("{ownerUID=\"")?;
        let value = labels.strip_prefix(owner_uid)?.strip_prefix("\"}")?.trim();
        let value: f64 = value.split_ascii_whitespace().next()?.parse().ok()?;
        (value.is_finite() && (0.0..=100.0).contains(&value)).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_from_the_metric_of_the_owner() {
        let name = "kubevirt_cdi_import_progress_total";
        let text = format!(
            "# HELP {name} percent\n{name}{{ownerUID=\"a\"}} 13.5\n{name}{{ownerUID=\"b\"}} 99 1234\n\
             {name}{{ownerUID=\"c\"}} NaN\n{name}{{ownerUID=\"d\"}} 1e9\n# EOF\n"
        );
        let of = |uid| measured(&text, name, uid);
        assert_eq!(of("a"), Some(13.5));
        assert_eq!(of("b"), Some(99.0));
        for none in ["c", "d", "e", ""] {
            assert_eq!(of(none), None, "{none}");
        }
        assert_eq!(measured("", name, "a"), None);
    }

    #[test]
    fn idle_upload_server_is_polled_less_often() {
        assert_eq!(upload_poll(Some(41.0), None), POLL);
        assert_eq!(upload_poll(Some(41.0), Some("40.00%")), POLL);
        for (measured, shown) in [(None, None), (None, Some("N/A")), (Some(41.0), Some("41.00%"))] {
            assert_eq!(upload_poll(measured, shown), POLL_IDLE, "{measured:?}");
        }
    }

    #[test]
    fn progress_is_below_100_percent_while_running() {
        assert_eq!(percent(0.0), "0.00%");
        assert_eq!(percent(41.999), "42.00%");
        assert_eq!(percent(100.0), "100.00%");
        assert_eq!(while_running(Some("99.99%")), "99.99%");
        for early in [Some("100.00%"), Some("100.0%"), Some(""), None, Some("N/A")] {
            assert_eq!(while_running(early), "N/A");
        }
    }
}
