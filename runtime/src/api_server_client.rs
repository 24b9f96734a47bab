//! The client of the API server of the cluster that a process works for.

use std::error::Error as StdError;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::timeout::TimeoutLayer;

/// Time limit of the head of a response. The API server itself gives up after 60 s, and sends the head of a watch at once.
/// kube limits the time only as long as there is a connection; a request that is queued while its connection ends would wait
/// forever (hyper issue 4122).
const RESPONSE_MAX: Duration = Duration::from_secs(90);

type Cause = Box<dyn StdError + Send + Sync>;

/// Why there is no client of an API server.
#[derive(Debug, thiserror::Error)]
pub enum ClusterClientError {
    #[error("cannot use the kubeconfig {}", path.display())]
    Kubeconfig { path: PathBuf, source: Cause },
    #[error("found neither a kubeconfig nor a service account: pass -kubeconfig, or run in a pod")]
    NotConfigured(#[source] Cause),
    #[error("cannot use {got:?} as the address of the API server")]
    Server { got: String, source: Cause },
    #[error("cannot create a client of the API server")]
    Client(#[source] Cause),
}

/// A client configured by the file `kubeconfig`, else by the user's own kubeconfig or the pod's service account. `server`
/// overrides the address. Empty values count as absent. Sends no request.
///
/// # Errors
/// See [`ClusterClientError`].
pub async fn api_server_client(
    kubeconfig: Option<&Path>,
    server: Option<&str>,
) -> Result<Client, ClusterClientError> {
    // Fails only if a provider is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut config = match kubeconfig.filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => read_kubeconfig(path)
            .await
            .map_err(|source| ClusterClientError::Kubeconfig { path: path.to_owned(), source })?,
        None => Config::infer()
            .await
            .map_err(|error| ClusterClientError::NotConfigured(error.into()))?,
    };
    if let Some(server) = server.filter(|server| !server.is_empty()) {
        let invalid = |source: Cause| ClusterClientError::Server { got: server.to_owned(), source };
        let address: http::Uri = server.parse().map_err(|error| invalid(Cause::from(error)))?;
        if address.scheme().is_none() || address.host().is_none() {
            return Err(invalid("expected https://HOST:PORT".into()));
        }
        config.cluster_url = address;
    }
    client(config, RESPONSE_MAX).map_err(|error| ClusterClientError::Client(error.into()))
}

fn client(config: Config, response_max: Duration) -> kube::Result<Client> {
    Ok(ClientBuilder::try_from(config)?.with_layer(&TimeoutLayer::new(response_max)).build())
}

async fn read_kubeconfig(path: &Path) -> Result<Config, Cause> {
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
    async fn request_without_a_response_is_an_error() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", silent.local_addr().unwrap());
        let config = Config::new(address.parse().unwrap());
        let client = client(config, Duration::from_millis(50)).unwrap();
        let error = client.apiserver_version().await.unwrap_err();
        assert!(error.to_string().contains("timed out"), "{error}");
    }

    #[tokio::test]
    async fn client_uses_kubeconfig_and_server_flag_or_reports_which_is_invalid() {
        let folder = tempfile::tempdir().unwrap();
        let (file, gone) = (folder.path().join("config"), folder.path().join("gone"));
        std::fs::write(&file, FILE).unwrap();
        for server in [None, Some(""), Some("https://elsewhere:443")] {
            let client = api_server_client(Some(&file), server).await.unwrap();
            assert_eq!(client.default_namespace(), "cdi", "{server:?}");
        }
        let wrong =
            |path, server| async move { api_server_client(path, server).await.err().unwrap() };
        let error = wrong(Some(&*gone), None).await;
        assert!(error.to_string().contains("gone"), "{error}");
        std::fs::write(&gone, "no: kubeconfig").unwrap();
        assert!(matches!(wrong(Some(&*gone), None).await, ClusterClientError::Kubeconfig { .. }));
        for server in ["api.example:6443", "not an address", "/path"] {
            let error = wrong(Some(&*file), Some(server)).await;
            assert!(error.to_string().contains(server), "{error}");
        }
    }
}
