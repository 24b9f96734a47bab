//! The response to a request, decided without I/O.

use std::ops::Range;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::fault::Fault;
use super::request::Request;

/// What is sent, and its fault.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Body,
    pub(super) chunked: bool,
    /// The connection ends with the body.
    pub(super) close: bool,
    /// Where in the body it breaks, and how.
    pub(super) breaks: Option<(u64, Break)>,
    /// Bytes of body per second.
    pub(super) rate: Option<u64>,
    /// Before the first byte.
    pub(super) delay: Duration,
    /// Neither head nor body is HTTP, or there is none.
    pub(super) silent: Option<&'static [u8]>,
}

/// What follows the head.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// These bytes of the image.
    Image(Range<u64>),
    Text(String),
    /// The request is a HEAD.
    None,
}

/// How a body breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Break {
    /// The connection is closed.
    Close,
    /// Nothing more comes.
    Stall,
}

/// The response, given the image's length and tag and the faults that affect the request.
pub(super) fn reply(request: &Request, image_len: u64, etag: &str, faults: &[Fault]) -> Reply {
    let mut reply =
        refusal(request, faults).unwrap_or_else(|| content(request, image_len, etag, faults));
    for fault in faults {
        match fault {
            Fault::Latency(delay) => reply.delay += *delay,
            Fault::SlowDown(rate) => reply.rate = Some((*rate).max(1)),
            Fault::Hangup => reply.silent = Some(b""),
            Fault::Header(name, value) => reply.headers.push((name, value.clone())),
            Fault::Nonsense => reply.silent = Some(b"SSH-2.0-not-a-web-server\r\n"),
            _ => {}
        }
    }
    if request.method == "HEAD" {
        (reply.body, reply.breaks, reply.chunked) = (Body::None, None, false);
    }
    reply.close |=
        request.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    if reply.close {
        reply.headers.push(("Connection", "close".into()));
    }
    reply
}

/// A response without the image, if a fault requires one.
fn refusal(request: &Request, faults: &[Fault]) -> Option<Reply> {
    let refused = |status, header: Option<(&'static str, String)>| {
        let text = format!("{status} on purpose\n");
        let mut headers =
            vec![("Content-Type", "text/plain".into()), ("Content-Length", text.len().to_string())];
        headers.extend(header);
        Some(Reply { headers, ..Reply::new(status, Body::Text(text)) })
    };
    if !matches!(&*request.method, "GET" | "HEAD") {
        return refused(405, Some(("Allow", "GET, HEAD".into())));
    }
    faults.iter().find_map(|fault| match fault {
        Fault::Status(status) => refused(*status, None),
        Fault::Refuse(status, text) => Some(Reply {
            headers: vec![
                ("Content-Type", "application/xml".into()),
                ("Content-Length", text.len().to_string()),
            ],
            ..Reply::new(*status, Body::Text(text.clone()))
        }),
        Fault::StatusWithRetryAfter(status, seconds) => {
            refused(*status, Some(("Retry-After", seconds.to_string())))
        }
        Fault::StatusWithRetryDate(status, date) => {
            refused(*status, Some(("Retry-After", date.clone())))
        }
        Fault::RedirectTo(to) => refused(302, Some(("Location", to.clone()))),
        Fault::RedirectWith(status, to) => refused(*status, Some(("Location", to.clone()))),
        Fault::HeadForbidden if request.method == "HEAD" => refused(403, None),
        Fault::BasicAuth(user, password) => {
            let right = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
            let known = request.header("authorization") == Some(&right);
            if known {
                None
            } else {
                refused(401, Some(("WWW-Authenticate", "Basic realm=\"images\"".into())))
            }
        }
        Fault::RequireHeader(name, value) => {
            if request.header(name) == Some(value) {
                None
            } else {
                refused(403, None)
            }
        }
        _ => None,
    })
}

