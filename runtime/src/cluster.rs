//! The way into the cluster that a process works for.

use std::error::Error as StdError;
use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

type Cause = Box<dyn StdError + Send + Sync>;

/// Why there is no way into a cluster.
#[derive(Debug, thiserror::Error)]
pub enum NoCluster {
    /// The file that was named cannot be used.
    #[error("cannot use the kubeconfig {}", path.display())]
    Kubeconfig {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        source: Cause,
    },
    /// No file was named, and none is where one would be.
    #[error("there is no way into a cluster: neither a kubeconfig nor a service account")]
    Nothing(#[source] Cause),
    /// What was said to be its address.
    #[error("{got:?} is not the address of an API server")]
    Server {
        /// What was said.
        got: String,
        /// What is wrong with it.
        source: Cause,
    },
    /// What was found cannot be used.
    #[error("cannot make a client of the API server")]
    Client(#[source] Cause),
}

/// A client as the file `kubeconfig` says, or as the pod's service account does, or the user's own file. `server` is where
/// the API server is, if it is elsewhere. What is empty counts as not said.
///
/// # Errors
/// See [`NoCluster`]. Nobody is asked anything yet.
pub async fn cluster(kubeconfig: Option<&Path>, server: Option<&str>) -> Result<Client, NoCluster> {
    // Only a second call can fail, and then there is a provider already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut config = match kubeconfig.filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => read(path)
            .await
            .map_err(|source| NoCluster::Kubeconfig { path: path.to_owned(), source })?,
        None => Config::infer().await.map_err(|error| NoCluster::Nothing(error.into()))?,
    };
    if let Some(server) = server.filter(|server| !server.is_empty()) {
        let wrong = |source: Cause| NoCluster::Server { got: server.to_owned(), source };
        let address: http::Uri = server.parse().map_err(|error| wrong(Cause::from(error)))?;
        if address.scheme().is_none() || address.host().is_none() {
            return Err(wrong("it has to be of the form https://HOST:PORT".into()));
        }
        config.cluster_url = address;
    }
    Client::try_from(config).map_err(|error| NoCluster::Client(error.into()))
}

async fn read(path: &Path) -> Result<Config, Cause> {
    let file = Kubeconfig::read_from(path)?;
    Ok(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"apiVersion":"v1","kind":"Config","current-context":"here",
        "clusters":[{"name":"here","cluster":{"server":"https://api.example:6443"}}],
        "users":[{"name":"me","user":{"token":"hush"}}],
        "contexts":[{"name":"here","context":{"cluster":"here","user":"me","namespace":"cdi"}}]}"#;

    #[tokio::test]
    async fn a_client_is_made_as_the_file_and_the_flags_say() {
        let folder = tempfile::tempdir().unwrap();
        let (file, gone) = (folder.path().join("config"), folder.path().join("gone"));
        std::fs::write(&file, FILE).unwrap();
        for server in [None, Some(""), Some("https://elsewhere:443")] {
            let client = cluster(Some(&file), server).await.unwrap();
            assert_eq!(client.default_namespace(), "cdi", "{server:?}");
        }
        let wrong = |path, server| async move { cluster(path, server).await.err().unwrap() };
        let error = wrong(Some(&*gone), None).await;
        assert!(error.to_string().contains("gone"), "{error}");
        std::fs::write(&gone, "no: kubeconfig").unwrap();
        assert!(matches!(wrong(Some(&*gone), None).await, NoCluster::Kubeconfig { .. }));
        for server in ["api.example:6443", "not an address", "/path"] {
            let error = wrong(Some(&*file), Some(server)).await;
            assert!(error.to_string().contains(server), "{error}");
        }
    }
}
