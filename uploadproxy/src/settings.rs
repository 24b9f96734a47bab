//! What the operator tells a proxy, by its environment.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use auth::token::{TokenError, VerifyingKey};
use contract::go_bool;

/// Where clients connect.
const PORT: u16 = 8443;
/// All claims of a cluster share them.
const CONNECTIONS: usize = 4096;
/// Longer than any client needs for a few lines.
const PATIENCE: Duration = Duration::from_secs(10);
/// A container that has died is started again within a few seconds, and clients are not as patient with an error.
const SERVER_PATIENCE: Duration = Duration::from_secs(10);

/// Everything that a process is told at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// PEM: what is shown to clients.
    pub certificate: PathBuf,
    /// PEM: its key.
    pub key: PathBuf,
    /// PEM: what is shown to upload servers.
    pub client_certificate: PathBuf,
    /// PEM: its key.
    pub client_key: PathBuf,
    /// The ConfigMap with the authorities of upload servers.
    pub authorities: String,
    /// What tokens are verified with.
    pub token_key: VerifyingKey,
    /// There is a page to upload from.
    pub page: bool,
    /// How many clients may be connected.
    pub connections: usize,
    /// How long a client may take to shake hands, and then to say what it wants.
    pub patience: Duration,
    /// How long an upload server that was ready may be away.
    pub server_patience: Duration,
}

/// Why an environment cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadSetting {
    /// Without it no token can be verified.
    #[error(
        "APISERVER_PUBLIC_KEY is not there: it has to hold the public key of the API server, as PEM"
    )]
    NoKey,
    /// It is no key.
    #[error("APISERVER_PUBLIC_KEY cannot be used")]
    Key(#[source] TokenError),
}

impl Settings {
    /// Reads the variables of a container; what is not there has its documented default, where it has one.
    ///
    /// # Errors
    /// When tokens could not be verified.
    pub fn from_environment(variables: &BTreeMap<String, String>) -> Result<Self, BadSetting> {
        let text = |name: &str, default: &str| match variables.get(name) {
            Some(value) if !value.is_empty() => value.clone(),
            _ => default.to_owned(),
        };
        let key = text("APISERVER_PUBLIC_KEY", "");
        if key.is_empty() {
            return Err(BadSetting::NoKey);
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
            authorities: text(
                "UPLOAD_SERVER_CA_BUNDLE_CONFIG_MAP",
                "cdi-uploadserver-signer-bundle",
            ),
            token_key: VerifyingKey::from_pem(key.as_bytes()).map_err(BadSetting::Key)?,
            page: go_bool(&text("UPLOAD_PAGE", "")).unwrap_or(false),
            connections: CONNECTIONS,
            patience: PATIENCE,
            server_patience: SERVER_PATIENCE,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, BadSetting> {
        let variables =
            variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Settings::from_environment(&variables)
    }

    #[test]
    fn a_key_is_needed_and_all_else_has_its_documented_default() {
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
        assert_eq!(settings.authorities, "cdi-uploadserver-signer-bundle");
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
        assert_eq!(settings.authorities, "e");
        assert!(settings.page);
        assert!(matches!(read(&[]), Err(BadSetting::NoKey)));
        assert!(matches!(read(&[("APISERVER_PUBLIC_KEY", "k")]), Err(BadSetting::Key(_))));
    }
}
