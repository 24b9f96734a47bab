//! CORS: every origin is allowed, since all requests need a
//! token, which a browser never adds by itself.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD,
    HeaderMap, HeaderValue, ORIGIN, VARY,
};
use http::{Method, Request};

const ANY: HeaderValue = HeaderValue::from_static("*");
const METHODS: HeaderValue = HeaderValue::from_static("HEAD, GET, POST, PUT, PATCH, DELETE");
/// Response headers that a page needs to resume an upload.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "Location, Tus-Resumable, Tus-Version, Tus-Extension, Upload-Length, Upload-Offset",
);
const VARY_OF_PREFLIGHT: HeaderValue = HeaderValue::from_static(
    "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
);

/// The CORS headers of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    /// The request has an `Origin`.
    has_origin: bool,
    /// The request is a preflight; the inner value is the headers that it requests.
    preflight: Option<Option<HeaderValue>>,
}

impl Cors {
    pub fn from_request<B>(request: &Request<B>) -> Self {
        let headers = request.headers();
        let is_preflight = request.method() == Method::OPTIONS
            && headers.get(ACCESS_CONTROL_REQUEST_METHOD).is_some_and(|method| !method.is_empty());
        // Named one by one: a page may not use `*` together with `Authorization`.
        let preflight = is_preflight.then(|| headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned());
        let has_origin = headers.get(ORIGIN).is_some_and(|origin| !origin.is_empty());
        Self { has_origin, preflight }
    }

    /// Whether the response consists of these headers only.
    pub fn is_preflight(&self) -> bool {
        self.preflight.is_some()
    }

    /// Exposes the headers that a page needs to resume an upload.
    pub fn expose(&self, headers: &mut HeaderMap) {
        if self.has_origin {
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
    }

    /// Adds the headers to a response of any status.
    pub fn apply(self, headers: &mut HeaderMap) {
        let vary = if self.is_preflight() { VARY_OF_PREFLIGHT } else { HeaderValue::from(ORIGIN) };
        headers.append(VARY, vary);
        if !self.has_origin {
            return;
        }
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
        if let Some(wanted) = self.preflight {
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
            if let Some(wanted) = wanted {
                headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, given: &[(&str, &str)], expected: &[(&str, &str)], is_preflight: bool) {
        let mut request = Request::builder().method(method);
        for (name, value) in given {
            request = request.header(*name, *value);
        }
        let cors = Cors::from_request(&request.body(()).unwrap());
        assert_eq!(cors.is_preflight(), is_preflight);
        let mut headers = HeaderMap::new();
        cors.apply(&mut headers);
        let mut found: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{method} {given:?}");
    }

    #[test]
    fn every_origin_may_send_every_request() {
        let vary = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";
        let vary = ("vary", vary);
        let methods = ("access-control-allow-methods", "HEAD, GET, POST, PUT, PATCH, DELETE");
        let origin = ("access-control-allow-origin", "*");
        let (page, is_preflight) =
            (("origin", "https://console"), ("access-control-request-method", "POST"));
        let names = "authorization,content-type";
        let wanted = ("access-control-request-headers", names);
        let allowed = ("access-control-allow-headers", names);
        check("POST", &[], &[("vary", "origin")], false);
        check("POST", &[page], &[origin, ("vary", "origin")], false);
        check("OPTIONS", &[page], &[origin, ("vary", "origin")], false);
        check("OPTIONS", &[page, is_preflight], &[methods, origin, vary], true);
        check("OPTIONS", &[page, is_preflight, wanted], &[allowed, methods, origin, vary], true);
        check("OPTIONS", &[is_preflight], &[vary], true);
        check("POST", &[page, is_preflight], &[origin, ("vary", "origin")], false);
    }
}
