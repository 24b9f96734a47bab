//! HTTP routes.

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

use crate::admission_result::AdmissionResult;
use crate::app::App;
use crate::hooks::{self, Hook};
use crate::peer::Peer;
use crate::review::AdmissionCall;
use crate::{discovery, tokens};

/// Below the webhook timeout of the API server (10 s), so that it receives the reason.
const REVIEW_MAX: Duration = Duration::from_secs(8);
/// The part of it that a call may wait for other calls.
const WAIT_MAX: Duration = Duration::from_secs(3);

/// All routes. Each request has its connection's [`Peer`] as an extension.
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
        return (StatusCode::FORBIDDEN, "webhooks require a client certificate of the API server")
            .into_response();
    }
    if !is_json(headers) {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
    }
    let limits = app.limits.for_caller(peer.caller);
    let Some(_pending) = limits.start_call() else { return too_many_calls() };
    let body = match limits.body_memory().read(body).await {
        Ok(body) => body,
        Err(status) => return status.into_response(),
    };
    let deadline = Instant::now() + REVIEW_MAX;
    let admitted = limits.admit(&body.bytes);
    // Held until the response, as the parsed request takes memory as long.
    let _permit = match tokio::time::timeout(WAIT_MAX, admitted).await {
        Ok(Ok(permit)) => permit,
        Ok(Err(error)) => {
            return (StatusCode::PAYLOAD_TOO_LARGE, error.to_string()).into_response();
        }
        Err(_) => return too_many_calls(),
    };
    let call = match AdmissionCall::read(&body.bytes) {
        Ok(call) => call,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    if let Some(in_flight) = in_flight {
        in_flight.accept(); // a complete review is not evicted by new connections
    }
    let reviewed = hooks::review_request(app, hook, &call.request);
    let reviewed = tokio::time::timeout_at(deadline, reviewed).await;
    let result = match reviewed {
        Ok(Ok(result)) => result,
        Ok(Err(error)) => {
            tracing::warn!("{}: {}", hook.path(), runtime::chain(&error));
            AdmissionResult::Refused(runtime::chain(&error))
        }
        Err(_) => AdmissionResult::Refused(
            "the API server of the cluster did not respond in time: retry".into(),
        ),
    };
    Json(call.response_body(&result)).into_response()
}

// With Retry-After, the API server retries after a second.
fn too_many_calls() -> Response {
    let again = [(RETRY_AFTER, HeaderValue::from_static("1"))];
    (StatusCode::TOO_MANY_REQUESTS, again, "too many concurrent webhook calls: retry")
        .into_response()
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
    // Before the body is read.
    let user = match app.front_proxy().user(peer.front_proxy.as_deref(), &headers) {
        Ok(user) => user,
        Err(error) => return (StatusCode::UNAUTHORIZED, error.to_string()).into_response(),
    };
    let allowed = app.cluster.check_access(&user, tokens::permission(&namespace));
    match tokio::time::timeout(REVIEW_MAX, allowed).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(reason))) => return (StatusCode::UNAUTHORIZED, reason).into_response(),
        Ok(Err(error)) => {
            tracing::warn!("{}", runtime::chain(&error));
            return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response();
        }
        Err(_) => {
            let reason = "the API server of the cluster did not respond in time: retry";
            return (StatusCode::INTERNAL_SERVER_ERROR, reason).into_response();
        }
    }
    let body = match app.body_memory.read(body).await {
        Ok(body) => body,
        Err(status) => return status.into_response(),
    };
    match tokens::issue_token(&body.bytes, &namespace, &app.key, SystemTime::now()) {
        Ok(object) => {
            let options = [(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))];
            (options, Json(object)).into_response()
        }
        Err(answer) => answer.into_response(),
    }
}
