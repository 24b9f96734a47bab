//! What browsers ask before they send something to another place than they came from: everything is allowed, since a
//! token is needed for everything, and a browser never adds one by itself.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD,
    HeaderMap, HeaderValue, ORIGIN, VARY,
};
use http::{Method, Request};

const ANY: HeaderValue = HeaderValue::from_static("*");
const METHODS: HeaderValue = HeaderValue::from_static("HEAD, GET, POST, PUT, PATCH, DELETE");
/// What a page has to see of an upload that can go on.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "Location, Tus-Resumable, Tus-Version, Tus-Extension, Upload-Length, Upload-Offset",
);
const VARY_OF_PREFLIGHT: HeaderValue = HeaderValue::from_static(
    "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
);

/// What has to be in the answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    /// It comes from a page.
    has_origin: bool,
    /// It only asks whether it might.
    preflight: Option<Option<HeaderValue>>,
}

impl Cors {
    /// Of this request.
    pub fn of<B>(request: &Request<B>) -> Self {
        let headers = request.headers();
        let asks = request.method() == Method::OPTIONS
            && headers.get(ACCESS_CONTROL_REQUEST_METHOD).is_some_and(|method| !method.is_empty());
        // Named one by one: a page may not use `*` together with `Authorization`.
        let preflight = asks.then(|| headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned());
        let has_origin = headers.get(ORIGIN).is_some_and(|origin| !origin.is_empty());
        Self { has_origin, preflight }
    }

    /// Whether the request is answered with this and nothing else.
    pub fn is_preflight(&self) -> bool {
        self.preflight.is_some()
    }

    /// Lets a page see what it has to know to go on with an upload.
    pub fn expose(&self, headers: &mut HeaderMap) {
        if self.has_origin {
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
    }

    /// Puts it into an answer, whatever that says.
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
        let cors = Cors::of(&request.body(()).unwrap());
        assert_eq!(cors.is_preflight(), is_preflight);
        let mut headers = HeaderMap::new();
        cors.apply(&mut headers);
        let mut found: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{method} {given:?}");
    }

    #[test]
    fn every_page_may_send_everything() {
        let vary = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";
        let vary = ("vary", vary);
        let methods = ("access-control-allow-methods", "HEAD, GET, POST, PUT, PATCH, DELETE");
        let origin = ("access-control-allow-origin", "*");
        let (page, asks) =
            (("origin", "https://console"), ("access-control-request-method", "POST"));
        let names = "authorization,content-type";
        let wanted = ("access-control-request-headers", names);
        let allowed = ("access-control-allow-headers", names);
        check("POST", &[], &[("vary", "origin")], false);
        check("POST", &[page], &[origin, ("vary", "origin")], false);
        check("OPTIONS", &[page], &[origin, ("vary", "origin")], false);
        check("OPTIONS", &[page, asks], &[methods, origin, vary], true);
        check("OPTIONS", &[page, asks, wanted], &[allowed, methods, origin, vary], true);
        check("OPTIONS", &[asks], &[vary], true);
        check("POST", &[page, asks], &[origin, ("vary", "origin")], false);
    }
}
