//! Requests the image, wherever it has moved to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, ETAG, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    IF_RANGE, LOCATION, RANGE, RETRY_AFTER, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use parking_lot::Mutex;
use url::Url;

use super::options::{BasicAuth, HttpOptions};
use super::peek::HttpValidators;
use super::redirect::{self, RedirectTarget};
use super::retry;
use super::signed::{Refusal, RefusalAction, Signatures, Store};
use super::tokens::Tokens;
use super::transport::{Response, Transport};
use crate::error::Error;
use crate::objects::ObjectChecksum;
use crate::secret::{RedactedUrl, Secret};

/// The same as upstream CDI's importer, which logs and servers may know.
const DEFAULT_USER_AGENT: HeaderValue = HeaderValue::from_static("cdi-golang-importer");

/// One image on one server, with the credentials for it.
pub(super) struct Client {
    transport: Arc<Transport>,
    /// How messages name the image.
    name: RedactedUrl,
    origin: Origin,
    /// For every server, redirect targets included.
    public: HeaderMap,
    /// For the origin only.
    private: HeaderMap,
    /// Tokens for the origin, where it returns such.
    tokens: Option<Arc<Tokens>>,
}

/// The address of the first request.
enum Origin {
    Address(Address),
    /// An object whose address has to be signed again and again.
    Object(Signatures),
}

struct Address {
    origin: RedirectTarget,
    /// Where the last good response came from: redirects are followed once, not for each range.
    pinned: Mutex<RedirectTarget>,
    /// Answers since then that were not good.
    failures: AtomicU32,
}

/// Times that an address is signed again for one request: for another region, and for keys that were just replaced.
const SIGNED_AGAIN_MAX: u32 = 3;

/// Failures of a mirror after which the first address is requested again.
const FAILURES_BEFORE_ANOTHER_WAY: u32 = 2;

/// The range of the image.
#[derive(Clone, Debug, Default)]
pub(super) struct GetRequest {
    /// First byte, and the one after the last.
    pub(super) part: Option<(u64, u64)>,
    /// Only if it is still the same image.
    pub(super) validator: Option<String>,
    /// Media types, where the server has several.
    pub(super) accept: Option<&'static str>,
    /// `GET`, or `HEAD` for the headers alone.
    pub(super) method: Method,
    /// Only if it is no longer what had these marks.
    pub(super) unless: Option<HttpValidators>,
}

impl Client {
    pub(super) fn new(address: &str, options: &HttpOptions) -> Result<Self, Error> {
        let mut url = Url::parse(address).map_err(|error| Error::Address {
            url: RedactedUrl::of_text(address),
            because: error.to_string(),
        })?;
        url.set_fragment(None);
        let auth = take_userinfo(&mut url).or_else(|| options.auth.clone());
        let private = private_headers(auth.as_ref(), options)?;
        Ok(Self::over(Arc::new(Transport::new(options)?), url, private, None))
    }

    /// The same over connections that are shared. `private` goes to `url`'s origin only, and so does what `tokens` has.
    pub(super) fn over(
        transport: Arc<Transport>,
        url: Url,
        private: HeaderMap,
        tokens: Option<Arc<Tokens>>,
    ) -> Self {
        let (name, origin) = (RedactedUrl::from(&url), RedirectTarget::origin(url));
        let pinned = Mutex::new(origin.clone());
        let origin = Origin::Address(Address { origin, pinned, failures: AtomicU32::new(0) });
        Self { transport, name, origin, public: public_headers(), private, tokens }
    }

    /// For an object. Its store's keys are all the credentials that there are.
    pub(super) fn of_object(store: Arc<dyn Store>, options: &HttpOptions) -> Result<Self, Error> {
        Ok(Self {
            transport: Arc::new(Transport::new(options)?),
            name: store.name(),
            origin: Origin::Object(Signatures::new(store)),
            public: public_headers(),
            private: HeaderMap::new(),
            tokens: None,
        })
    }

    /// How messages name the image.
    pub(super) fn name(&self) -> RedactedUrl {
        self.name.clone()
    }

    /// Sends one request, following redirects. Returns the response, of any other status, and its address.
    pub(super) async fn get(
        &self,
        request: &GetRequest,
        patience: Duration,
    ) -> Result<(Response, RedirectTarget), Error> {
        match &self.origin {
            Origin::Address(address) => self.get_address(address, request, patience).await,
            Origin::Object(signatures) => self.get_object(signatures, request, patience).await,
        }
    }

    /// The checksum of the whole object, if its store reports one. Costs a request in some stores, and is worth no more
    /// than one.
    pub(super) async fn checksum(&self, patience: Duration) -> Option<ObjectChecksum> {
        let Origin::Object(Signatures { store, .. }) = &self.origin else { return None };
        if !store.needs_head_for_checksum() {
            return store.checksum(&HeaderMap::new());
        }
        let signed = store.sign(&Method::HEAD).await.ok()?;
        let mut headers = self.public.clone();
        headers.extend(signed.headers);
        let answer =
            self.transport.send_request(&Method::HEAD, &signed.url, headers, patience).await;
        let answer = answer.ok().filter(|answer| answer.status.is_success())?;
        store.checksum(&answer.headers)
    }

