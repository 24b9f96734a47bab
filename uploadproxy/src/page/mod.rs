//! A page to upload from, for people without any program. It is there only where it is asked for.
//!
//! It consists of three texts and loads nothing from elsewhere; what it does, it does by the paths that any other client
//! uses, with a token that the person has pasted. It is no way around anything.

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};
use http_body_util::Full;

const HTML: &str = include_str!("page.html");
const SCRIPT: &str = include_str!("page.js");
const STYLE: &str = include_str!("page.css");

/// Its own script and style, requests to where it came from, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What is at `path`, if the page has a part of it there.
pub fn part(method: &Method, path: &str) -> Option<Response<Full<Bytes>>> {
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
    let mut answer = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *answer.status_mut() = StatusCode::OK;
    let headers: [(HeaderName, &'static str); 5] = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    for (name, value) in headers {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_three_parts_and_asks_for_nothing_else() {
        for path in ["/upload", "/upload/page.js", "/upload/page.css"] {
            let answer = part(&Method::GET, path).unwrap();
            assert!(answer.headers()[header::CONTENT_SECURITY_POLICY] == POLICY, "{path}");
            assert!(part(&Method::POST, path).is_none(), "{path}");
        }
        assert!(part(&Method::GET, "/upload/").is_none());
        for found in ["upload/page.js", "upload/page.css"] {
            assert!(HTML.contains(found), "{found}");
        }
        for text in [HTML, SCRIPT, STYLE] {
            assert!(!text.contains("://") && !text.contains("innerHTML"));
        }
        assert!(!HTML.contains(" style=") && !HTML.contains(" onclick="), "the policy forbids it");
    }

    #[test]
    fn what_the_script_looks_for_is_in_the_page() {
        let parts = SCRIPT.split("find(\"").skip(1);
        let names: Vec<_> = parts.filter_map(|rest| rest.split('"').next()).collect();
        assert!(names.len() >= 6, "{names:?}");
        for name in names {
            assert!(HTML.contains(&format!("id=\"{name}\"")), "{name}");
        }
    }
}
