//! Serves `/metrics` over HTTPS to clients whose bearer token is authorized for `get` on that path, by a TokenReview and a
//! SubjectAccessReview. `/healthz` needs no token, as the kubelet's probes have none.

mod decision_cache;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::service::service_fn;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use parking_lot::{Mutex, MutexGuard};
use rustls::ServerConfig;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

use crate::https::{self, Limits, Source};
use crate::metrics::{self, Page, TEXT_FORMAT};
use decision_cache::{CacheLookup, DecisionCache};

/// The `nonResourceURL` in roles.
const PAGE: &str = "/metrics";
const HEALTH: &str = "/healthz";
/// Time limit of both reviews together.
const REVIEW_MAX: Duration = Duration::from_secs(10);

/// Whether a token may read the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessDecision {
    Allowed,
    /// The token is not authenticated.
    Unauthenticated,
    /// Its user is not authorized.
    Forbidden,
}

/// Decides who may read the page, and caches the decisions.
pub struct MetricsAccess {
    client: Client,
    /// Never held during a review, so that cached tokens are decided at once.
    decisions: Mutex<DecisionCache>,
    /// One review at a time for tokens that were allowed before.
    known_tokens: Semaphore,
    /// One at a time for all others, so that they do not delay the known ones.
    unknown_tokens: Semaphore,
}

/// Why there is no decision about a token.
#[derive(Debug, thiserror::Error)]
enum ReviewError {
    #[error("too many unknown tokens")]
    RateLimited,
    #[error("the API server did not answer within {REVIEW_MAX:?}")]
    TimedOut,
    #[error(transparent)]
    Cluster(#[from] kube::Error),
}

impl MetricsAccess {
    /// `client` needs permission to create TokenReviews and SubjectAccessReviews.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            decisions: Mutex::default(),
            known_tokens: Semaphore::new(1),
            unknown_tokens: Semaphore::new(1),
        }
    }

    async fn decide(&self, token: &str, source: Source) -> Result<AccessDecision, ReviewError> {
        let permits = match self.decisions().look_up(token, source, Instant::now()) {
            CacheLookup::Cached(decision) => return Ok(decision),
            CacheLookup::RateLimited => return Err(ReviewError::RateLimited),
            CacheLookup::ReviewKnownToken => &self.known_tokens,
            CacheLookup::ReviewUnknownToken => &self.unknown_tokens,
        };
        let review = async {
            let _permit = permits.acquire().await; // never closed
            // Another request may have reviewed the same token meanwhile.
            if let Some(decision) = self.decisions().cached(token, Instant::now()) {
                return Ok(decision);
            }
            let decision = self.review(token).await?;
            self.decisions().remember(token, decision, Instant::now());
            Ok(decision)
        };
        timeout(REVIEW_MAX, review).await.unwrap_or(Err(ReviewError::TimedOut))
    }

    async fn review(&self, token: &str) -> kube::Result<AccessDecision> {
        Ok(match self.authenticate(token).await? {
            None => AccessDecision::Unauthenticated,
            Some(user) => {
                if self.authorize(user).await? {
                    AccessDecision::Allowed
                } else {
                    AccessDecision::Forbidden
                }
            }
        })
    }

    fn decisions(&self) -> MutexGuard<'_, DecisionCache> {
        self.decisions.lock()
    }

    async fn authenticate(&self, token: &str) -> kube::Result<Option<UserInfo>> {
        let spec = TokenReviewSpec { token: token.to_owned(), ..Default::default() };
        let review = TokenReview { spec, ..Default::default() };
        let review = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let status = review.status.unwrap_or_default();
        Ok(status.user.filter(|_| status.authenticated == Some(true)))
    }

    async fn authorize(&self, user: UserInfo) -> kube::Result<bool> {
        let UserInfo { extra, groups, uid, username } = user;
        let page = NonResourceAttributes { path: Some(PAGE.into()), verb: Some("get".into()) };
        let spec = SubjectAccessReviewSpec {
            extra,
            groups,
            uid,
            user: username,
            non_resource_attributes: Some(page),
            resource_attributes: None,
        };
        let review = SubjectAccessReview { spec, ..Default::default() };
        let review = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let status = review.status.unwrap_or_default();
        Ok(status.allowed && status.denied != Some(true))
    }
}