    async fn get_object(
        &self,
        signatures: &Signatures,
        request: &GetRequest,
        patience: Duration,
    ) -> Result<(Response, RedirectTarget), Error> {
        for round in 1.. {
            let signed = signatures.current().await?;
            let target = RedirectTarget::origin(signed.url);
            let mut headers = self.headers(&target, request)?;
            headers.extend(signed.headers);
            let mut response = self.send_request(&Method::GET, &target, headers, patience).await?;
            match response.status.as_u16() {
                304 if request.unless.is_some() => return Ok((response, target)),
                200..=299 => {
                    if signatures.store.record_identity(&response.headers) {
                        signatures.discard(&target.url).await;
                    }
                    return Ok((response, target));
                }
                412 if request.validator.is_some() => return Err(self.changed(request, &response)),
                // As with any web server: no such part, busy, broken.
                408 | 416 | 425 | 429 | 500.. => return Ok((response, target)),
                _ => {}
            }
            let refusal = Refusal::read(&mut response).await;
            match signatures.store.classify(&refusal, round > SIGNED_AGAIN_MAX) {
                RefusalAction::SignAgain => signatures.discard(&target.url).await,
                RefusalAction::Fail(error) => return Err(error),
                RefusalAction::Plain => {
                    let Some(location) = redirects_to(&response) else {
                        return Ok((response, target));
                    };
                    let next =
                        redirect::follow(&target, location, std::slice::from_ref(&target.url))
                            .map_err(|because| Error::Redirect { url: show(&target), because })?;
                    return self.walk(next, request, patience).await;
                }
            }
        }
        unreachable!("the last round never signs again")
    }

    /// The store has another object now under the same name.
    fn changed(&self, request: &GetRequest, response: &Response) -> Error {
        let now = response.headers.get(ETAG).and_then(|value| value.to_str().ok());
        Error::Changed {
            name: self.name.to_string(),
            before: request.validator.clone().unwrap_or_default(),
            after: now.unwrap_or("another object").to_owned(),
        }
    }

    async fn get_address(
        &self,
        address: &Address,
        request: &GetRequest,
        patience: Duration,
    ) -> Result<(Response, RedirectTarget), Error> {
        let start = address.target();
        let moved = start != address.origin;
        let mut sent = self.token();
        let mut result = self.walk(start, request, patience).await;
        // The redirect target may have been valid for some minutes only.
        if moved
            && let Ok((response, target)) = &result
            && matches!(response.status.as_u16(), 401 | 403 | 404 | 410)
        {
            tracing::debug!(
                "{} responded with {}; requesting the original address again",
                show(target),
                response.status
            );
            sent = self.token();
            result = self.walk(address.origin.clone(), request, patience).await;
        }
        // A token is good for some minutes, and the first one has to be requested. Only the origin may want one.
        if let Some(tokens) = &self.tokens
            && let Ok((response, target)) = &result
            && response.status == StatusCode::UNAUTHORIZED
            && target.trusted
            && tokens.renew(sent, &response.headers, &target.url, patience).await?
        {
            result = self.walk(address.origin.clone(), request, patience).await;
        }
        match &result {
            Ok((response, target)) if response.status.is_success() => {
                address.failures.store(0, Ordering::Relaxed);
                address.pin(target);
            }
            Ok(_) | Err(_) => {
                let failures = address.failures.fetch_add(1, Ordering::Relaxed) + 1;
                if moved && failures >= FAILURES_BEFORE_ANOTHER_WAY {
                    address.pin(&address.origin); // there may be another mirror
                }
            }
        }
        result
    }

    fn token(&self) -> Option<HeaderValue> {
        self.tokens.as_ref().and_then(|tokens| tokens.current())
    }

    async fn walk(
        &self,
        mut target: RedirectTarget,
        request: &GetRequest,
        patience: Duration,
    ) -> Result<(Response, RedirectTarget), Error> {
        let mut passed = Vec::new();
        loop {
            let headers = self.headers(&target, request)?;
            let response = self.send_request(&request.method, &target, headers, patience).await?;
            let Some(location) = redirects_to(&response) else { return Ok((response, target)) };
            passed.push(target.url.clone());
            let next = redirect::follow(&target, location, &passed)
                .map_err(|because| Error::Redirect { url: show(&target), because })?;
            tracing::debug!("{} redirects to {}", show(&target), show(&next));
            if target.url.scheme() == "https" && next.url.scheme() == "http" {
                tracing::warn!(
                    "{} redirects to an address without TLS: {}",
                    show(&target),
                    show(&next)
                );
            }
            target = next;
        }
    }

    async fn send_request(
        &self,
        method: &Method,
        target: &RedirectTarget,
        headers: HeaderMap,
        patience: Duration,
    ) -> Result<Response, Error> {
        let answer = self.transport.send_request(method, &target.url, headers, patience).await;
        answer.map_err(|source| Error::Transport { url: show(target), source })
    }

