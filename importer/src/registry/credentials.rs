//! Docker's file of credentials: who is known to which registry.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::reference::{Reference, host_of};
use crate::error::Error;
use crate::secret::Secret;
use crate::web::BasicAuth;

/// A Secret holds no more.
const FILE_LEN_MAX: usize = 1 << 20;

/// What `config.json` of Docker, `auth.json` of Podman and pull secrets of Kubernetes hold. Credential helpers that such
/// a file names are never run: they are untrusted programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// By host, or host and the beginning of a repository.
    entries: BTreeMap<String, RegistryAuth>,
}

/// What proves who is asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RegistryAuth {
    Password(BasicAuth),
    /// To be sent as it is.
    Token(Secret),
    /// Only valid for a kind of request that is not used here.
    Identity,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Entry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
    registrytoken: String,
}

impl Credentials {
    /// Reads such a file. Its text appears in no error.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(json: &str) -> Result<Self, Error> {
        let refuse =
            |what: &str| Error::Option { what: format!("the registry credentials {what}") };
        if json.len() > FILE_LEN_MAX {
            return Err(refuse("are longer than 1 MiB"));
        }
        // serde's message would repeat what is wrong, and that may be a password.
        let file: File = serde_json::from_str(json)
            .map_err(|error| refuse(&format!("are not readable (line {})", error.line())))?;
        let mut entries = BTreeMap::new();
        for (key, entry) in file.auths {
            let key = normal(&key);
            let broken = || refuse(&format!("for {} are not readable", key.escape_debug()));
            if let Some(known) = entry.into_auth().ok_or_else(broken)? {
                entries.insert(key, known);
            }
        }
        Ok(Self { entries })
    }

    /// What is known for a repository at `registry`: the entry with the longest path counts.
    pub(crate) fn find(&self, registry: &str, repository: &str) -> Option<&RegistryAuth> {
        let full = format!("{}/{repository}", registry.to_ascii_lowercase());
        let ends = full.match_indices('/').map(|(at, _)| at).chain([full.len()]);
        let ends: Vec<_> = ends.collect();
        ends.into_iter().rev().find_map(|end| self.entries.get(&full[..end]))
    }

    /// The same, for an image reference, in which Docker Hub has a short name.
    pub(crate) fn for_reference(&self, reference: &Reference) -> Option<&RegistryAuth> {
        self.find(&reference.registry, &reference.repository)
            .or_else(|| self.find(host_of(&reference.registry), &reference.repository))
    }
}

impl Entry {
    /// `None`: broken. `Some(None)`: empty, as a credential helper leaves it.
    fn into_auth(self) -> Option<Option<RegistryAuth>> {
        if !self.registrytoken.is_empty() {
            return Some(Some(RegistryAuth::Token(self.registrytoken.into())));
        }
        if !self.identitytoken.is_empty() {
            return Some(Some(RegistryAuth::Identity));
        }
        let (username, password) = if self.auth.is_empty() {
            (self.username, self.password)
        } else {
            let bytes = STANDARD.decode(self.auth.trim()).ok()?;
            let pair = String::from_utf8(bytes).ok()?;
            let (username, password) = pair.split_once(':')?;
            (username.to_owned(), password.trim_end_matches('\0').to_owned())
        };
        if username.is_empty() && password.is_empty() {
            return Some(None);
        }
        Some(Some(RegistryAuth::Password(BasicAuth { username, password: Secret::new(password) })))
    }
}

/// `https://index.docker.io/v1/` is how Docker writes `docker.io`.
fn normal(key: &str) -> String {
    let key = key.split_once("://").map_or(key, |(_, rest)| rest).trim_end_matches('/');
    let key = ["/v1", "/v2"].iter().find_map(|end| key.strip_suffix(end)).unwrap_or(key);
    let (host, path) = key.split_once('/').map_or((key, None), |(host, path)| (host, Some(path)));
    let host = match host {
        "index.docker.io" | "registry-1.docker.io" => "docker.io".to_owned(),
        other => other.to_ascii_lowercase(),
    };
    path.map_or(host.clone(), |path| format!("{host}/{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(json: &str, reference: &str) -> Option<String> {
        let credentials = Credentials::parse(json).unwrap();
        match credentials.for_reference(&Reference::parse(reference).unwrap())? {
            RegistryAuth::Password(auth) => {
                Some(format!("{}:{}", auth.username, auth.password.reveal()))
            }
            RegistryAuth::Token(token) => Some(token.reveal().to_owned()),
            RegistryAuth::Identity => Some("identity".to_owned()),
        }
    }

    #[test]
    fn the_entry_that_fits_best_counts() {
        let json = r#"{"auths": {
            "https://index.docker.io/v1/": {"auth": "aHViOndvcmQ="},
            "quay.io": {"username": "q", "password": "a:b"},
            "quay.io/team": {"auth": "dGVhbTp3b3Jk"},
            "https://host:5000": {"registrytoken": "abc"},
            "acr.io": {"identitytoken": "x"},
            "helper.io": {}
        }, "credsStore": "desktop"}"#;
        let table = [
            ("debian", Some("hub:word")),
            ("quay.io/other/a", Some("q:a:b")),
            ("quay.io/team/a", Some("team:word")),
            ("quay.io/teams/a", Some("q:a:b")),
            ("host:5000/a", Some("abc")),
            ("host:5001/a", None),
            ("acr.io/a", Some("identity")),
            ("helper.io/a", None),
        ];
        for (reference, expected) in table {
            assert_eq!(found(json, reference).as_deref(), expected, "{reference}");
        }
        assert_eq!(found("{}", "debian"), None);
    }

    #[test]
    fn a_parse_error_does_not_repeat_its_input() {
        for json in [
            r#"{"auths": {"a.io": {"auth": "hush!"}}}"#,
            r#"{"auths": {"a.io": {"auth": 5, "password": "hush"}}}"#,
            r#"{"auths": "hush"}"#,
        ] {
            let error = Credentials::parse(json).unwrap_err().to_string();
            assert!(!error.contains("hush") && error.contains("registry credentials"), "{error}");
        }
    }

    #[test]
    fn credentials_can_be_shown_without_their_secrets() {
        let json = r#"{"auths": {"a.io": {"username": "u", "password": "hush"}}}"#;
        let shown = format!("{:?}", Credentials::parse(json).unwrap());
        assert!(shown.contains("a.io") && !shown.contains("hush"), "{shown}");
    }
}
