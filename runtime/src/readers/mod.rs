//! Who may read a page of metrics that tells of more than one worker: whoever shows a token that the cluster knows, and may
//! get the page's path by its roles. Probes of the kubelet have no token, and need none for `/healthz`.

mod verdicts;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use rustls::ServerConfig;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

use crate::https::{self, Limits, Source};
use crate::metrics::{self, Page, TEXT_FORMAT};
use verdicts::{Lookup, Verdicts};

/// The page, as roles name it.
const PAGE: &str = "/metrics";
/// What probes ask for.
const HEALTH: &str = "/healthz";
/// How long the cluster may take to say whose token it is and what that user may.
const REVIEW_MAX: Duration = Duration::from_secs(10);

/// Whether somebody may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// They may.
    Allowed,
    /// The cluster does not know the token.
    Unknown,
    /// It does, but that is nobody who may.
    Forbidden,
}

/// Asks the cluster who may read, and remembers for a while what it said.
pub struct Readers {
    client: Client,
    /// Never held while the cluster is asked: who is known is answered at once.
    verdicts: Mutex<Verdicts>,
    /// One question at a time about tokens that were allowed before.
    known: Semaphore,
    /// The same about all others, so that they do not delay those.
    unknown: Semaphore,
}

/// Why nobody can say whether a token may read.
#[derive(Debug, thiserror::Error)]
enum ReviewError {
    #[error("too many unknown tokens were shown")]
    Rationed,
    #[error("the API server did not answer within {REVIEW_MAX:?}")]
    Slow,
    #[error(transparent)]
    Cluster(#[from] kube::Error),
}

impl Readers {
    /// Nobody has come yet. The program of `client` has to be allowed to make TokenReviews and SubjectAccessReviews.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            verdicts: Mutex::default(),
            known: Semaphore::new(1),
            unknown: Semaphore::new(1),
        }
    }

    async fn judge(&self, token: &str, source: Source) -> Result<Verdict, ReviewError> {
        let turns = match self.verdicts().look_up(token, source, Instant::now()) {
            Lookup::Cached(verdict) => return Ok(verdict),
            Lookup::Rationed => return Err(ReviewError::Rationed),
            Lookup::AskKnown => &self.known,
            Lookup::AskUnknown => &self.unknown,
        };
        let review = async {
            let _turn = turns.acquire().await; // never closed
            // Somebody else may have asked meanwhile.
            if let Some(verdict) = self.verdicts().cached(token, Instant::now()) {
                return Ok(verdict);
            }
            let verdict = self.review(token).await?;
            self.verdicts().remember(token, verdict, Instant::now());
            Ok(verdict)
        };
        timeout(REVIEW_MAX, review).await.unwrap_or(Err(ReviewError::Slow))
    }

    async fn review(&self, token: &str) -> kube::Result<Verdict> {
        Ok(match self.user(token).await? {
            None => Verdict::Unknown,
            Some(user) => match self.may_read(user).await? {
                true => Verdict::Allowed,
                false => Verdict::Forbidden,
            },
        })
    }

    fn verdicts(&self) -> MutexGuard<'_, Verdicts> {
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whose token it is.
    async fn user(&self, token: &str) -> kube::Result<Option<UserInfo>> {
        let spec = TokenReviewSpec { token: token.to_owned(), ..Default::default() };
        let review = TokenReview { spec, ..Default::default() };
        let answer = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let status = answer.status.unwrap_or_default();
        Ok(status.user.filter(|_| status.authenticated == Some(true)))
    }

    async fn may_read(&self, user: UserInfo) -> kube::Result<bool> {
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
        let answer = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let status = answer.status.unwrap_or_default();
        Ok(status.allowed && status.denied != Some(true))
    }
}

/// Answers whoever connects, for as long as it is polled. `tls` is asked anew for each connection; HTTP/2 is not spoken.
///
/// # Errors
/// When `listener` cannot be used.
pub async fn serve(
    listener: TcpListener,
    page: Page,
    readers: Arc<Readers>,
    tls: impl Fn() -> Arc<ServerConfig>,
) -> io::Result<Infallible> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let (_never, stop) = watch::channel(false);
    let service = move |peer: https::Peer| {
        let (page, readers) = (Arc::clone(&page), Arc::clone(&readers));
        let client = peer.address.ip();
        service_fn(move |request| {
            let (page, readers) = (Arc::clone(&page), Arc::clone(&readers));
            async move { Ok::<_, Infallible>(answer(&request, client, &page, &readers).await) }
        })
    };
    let limits = Limits { only_http1: true, ..metrics::LIMITS };
    https::serve(listener, limits, stop, tls, service).await;
    Err(io::Error::other("nobody asks for an end"))
}

