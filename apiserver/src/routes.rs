//! Paths, and what is done there.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, StatusCode};
use runtime::https::InFlight;

use crate::app::App;
use crate::hooks::{self, Hook};
use crate::review::Asked;
use crate::verdict::Verdict;
use crate::{discovery, tokens};

/// Less than the cluster's API server waits for: it is to hear why.
const JUDGED_WITHIN: Duration = Duration::from_secs(8);

/// The common name in the certificate that a client has shown, which TLS has verified.
#[derive(Clone, Debug, Default)]
pub struct Peer(pub Option<Arc<str>>);

/// Everything that is served. Each connection brings its [`Peer`].
pub fn router(app: Arc<App>) -> Router {
    let group = format!("/apis/{}", api::names::UPLOAD_GROUP);
    let version = format!("{group}/{}", api::names::VERSION);
    let requests = format!("{version}/namespaces/{{namespace}}/uploadtokenrequests");
    let mut router = Router::new()
        .route("/healthz", get(|| async { "OK" }))
        .route("/", get(|| async { Json(discovery::paths()) }))
        .route("/apis", get(|| async { Json(discovery::groups()) }))
        .route(&group, get(|| async { Json(discovery::group()) }))
        .route(&version, get(|| async { Json(discovery::resources()) }))
        .route("/openapi/v2", get(|| async { Json(discovery::open_api()) }))
        .route(&requests, post(request_token));
    for hook in Hook::ALL {
        let admit = move |State(app): State<Arc<App>>,
                          in_flight: Option<Extension<InFlight>>,
                          headers: HeaderMap,
                          body: Body| async move {
            admit(&app, hook, in_flight.as_deref(), &headers, body).await
        };
        router = router.route(hook.path(), post(admit));
    }
    router.with_state(app)
}

async fn admit(
    app: &App,
    hook: Hook,
    in_flight: Option<&InFlight>,
    headers: &HeaderMap,
    body: Body,
) -> Response {
    if !is_json(headers) {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
    }
    let held = match app.room.read(body).await {
        Ok(held) => held,
        Err(status) => return status.into_response(),
    };
    let asked = match Asked::read(&held.bytes) {
        Ok(asked) => asked,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    if let Some(in_flight) = in_flight {
        in_flight.accept(); // a review that is complete is answered, however many clients connect meanwhile
    }
    let judged = tokio::time::timeout(JUDGED_WITHIN, hooks::judge(app, hook, &asked.request)).await;
    let verdict = match judged {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(error)) => {
            tracing::warn!("{}: {}", hook.path(), runtime::chain(&error));
            Verdict::Refused(runtime::chain(&error))
        }
        Err(_) => Verdict::Refused("the cluster did not answer in time".into()),
    };
    Json(asked.answer(&verdict)).into_response()
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// `POST …/namespaces/NAMESPACE/uploadtokenrequests`
async fn request_token(
    State(app): State<Arc<App>>,
    Path(namespace): Path<String>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    if !tokens::is_namespace(&namespace) {
        return StatusCode::NOT_FOUND.into_response();
    }
    // Before a byte of the body is read.
    let user = match app.front_proxy().user(peer.0.as_deref(), &headers) {
        Ok(user) => user,
        Err(error) => return (StatusCode::UNAUTHORIZED, error.to_string()).into_response(),
    };
    let allowed = app.cluster.may(&user, tokens::permission(&namespace));
    match tokio::time::timeout(JUDGED_WITHIN, allowed).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(reason))) => return (StatusCode::UNAUTHORIZED, reason).into_response(),
        Ok(Err(error)) => {
            tracing::warn!("{}", runtime::chain(&error));
            return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response();
        }
        Err(_) => {
            let reason = "the cluster did not answer in time";
            return (StatusCode::INTERNAL_SERVER_ERROR, reason).into_response();
        }
    }
    let held = match app.room.read(body).await {
        Ok(held) => held,
        Err(status) => return status.into_response(),
    };
    match tokens::answer(&held.bytes, &namespace, &app.key, SystemTime::now()) {
        Ok(object) => {
            let options = [(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))];
            (options, Json(object)).into_response()
        }
        Err(answer) => answer.into_response(),
    }
}