    fn headers(&self, target: &RedirectTarget, request: &GetRequest) -> Result<HeaderMap, Error> {
        let mut headers = self.public.clone();
        if target.trusted {
            headers.extend(self.private.clone()); // replaces: an extra `User-Agent` wins
            headers.extend(self.token().map(|token| (AUTHORIZATION, token)));
        }
        if let Some(accept) = request.accept {
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
        }
        // A server that supports both conditions uses the tag alone.
        if let Some(HttpValidators { etag, modified }) = &request.unless {
            for (name, value) in [(IF_NONE_MATCH, etag), (IF_MODIFIED_SINCE, modified)] {
                if let Some(value) = value {
                    headers.insert(name, header_value(value)?);
                }
            }
        }
        if let Some((at, end)) = request.part {
            let value = format!("bytes={at}-{}", end.saturating_sub(1));
            headers.insert(RANGE, header_value(&value)?);
            if let Some(validator) = &request.validator {
                // If the image has changed, a store refuses, which costs nothing; a web server sends the new image.
                let condition = match &self.origin {
                    Origin::Address(_) => IF_RANGE,
                    Origin::Object(_) => IF_MATCH,
                };
                headers.insert(condition, header_value(validator)?);
            }
        }
        Ok(headers)
    }

    /// The error for a response without the image.
    pub(super) fn refusal(&self, response: &Response, target: &RedirectTarget) -> Error {
        let status = response.status;
        let retry_after = response
            .headers
            .get(RETRY_AFTER)
            .and_then(|value| retry::retry_after(value.to_str().ok()?, SystemTime::now()));
        let secretive = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let hint = if secretive && !target.trusted && !self.private.is_empty() {
            "; credentials and extra headers are not sent to another scheme, host or port than the first"
        } else if secretive && self.tokens.is_some() {
            "; the image is private or does not exist, or its credentials are wrong"
        } else {
            ""
        };
        Error::Status {
            url: show(target),
            status: status.as_u16(),
            reason: status.canonical_reason().unwrap_or_default(),
            retry_after,
            hint,
        }
    }
}

impl Address {
    /// Where the last good response came from.
    fn target(&self) -> RedirectTarget {
        self.pinned.lock().clone()
    }

    fn pin(&self, target: &RedirectTarget) {
        let mut pinned = self.pinned.lock();
        if *pinned != *target {
            pinned.clone_from(target);
        }
    }
}

fn public_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, DEFAULT_USER_AGENT);
    // What we hash and resume must be the stored bytes, not a compression of the moment.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers
}

pub(super) fn show(target: &RedirectTarget) -> RedactedUrl {
    RedactedUrl::from(&target.url)
}

fn redirects_to(response: &Response) -> Option<&str> {
    let redirects = matches!(response.status.as_u16(), 301 | 302 | 303 | 307 | 308);
    if !redirects {
        return None;
    }
    response.headers.get(LOCATION)?.to_str().ok()
}

/// `user:password@` of an address, which is then without it.
fn take_userinfo(url: &mut Url) -> Option<BasicAuth> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let decode =
        |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    let auth = BasicAuth {
        username: decode(url.username()),
        password: Secret::new(decode(url.password().unwrap_or_default())),
    };
    let _ = url.set_username("");
    let _ = url.set_password(None);
    Some(auth)
}

fn private_headers(auth: Option<&BasicAuth>, options: &HttpOptions) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    if let Some(auth) = auth {
        headers.insert(AUTHORIZATION, basic(auth)?);
    }
    headers.extend(extra_headers(options)?); // replaces: an extra `Authorization` wins
    Ok(headers)
}

/// `Authorization` of the basic scheme.
pub(super) fn basic(auth: &BasicAuth) -> Result<HeaderValue, Error> {
    let pair = format!("{}:{}", auth.username, auth.password.reveal());
    Ok(secret(header_value(&format!("Basic {}", STANDARD.encode(pair)))?))
}

/// The headers that options name.
pub(super) fn extra_headers(options: &HttpOptions) -> Result<HeaderMap, Error> {
    let mut seen = HeaderMap::new();
    for header in &options.headers {
        // Never the value; nor the name of a secret one, where a mistake may have put the secret.
        let shown = if header.secret { "a secret one" } else { &header.name };
        let refuse = || Error::Option { what: format!("extra header cannot be sent: {shown}") };
        let name = HeaderName::from_bytes(header.name.trim().as_bytes()).map_err(|_| refuse())?;
        let value = HeaderValue::from_str(header.value.trim()).map_err(|_| refuse())?;
        let value = if header.secret { secret(value) } else { value };
        seen.append(name, value);
    }
    Ok(seen)
}

/// Marks a value that must not be logged.
pub(super) fn secret(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

fn header_value(text: &str) -> Result<HeaderValue, Error> {
    HeaderValue::from_str(text)
        .map_err(|_| Error::Option { what: "a header cannot be sent".into() })
}
