//! Paths, and what is done there.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::header::{CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, StatusCode};
use runtime::https::InFlight;
use tokio::time::Instant;

use crate::app::App;
use crate::hooks::{self, Hook};
use crate::peer::Peer;
use crate::review::Asked;
use crate::verdict::Verdict;
use crate::{discovery, tokens};

/// Less than the cluster's API server waits for: it is to hear why.
const JUDGED_WITHIN: Duration = Duration::from_secs(8);
/// How much of that a call waits for others that are judged.
const ADMITTED_WITHIN: Duration = Duration::from_secs(3);

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
                          Extension(peer): Extension<Peer>,
                          in_flight: Option<Extension<InFlight>>,
                          headers: HeaderMap,
                          body: Body| async move {
            admit(&app, hook, (&peer, in_flight.as_deref()), &headers, body).await
        };
        router = router.route(hook.path(), post(admit));
    }
    router.with_state(app)
}

async fn admit(
    app: &App,
    hook: Hook,
    (peer, in_flight): (&Peer, Option<&InFlight>),
    headers: &HeaderMap,
    body: Body,
) -> Response {
    if !peer.may_call_webhooks {
        return (StatusCode::FORBIDDEN, "webhooks need a client certificate of the API server")
            .into_response();
    }
    if !is_json(headers) {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
    }
    let limits = app.limits.of(peer.caller);
    let Some(_pending) = limits.begin() else { return too_many_calls() };
    let held = match limits.room().read(body).await {
        Ok(held) => held,
        Err(status) => return status.into_response(),
    };
    let deadline = Instant::now() + JUDGED_WITHIN;
    let admitted = limits.admit(&held.bytes);
    // Until the answer: what was parsed takes memory for as long.
    let _permit = match tokio::time::timeout(ADMITTED_WITHIN, admitted).await {
        Ok(Ok(permit)) => permit,
        Ok(Err(error)) => {
            return (StatusCode::PAYLOAD_TOO_LARGE, error.to_string()).into_response();
        }
        Err(_) => return too_many_calls(),
    };
    let asked = match Asked::read(&held.bytes) {
        Ok(asked) => asked,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    if let Some(in_flight) = in_flight {
        in_flight.accept(); // a review that is complete is answered, however many clients connect meanwhile
    }
    let judged = hooks::judge(app, hook, &asked.request);
    let judged = tokio::time::timeout_at(deadline, judged).await;
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

/// The API server calls again after a second.
fn too_many_calls() -> Response {
    let again = [(RETRY_AFTER, HeaderValue::from_static("1"))];
    (StatusCode::TOO_MANY_REQUESTS, again, "too many webhook calls at once").into_response()
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
    let user = match app.front_proxy().user(peer.front_proxy.as_deref(), &headers) {
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
