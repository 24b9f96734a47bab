//! Parses the headers of the tus protocol.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contract::Checksum;
use http::request::Parts;
use http::{HeaderMap, Method, header};

use super::ResumableRefusal;

/// Version of the tus protocol.
pub const VERSION: &str = "1.0.0";
/// Supported extensions. Not `checksum`, which covers a single part: the part would have to be held back, or undone. A
/// checksum of the whole upload is supported instead, as `Repr-Digest`.
pub const EXTENSIONS: &str = "creation";
const METADATA_LEN_MAX: usize = 4096;
const FINGERPRINT_LEN_MAX: usize = 512;
const SHA256_LEN: usize = 32;
const PART_CONTENT_TYPE: &str = "application/offset+octet-stream";

/// Headers of the tus protocol, and `Repr-Digest` of RFC 9530.
pub mod header_names {
    use http::HeaderName;

    pub const VERSION: HeaderName = HeaderName::from_static("tus-resumable");
    pub const VERSIONS: HeaderName = HeaderName::from_static("tus-version");
    pub const EXTENSION: HeaderName = HeaderName::from_static("tus-extension");
    pub const OFFSET: HeaderName = HeaderName::from_static("upload-offset");
    pub const LENGTH: HeaderName = HeaderName::from_static("upload-length");
    pub const METADATA: HeaderName = HeaderName::from_static("upload-metadata");
    pub const OVERRIDE: HeaderName = HeaderName::from_static("x-http-method-override");
    pub const DIGEST: HeaderName = HeaderName::from_static("repr-digest");
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TusRequest<'a> {
    /// `OPTIONS`: version and extensions.
    Discover,
    /// `POST`: a new upload, or the present one if it is the same.
    Create,
    /// `HEAD`: the offset of the upload with this ID.
    GetOffset(&'a str),
    /// `PATCH`: bytes for the upload with this ID.
    Append(&'a str),
    Unknown,
}

/// `id`: the last segment of the path. `X-HTTP-Method-Override` in a `POST` names the method for clients that can send
/// no other.
pub fn parse_request<'a>(parts: &Parts, id: Option<&'a str>) -> TusRequest<'a> {
    let method = parts.headers.get(header_names::OVERRIDE).filter(|_| parts.method == Method::POST);
    let method = method.and_then(|method| method.to_str().ok()).unwrap_or(parts.method.as_str());
    match (method, id) {
        ("OPTIONS", _) => TusRequest::Discover,
        ("POST", None) => TusRequest::Create,
        ("HEAD", Some(id)) => TusRequest::GetOffset(id),
        ("PATCH", Some(id)) => TusRequest::Append(id),
        _ => TusRequest::Unknown,
    }
}

/// [`ResumableRefusal::Version`]
pub fn check_version(headers: &HeaderMap) -> Result<(), ResumableRefusal> {
    match header_text(headers, &header_names::VERSION) {
        Some(VERSION) => Ok(()),
        _ => Err(ResumableRefusal::Version),
    }
}

/// [`ResumableRefusal::Kind`]
pub fn check_content(headers: &HeaderMap) -> Result<(), ResumableRefusal> {
    match header_text(headers, &header::CONTENT_TYPE) {
        Some(kind) if kind.trim().eq_ignore_ascii_case(PART_CONTENT_TYPE) => Ok(()),
        _ => Err(ResumableRefusal::Kind),
    }
}

/// The offset of the body.
///
/// # Errors
/// [`ResumableRefusal::Malformed`]
pub fn offset(headers: &HeaderMap) -> Result<u64, ResumableRefusal> {
    let offset = parse_number(header_text(headers, &header_names::OFFSET));
    offset.ok_or(ResumableRefusal::Malformed("the header Upload-Offset must be a number of bytes"))
}

/// The SHA-256 of the whole upload, if the request has one; other digests are ignored.
///
/// # Errors
/// [`ResumableRefusal::Malformed`]
pub fn digest(headers: &HeaderMap) -> Result<Option<Checksum>, ResumableRefusal> {
    let Some(all) = header_text(headers, &header_names::DIGEST) else { return Ok(None) };
    let found = all.split(',').find_map(|one| one.trim().strip_prefix("sha-256="));
    let Some(found) = found else { return Ok(None) };
    let bytes = found.strip_prefix(':').and_then(|found| found.strip_suffix(':'));
    let bytes = bytes.and_then(|bytes| STANDARD.decode(bytes).ok());
    let bytes = bytes.filter(|bytes| bytes.len() == SHA256_LEN);
    let bytes = bytes.ok_or(ResumableRefusal::Malformed(
        "the header Repr-Digest must hold a SHA-256 as sha-256=:<base64>:",
    ))?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("sha256:{digits}").parse().ok())
}

