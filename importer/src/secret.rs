//! Text that must not be seen, and addresses fit to be seen.

use std::fmt;

use url::Url;

/// A password, a token or a header's value: it never prints.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text` to itself.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the one place that sends it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("(secret)")
    }
}

/// An address without what may be secret: user, password, query and fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedactedUrl(String);

impl RedactedUrl {
    /// Names an object of a store. Bucket and key are no secrets.
    pub(crate) fn of_object(scheme: &str, bucket: &str, key: &str) -> Self {
        Self(format!("{scheme}://{bucket}/{key}").escape_debug().collect())
    }

    /// Redacts text that could not be parsed as an address, and may hold anything.
    pub(crate) fn of_text(text: &str) -> Self {
        let text = text.split(['?', '#']).next().unwrap_or_default();
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        // Whatever precedes the last `@` may be a password, slashes included.
        let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
        let separator = if scheme.is_empty() { "" } else { "://" };
        Self(format!("{scheme}{separator}{rest}").escape_debug().collect())
    }
}

impl RedactedUrl {
    /// An export behind a socket of this machine. Neither is secret.
    pub(crate) fn of_socket(scheme: &str, export: &str, socket: &std::path::Path) -> Self {
        let text = format!("{scheme}:///{export} at {}", socket.display());
        Self(text.escape_debug().collect())
    }
}

impl From<&Url> for RedactedUrl {
    fn from(url: &Url) -> Self {
        let host = url.host_str().unwrap_or_default();
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        // The ticket of an image transfer is all that it takes to read the image.
        let mut path = url.path();
        let is_ticket = |segment: &&str| segment.len() == 36 && segment.matches('-').count() == 4;
        if let Some(ticket) = path.strip_prefix("/images/").and_then(|rest| rest.split('/').next())
            && is_ticket(&ticket)
        {
            path = "/images/(ticket)";
        }
        Self(format!("{}://{host}{port}{path}", url.scheme()))
    }
}

impl fmt::Display for RedactedUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_user_query_and_fragment() {
        let table = [
            ("https://host/a.img", "https://host/a.img"),
            ("https://user:word@host:8443/a.img?sig=word#word", "https://host:8443/a.img"),
            ("http://[::1]:80/", "http://[::1]/"),
            (
                "https://h:1/images/0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f",
                "https://h:1/images/(ticket)",
            ),
        ];
        for (text, expected) in table {
            let url = Url::parse(text).unwrap();
            assert_eq!(RedactedUrl::from(&url).to_string(), expected);
        }
    }

    #[test]
    fn text_that_is_no_address_is_redacted_too() {
        let table = [
            ("http://user:wo/rd@ho st/a?word", "http://ho st/a"),
            ("user:word@host", "host"),
            ("http://", "http://"),
            ("", ""),
            ("a\nb", "a\\nb"),
        ];
        for (text, expected) in table {
            assert_eq!(RedactedUrl::of_text(text).to_string(), expected);
        }
    }

    #[test]
    fn a_secret_never_prints() {
        assert_eq!(format!("{:?}", Secret::new("word")), "(secret)");
    }
}
