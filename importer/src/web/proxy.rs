//! The proxy for a URL, from the usual variables, parsed as other cloud software parses them.

use std::fmt;
use std::net::IpAddr;

use url::{Host, Url};

/// Which proxy to use for which address. The default is none.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProxySettings {
    /// For `http://` addresses. May hold `user:password@`.
    pub http: Option<String>,
    /// For `https://` addresses, by way of `CONNECT`. May hold `user:password@`.
    pub https: Option<String>,
    /// Exceptions, separated by commas: a host with all hosts below it, `.suffix` for only those below, an address, a
    /// network as `10.0.0.0/8`, any of them (but a network) with `:port`, or `*`.
    pub no_proxy: String,
}

impl ProxySettings {
    /// From `http_proxy`, `https_proxy` and `no_proxy`; in capitals where the small form is not set. This machine itself
    /// is always an exception.
    pub fn from_environment() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// From variables, however they are looked up.
    pub fn from_variables(look_up: impl Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| {
            let found = look_up(name).or_else(|| look_up(&name.to_ascii_uppercase()));
            found.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        Self {
            http: get("http_proxy"),
            https: get("https_proxy"),
            no_proxy: format!("localhost,127.0.0.0/8,::1,{}", get("no_proxy").unwrap_or_default()),
        }
    }

    /// The same proxy for every address.
    pub fn all(proxy: impl Into<String>) -> Self {
        let proxy = proxy.into();
        Self { http: Some(proxy.clone()), https: Some(proxy), no_proxy: String::new() }
    }

    /// The proxy for `url`, as an address. `host:port` alone means `http://host:port`.
    pub(super) fn proxy_for(&self, url: &Url) -> Result<Option<Url>, String> {
        let proxy = match url.scheme() {
            "https" => &self.https,
            _ => &self.http,
        };
        let Some(proxy) = proxy else { return Ok(None) };
        if self.is_excepted(url) {
            return Ok(None);
        }
        let full = if proxy.contains("://") { proxy.clone() } else { format!("http://{proxy}") };
        match Url::parse(&full) {
            Ok(found) if matches!(found.scheme(), "http" | "https") => Ok(Some(found)),
            Ok(found) => Err(format!("a proxy cannot be reached by {}://", found.scheme())),
            Err(error) => Err(format!("the proxy's address cannot be understood: {error}")),
        }
    }

    fn is_excepted(&self, url: &Url) -> bool {
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return false;
        };
        self.no_proxy.split(',').map(str::trim).any(|entry| matches(entry, &host, port))
    }
}

impl fmt::Debug for ProxySettings {
    /// A proxy's address may hold a password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let redact = |text: &Option<String>| text.as_deref().map(crate::RedactedUrl::of_text);
        let Self { http, https, no_proxy } = self;
        formatter
            .debug_struct("ProxySettings")
            .field("http", &redact(http))
            .field("https", &redact(https))
            .field("no_proxy", no_proxy)
            .finish()
    }
}

/// Whether one entry of `no_proxy` means `host:port`.
fn matches(entry: &str, host: &Host<&str>, port: u16) -> bool {
    if entry.is_empty() {
        return false;
    }
    if entry == "*" {
        return true;
    }
    let address = match host {
        Host::Ipv4(address) => Some(IpAddr::V4(*address)),
        Host::Ipv6(address) => Some(IpAddr::V6(*address)),
        Host::Domain(_) => None,
    };
    if let Some((network, bits)) = entry.split_once('/') {
        return address.is_some_and(|address| in_network(address, network, bits));
    }
    let (name, entry_port) = split_port(entry);
    if entry_port.is_some_and(|entry_port| entry_port != port) {
        return false;
    }
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    match (address, host) {
        (Some(address), _) => bare.parse() == Ok(address),
        (None, Host::Domain(host)) => matches_name(name, host),
        (None, _) => false,
    }
}

/// `host:port` in its parts. A bare IPv6 address has colons and no port.
fn split_port(entry: &str) -> (&str, Option<u16>) {
    match entry.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => match port.parse() {
            Ok(port) => (name, Some(port)),
            Err(_) => (entry, None),
        },
        _ => (entry, None),
    }
}

fn matches_name(entry: &str, host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let entry = entry.trim_start_matches('*').to_ascii_lowercase();
    match entry.strip_prefix('.') {
        Some(_) => host.ends_with(&entry),
        None => host == entry || host.strip_suffix(&entry).is_some_and(|rest| rest.ends_with('.')),
    }
}

