//! Settings from environment variables.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use auth::token::{TokenError, VerifyingKey};
use contract::go_bool;

const PORT: u16 = 8443;
// Shared by uploads to all PVCs of a cluster.
const CONNECTIONS: usize = 4096;
// Longer than any client needs for a request head.
const PATIENCE: Duration = Duration::from_secs(10);
// A crashed container restarts within a few seconds; clients fail at once on an error.
const SERVER_PATIENCE: Duration = Duration::from_secs(10);
// Kubelet and controller take seconds, longer while one of them restarts.
const RECORD_PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub struct Settings {
    pub listen: SocketAddr,
    /// The server certificate (PEM).
    pub certificate: PathBuf,
    /// Its key (PEM).
    pub key: PathBuf,
    /// The client certificate for upload servers (PEM).
    pub client_certificate: PathBuf,
    /// Its key (PEM).
    pub client_key: PathBuf,
    /// Name of the ConfigMap with the CAs of upload servers.
    pub ca_config_map: String,
    pub token_key: VerifyingKey,
    /// Serve the upload page.
    pub page: bool,
    /// Maximum number of connections.
    pub connections: usize,
    /// Time limits of the TLS handshake and of the request head, each.
    pub patience: Duration,
    /// How long to retry a connection to an upload server.
    pub server_patience: Duration,
    /// How long the response to a complete upload waits for the record of its end in the PVC.
    pub record_patience: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    #[error("missing variable APISERVER_PUBLIC_KEY: set it to the API server's public key as PEM")]
    NoKey,
    #[error("cannot parse APISERVER_PUBLIC_KEY as a PEM public key")]
    Key(#[source] TokenError),
}

impl Settings {
    /// Reads the variables of a container. Absent ones have their documented defaults.
    ///
    /// # Errors
    /// When the token key is missing or invalid.
    pub fn from_environment(variables: &BTreeMap<String, String>) -> Result<Self, SettingError> {
        let text = |name: &str, default: &str| match variables.get(name) {
            Some(value) if !value.is_empty() => value.clone(),
            _ => default.to_owned(),
        };
        let key = text("APISERVER_PUBLIC_KEY", "");
        if key.is_empty() {
            return Err(SettingError::NoKey);
        }
        let file =
            |name, folder: &str, file| text(name, &format!("/var/run/certs/{folder}/{file}"));
        let (server, client) = ("cdi-uploadproxy-server-cert", "cdi-uploadserver-client-cert");
        Ok(Self {
            listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)),
            certificate: file("SERVER_CERT_FILE", server, "tls.crt").into(),
            key: file("SERVER_KEY_FILE", server, "tls.key").into(),
            client_certificate: file("UPLOAD_CLIENT_CERT_FILE", client, "tls.crt").into(),
            client_key: file("UPLOAD_CLIENT_KEY_FILE", client, "tls.key").into(),
            ca_config_map: text(
                "UPLOAD_SERVER_CA_BUNDLE_CONFIG_MAP",
                "cdi-uploadserver-signer-bundle",
            ),
            token_key: VerifyingKey::from_pem(key.as_bytes()).map_err(SettingError::Key)?,
            page: go_bool(&text("UPLOAD_PAGE", "")).unwrap_or(false),
            connections: CONNECTIONS,
            patience: PATIENCE,
            server_patience: SERVER_PATIENCE,
            record_patience: RECORD_PATIENCE,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, SettingError> {
        let variables =
            variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Settings::from_environment(&variables)
    }

    #[test]
    fn token_key_is_required_and_other_variables_have_defaults() {
        let key = auth::token::KeyTexts::generate().unwrap().public;
        let settings = read(&[("APISERVER_PUBLIC_KEY", &key)]).unwrap();
        let folder = PathBuf::from("/var/run/certs");
        assert_eq!(settings.listen.to_string(), "0.0.0.0:8443");
        assert_eq!(settings.certificate, folder.join("cdi-uploadproxy-server-cert/tls.crt"));
        assert_eq!(settings.key, folder.join("cdi-uploadproxy-server-cert/tls.key"));
        assert_eq!(
            settings.client_certificate,
            folder.join("cdi-uploadserver-client-cert/tls.crt")
        );
        assert_eq!(settings.client_key, folder.join("cdi-uploadserver-client-cert/tls.key"));
        assert_eq!(settings.ca_config_map, "cdi-uploadserver-signer-bundle");
        assert!(!settings.page);
        let settings = read(&[
            ("APISERVER_PUBLIC_KEY", &key),
            ("SERVER_CERT_FILE", "/a"),
            ("SERVER_KEY_FILE", "/b"),
            ("UPLOAD_CLIENT_CERT_FILE", "/c"),
            ("UPLOAD_CLIENT_KEY_FILE", "/d"),
            ("UPLOAD_SERVER_CA_BUNDLE_CONFIG_MAP", "e"),
            ("UPLOAD_PAGE", "true"),
        ])
        .unwrap();
        let files = [
            &settings.certificate,
            &settings.key,
            &settings.client_certificate,
            &settings.client_key,
        ];
        assert_eq!(files.map(|path| path.to_str().unwrap()), ["/a", "/b", "/c", "/d"]);
        assert_eq!(settings.ca_config_map, "e");
        assert!(settings.page);
        assert!(matches!(read(&[]), Err(SettingError::NoKey)));
        assert!(matches!(read(&[("APISERVER_PUBLIC_KEY", "k")]), Err(SettingError::Key(_))));
    }
}
