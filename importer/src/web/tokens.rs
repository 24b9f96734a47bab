//! The credentials that a registry requires: a password, or a token that its token service issues for one.
//!
//! The credentials of a registry go to the registry and to the service that it names (over TLS, unless the registry
//! itself is without), and to no other server: challenges of redirect targets are ignored.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use serde::Deserialize;
use url::Url;

use super::client::{Client, basic, secret};
use super::fetch::{FetchOptions, fetch};
use super::options::BasicAuth;
use super::retry::RetryPolicy;
use super::transport::Transport;
use crate::error::Error;
use crate::secret::{RedactedUrl, Secret};

/// The largest response of a token service: tokens are a few KiB.
const ANSWER_LEN_MAX: u64 = 256 << 10;
/// The longest address of a token service.
const REALM_LEN_MAX: usize = 2048;

pub(crate) struct Tokens {
    transport: Arc<Transport>,
    policy: RetryPolicy,
    auth: Option<BasicAuth>,
    /// `repository:library/debian:pull`
    scope: String,
    current: Mutex<Option<HeaderValue>>,
    /// Streams that were refused at the same time request one token.
    renewing: tokio::sync::Mutex<()>,
}

/// One way to prove who is asking.
#[derive(Debug, PartialEq, Eq)]
enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String> },
}

#[derive(Deserialize)]
struct TokenResponse {
    token: Option<String>,
    access_token: Option<String>,
}

impl Tokens {
    pub(super) fn new(
        transport: Arc<Transport>,
        policy: RetryPolicy,
        auth: Option<BasicAuth>,
        token: Option<&Secret>,
        repository: &str,
    ) -> Result<Self, Error> {
        let scope = format!("repository:{repository}:pull");
        let current = token.map(|token| bearer(token.reveal())).transpose()?;
        let (current, renewing) = (Mutex::new(current), tokio::sync::Mutex::default());
        Ok(Self { transport, policy, auth, scope, current, renewing })
    }

    pub(super) fn current(&self) -> Option<HeaderValue> {
        self.current.lock().clone()
    }

    /// `origin` got a request with `sent`, and responded with 401 and these headers. Whether there is now something better to
    /// send.
    pub(super) fn renew<'a>(
        &'a self,
        sent: Option<HeaderValue>,
        headers: &'a HeaderMap,
        origin: &'a Url,
        patience: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<bool, Error>> + Send + 'a>> {
        Box::pin(async move {
            let _one_at_a_time = self.renewing.lock().await;
            if self.current() != sent {
                return Ok(true); // another stream has been given one in the meantime
            }
            let fresh = match choose(headers) {
                Some(Challenge::Bearer { realm, service }) => {
                    self.request_token(&realm, service.as_deref(), origin, patience).await?
                }
                Some(Challenge::Basic) => match &self.auth {
                    Some(auth) => basic(auth)?,
                    None => return Ok(false),
                },
                None => return Ok(false),
            };
            let better = Some(&fresh) != sent.as_ref();
            *self.current.lock() = Some(fresh);
            Ok(better)
        })
    }

    async fn request_token(
        &self,
        realm: &str,
        service: Option<&str>,
        origin: &Url,
        patience: Duration,
    ) -> Result<HeaderValue, Error> {
        let nonsense = |because: &str| Error::Answer {
            url: RedactedUrl::from(origin),
            because: format!("the token service that it names {because}"),
        };
        if realm.len() > REALM_LEN_MAX {
            return Err(nonsense("has too long an address"));
        }
        let mut url = Url::parse(realm).map_err(|_| nonsense("has no address"))?;
        if url.scheme() != "https" && (url.scheme(), origin.scheme()) != ("http", "http") {
            return Err(nonsense("is without TLS"));
        }
        if url.host_str().is_none_or(str::is_empty) || !url.username().is_empty() {
            return Err(nonsense("has no proper address"));
        }
        url.set_fragment(None);
        if let Some(service) = service {
            url.query_pairs_mut().append_pair("service", service);
        }
        url.query_pairs_mut().append_pair("scope", &self.scope);
        let mut private = HeaderMap::new();
        if let Some(auth) = &self.auth {
            private.insert(AUTHORIZATION, basic(auth)?);
        }
        let client = Client::over(Arc::clone(&self.transport), url, private, None);
        let fetch_options = FetchOptions { accept: None, len_max: ANSWER_LEN_MAX };
        let answer = fetch(&client, fetch_options, &self.policy, patience).await?;
        let found: TokenResponse = serde_json::from_slice(&answer.bytes)
            .map_err(|_| nonsense("responded with something else than a token"))?;
        let token = found.token.or(found.access_token).filter(|token| !token.is_empty());
        bearer(&token.ok_or_else(|| nonsense("gives no token"))?)
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tokens").field("scope", &self.scope).finish_non_exhaustive()
    }
}

