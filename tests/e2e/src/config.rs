//! The administrator's client configuration for a cluster of the tests.

use anyhow::{Context, Result};
use cluster::State;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// From the kubeconfig of the cluster.
///
/// # Errors
/// When there is no such file.
pub async fn config(state: &State) -> Result<Config> {
    let file = Kubeconfig::read_from(state.kubeconfig()).context("cannot read the kubeconfig")?;
    Ok(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
}
