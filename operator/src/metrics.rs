//! The operator's metrics.

use std::sync::{Mutex, PoisonError};

use api::conditions::{AVAILABLE, status};
use api::v1beta1::Cdi;
use auth::TlsMinimum;

use crate::{PassOutcome, ReconcileOutcome};

/// The condition `Available` of the CDI object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// There is no CDI object, or it has no such condition.
    #[default]
    Unknown,
    NotReady,
    Ready,
}

impl Readiness {
    /// There should be one CDI object.
    pub fn from_cdi_objects(installations: &[Cdi]) -> Self {
        let conditions =
            installations.iter().filter_map(|cdi| cdi.status.as_ref()?.conditions.as_ref());
        let available = conditions.flatten().filter(|condition| condition.type_ == AVAILABLE);
        let statuses: Vec<_> = available.map(|condition| condition.status.as_str()).collect();
        if statuses.contains(&status::TRUE) {
            Self::Ready
        } else if statuses.contains(&status::FALSE) {
            Self::NotReady
        } else {
            Self::Unknown
        }
    }

    /// Value of the metric `kubevirt_cdi_cr_ready`.
    const fn metric_value(self) -> i8 {
        match self {
            Self::Unknown => -1,
            Self::NotReady => 0,
            Self::Ready => 1,
        }
    }
}

#[derive(Debug, Default)]
pub struct OperatorMetrics(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    created: usize,
    readiness: Readiness,
    tls_minimum: TlsMinimum,
}

impl OperatorMetrics {
    /// Of the operator that keeps the whole installation.
    pub fn record_pass(&self, outcome: &PassOutcome) {
        let PassOutcome { requeue: _, certificates_created, readiness, tls_minimum } = outcome;
        self.record(ReconcileOutcome {
            created: *certificates_created,
            is_complete: true,
            readiness: *readiness,
            tls_minimum: tls_minimum.clone(),
        });
    }

    pub fn record(&self, outcome: ReconcileOutcome) {
        let ReconcileOutcome { created, is_complete: _, readiness, tls_minimum } = outcome;
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.created += created;
        state.readiness = readiness;
        if let Some(tls_minimum) = tls_minimum {
            state.tls_minimum = tls_minimum;
        }
    }

    /// The TLS minimum of the metrics page.
    pub fn tls_minimum(&self) -> TlsMinimum {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).tls_minimum.clone()
    }

    /// The page in Prometheus' text format.
    pub fn text(&self) -> String {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let created = "kubevirt_cdi_operator_certificates_made_total";
        let ready = "kubevirt_cdi_cr_ready";
        format!(
            "# HELP {created} Certificates created since the start\n# TYPE {created} counter\n{created} {}\n\
             # HELP {ready} Condition Available of the CDI object: 1 true, 0 false, -1 unknown\n# TYPE {ready} gauge\n{ready} {}\n",
            state.created,
            state.readiness.metric_value()
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cdi(status: Value) -> Cdi {
        let cdi = json!({ "metadata": { "name": "cdi" }, "spec": {}, "status": status });
        serde_json::from_value(cdi).unwrap()
    }

    fn available(status: &str) -> Value {
        json!({ "conditions": [
            { "type": "Progressing", "status": "True" }, { "type": "Available", "status": status },
        ] })
    }

    #[test]
    fn readiness_follows_the_condition_available() {
        for (status, expected) in [
            (json!({}), -1),
            (json!({ "phase": "Deployed" }), -1),
            (available("Unknown"), -1),
            (available("False"), 0),
            (available("True"), 1),
        ] {
            assert_eq!(
                Readiness::from_cdi_objects(&[cdi(status.clone())]).metric_value(),
                expected,
                "{status}"
            );
        }
        assert_eq!(Readiness::from_cdi_objects(&[]).metric_value(), -1);
    }

    #[test]
    fn page_sums_created_certificates_and_keeps_the_last_tls_minimum() {
        let metrics = OperatorMetrics::default();
        let line = |name: &str| {
            let text = metrics.text();
            let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            found.unwrap().to_owned()
        };
        assert_eq!(line("kubevirt_cdi_cr_ready"), "-1");
        let other = TlsMinimum::parse("VersionTLS13", "").unwrap();
        let outcome = |created, tls_minimum| ReconcileOutcome {
            created,
            is_complete: true,
            readiness: Readiness::Ready,
            tls_minimum,
        };
        metrics.record(outcome(3, Some(other.clone())));
        metrics.record(outcome(2, None));
        assert_eq!(line("kubevirt_cdi_operator_certificates_made_total"), "5");
        assert_eq!(line("kubevirt_cdi_cr_ready"), "1");
        assert_eq!(metrics.tls_minimum(), other, "unreadable settings keep the last minimum");
    }
}
