//! A wrapper around a service that reports requests in flight.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::CONNECTION;
use http::{HeaderValue, Request, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::Service;

use super::activity::{Activity, Sending};

/// Reports each request of one connection to its [`Activity`].
pub(super) struct Tracked<S> {
    service: S,
    activity: Arc<Activity>,
}

impl<S> Tracked<S> {
    pub fn new(service: S, activity: Arc<Activity>) -> Self {
        Self { service, activity }
    }
}

impl<S, B> Service<Request<Incoming>> for Tracked<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<TrackedBody<B>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let running = self.activity.start_request();
        request.extensions_mut().insert(running.in_flight());
        let response = self.service.call(request);
        let activity = Arc::clone(&self.activity);
        Box::pin(async move {
            let mut response = response.await?;
            if activity.is_retired() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            let sending = running.sending();
            Ok(response.map(|body| TrackedBody { body: Box::pin(body), _sending: sending }))
        })
    }
}

/// The body of a response. Dropped once it is sent, or cannot be.
pub(super) struct TrackedBody<B> {
    body: Pin<Box<B>>,
    _sending: Sending,
}

impl<B: Body> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.body.as_mut().poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
