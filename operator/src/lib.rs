//! `cdi-operator`: keeps an installation. So far that is its certificates: four authorities and whom they vouch for, made,
//! renewed, and told to everybody who has to trust them. [`manifests`] says what an installation consists of; `deploy/` is
//! made of it.

pub mod chains;
mod error;
mod keeper;
pub mod manifests;
mod trust;

use std::time::{Duration, Instant, SystemTime};

use kube::Client;

pub use error::Error;
pub use keeper::{Keeper, Look};

/// How soon to look again after something went wrong, or while an installation is on its way.
const SOON: Duration = Duration::from_secs(5);
/// What is not there by then was left out on purpose.
const INSTALLED_WITHIN: Duration = Duration::from_secs(10 * 60);

/// Keeps the certificates of the installation in `namespace` for as long as it is polled. `made` is told how many
/// certificates each look made.
pub async fn keep(client: Client, namespace: &str, made: impl Fn(usize)) {
    let keeper = Keeper::new(client, namespace);
    let begin = Instant::now();
    loop {
        let pause = match keeper.look(SystemTime::now()).await {
            Ok(Look { made: count, is_complete }) => {
                made(count);
                let is_coming = !is_complete && begin.elapsed() < INSTALLED_WITHIN;
                if is_coming { SOON } else { auth::rotation::AGAIN_MAX }
            }
            Err(error) => {
                tracing::warn!(
                    "the certificates could not be kept, trying again: {}",
                    runtime::chain(&error)
                );
                SOON
            }
        };
        tokio::time::sleep(pause).await;
    }
}
