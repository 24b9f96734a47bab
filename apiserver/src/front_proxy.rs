//! The user of a request that the cluster's API server forwards as front proxy: the proxy presents its certificate and names
//! the user in headers.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName};
use k8s_openapi::api::core::v1::ConfigMap;
use percent_encoding::percent_decode_str;

use crate::review::User;

/// The trusted front proxies, and the headers that they set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontProxy {
    /// CA certificates of front proxies, as PEM. Empty: no proxy is trusted.
    pub ca: String,
    allowed_names: Vec<String>,
    user_headers: Vec<String>,
    group_headers: Vec<String>,
    extra_prefixes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request is not authenticated")]
pub struct NotAuthenticated;

impl FrontProxy {
    /// From the cluster's ConfigMap. Values that cannot be parsed count as absent, so that fewer clients are trusted.
    pub fn read(config: Option<&ConfigMap>) -> Self {
        let text = |key: &str| {
            let value = config.and_then(|config| config.data.as_ref()?.get(key));
            value.cloned().unwrap_or_default()
        };
        let list = |key: &str| serde_json::from_str::<Vec<String>>(&text(key)).ok();
        let allowed_names = list("requestheader-allowed-names");
        // Unreadable names must not count as an empty list, which would allow every name.
        let ca = match allowed_names {
            Some(_) => text("requestheader-client-ca-file"),
            None => String::new(),
        };
        Self {
            ca,
            allowed_names: allowed_names.unwrap_or_default(),
            user_headers: list("requestheader-username-headers").unwrap_or_default(),
            group_headers: list("requestheader-group-headers").unwrap_or_default(),
            extra_prefixes: list("requestheader-extra-headers-prefix").unwrap_or_default(),
        }
    }

    /// Whether the owner of a certificate with this common name, which the CA has signed, is a front proxy.
    pub fn allows(&self, name: &str) -> bool {
        let is_named =
            self.allowed_names.is_empty() || self.allowed_names.iter().any(|n| n == name);
        !self.ca.is_empty() && is_named
    }

    /// The user that the front proxy names. `peer` is the common name of its verified certificate.
    ///
    /// # Errors
    /// When there is no such certificate, or no user or groups header.
    pub fn user(&self, peer: Option<&str>, headers: &HeaderMap) -> Result<User, NotAuthenticated> {
        let peer = peer.ok_or(NotAuthenticated)?;
        if !self.allows(peer) {
            return Err(NotAuthenticated);
        }
        let username = self.user_headers.iter().flat_map(|name| values(headers, name)).next();
        let username = username.filter(|name| !name.is_empty()).ok_or(NotAuthenticated)?;
        let groups: Vec<_> =
            self.group_headers.iter().flat_map(|name| values(headers, name)).collect();
        if groups.is_empty() {
            return Err(NotAuthenticated);
        }
        Ok(User { username, uid: String::new(), groups, extra: self.extra(headers) })
    }

    fn extra(&self, headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
        let mut extra = BTreeMap::<_, Vec<_>>::new();
        for name in headers.keys() {
            let key = self.extra_prefixes.iter().find_map(|prefix| extra_key(name, prefix));
            if let Some(key) = key {
                extra.entry(key).or_default().extend(values(headers, name.as_str()));
            }
        }
        extra
    }
}

/// The key of an extra header, if it has this prefix. Header names are in lower case already.
fn extra_key(name: &HeaderName, prefix: &str) -> Option<String> {
    let key = name.as_str().strip_prefix(&prefix.to_ascii_lowercase())?;
    let key = percent_decode_str(key).decode_utf8_lossy().to_lowercase();
    (!key.is_empty()).then_some(key)
}

fn values(headers: &HeaderMap, name: &str) -> Vec<String> {
    let text = |value: &http::HeaderValue| String::from_utf8(value.as_bytes().to_vec()).ok();
    headers.get_all(name).iter().filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(names: &str) -> FrontProxy {
        let data = [
            ("requestheader-client-ca-file", "PEM"),
            ("requestheader-allowed-names", names),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#),
            ("requestheader-group-headers", r#"["X-Remote-Group"]"#),
            ("requestheader-extra-headers-prefix", r#"["X-Remote-Extra-"]"#),
        ];
        let data = data.map(|(key, value)| (key.to_owned(), value.to_owned()));
        FrontProxy::read(Some(&ConfigMap { data: Some(data.into()), ..ConfigMap::default() }))
    }

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn user_comes_from_the_front_proxys_headers() {
        let found = proxy(r#"["front-proxy"]"#).user(
            Some("front-proxy"),
            &headers(&[
                ("x-remote-user", "anna"),
                ("x-remote-group", "a"),
                ("x-remote-group", "b"),
                ("x-remote-extra-acme.com%2fproject", "x"),
                ("x-remote-extra-acme.com%2fproject", "y"),
                ("x-remote-extra-", "z"),
            ]),
        );
        let user = found.unwrap();
        assert_eq!((user.username.as_str(), user.groups), ("anna", vec!["a".into(), "b".into()]));
        assert_eq!(
            user.extra,
            [("acme.com/project".to_owned(), vec!["x".into(), "y".into()])].into()
        );
    }

    #[test]
    fn other_clients_are_not_authenticated() {
        let whole: &[(&str, &str)] = &[("x-remote-user", "anna"), ("x-remote-group", "a")];
        for (case, names, peer, list, expected) in [
            ("the proxy", r#"["front-proxy"]"#, Some("front-proxy"), whole, true),
            ("any client that the CA has signed", "[]", Some("x"), whole, true),
            ("no certificate", "[]", None, whole, false),
            ("another name", r#"["front-proxy"]"#, Some("x"), whole, false),
            ("no user", "[]", Some("x"), &whole[1..], false),
            ("no group", "[]", Some("x"), &whole[..1], false),
            ("names that cannot be read", "front-proxy", Some("front-proxy"), whole, false),
        ] {
            let found = proxy(names).user(peer, &headers(list));
            assert_eq!(found.is_ok(), expected, "{case}");
        }
        assert!(FrontProxy::read(None).user(Some("x"), &headers(whole)).is_err());
    }
}