/// What one request from `client` is answered.
async fn answer<B>(
    request: &Request<B>,
    client: IpAddr,
    page: &Page,
    readers: &Readers,
) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return short(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    match request.uri().path() {
        HEALTH => return short(StatusCode::OK, "OK"),
        PAGE => {}
        _ => return short(StatusCode::NOT_FOUND, "there is /metrics, and no other page\n"),
    }
    let verdict = match bearer(request.headers()) {
        Some(token) => readers.judge(token, client.into()).await,
        None => Ok(Verdict::Unknown),
    };
    match verdict {
        Ok(Verdict::Allowed) => {
            let text = page() + &crate::sandbox::sandbox_metrics();
            let mut response = Response::new(Full::new(Bytes::from(text)));
            response.headers_mut().insert(CONTENT_TYPE, TEXT_FORMAT);
            response
        }
        Ok(Verdict::Unknown) => {
            let mut response =
                short(StatusCode::UNAUTHORIZED, "say by a bearer token who you are\n");
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            response
        }
        Ok(Verdict::Forbidden) => {
            short(StatusCode::FORBIDDEN, "no role of yours allows to get /metrics\n")
        }
        Err(ReviewError::Rationed) => {
            short(StatusCode::TOO_MANY_REQUESTS, "too many unknown tokens: try again in a while\n")
        }
        Err(error) => {
            let text = crate::chain(&error);
            tracing::warn!("cannot ask the cluster who may read metrics: {text}");
            short(StatusCode::SERVICE_UNAVAILABLE, "nobody can say who you are at the moment\n")
        }
    }
}

