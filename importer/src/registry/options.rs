//! What only registries want to know.

use std::str::FromStr;

use super::credentials::Credentials;
use super::reference::is_authority;

/// Options of requests to a registry, in addition to those of every web server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistryOptions {
    /// Which image of an index, as Go names architectures: `amd64`, `arm64`. `None`: this machine's.
    pub architecture: Option<String>,
    /// Used if no user and password are given.
    pub credentials: Credentials,
    /// Mirrors, tried in this order before the registry itself.
    pub mirrors: Vec<Mirror>,
}

/// Somewhere the images of a registry are as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// `docker.io`
    pub(crate) registry: String,
    /// `mirror.example:5000`
    pub(crate) host: String,
    /// What stands before the repository there, with a slash at its end; or nothing.
    pub(crate) prefix: String,
}

impl FromStr for Mirror {
    type Err = String;

    /// Reads `REGISTRY=HOST[:PORT][/PREFIX]`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "a mirror is written REGISTRY=HOST[:PORT][/PREFIX]".to_owned();
        let (registry, place) = text.split_once('=').ok_or_else(wrong)?;
        let place = place.strip_suffix('/').unwrap_or(place);
        let (host, prefix) = place.split_once('/').unwrap_or((place, ""));
        let legal = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        let climbs = prefix.split('/').any(|part| part == "..");
        if !is_authority(registry) || !is_authority(host) || !prefix.chars().all(legal) || climbs {
            return Err(wrong());
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Self { registry: registry.to_owned(), host: host.to_owned(), prefix })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirror_replaces_a_registry() {
        let mirror = |text: &str| {
            let found: Mirror = text.parse().ok()?;
            Some(format!("{} {} {}", found.registry, found.host, found.prefix))
        };
        let table = [
            ("docker.io=mirror:5000", Some("docker.io mirror:5000 ")),
            ("quay.io=host/cache/quay/", Some("quay.io host cache/quay/")),
            ("mirror:5000", None),
            ("=mirror", None),
            ("docker.io=", None),
            ("docker.io=http://mirror", None),
            ("docker.io=mirror/../x", None),
        ];
        for (text, expected) in table {
            assert_eq!(mirror(text).as_deref(), expected, "{text}");
        }
    }
}