fn content(request: &Request, image_len: u64, etag: &str, faults: &[Fault]) -> Reply {
    let weak = faults.contains(&Fault::WeakEtag);
    let tag = (!faults.contains(&Fault::NoEtag))
        .then(|| format!("{}\"{etag}\"", if weak { "W/" } else { "" }));
    let date = faults.iter().find_map(|fault| match fault {
        Fault::LastModified(date) => Some(date.clone()),
        _ => None,
    });
    // RFC 9110, section 13.1.5: a weak tag never matches, a date has to be the same.
    let same =
        |wanted: &str| (!weak && tag.as_deref() == Some(wanted)) || date.as_deref() == Some(wanted);
    let ranges = !faults.contains(&Fault::IgnoreRange);
    let asked = ranges && request.range().is_some() && request.header("if-range").is_none_or(same);

    let mut headers = vec![("Content-Type", "application/octet-stream".to_owned())];
    headers.extend(tag.clone().map(|tag| ("ETag", tag)));
    headers.extend(date.clone().map(|date| ("Last-Modified", date)));
    headers.extend(ranges.then(|| ("Accept-Ranges", "bytes".to_owned())));
    if request.header("if-match").is_some_and(|wanted| wanted != "*" && !same(wanted)) {
        headers.push(("Content-Length", "0".into()));
        return Reply { headers, ..Reply::new(412, Body::Text(String::new())) };
    }
    let (status, mut range) = match (asked, request.wanted(image_len)) {
        (false, _) => (200, 0..image_len),
        (true, Some(range)) => (206, range),
        (true, None) => {
            headers.extend([
                ("Content-Range", format!("bytes */{image_len}")),
                ("Content-Length", "0".into()),
            ]);
            return Reply { headers, ..Reply::new(416, Body::Text(String::new())) };
        }
    };
    if let (206, Some(by)) = (
        status,
        find(faults, |fault| if let Fault::WrongRange(by) = fault { Some(*by) } else { None }),
    ) {
        range = (range.start + by).min(image_len)..(range.end + by).min(image_len);
    }
    let most = find(faults, |fault| match fault {
        Fault::ShortRange(most) => Some(*most),
        _ => None,
    });
    if let (206, Some(most)) = (status, most) {
        range.end = range.end.min(range.start.saturating_add(most.max(1)));
    }
    if status == 206 {
        let last = range.end.saturating_sub(1);
        headers.push(("Content-Range", format!("bytes {}-{last}/{image_len}", range.start)));
    }
    let body_len = range.end - range.start;
    let mut reply =
        Reply { breaks: breaks(&range, faults), ..Reply::new(status, Body::Image(range)) };
    let mut length = Some(body_len.to_string());
    for fault in faults {
        match fault {
            Fault::WrongLength(off) => {
                length = Some(body_len.saturating_add_signed(*off).to_string());
                reply.close = true;
            }
            Fault::LengthText(text) => (length, reply.close) = (Some(text.clone()), true),
            Fault::Chunked => (length, reply.chunked) = (None, true),
            Fault::UntilClose => (length, reply.close) = (None, true),
            Fault::ContentType(kind) => headers[0].1.clone_from(kind),
            Fault::ContentEncoding(name) => headers.push(("Content-Encoding", name.clone())),
            _ => {}
        }
    }
    headers.extend(length.map(|length| ("Content-Length", length)));
    headers.extend(reply.chunked.then(|| ("Transfer-Encoding", "chunked".to_owned())));
    reply.headers = headers;
    reply
}

/// The first place in the body at which it breaks.
fn breaks(range: &Range<u64>, faults: &[Fault]) -> Option<(u64, Break)> {
    let in_body = |at: &u64| range.contains(at).then(|| at - range.start);
    let len = range.end - range.start;
    let candidates = faults.iter().filter_map(|fault| match fault {
        Fault::CloseAfter(count) => Some((*count, Break::Close)),
        Fault::CloseAt(at) => Some((in_body(at)?, Break::Close)),
        Fault::StallAfter(count) => (*count <= len).then_some((*count, Break::Stall)),
        Fault::StallAt(at) => Some((in_body(at)?, Break::Stall)),
        _ => None,
    });
    candidates.min_by_key(|(at, _)| *at)
}

fn find<T>(faults: &[Fault], which: impl Fn(&Fault) -> Option<T>) -> Option<T> {
    faults.iter().find_map(which)
}

impl Reply {
    fn new(status: u16, body: Body) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body,
            chunked: false,
            close: false,
            breaks: None,
            rate: None,
            delay: Duration::ZERO,
            silent: None,
        }
    }
}
