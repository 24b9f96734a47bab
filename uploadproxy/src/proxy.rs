//! Handles one request: check the token, find the upload server, forward.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use auth::ReloadingIdentity;
use auth::token::{Claims, ISSUER_API_SERVER, Operation, Resource, VerifyingKey};
use bytes::Bytes;
use contract::upload::COMPLETE_HEADER;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use runtime::https::InFlight;
use rustls::ClientConfig;

use crate::bearer::bearer_token;
use crate::body::DrainedBody;
use crate::cluster_api::ClusterApi;
use crate::cors::Cors;
use crate::error::ProxyError;
use crate::forward::{ProxyTarget, forward};
use crate::page;
use crate::recorded_end::wait_until_recorded;
use crate::route::{Route, archive_path, redact_path, route};
use crate::settings::Settings;
use crate::upload_server::find_upload_server;

/// A response of this proxy or of an upload server.
pub type ProxyResponse = Response<Either<Full<Bytes>, Incoming>>;

/// How long after its expiry a token may continue an upload that has begun. This covers a connection that
/// fails at the end of the token's five minutes; after that a client requests another token, which it gets only while it
/// still has the permission to upload. It does not permit a new upload: only the client that began one knows its address.
const TOKEN_GRACE: Duration = Duration::from_secs(10 * 60);
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

pub struct Proxy<C> {
    cluster: C,
    key: VerifyingKey,
    /// The client certificate for upload servers.
    certificate: PathBuf,
    certificate_key: PathBuf,
    /// Serve the upload page.
    has_page: bool,
    /// How long to retry a connection to an upload server.
    server_patience: Duration,
    /// How long to wait for the record of an upload's end.
    record_patience: Duration,
}

impl<C: ClusterApi> Proxy<C> {
    pub fn new(settings: Settings, cluster: C) -> Self {
        Self {
            cluster,
            key: settings.token_key,
            certificate: settings.client_certificate,
            certificate_key: settings.client_key,
            has_page: settings.page,
            server_patience: settings.server_patience,
            record_patience: settings.record_patience,
        }
    }

    pub async fn respond(&self, request: Request<Incoming>, client: IpAddr) -> ProxyResponse {
        let cors = Cors::from_request(&request);
        let is_resumable = matches!(route(request.uri().path()), Route::Resumable { .. });
        let mut response = if cors.is_preflight() {
            text(StatusCode::OK, String::new())
        } else {
            self.handle(request, client).await.unwrap_or_else(|error| refuse(&error))
        };
        if is_resumable {
            cors.expose(response.headers_mut());
        }
        cors.apply(response.headers_mut());
        response
    }

    async fn handle(
        &self,
        request: Request<Incoming>,
        client: IpAddr,
    ) -> Result<ProxyResponse, ProxyError> {
        let (mut parts, body) = request.into_parts();
        let body = DrainedBody::new(body);
        if let Some(response) = self.page(&parts) {
            return Ok(response.map(Either::Left));
        }
        let route = route(parts.uri.path());
        let (claims, target, tls) = match route {
            Route::Health => return Ok(text(StatusCode::OK, "OK".into())),
            Route::Unknown => return Err(ProxyError::Unknown),
            Route::Upload | Route::Resumable { .. } => self.prepare(&parts, route).await?,
        };
        if let Some(in_flight) = parts.extensions.remove::<InFlight>() {
            in_flight.accept(); // an authorized upload is not evicted by new connections
        }
        tracing::info!(
            http.method = parts.method.as_str(),
            http.path = redact_path(parts.uri.path()),
            "forwarded to {}",
            target.host
        );
        let mut response =
            forward(parts, body, &target, tls, client).await.map_err(ProxyError::Upstream)?;
        let is_complete = response.headers_mut().remove(COMPLETE_HEADER).is_some();
        if is_complete && response.status().is_success() {
            let Claims { namespace, name, .. } = claims;
            let recorded =
                wait_until_recorded(&self.cluster, &namespace, &name, self.record_patience).await;
            recorded.map_err(|_| ProxyError::NotRecorded { claim: name })?;
        }
        Ok(response.map(Either::Right))
    }

    fn page(&self, parts: &Parts) -> Option<Response<Full<Bytes>>> {
        page::page_file(&parts.method, parts.uri.path()).filter(|_| self.has_page)
    }

    /// All checks before the first byte of the body is read.
    async fn prepare(
        &self,
        parts: &Parts,
        route: Route,
    ) -> Result<(Claims, ProxyTarget, Arc<ClientConfig>), ProxyError> {
        let begun = route == Route::Resumable { begun: true };
        let claims =
            self.claims(&parts.headers, if begun { TOKEN_GRACE } else { Duration::ZERO })?;
        let found = find_upload_server(&self.cluster, &claims.namespace, &claims.name).await;
        let found =
            found.map_err(|source| ProxyError::Refused { claim: claims.name.clone(), source })?;
        if found.archive && route != Route::Upload {
            return Err(ProxyError::Archive { claim: claims.name });
        }
        let tls = self.tls().await.map_err(ProxyError::Client)?;
        let path = if found.archive { archive_path(parts.uri.path()) } else { parts.uri.path() };
        let path: Uri = path.parse().map_err(|_| ProxyError::Unknown)?; // cannot fail: it was a URI before
        let host = format!("{}.{}.svc", found.service, found.namespace);
        let address = self.cluster.address(&host);
        Ok((claims, ProxyTarget { host, address, path, patience: self.server_patience }, tls))
    }

    /// The claims of the token, which has to permit an upload. It may have expired up to `grace` ago.
    fn claims(&self, headers: &HeaderMap, grace: Duration) -> Result<Claims, ProxyError> {
        let token = bearer_token(headers).ok_or(ProxyError::NoToken)?;
        let now = SystemTime::now();
        let claims = self.key.verify_within(token, ISSUER_API_SERVER, now, grace);
        let claims = claims.map_err(ProxyError::Token)?;
        let is_upload = claims.operation == Operation::Upload
            && claims.resource == Resource::pvcs()
            && !claims.name.is_empty()
            && !claims.namespace.is_empty();
        if is_upload { Ok(claims) } else { Err(ProxyError::OtherToken) }
    }

    /// Certificates are read for each request: they are renewed twice a day, and uploads are rare.
    async fn tls(&self) -> Result<Arc<ClientConfig>, Box<dyn std::error::Error + Send + Sync>> {
        let identity = ReloadingIdentity::open(
            &self.certificate,
            &self.certificate_key,
            auth::CERTIFICATE_RELOAD_INTERVAL,
        )?;
        let upload_server_cas = self.cluster.upload_server_cas().await?;
        Ok(Arc::new(auth::client_config(Arc::new(identity), &upload_server_cas)?))
    }
}

fn refuse(error: &ProxyError) -> ProxyResponse {
    let status = error.status();
    tracing::warn!(http.status = status.as_u16(), "{}", runtime::chain(error));
    text(status, error.body())
}

fn text(status: StatusCode, text: String) -> ProxyResponse {
    let has_text = !text.is_empty();
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(text))));
    *response.status_mut() = status;
    if has_text {
        response.headers_mut().insert(header::CONTENT_TYPE, TEXT);
    }
    response
}
