//! The faults of a web server, and the responses that each affects.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::request::Request;

/// A fault of a response. Positions marked *image* count bytes of the image, the others those of one body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection is closed after so many bytes of the body. 0: after the head.
    CloseAfter(u64),
    /// The connection is closed before this byte of the image is sent; a response that ends before it is complete.
    CloseAt(u64),
    /// A body of at least so many bytes stops after them, and the connection stays open. See [`super::FaultServer::wait_for_stall`].
    StallAfter(u64),
    /// The body stops before this byte of the image, and the connection stays open.
    StallAt(u64),
    /// The connection is closed without a response.
    Hangup,
    /// This status and a short text.
    Status(u16),
    /// This status with `Retry-After`, in seconds.
    StatusWithRetryAfter(u16, u64),
    /// This status with `Retry-After`, as a date or nonsense.
    StatusWithRetryDate(u16, String),
    /// This status and this text: object stores describe errors in XML.
    Refuse(u16, String),
    /// One more header, in every response.
    Header(&'static str, String),
    /// `Content-Length` is off by so much: larger, and the connection ends early; smaller, and bytes follow.
    WrongLength(i64),
    /// `Content-Length` is this text.
    LengthText(String),
    /// Ranges are ignored: 200 and everything, and no `Accept-Ranges`.
    IgnoreRange,
    /// The response to a range is 206, with bytes from an offset so much larger than the requested one.
    WrongRange(u64),
    /// The response to a range is 206 with at most so many of its first bytes, as of some caches.
    ShortRange(u64),
    /// From this request on the image has another ETag (and If-Range fails).
    ChangeEtag,
    NoEtag,
    /// `W/"…"`: the bytes may differ although the tag is the same.
    WeakEtag,
    /// `Last-Modified`, which a good server sends as a date.
    LastModified(String),
    /// No `Content-Length` but chunks.
    Chunked,
    /// No `Content-Length`, and the end of the connection is the end of the body.
    UntilClose,
    /// The response to HEAD is 403.
    HeadForbidden,
    /// Another `Content-Type`.
    ContentType(String),
    /// `Content-Encoding`, which the body does not have to be in.
    ContentEncoding(String),
    /// 302 to this address, or path.
    RedirectTo(String),
    /// A redirect with another status: 301, 303, 307, 308.
    RedirectWith(u16, String),
    /// 401 unless the request has this user and password.
    BasicAuth(String, String),
    /// 403 unless the request has this header with this value.
    RequireHeader(String, String),
    /// At most so many bytes of body per second.
    SlowDown(u64),
    /// A delay before each response.
    Latency(Duration),
    /// Not HTTP at all.
    Nonsense,
}

/// Which responses a fault affects.
pub(super) enum When {
    /// The n-th GET, counted from 1.
    Nth(u64),
    /// Every request.
    Always,
    /// The first GET request on which the fault has an effect.
    Once(AtomicBool),
    /// Every request for this path.
    Path(String),
    /// Every request that it accepts.
    Accepts(Box<dyn Fn(&Request) -> bool + Send + Sync>),
}

/// A line of the server's script.
pub(super) struct Rule {
    pub(super) when: When,
    pub(super) fault: Fault,
}

impl Rule {
    /// Does it fall on this request? `image_len` bytes are there to be had.
    pub(super) fn falls_on(&self, request: &Request, image_len: u64) -> bool {
        match &self.when {
            When::Nth(number) => request.is_get() && request.number == *number,
            When::Always => true,
            When::Once(used) => {
                let touched = match self.fault {
                    Fault::CloseAt(at) | Fault::StallAt(at) => {
                        let wanted = request.wanted(image_len).unwrap_or(0..image_len);
                        wanted.contains(&at)
                    }
                    _ => true,
                };
                request.is_get() && touched && !used.swap(true, Ordering::SeqCst)
            }
            When::Path(path) => request.path() == path,
            When::Accepts(accepts) => accepts(request),
        }
    }
}
