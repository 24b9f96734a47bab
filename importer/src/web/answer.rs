//! The attributes of the image in the headers of a response.

use std::time::Duration;

use http::HeaderMap;
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, LAST_MODIFIED,
};

/// `Content-Range: bytes first-last/total`, or `bytes */total` of a response 416.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContentRange {
    /// First and last byte, both inclusive; `None` for `*`.
    pub(super) part: Option<(u64, u64)>,
    /// `None` for `*`.
    pub(super) total: Option<u64>,
}

impl ContentRange {
    /// `None` for anything that is not exactly one.
    pub(super) fn parse(value: &str) -> Option<Self> {
        let (unit, rest) = value.trim().split_once(' ')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (part, total) = rest.trim().split_once('/')?;
        let total = if total == "*" { None } else { Some(number(total)?) };
        let part = match part {
            "*" => None,
            _ => {
                let (first, last) = part.split_once('-')?;
                let (first, last) = (number(first)?, number(last)?);
                if last < first || last == u64::MAX || total.is_some_and(|total| last >= total) {
                    return None;
                }
                Some((first, last))
            }
        };
        Some(Self { part, total })
    }

    pub(super) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        Self::parse(text(headers, CONTENT_RANGE)?)
    }
}

/// Digits only: `parse` alone would take a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// What two responses must share to be parts of the same image, written in the form of `If-Range`.
pub(super) fn validator(headers: &HeaderMap) -> Option<String> {
    if let Some(etag) = text(headers, ETAG)
        && etag.len() >= 2
        && etag.starts_with('"')
        && etag.ends_with('"')
    {
        return Some(etag.to_owned());
    }
    // A date is strong only when the image cannot have changed again within its second (RFC 9110, 8.8.2.2; a minute
    // allows for clocks that differ).
    let modified = text(headers, LAST_MODIFIED)?;
    let date = httpdate::parse_http_date(text(headers, DATE)?).ok()?;
    let age = date.duration_since(httpdate::parse_http_date(modified).ok()?).ok()?;
    (age >= Duration::from_secs(60)).then(|| modified.to_owned())
}

/// The image's identity in a response: a validator, or at least what would show that it changed.
pub(super) fn mark(headers: &HeaderMap) -> Option<String> {
    let weaker = || text(headers, ETAG).or_else(|| text(headers, LAST_MODIFIED));
    validator(headers).or_else(|| weaker().map(str::to_owned))
}

/// Whether a response shows another image than one with the mark `before`: it has a mark of that kind, and a different
/// one. A response without a mark contradicts nothing.
pub(super) fn contradicts(before: &str, headers: &HeaderMap) -> Option<String> {
    let is_date = httpdate::parse_http_date(before).is_ok();
    let now = text(headers, if is_date { LAST_MODIFIED } else { ETAG })?;
    let opaque = |etag: &str| etag.strip_prefix("W/").unwrap_or(etag).to_owned();
    (opaque(now) != opaque(before)).then(|| now.to_owned())
}

/// `Content-Length`, where it is one.
pub(super) fn content_length(headers: &HeaderMap) -> Option<u64> {
    number(text(headers, CONTENT_LENGTH)?.trim())
}

/// A content type that no disk image has.
pub(super) fn suspicious_content_type(headers: &HeaderMap) -> Option<&str> {
    let kind = text(headers, CONTENT_TYPE)?.split(';').next()?.trim();
    let is_text = kind.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("text/"));
    is_text.then_some(kind)
}

/// An encoding that the pipeline would not recognise by content. `gzip` and `zstd` are left for it to undo: an image
/// served as `disk.img.gz` with `Content-Encoding: gzip` is compressed once, not twice.
pub(super) fn unknown_encoding(headers: &HeaderMap) -> Option<&str> {
    let value = text(headers, CONTENT_ENCODING)?;
    let known = ["identity", "gzip", "x-gzip", "zstd", ""];
    value
        .split(',')
        .map(str::trim)
        .find(|coding| !known.iter().any(|known| known.eq_ignore_ascii_case(coding)))
}