fn in_network(address: IpAddr, network: &str, bits: &str) -> bool {
    let Ok(bits) = bits.parse::<u32>() else { return false };
    let same_start = |a: u128, b: u128, width: u32| {
        bits <= width && (bits == 0 || (a ^ b) >> (width - bits) == 0)
    };
    match (address, network.parse()) {
        (IpAddr::V4(a), Ok(IpAddr::V4(b))) => {
            same_start(a.to_bits().into(), b.to_bits().into(), 32)
        }
        (IpAddr::V6(a), Ok(IpAddr::V6(b))) => same_start(a.to_bits(), b.to_bits(), 128),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy_of(settings: &ProxySettings, url: &str) -> Option<String> {
        let found = settings.proxy_for(&Url::parse(url).unwrap()).unwrap();
        found.map(|url| url.to_string())
    }

    #[test]
    fn exceptions_are_hosts_suffixes_addresses_networks_and_ports() {
        let table = [
            ("example.com", "http://example.com/", true),
            ("example.com", "http://EXAMPLE.com/", true),
            ("example.com", "http://a.example.com/", true),
            ("example.com", "http://badexample.com/", false),
            (".example.com", "http://a.example.com/", true),
            (".example.com", "http://example.com/", false),
            ("*.example.com", "http://a.example.com/", true),
            ("example.com:8080", "http://example.com:8080/", true),
            ("example.com:8080", "http://example.com/", false),
            ("example.com:443", "https://example.com/", true),
            ("a, example.com ,b", "http://example.com/", true),
            ("10.0.0.0/8", "http://10.1.2.3/", true),
            ("10.0.0.0/8", "http://11.1.2.3/", false),
            ("0.0.0.0/0", "http://11.1.2.3/", true),
            ("10.0.0.0/33", "http://10.0.0.0/", false),
            ("10.0.0.0/8", "http://example.com/", false),
            ("10.1.2.3", "http://10.1.2.3/", true),
            ("10.1.2.3:81", "http://10.1.2.3/", false),
            ("10.1.2.3", "http://a10.1.2.3.example/", false),
            ("fd00::/8", "http://[fd12::1]/", true),
            ("fd12::1", "http://[fd12::1]/", true),
            ("[fd12::1]:80", "http://[fd12::1]/", true),
            ("[fd12::1]:81", "http://[fd12::1]/", false),
            ("*", "http://anything/", true),
            ("", "http://example.com/", false),
            ("com", "http://example.com/", true),
        ];
        for (no_proxy, url, excepted) in table {
            let settings =
                ProxySettings { no_proxy: no_proxy.into(), ..ProxySettings::all("http://p:1") };
            assert_eq!(proxy_of(&settings, url).is_none(), excepted, "{no_proxy} {url}");
        }
    }

    #[test]
    fn the_environments_proxy_is_not_for_this_machine() {
        let settings = ProxySettings::from_variables(|_| Some("p:1".into()));
        for url in ["http://localhost:8100/", "http://127.1.0.1/", "https://[::1]/"] {
            assert_eq!(proxy_of(&settings, url), None, "{url}");
        }
        assert_eq!(proxy_of(&settings, "http://a/").as_deref(), Some("http://p:1/"));
    }

    #[test]
    fn the_scheme_of_the_address_chooses_the_proxy() {
        let settings = ProxySettings {
            http: Some("plain:3128".into()),
            https: Some("https://user:word@secure:3129".into()),
            no_proxy: String::new(),
        };
        assert_eq!(proxy_of(&settings, "http://a/").as_deref(), Some("http://plain:3128/"));
        let secure = proxy_of(&settings, "https://a/");
        assert_eq!(secure.as_deref(), Some("https://user:word@secure:3129/"));
        assert!(!format!("{settings:?}").contains("word"));
    }

    #[test]
    fn small_variables_win_over_capitals() {
        let lookup = |pairs: &'static [(&str, &str)]| {
            ProxySettings::from_variables(move |name| {
                pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            })
        };
        let both = lookup(&[("http_proxy", "small:1"), ("HTTP_PROXY", "large:1")]);
        assert_eq!(both.http.as_deref(), Some("small:1"));
        let large = lookup(&[("HTTPS_PROXY", " large:1 "), ("NO_PROXY", "*"), ("http_proxy", "")]);
        assert_eq!((large.http, large.https.as_deref()), (None, Some("large:1")));
        assert!(large.no_proxy.ends_with(",*"));
    }

    #[test]
    fn a_proxy_of_another_kind_is_refused() {
        let url = Url::parse("http://a/").unwrap();
        assert!(ProxySettings::all("socks5://p:1").proxy_for(&url).is_err());
        assert!(ProxySettings::all("http://[bad").proxy_for(&url).is_err());
    }
}