/// The upload that a client wants to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadRequest {
    pub length: u64,
    /// Chosen by the client to recognise the image; empty: none.
    pub fingerprint: String,
    /// Of the whole upload, if it is known in advance.
    pub checksum: Option<Checksum>,
}

impl UploadRequest {
    /// [`ResumableRefusal::Malformed`]
    pub fn from_headers(headers: &HeaderMap) -> Result<Self, ResumableRefusal> {
        let length = parse_number(header_text(headers, &header_names::LENGTH));
        let length = length.filter(|length| (1..=i64::MAX as u64).contains(length));
        let length = length.ok_or(ResumableRefusal::Malformed(
            "the header Upload-Length must be a number of bytes, at least 1",
        ))?;
        let metadata = header_text(headers, &header_names::METADATA).unwrap_or_default();
        if metadata.len() > METADATA_LEN_MAX {
            return Err(ResumableRefusal::Malformed(
                "the header Upload-Metadata is longer than 4096 bytes",
            ));
        }
        let mut request = Self { length, fingerprint: String::new(), checksum: digest(headers)? };
        for pair in metadata.split(',') {
            let (key, value) = pair.trim().split_once(' ').unwrap_or((pair, ""));
            if key != "fingerprint" {
                continue; // file name and type: not used
            }
            let value = STANDARD.decode(value.trim()).ok();
            let value = value.and_then(|bytes| String::from_utf8(bytes).ok());
            let value = value.filter(|value| value.len() <= FINGERPRINT_LEN_MAX);
            request.fingerprint = value.ok_or(ResumableRefusal::Malformed(
                "the fingerprint in Upload-Metadata must be base64 of at most 512 bytes of UTF-8",
            ))?;
        }
        Ok(request)
    }
}

fn header_text<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Digits only: `parse` alone would accept a sign.
fn parse_number(text: Option<&str>) -> Option<u64> {
    text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut request = Request::get("/");
        for (name, value) in pairs {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0.headers
    }

    #[test]
    fn method_and_path_decision_table() {
        use TusRequest::{Append, Create, Discover, GetOffset, Unknown};
        for (method, override_method, id, expected) in [
            ("OPTIONS", "", None, Discover),
            ("POST", "", None, Create),
            ("POST", "", Some("a"), Unknown),
            ("HEAD", "", Some("a"), GetOffset("a")),
            ("HEAD", "", None, Unknown),
            ("PATCH", "", Some("a"), Append("a")),
            ("PATCH", "", None, Unknown),
            ("POST", "PATCH", Some("a"), Append("a")),
            ("POST", "HEAD", Some("a"), GetOffset("a")),
            ("GET", "PATCH", Some("a"), Unknown),
            ("DELETE", "", Some("a"), Unknown),
        ] {
            let mut request = Request::builder().method(method);
            if !override_method.is_empty() {
                request = request.header(header_names::OVERRIDE, override_method);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(parse_request(&parts, id), expected, "{method} {override_method} {id:?}");
        }
    }

    #[test]
    fn upload_request_has_a_length_and_an_optional_fingerprint() {
        let read = |length, metadata| {
            let found = UploadRequest::from_headers(&headers(&[
                ("upload-length", length),
                ("upload-metadata", metadata),
            ]));
            found.map(|request| (request.length, request.fingerprint)).ok()
        };
        assert_eq!(read("7", ""), Some((7, String::new())));
        let named = "filename ZGlzaw==, fingerprint YWJj,is_good";
        assert_eq!(read("7", named), Some((7, "abc".into())));
        for (length, metadata) in [
            ("0", ""),
            ("-1", ""),
            ("+1", ""),
            ("", ""),
            ("9223372036854775808", ""),
            ("99999999999999999999", ""),
            ("7", "fingerprint a"),
            ("7", "fingerprint /w=="),
        ] {
            assert_eq!(read(length, metadata), None, "{length} {metadata}");
        }
        let long = format!("fingerprint {}", STANDARD.encode("x".repeat(FINGERPRINT_LEN_MAX + 1)));
        assert_eq!(read("7", &long), None);
        assert_eq!(read("7", &"x".repeat(METADATA_LEN_MAX + 1)), None);
        assert!(UploadRequest::from_headers(&headers(&[])).is_err());
    }

    #[test]
    fn digest_is_the_sha_256_of_the_whole_upload() {
        let abc = "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=";
        let read = |text: &str| digest(&headers(&[("repr-digest", text)]));
        let expected = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        for text in [format!("sha-256=:{abc}:"), format!("md5=:x:, sha-256=:{abc}:")] {
            assert_eq!(read(&text).unwrap().unwrap().to_string(), expected);
        }
        assert_eq!(read("md5=:x:").unwrap(), None);
        for bad in ["sha-256=", "sha-256=:YWJj:", "sha-256=:?:", &format!("sha-256={abc}")] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert_eq!(digest(&headers(&[])).unwrap(), None);
    }
}