fn text(headers: &HeaderMap, name: http::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
            })
            .collect()
    }

    #[test]
    fn content_range_is_read_exactly_or_not_at_all() {
        let range = |part, total| Some(ContentRange { part, total });
        let table = [
            ("bytes 0-9/100", range(Some((0, 9)), Some(100))),
            ("Bytes 5-5/6", range(Some((5, 5)), Some(6))),
            ("bytes 0-9/*", range(Some((0, 9)), None)),
            ("bytes */0", range(None, Some(0))),
            ("bytes */*", range(None, None)),
            ("bytes 9-0/100", None),
            ("bytes 0-100/100", None),
            ("bytes 0-99", None),
            ("bytes +0-9/100", None),
            ("bytes 0-9/-1", None),
            ("bytes -9/100", None),
            ("bytes 0-18446744073709551615/*", None),
            ("bytes 0-18446744073709551616/*", None),
            ("items 0-9/100", None),
            ("", None),
        ];
        for (value, expected) in table {
            assert_eq!(ContentRange::parse(value), expected, "{value:?}");
        }
    }

    #[test]
    fn a_strong_validator_is_an_etag_or_an_old_date() {
        let old = "Sat, 21 Nov 2026 07:00:00 GMT";
        let now = "Sat, 21 Nov 2026 07:01:00 GMT";
        let table = [
            (headers(&[("etag", "\"abc\"")]), Some("\"abc\"")),
            (
                headers(&[("etag", "\"abc\""), ("last-modified", old), ("date", now)]),
                Some("\"abc\""),
            ),
            (headers(&[("etag", "W/\"abc\"")]), None),
            (headers(&[("etag", "W/\"abc\""), ("last-modified", old), ("date", now)]), Some(old)),
            (headers(&[("etag", "abc"), ("last-modified", old), ("date", now)]), Some(old)),
            (headers(&[("etag", "\"")]), None),
            (headers(&[("last-modified", old), ("date", now)]), Some(old)),
            (headers(&[("last-modified", now), ("date", now)]), None),
            (headers(&[("last-modified", "Sat, 21 Nov 2026 07:00:01 GMT"), ("date", now)]), None),
            (headers(&[("last-modified", now), ("date", old)]), None),
            (headers(&[("last-modified", old)]), None),
            (headers(&[("last-modified", "yesterday"), ("date", now)]), None),
            (headers(&[]), None),
        ];
        for (headers, expected) in table {
            assert_eq!(validator(&headers).as_deref(), expected, "{headers:?}");
        }
    }

    #[test]
    fn only_a_different_validator_of_the_same_kind_contradicts() {
        let date = "Sat, 21 Nov 2026 07:00:00 GMT";
        let table = [
            ("\"a\"", headers(&[("etag", "\"a\"")]), None),
            ("\"a\"", headers(&[("etag", "\"b\"")]), Some("\"b\"")),
            ("\"a\"", headers(&[("last-modified", date)]), None),
            ("\"a\"", headers(&[("etag", "W/\"a\"")]), None),
            ("W/\"a\"", headers(&[("etag", "W/\"b\"")]), Some("W/\"b\"")),
            ("\"a\"", headers(&[]), None),
            (date, headers(&[("last-modified", date), ("etag", "\"b\"")]), None),
            (date, headers(&[("last-modified", "later")]), Some("later")),
        ];
        for (before, headers, expected) in table {
            assert_eq!(contradicts(before, &headers).as_deref(), expected, "{before} {headers:?}");
        }
    }

    #[test]
    fn a_mark_is_the_best_there_is() {
        let date = "Sat, 21 Nov 2026 07:00:00 GMT";
        let table = [
            (headers(&[("etag", "\"a\""), ("last-modified", date)]), Some("\"a\"")),
            (headers(&[("etag", "W/\"a\""), ("last-modified", date)]), Some("W/\"a\"")),
            (headers(&[("last-modified", date), ("date", date)]), Some(date)),
            (headers(&[]), None),
        ];
        for (headers, expected) in table {
            assert_eq!(mark(&headers).as_deref(), expected, "{headers:?}");
        }
    }

    #[test]
    fn text_is_no_disk_image() {
        let table = [
            ("text/html", Some("text/html")),
            ("Text/Plain; charset=utf-8", Some("Text/Plain")),
            ("application/octet-stream", None),
            ("textile/x", None),
            ("", None),
        ];
        for (value, expected) in table {
            assert_eq!(suspicious_content_type(&headers(&[("content-type", value)])), expected);
        }
    }

    #[test]
    fn only_encodings_that_content_reveals_are_accepted() {
        let table = [
            ("gzip", None),
            ("GZIP", None),
            ("identity", None),
            ("br", Some("br")),
            ("gzip, br", Some("br")),
        ];
        for (value, expected) in table {
            assert_eq!(unknown_encoding(&headers(&[("content-encoding", value)])), expected);
        }
    }

    #[test]
    fn content_length_is_digits() {
        let table = [("12", Some(12)), ("+12", None), ("1e3", None), ("", None)];
        for (value, expected) in table {
            assert_eq!(
                content_length(&headers(&[("content-length", value)])),
                expected,
                "{value:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_content_range_lies_within_its_total(text in "bytes [0-9*-]{1,22}/[0-9*]{1,22}") {
            if let Some(ContentRange { part: Some((first, last)), total }) = ContentRange::parse(&text) {
                prop_assert!(first <= last && total.is_none_or(|total| last < total));
            }
        }
    }
}
