//! `cdi-operator`: installs, keeps, upgrades and removes what a CDI object describes, and creates and renews the
//! certificates (four CAs and the certificates that they sign).
//!
//! ```text
//! CDI object ─► desired: the objects to have ─┐
//! cluster ────► installer: reads ─────────────┴─► plan: what to write ─► installer: writes ─► status, events
//! ```
//!
//! [`manifests`] defines the objects; `deploy/` is generated from it. An installation by those plain manifests has no
//! operator variables in its environment: there the program keeps the certificates only.

mod api_client;
mod ca_injection;
mod certificate_manager;
pub mod chains;
mod customize;
pub mod desired;
mod error;
mod events;
mod installer;
mod kinds;
pub mod manifests;
mod metadata;
mod metrics;
mod plan;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use kube::Client;
use tokio::sync::Notify;

pub use certificate_manager::{CertificateManager, ReconcileOutcome};
use desired::OperatorEnvironment;
pub use error::Error;
pub use installer::{Installer, PassOutcome, PreflightReport, preflight};
pub use metrics::{OperatorMetrics, Readiness};
use watch::Watches;

/// Interval after a failure, or while objects of the installation are missing.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Objects that are missing after this time were left out by the administrator.
const INSTALLED_WITHIN: Duration = Duration::from_secs(10 * 60);
/// Changes within this time lead to one pass.
const CHANGES_COLLECTED: Duration = Duration::from_millis(300);
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Reconciles all CDI objects as long as it is polled: after each change, and at least once a minute.
pub async fn manage_installation(
    client: Client,
    environment: OperatorEnvironment,
    record: impl Fn(&PassOutcome),
) {
    let changed = Arc::new(Notify::new());
    let mut watches = Watches::start(client.clone(), &environment.namespace, Arc::clone(&changed));
    let mut installer = Installer::new(client, environment);
    let mut backoff = BACKOFF_MIN;
    loop {
        let pause = match installer.pass(Timestamp::now()).await {
            Ok(outcome) => {
                record(&outcome);
                backoff = BACKOFF_MIN;
                outcome.requeue
            }
            Err(error) => {
                let cause = runtime::chain(&error);
                tracing::warn!("cannot reconcile the installation, retrying: {cause}");
                let pause = backoff;
                backoff = (2 * backoff).min(BACKOFF_MAX);
                pause
            }
        };
        watches.add_platform(installer.served_apis());
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = changed.notified() => tokio::time::sleep(CHANGES_COLLECTED.min(pause)).await,
        }
    }
}

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