fn bearer(token: &str) -> Result<HeaderValue, Error> {
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    let what = "a registry's token cannot be sent";
    value.map(secret).map_err(|_| Error::Option { what: what.into() })
}

/// A token rather than the password itself.
fn choose(headers: &HeaderMap) -> Option<Challenge> {
    let values = headers.get_all(WWW_AUTHENTICATE).into_iter();
    let all: Vec<_> = values.filter_map(|value| value.to_str().ok()).flat_map(challenges).collect();
    let is_bearer = |challenge: &&Challenge| matches!(challenge, Challenge::Bearer { .. });
    let at = all.iter().position(|challenge| is_bearer(&challenge)).unwrap_or(0);
    all.into_iter().nth(at)
}

/// Reads one `WWW-Authenticate`, which may hold several challenges: `Scheme name="value", name=value, Scheme …`.
fn challenges(text: &str) -> Vec<Challenge> {
    let mut found = Vec::new();
    let mut scheme: Option<(String, Vec<(String, String)>)> = None;
    for item in split_outside_quotes(text) {
        let (word, rest) = item.split_once(' ').unwrap_or((item, ""));
        let parameter = if word.contains('=') || word.is_empty() {
            item
        } else {
            found.extend(scheme.take().and_then(parse_known_scheme));
            scheme = Some((word.to_ascii_lowercase(), Vec::new()));
            rest.trim()
        };
        if let (Some((_, parameters)), Some((name, value))) =
            (&mut scheme, parameter.split_once('='))
        {
            let value = value.trim().trim_matches('"').replace("\\\"", "\"");
            parameters.push((name.trim().to_ascii_lowercase(), value));
        }
    }
    found.extend(scheme.and_then(parse_known_scheme));
    found
}

fn parse_known_scheme((scheme, parameters): (String, Vec<(String, String)>)) -> Option<Challenge> {
    let get = |wanted: &str| {
        parameters.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())
    };
    match scheme.as_str() {
        "basic" => Some(Challenge::Basic),
        "bearer" => Some(Challenge::Bearer { realm: get("realm")?, service: get("service") }),
        _ => None,
    }
}

fn split_outside_quotes(text: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |c: char| {
        quoted ^= c == '"';
        c == ',' && !quoted
    })
    .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token(realm: &str, service: Option<&str>) -> Challenge {
        Challenge::Bearer { realm: realm.into(), service: service.map(str::to_owned) }
    }

    #[test]
    fn challenges_are_read_in_all_their_spellings() {
        let table = [
            (
                r#"Bearer realm="https://auth/token",service="registry",scope="repository:a:pull,push""#,
                vec![token("https://auth/token", Some("registry"))],
            ),
            ("bearer realm=https://auth/token", vec![token("https://auth/token", None)]),
            (r#"Basic realm="a, b""#, vec![Challenge::Basic]),
            (
                r#"Basic realm="x", Bearer realm="https://auth/t", service="s""#,
                vec![Challenge::Basic, token("https://auth/t", Some("s"))],
            ),
            ("Basic", vec![Challenge::Basic]),
            ("Bearer service=x", vec![]),
            ("Negotiate abc==", vec![]),
            ("", vec![]),
        ];
        for (text, expected) in table {
            assert_eq!(challenges(text), expected, "{text}");
        }
    }

    #[test]
    fn a_token_is_preferred_to_a_password() {
        let mut headers = HeaderMap::new();
        assert_eq!(choose(&headers), None);
        headers.append(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=x"));
        assert_eq!(choose(&headers), Some(Challenge::Basic));
        headers.append(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"https://a\""));
        assert_eq!(choose(&headers), Some(token("https://a", None)));
    }

    proptest! {
        #[test]
        fn arbitrary_challenges_do_no_harm(text in "[ -~]{0,120}") {
            challenges(&text);
        }
    }
}
