//! `cdi-operator`: creates and renews the certificates of an installation (four CAs and the certificates that they sign),
//! and writes the CA bundles to their users. [`manifests`] defines the objects of an installation; `deploy/` is generated
//! from it.

mod ca_injection;
mod certificate_manager;
pub mod chains;
mod error;
pub mod manifests;
mod metrics;

use std::time::{Duration, Instant, SystemTime};

use kube::Client;

pub use certificate_manager::{CertificateManager, ReconcileOutcome};
pub use error::Error;
pub use metrics::{OperatorMetrics, Readiness};

/// Interval after a failure, or while objects of the installation are missing.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Objects that are missing after this time were left out by the administrator.
const INSTALLED_WITHIN: Duration = Duration::from_secs(10 * 60);

/// Reconciles the certificates of the installation in `namespace` as long as it is polled. Passes each outcome to
/// `record`.
pub async fn manage_certificates(
    client: Client,
    namespace: &str,
    record: impl Fn(ReconcileOutcome),
) {
    let manager = CertificateManager::new(client, namespace);
    let started = Instant::now();
    loop {
        let pause = match manager.reconcile(SystemTime::now()).await {
            Ok(outcome) => {
                let is_installing = !outcome.is_complete && started.elapsed() < INSTALLED_WITHIN;
                record(outcome);
                if is_installing { RETRY_INTERVAL } else { auth::rotation::RECHECK_MAX }
            }
            Err(error) => {
                let cause = runtime::chain(&error);
                tracing::warn!("cannot reconcile the certificates, retrying: {cause}");
                RETRY_INTERVAL
            }
        };
        tokio::time::sleep(pause).await;
    }
}