fn short(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as StdMutex;
    use std::task::{Context, Poll};

    use kube::client::Body;

    use super::*;

    /// A cluster that knows two tokens, of which one may read.
    #[derive(Clone, Default)]
    struct Cluster(Arc<StdMutex<State>>);

    #[derive(Default)]
    struct State {
        /// Paths of questions.
        asked: Vec<String>,
        is_down: bool,
        /// No question is ever answered.
        hangs: bool,
    }

    const FRIEND: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    const GOOD: &str = "good.to-ken_1=";

    impl tower_service::Service<Request<Body>> for Cluster {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future =
            std::pin::Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            let mut state = self.0.lock().unwrap();
            state.asked.push(request.uri().path().rsplit('/').next().unwrap().to_owned());
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
                    other => panic!("nobody asks for {other}"),
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
            text if text.contains("\"poor\"") => of("somebody"),
            _ => r#"{"authenticated":false}"#.to_owned(),
        }
    }

    fn allowed(review: &str) -> String {
        assert!(review.contains(r#"{"path":"/metrics","verb":"get"}"#), "{review}");
        assert!(review.contains(r#""groups":["g"]"#), "{review}");
        format!(r#"{{"allowed":{}}}"#, review.contains(r#""user":"prometheus""#))
    }

    struct Seen {
        cluster: Cluster,
        readers: Readers,
    }

    impl Seen {
        fn new() -> Self {
            let cluster = Cluster::default();
            let readers = Readers::new(Client::new(cluster.clone(), "default"));
            Self { cluster, readers }
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
            let answer = answer(&request.body(()).unwrap(), client, &page, &self.readers).await;
            let status = answer.status().as_u16();
            let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap();
            (status, String::from_utf8(body.to_bytes().to_vec()).unwrap())
        }

        fn asked(&self) -> Vec<String> {
            std::mem::take(&mut self.cluster.0.lock().unwrap().asked)
        }
    }

    #[tokio::test]
    async fn the_page_is_for_whom_the_cluster_allows_it() {
        let seen = Seen::new();
        for (authorization, expected) in [
            ("", 401),
            ("Bearer", 401),
            ("Bearer ", 401),
            ("Basic Z29vZDpvbmU=", 401),
            ("Bearer stranger", 401),
            ("Bearer poor", 403),
        ] {
            let (status, text) = seen.get("/metrics", authorization).await;
            assert_eq!(status, expected, "{authorization}");
            assert!(!text.contains("page"), "{text}");
        }
        let (status, text) = seen.get("/metrics?x=1", &format!("bearer {GOOD}")).await;
        assert_eq!((status, text.as_str()), (200, "the page"));
    }

    #[tokio::test]
    async fn probes_need_no_token_and_nobody_is_asked_about_them() {
        let seen = Seen::new();
        assert_eq!(seen.get("/healthz", "").await, (200, "OK".to_owned()));
        for path in ["/", "/metrics/", "/debug/pprof", "/any"] {
            assert_eq!(seen.get(path, &format!("Bearer {GOOD}")).await.0, 404, "{path}");
        }
        seen.get("/metrics", "").await;
        assert_eq!(seen.asked(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_cluster_said_counts_for_a_while() {
        let seen = Seen::new();
        let good = format!("Bearer {GOOD}");
        for _ in 0..3 {
            assert_eq!(seen.get("/metrics", &good).await.0, 200);
        }
        assert_eq!(seen.asked(), ["tokenreviews", "subjectaccessreviews"]);
        for _ in 0..3 {
            assert_eq!(seen.get("/metrics", "Bearer poor").await.0, 403);
        }
        assert_eq!(seen.asked(), ["tokenreviews", "subjectaccessreviews"]);
        tokio::time::advance(verdicts::REFUSED_FOR).await;
        seen.get("/metrics", "Bearer poor").await;
        assert_eq!(seen.asked().len(), 2, "a right that was given meanwhile");
        seen.get("/metrics", &good).await;
        assert_eq!(seen.asked(), [""; 0]);
        tokio::time::advance(verdicts::ALLOWED_FOR).await;
        seen.get("/metrics", &good).await;
        assert_eq!(seen.asked().len(), 2, "a right that was taken away meanwhile");
    }

    #[tokio::test]
    async fn many_unknown_tokens_from_many_addresses_keep_nobody_out() {
        let seen = Seen::new();
        let good = format!("Bearer {GOOD}");
        assert_eq!(seen.get("/metrics", &good).await.0, 200);
        seen.asked();
        let mut rationed = 0;
        for number in 0..2000_u32 {
            let attacker = IpAddr::V4((0x0a01_0000 + number).into());
            let (status, _) =
                seen.get_from(attacker, "/metrics", &format!("Bearer token-{number}")).await;
            rationed += usize::from(status == 429);
        }
        assert!(rationed > 1000, "{rationed}");
        assert!(seen.asked().len() < 1000);
        assert!(seen.readers.verdicts().len() <= 2 * verdicts::REMEMBERED);
        assert_eq!(seen.get("/metrics", &good).await.0, 200);
        assert_eq!(seen.asked(), [""; 0], "what is known stays known");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_review_delays_nobody_who_is_known() {
        let seen = Arc::new(Seen::new());
        let good = format!("Bearer {GOOD}");
        assert_eq!(seen.get("/metrics", &good).await.0, 200);
        seen.cluster.0.lock().unwrap().hangs = true;
        let slow = {
            let seen = Arc::clone(&seen);
            tokio::spawn(async move { seen.get("/metrics", "Bearer stranger").await.0 })
        };
        tokio::task::yield_now().await; // it asks
        assert_eq!(seen.get("/metrics", &good).await.0, 200);
        assert!(!slow.is_finished());
        assert_eq!(slow.await.unwrap(), 503);
    }

    /// What a server says to whoever has shaken hands and says this.
    async fn said(words: &[u8]) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let key = crate::MetricsKey::random().unwrap();
        let mut config = metrics::tls(Some(&key)).unwrap();
        config.alpn_protocols.clear();
        let tls = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let page: Page = Arc::new(|| "the page".to_owned());
        let readers = Arc::new(Seen::new().readers);
        let server = tokio::spawn(serve(listener, page, readers, move || Arc::clone(&tls)));
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(key.client().unwrap()));
        let mut stream = connector.connect(address.ip().into(), stream).await.unwrap();
        stream.write_all(words).await.unwrap();
        let mut answer = vec![0; 64];
        let count = stream.read(&mut answer).await.unwrap_or(0);
        server.abort();
        String::from_utf8_lossy(&answer[..count]).into_owned()
    }

    #[tokio::test]
    async fn nobody_is_answered_by_http2_even_who_begins_with_it() {
        let text = said(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        // What clients of HTTP/2 say first; it answers with a frame of settings, which is no text.
        let text = said(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 4"), "{text:?}");
    }

    #[tokio::test]
    async fn a_cluster_that_does_not_answer_lets_nobody_in_and_is_asked_again() {
        let seen = Seen::new();
        let good = format!("Bearer {GOOD}");
        seen.cluster.0.lock().unwrap().is_down = true;
        assert_eq!(seen.get("/metrics", &good).await.0, 503);
        seen.cluster.0.lock().unwrap().is_down = false;
        assert_eq!(seen.get("/metrics", &good).await.0, 200);
    }
}
