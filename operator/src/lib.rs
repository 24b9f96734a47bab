//! `cdi-operator`: keeps an installation. So far that is its certificates: four authorities and whom they vouch for, made,
//! renewed, and told to everybody who has to trust them. [`manifests`] says what an installation consists of; `deploy/` is
//! made of it.

pub mod chains;
mod error;
mod keeper;
pub mod manifests;
mod trust;

use std::time::{Duration, SystemTime};

use kube::Client;

pub use error::Error;
pub use keeper::Keeper;

/// How soon to look again after something went wrong.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Keeps the certificates of the installation in `namespace` for as long as it is polled. `made` is told how many
/// certificates each look made.
pub async fn keep(client: Client, namespace: &str, made: impl Fn(usize)) {
    let keeper = Keeper::new(client, namespace);
    loop {
        let pause = match keeper.look(SystemTime::now()).await {
            Ok(count) => {
                made(count);
                auth::rotation::AGAIN_MAX
            }
            Err(error) => {
                tracing::warn!(
                    "the certificates could not be kept, trying again: {}",
                    runtime::chain(&error)
                );
                AFTER_FAILURE
            }
        };
        tokio::time::sleep(pause).await;
    }
}
