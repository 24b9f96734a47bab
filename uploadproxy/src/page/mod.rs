//! A web page for uploads without a client program. Served only if the administrator enables it.
//!
//! It consists of three files and loads nothing from other hosts. It uses the same paths as other clients,
//! with a token that the user pastes.

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};
use http_body_util::Full;

const HTML: &str = include_str!("page.html");
const SCRIPT: &str = include_str!("page.js");
const STYLE: &str = include_str!("page.css");

/// Allows its own script and style and requests to its own origin.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The file of the page at `path`, if any.
pub fn page_file(method: &Method, path: &str) -> Option<Response<Full<Bytes>>> {
    if ![Method::GET, Method::HEAD].contains(method) {
        return None;
    }
    let (kind, text) = match path {
        "/upload" => ("text/html; charset=utf-8", HTML),
        "/upload/page.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "/upload/page.css" => ("text/css; charset=utf-8", STYLE),
        _ => return None,
    };
    let body = if *method == Method::HEAD { "" } else { text };
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = StatusCode::OK;
    let headers: [(HeaderName, &'static str); 5] = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_three_files_without_external_references() {
        for path in ["/upload", "/upload/page.js", "/upload/page.css"] {
            let response = page_file(&Method::GET, path).unwrap();
            assert!(response.headers()[header::CONTENT_SECURITY_POLICY] == POLICY, "{path}");
            assert!(page_file(&Method::POST, path).is_none(), "{path}");
        }
        assert!(page_file(&Method::GET, "/upload/").is_none());
        for found in ["upload/page.js", "upload/page.css"] {
            assert!(HTML.contains(found), "{found}");
        }
        for text in [HTML, SCRIPT, STYLE] {
            assert!(!text.contains("://") && !text.contains("innerHTML"));
        }
        assert!(!HTML.contains(" style=") && !HTML.contains(" onclick="), "the policy forbids it");
    }

    #[test]
    fn elements_that_the_script_uses_exist() {
        let parts = SCRIPT.split("find(\"").skip(1);
        let names: Vec<_> = parts.filter_map(|rest| rest.split('"').next()).collect();
        assert!(names.len() >= 6, "{names:?}");
        for name in names {
            assert!(HTML.contains(&format!("id=\"{name}\"")), "{name}");
        }
    }
}
