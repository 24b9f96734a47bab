//! `cdi-operator`: keeps an installation. So far that is its certificates: four authorities and whom they vouch for, made,
//! renewed, and told to everybody who has to trust them. [`manifests`] says what an installation consists of; `deploy/` is
//! made of it.

pub mod chains;
mod error;
mod keeper;
pub mod manifests;
mod page;
mod trust;

use std::time::{Duration, Instant, SystemTime};

use kube::Client;

pub use error::Error;
pub use keeper::{Keeper, Look};
pub use page::{Readiness, Shown};

/// How soon to look again after something went wrong, or while an installation is on its way.
const SOON: Duration = Duration::from_secs(5);
/// What is not there by then was left out on purpose.
const INSTALLED_WITHIN: Duration = Duration::from_secs(10 * 60);

/// Keeps the certificates of the installation in `namespace` for as long as it is polled. `told` is told what each look came
/// to.
pub async fn keep(client: Client, namespace: &str, told: impl Fn(Look)) {
    let keeper = Keeper::new(client, namespace);
    let begin = Instant::now();
    loop {
        let pause = match keeper.look(SystemTime::now()).await {
            Ok(look) => {
                let is_coming = !look.is_complete && begin.elapsed() < INSTALLED_WITHIN;
                told(look);
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