/// Serves as long as it is polled, HTTP/1.1 only. `tls` is called for each connection.
///
/// # Errors
/// When `listener` fails.
pub async fn serve(
    listener: TcpListener,
    page: Page,
    access: Arc<MetricsAccess>,
    tls: impl Fn() -> Arc<ServerConfig>,
) -> io::Result<Infallible> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let (_never, stop) = watch::channel(false);
    let service = move |peer: https::Peer| {
        let (page, access) = (Arc::clone(&page), Arc::clone(&access));
        let client = peer.address.ip();
        service_fn(move |request| {
            let (page, access) = (Arc::clone(&page), Arc::clone(&access));
            async move { Ok::<_, Infallible>(respond(&request, client, &page, &access).await) }
        })
    };
    let limits = Limits { only_http1: true, ..metrics::LIMITS };
    https::serve(listener, limits, stop, tls, service).await;
    Err(io::Error::other("the metrics listener stopped"))
}

async fn respond<B>(
    request: &Request<B>,
    client: IpAddr,
    page: &Page,
    access: &MetricsAccess,
) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return short(StatusCode::METHOD_NOT_ALLOWED, "method not allowed: use GET or HEAD\n");
    }
    match request.uri().path() {
        HEALTH => return short(StatusCode::OK, "OK"),
        PAGE => {}
        _ => {
            return short(
                StatusCode::NOT_FOUND,
                "not found: this port serves /metrics and /healthz\n",
            );
        }
    }
    let decision = match bearer_token(request.headers()) {
        Some(token) => access.decide(token, client.into()).await,
        None => Ok(AccessDecision::Unauthenticated),
    };
    match decision {
        Ok(AccessDecision::Allowed) => {
            let text = page() + &crate::sandbox::sandbox_metrics();
            let mut response = Response::new(Full::new(Bytes::from(text)));
            response.headers_mut().insert(CONTENT_TYPE, TEXT_FORMAT);
            response
        }
        Ok(AccessDecision::Unauthenticated) => {
            let mut response = short(StatusCode::UNAUTHORIZED, "missing or invalid bearer token\n");
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            response
        }
        Ok(AccessDecision::Forbidden) => short(
            StatusCode::FORBIDDEN,
            "forbidden: no role of this user allows it to get /metrics\n",
        ),
        Err(ReviewError::RateLimited) => short(
            StatusCode::TOO_MANY_REQUESTS,
            "too many unknown tokens: retry in a few seconds\n",
        ),
        Err(error) => {
            let cause = crate::chain(&error);
            tracing::warn!("cannot authenticate a reader of /metrics: {cause}");
            let text = "cannot authenticate the bearer token: the API server is unavailable\n";
            short(StatusCode::SERVICE_UNAVAILABLE, text)
        }
    }
}

