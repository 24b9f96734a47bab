//! Restricts webhook calls, if the administrator configures it, to clients with a certificate of a dedicated CA, which
//! the API server has if its AdmissionConfiguration names a kubeconfig.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use auth::{ClientCa, common_name};
use runtime::https;

use crate::error::Error;

/// The values of the flags `-webhook-client-ca` and `-webhook-client-names`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookClientFile {
    /// CA certificates (PEM). Read again while the program runs.
    pub ca: PathBuf,
    /// Common names that are accepted. Empty: every one that the CA signs.
    pub names: Vec<String>,
}

/// The clients that may call webhooks.
#[derive(Clone, Debug)]
pub struct WebhookClients {
    /// CA certificates, as PEM.
    pub ca: Arc<str>,
    verifier: ClientCa,
    names: Arc<[String]>,
}

impl WebhookClientFile {
    /// `None` without a CA.
    pub fn from_settings(ca: Option<&str>, names: Option<&str>) -> Option<Self> {
        let ca = ca.filter(|path| !path.is_empty())?;
        let names = names.unwrap_or_default().split(',').map(str::trim);
        let names = names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Some(Self { ca: Path::new(ca).to_owned(), names })
    }

    ///
    /// # Errors
    /// When it cannot be read, or holds no CA certificate.
    pub async fn read(&self) -> Result<WebhookClients, Error> {
        let text = tokio::fs::read_to_string(&self.ca).await;
        let text = text
            .map_err(|source| Error::ClientCa { path: self.ca.clone(), source: source.into() })?;
        let verifier = ClientCa::from_pem(&text)
            .map_err(|source| Error::ClientCa { path: self.ca.clone(), source: source.into() })?;
        Ok(WebhookClients { ca: text.into(), verifier, names: self.names.clone().into() })
    }
}

impl WebhookClients {
    pub fn contain(&self, peer: &https::Peer) -> bool {
        let chain = &peer.certificates;
        let is_named = || {
            let name = chain.first().and_then(common_name);
            name.is_some_and(|name| self.names.contains(&name))
        };
        self.verifier.has_signed(chain, SystemTime::now()) && (self.names.is_empty() || is_named())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_without_a_ca_restrict_no_client() {
        let read = WebhookClientFile::from_settings;
        assert_eq!(read(None, Some("a")), None);
        assert_eq!(read(Some(""), Some("a")), None);
        let expected = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            Some(WebhookClientFile { ca: "/ca.crt".into(), names })
        };
        assert_eq!(read(Some("/ca.crt"), None), expected(&[]));
        assert_eq!(read(Some("/ca.crt"), Some(" a, b,,")), expected(&["a", "b"]));
    }
}
