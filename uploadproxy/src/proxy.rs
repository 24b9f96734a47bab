//! One request, from its first byte to its answer: check, find, hand on.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use auth::ReloadingIdentity;
use auth::token::{Claims, ISSUER_API_SERVER, Operation, Resource, VerifyingKey};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use runtime::https::InFlight;
use rustls::ClientConfig;

use crate::bearer::bearer;
use crate::body::Drained;
use crate::cluster::Cluster;
use crate::cors::Cors;
use crate::error::ProxyError;
use crate::forward::{Place, forward};
use crate::page;
use crate::ready::destination;
use crate::route::{Route, archive, route, shown};
use crate::settings::Settings;

/// An answer of this proxy, or of a server behind it.
pub type Answer = Response<Either<Full<Bytes>, Incoming>>;

/// For so long after a token has expired its holder may go on with an upload that has begun. This covers a connection that
/// breaks at the end of the token's five minutes; after that a client asks for another token, which it gets only while it
/// still has the permission to upload. It lets nobody begin an upload: only the client that began it knows its address.
const GRACE: Duration = Duration::from_secs(10 * 60);
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// What the requests of one process have in common.
pub struct Proxy<C> {
    cluster: C,
    key: VerifyingKey,
    /// What is shown to upload servers.
    certificate: PathBuf,
    certificate_key: PathBuf,
    /// There is a page to upload from.
    has_page: bool,
    /// How long an upload server may be away.
    server_patience: Duration,
}

impl<C: Cluster> Proxy<C> {
    pub fn new(settings: Settings, cluster: C) -> Self {
        Self {
            cluster,
            key: settings.token_key,
            certificate: settings.client_certificate,
            certificate_key: settings.client_key,
            has_page: settings.page,
            server_patience: settings.server_patience,
        }
    }

    /// Answers a request that came from `client`.
    pub async fn answer(&self, request: Request<Incoming>, client: IpAddr) -> Answer {
        let cors = Cors::of(&request);
        let is_resumable = matches!(route(request.uri().path()), Route::Resumable { .. });
        let mut answer = if cors.is_preflight() {
            text(StatusCode::OK, String::new())
        } else {
            self.handle(request, client).await.unwrap_or_else(|error| refuse(&error))
        };
        if is_resumable {
            cors.expose(answer.headers_mut());
        }
        cors.apply(answer.headers_mut());
        answer
    }

    async fn handle(
        &self,
        request: Request<Incoming>,
        client: IpAddr,
    ) -> Result<Answer, ProxyError> {
        let (mut parts, body) = request.into_parts();
        let body = Drained::new(body);
        if let Some(answer) = self.page(&parts) {
            return Ok(answer.map(Either::Left));
        }
        let route = route(parts.uri.path());
        let (place, tls) = match route {
            Route::Health => return Ok(text(StatusCode::OK, "OK".into())),
            Route::Unknown => return Err(ProxyError::Unknown),
            Route::Upload | Route::Resumable { .. } => self.prepare(&parts, route).await?,
        };
        if let Some(in_flight) = parts.extensions.remove::<InFlight>() {
            in_flight.accept(); // an upload that is allowed goes on, however many clients connect meanwhile
        }
        tracing::info!(
            http.method = parts.method.as_str(),
            http.path = shown(parts.uri.path()),
            "handed on to {}",
            place.host
        );
        let answer = forward(parts, body, &place, tls, client).await;
        answer.map(|answer| answer.map(Either::Right)).map_err(ProxyError::Upstream)
    }

    fn page(&self, parts: &Parts) -> Option<Response<Full<Bytes>>> {
        page::part(&parts.method, parts.uri.path()).filter(|_| self.has_page)
    }

    /// All that has to be known before a byte of the body is asked for.
    async fn prepare(
        &self,
        parts: &Parts,
        route: Route,
    ) -> Result<(Place, Arc<ClientConfig>), ProxyError> {
        let begun = route == Route::Resumable { begun: true };
        let claims = self.claims(&parts.headers, if begun { GRACE } else { Duration::ZERO })?;
        let found = destination(&self.cluster, &claims.namespace, &claims.name).await;
        let found =
            found.map_err(|source| ProxyError::Refused { claim: claims.name.clone(), source })?;
        if found.archive && route != Route::Upload {
            return Err(ProxyError::Archive { claim: claims.name });
        }
        let tls = self.tls().await.map_err(ProxyError::Client)?;
        let path = if found.archive { archive(parts.uri.path()) } else { parts.uri.path() };
        let path: Uri = path.parse().map_err(|_| ProxyError::Unknown)?; // it was one already
        let host = format!("{}.{}.svc", found.service, found.namespace);
        let address = self.cluster.address(&host);
        Ok((Place { host, address, path, patience: self.server_patience }, tls))
    }

    /// What the token allows, which has to be an upload. It may have expired within `grace`.
    fn claims(&self, headers: &HeaderMap, grace: Duration) -> Result<Claims, ProxyError> {
        let token = bearer(headers).ok_or(ProxyError::NoToken)?;
        let now = SystemTime::now();
        let claims = self.key.verify_within(token, ISSUER_API_SERVER, now, grace);
        let claims = claims.map_err(ProxyError::Token)?;
        let is_upload = claims.operation == Operation::Upload
            && claims.resource == Resource::pvcs()
            && !claims.name.is_empty()
            && !claims.namespace.is_empty();
        if is_upload { Ok(claims) } else { Err(ProxyError::OtherToken) }
    }

    /// Certificates are read anew for each request: they are renewed twice a day, and uploads are rare.
    async fn tls(&self) -> Result<Arc<ClientConfig>, Box<dyn std::error::Error + Send + Sync>> {
        let identity = ReloadingIdentity::open(
            &self.certificate,
            &self.certificate_key,
            auth::CERTIFICATE_RELOAD_INTERVAL,
        )?;
        let authorities = self.cluster.authorities().await?;
        Ok(Arc::new(auth::client_config(Arc::new(identity), &authorities)?))
    }
}

fn refuse(error: &ProxyError) -> Answer {
    let status = error.status();
    tracing::warn!(http.status = status.as_u16(), "{}", runtime::chain(error));
    text(status, error.body())
}

fn text(status: StatusCode, text: String) -> Answer {
    let has_text = !text.is_empty();
    let mut answer = Response::new(Either::Left(Full::new(Bytes::from(text))));
    *answer.status_mut() = status;
    if has_text {
        answer.headers_mut().insert(header::CONTENT_TYPE, TEXT);
    }
    answer
}