fn short(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll};

    use kube::client::Body;

    use super::*;

    /// An API server that authenticates two tokens and authorizes one.
    #[derive(Clone, Default)]
    struct ReviewServer(Arc<Mutex<State>>);

    #[derive(Default)]
    struct State {
        /// Resources of the requests.
        requests: Vec<String>,
        is_down: bool,
        /// No request is ever answered.
        hangs: bool,
    }

    const FRIEND: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    const GOOD: &str = "good.to-ken_1=";

    impl tower_service::Service<Request<Body>> for ReviewServer {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future =
            std::pin::Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            let mut state = self.0.lock();
            state.requests.push(request.uri().path().rsplit('/').next().unwrap().to_owned());
            let (is_down, hangs) = (state.is_down, state.hangs);
            drop(state);
            Box::pin(async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                let path = request.uri().path().to_owned();
                let body = http_body_util::BodyExt::collect(request.into_body()).await.unwrap();
                let text = String::from_utf8(body.to_bytes().to_vec()).unwrap();
                let (code, status) = match path.as_str() {
                    _ if is_down => (500, "{}".to_owned()),
                    "/apis/authentication.k8s.io/v1/tokenreviews" => (201, known(&text)),
                    "/apis/authorization.k8s.io/v1/subjectaccessreviews" => (201, allowed(&text)),
                    other => panic!("unexpected request: {other}"),
                };
                let body =
                    Body::from(format!("{{\"spec\":{{}},\"status\":{status}}}").into_bytes());
                Ok(Response::builder().status(code).body(body).unwrap())
            })
        }
    }

    fn known(review: &str) -> String {
        let of = |name: &str| {
            format!(r#"{{"authenticated":true,"user":{{"username":"{name}","groups":["g"]}}}}"#)
        };
        match review {
            text if text.contains(&format!("\"{GOOD}\"")) => of("prometheus"),
            text if text.contains("\"poor\"") => of("ordinary"),
            _ => r#"{"authenticated":false}"#.to_owned(),
        }
    }

    fn allowed(review: &str) -> String {
        assert!(review.contains(r#"{"path":"/metrics","verb":"get"}"#), "{review}");
        assert!(review.contains(r#""groups":["g"]"#), "{review}");
        format!(r#"{{"allowed":{}}}"#, review.contains(r#""user":"prometheus""#))
    }

    struct TestPage {
        server: ReviewServer,
        access: MetricsAccess,
    }

    impl TestPage {
        fn new() -> Self {
            let server = ReviewServer::default();
            let access = MetricsAccess::new(Client::new(server.clone(), "default"));
            Self { server, access }
        }

        async fn get(&self, path: &str, authorization: &str) -> (u16, String) {
            self.get_from(FRIEND, path, authorization).await
        }

        async fn get_from(&self, client: IpAddr, path: &str, authorization: &str) -> (u16, String) {
            let mut request = Request::get(path);
            if !authorization.is_empty() {
                request = request.header(AUTHORIZATION, authorization);
            }
            let page: Page = Arc::new(|| "the page".to_owned());
            let response = respond(&request.body(()).unwrap(), client, &page, &self.access).await;
            let status = response.status().as_u16();
            let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
            (status, String::from_utf8(body.to_bytes().to_vec()).unwrap())
        }

        fn take_requests(&self) -> Vec<String> {
            std::mem::take(&mut self.server.0.lock().requests)
        }
    }

    #[tokio::test]
    async fn metrics_page_requires_an_authorized_token() {
        let test_page = TestPage::new();
        for (authorization, expected) in [
            ("", 401),
            ("Bearer", 401),
            ("Bearer ", 401),
            ("Basic Z29vZDpvbmU=", 401),
            ("Bearer stranger", 401),
            ("Bearer poor", 403),
        ] {
            let (status, text) = test_page.get("/metrics", authorization).await;
            assert_eq!(status, expected, "{authorization}");
            assert!(!text.contains("page"), "{text}");
        }
        let (status, text) = test_page.get("/metrics?x=1", &format!("bearer {GOOD}")).await;
        assert_eq!((status, text.as_str()), (200, "the page"));
    }

    #[tokio::test]
    async fn healthz_needs_no_token_and_no_review() {
        let test_page = TestPage::new();
        assert_eq!(test_page.get("/healthz", "").await, (200, "OK".to_owned()));
        for path in ["/", "/metrics/", "/debug/pprof", "/any"] {
            assert_eq!(test_page.get(path, &format!("Bearer {GOOD}")).await.0, 404, "{path}");
        }
        test_page.get("/metrics", "").await;
        assert_eq!(test_page.take_requests(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn decisions_are_cached_and_expire() {
        let test_page = TestPage::new();
        let good = format!("Bearer {GOOD}");
        for _ in 0..3 {
            assert_eq!(test_page.get("/metrics", &good).await.0, 200);
        }
        assert_eq!(test_page.take_requests(), ["tokenreviews", "subjectaccessreviews"]);
        for _ in 0..3 {
            assert_eq!(test_page.get("/metrics", "Bearer poor").await.0, 403);
        }
        assert_eq!(test_page.take_requests(), ["tokenreviews", "subjectaccessreviews"]);
        tokio::time::advance(decision_cache::REFUSED_FOR).await;
        test_page.get("/metrics", "Bearer poor").await;
        assert_eq!(test_page.take_requests().len(), 2, "a permission granted meanwhile");
        test_page.get("/metrics", &good).await;
        assert_eq!(test_page.take_requests(), [""; 0]);
        tokio::time::advance(decision_cache::ALLOWED_FOR).await;
        test_page.get("/metrics", &good).await;
        assert_eq!(test_page.take_requests().len(), 2, "a permission revoked meanwhile");
    }

    #[tokio::test]
    async fn unknown_tokens_from_many_addresses_are_rate_limited_and_displace_no_allowed_token() {
        let test_page = TestPage::new();
        let good = format!("Bearer {GOOD}");
        assert_eq!(test_page.get("/metrics", &good).await.0, 200);
        test_page.take_requests();
        let mut limited = 0;
        for number in 0..2000_u32 {
            let attacker = IpAddr::V4((0x0a01_0000 + number).into());
            let (status, _) =
                test_page.get_from(attacker, "/metrics", &format!("Bearer token-{number}")).await;
            limited += usize::from(status == 429);
        }
        assert!(limited > 1000, "{limited}");
        assert!(test_page.take_requests().len() < 1000);
        assert!(test_page.access.decisions().len() <= 2 * decision_cache::CACHE_CAPACITY);
        assert_eq!(test_page.get("/metrics", &good).await.0, 200);
        assert_eq!(test_page.take_requests(), [""; 0], "still cached");
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_review_delays_no_cached_token() {
        let test_page = Arc::new(TestPage::new());
        let good = format!("Bearer {GOOD}");
        assert_eq!(test_page.get("/metrics", &good).await.0, 200);
        test_page.server.0.lock().hangs = true;
        let slow = {
            let test_page = Arc::clone(&test_page);
            tokio::spawn(async move { test_page.get("/metrics", "Bearer stranger").await.0 })
        };
        tokio::task::yield_now().await; // it sends its review
        assert_eq!(test_page.get("/metrics", &good).await.0, 200);
        assert!(!slow.is_finished());
        assert_eq!(slow.await.unwrap(), 503);
    }

    /// The response to these bytes, sent after the TLS handshake.
    async fn exchange(bytes: &[u8]) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let key = crate::MetricsKey::random().unwrap();
        let mut config = crate::MetricsTls::from(key.clone()).server_config().unwrap();
        config.alpn_protocols.clear();
        let tls = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let page: Page = Arc::new(|| "the page".to_owned());
        let access = Arc::new(TestPage::new().access);
        let server = tokio::spawn(serve(listener, page, access, move || Arc::clone(&tls)));
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(key.client().unwrap()));
        let mut stream = connector.connect(address.ip().into(), stream).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut response = vec![0; 64];
        let count = stream.read(&mut response).await.unwrap_or(0);
        server.abort();
        String::from_utf8_lossy(&response[..count]).into_owned()
    }

    #[tokio::test]
    async fn http2_is_refused() {
        let text = exchange(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        // The preface of an HTTP/2 client; an HTTP/2 server would respond with a SETTINGS frame, which is not text.
        let text = exchange(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 4"), "{text:?}");
    }

    #[tokio::test]
    async fn unavailable_api_server_yields_503_and_is_retried() {
        let test_page = TestPage::new();
        let good = format!("Bearer {GOOD}");
        test_page.server.0.lock().is_down = true;
        assert_eq!(test_page.get("/metrics", &good).await.0, 503);
        test_page.server.0.lock().is_down = false;
        assert_eq!(test_page.get("/metrics", &good).await.0, 200);
    }
}
