//! What a request of the tus protocol says in its method and headers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contract::Checksum;
use http::request::Parts;
use http::{HeaderMap, Method, header};

use super::Refusal;

/// The one version of the protocol.
pub const VERSION: &str = "1.0.0";
/// What of it is optional, and there. No `checksum`: that is of a single part, which would have to be held back, or undone;
/// the whole is summed instead.
pub const EXTENSIONS: &str = "creation";
/// Of all metadata, and of a fingerprint.
const METADATA_LEN_MAX: usize = 4096;
const FINGERPRINT_LEN_MAX: usize = 512;
const SHA256_LEN: usize = 32;
const KIND: &str = "application/offset+octet-stream";

/// Headers of the protocol, and one of RFC 9530.
pub mod names {
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

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked<'a> {
    /// What is there of the protocol?
    Discover,
    /// A new upload, or the present one if it is the same.
    Create,
    /// Where does it go on?
    Look(&'a str),
    /// Here are more bytes.
    Append(&'a str),
    /// Nothing that is here.
    Nothing,
}

/// What a request for the path, or for the upload `id` below it, asks for. By a header clients may say what they mean whose
/// surroundings know no method but POST.
pub fn asked<'a>(parts: &Parts, id: Option<&'a str>) -> Asked<'a> {
    let meant = parts.headers.get(names::OVERRIDE).filter(|_| parts.method == Method::POST);
    let meant = meant.and_then(|method| method.to_str().ok()).unwrap_or(parts.method.as_str());
    match (meant, id) {
        ("OPTIONS", _) => Asked::Discover,
        ("POST", None) => Asked::Create,
        ("HEAD", Some(id)) => Asked::Look(id),
        ("PATCH", Some(id)) => Asked::Append(id),
        _ => Asked::Nothing,
    }
}

/// # Errors
/// When the client speaks another version.
pub fn check_version(headers: &HeaderMap) -> Result<(), Refusal> {
    match text(headers, &names::VERSION) {
        Some(VERSION) => Ok(()),
        _ => Err(Refusal::Version),
    }
}

/// # Errors
/// When a body is none of this protocol.
pub fn check_content(headers: &HeaderMap) -> Result<(), Refusal> {
    match text(headers, &header::CONTENT_TYPE) {
        Some(kind) if kind.trim().eq_ignore_ascii_case(KIND) => Ok(()),
        _ => Err(Refusal::Kind),
    }
}

/// Where the body belongs.
///
/// # Errors
/// When it is not said.
pub fn offset(headers: &HeaderMap) -> Result<u64, Refusal> {
    let offset = number(text(headers, &names::OFFSET));
    offset.ok_or(Refusal::Malformed("the header Upload-Offset has to be a number of bytes"))
}

/// What the whole upload hashes to, where the request says so.
///
/// # Errors
/// When what looks like a SHA-256 is none.
pub fn digest(headers: &HeaderMap) -> Result<Option<Checksum>, Refusal> {
    let Some(all) = text(headers, &names::DIGEST) else { return Ok(None) };
    let found = all.split(',').find_map(|one| one.trim().strip_prefix("sha-256="));
    let Some(found) = found else { return Ok(None) };
    let bytes = found.strip_prefix(':').and_then(|found| found.strip_suffix(':'));
    let bytes = bytes.and_then(|bytes| STANDARD.decode(bytes).ok());
    let bytes = bytes.filter(|bytes| bytes.len() == SHA256_LEN);
    let bytes = bytes.ok_or(Refusal::Malformed("the SHA-256 in the header Repr-Digest is none"))?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("sha256:{digits}").parse().ok())
}

/// What is to be uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Bytes of it.
    pub length: u64,
    /// Tells it from other images of the same client, in the client's own way. Empty: nothing does.
    pub fingerprint: String,
    /// What its bytes hash to, if that is known beforehand.
    pub checksum: Option<Checksum>,
}

impl Wish {
    /// # Errors
    /// When the length is not said, or what is said cannot be understood.
    pub fn read(headers: &HeaderMap) -> Result<Self, Refusal> {
        let length = number(text(headers, &names::LENGTH));
        let length = length.filter(|length| (1..=i64::MAX as u64).contains(length));
        let length = length.ok_or(Refusal::Malformed(
            "the header Upload-Length has to say how many bytes there are, of which there has to be one",
        ))?;
        let metadata = text(headers, &names::METADATA).unwrap_or_default();
        if metadata.len() > METADATA_LEN_MAX {
            return Err(Refusal::Malformed("there is too much in the header Upload-Metadata"));
        }
        let mut wish = Self { length, fingerprint: String::new(), checksum: digest(headers)? };
        for pair in metadata.split(',') {
            let (key, value) = pair.trim().split_once(' ').unwrap_or((pair, ""));
            if key != "fingerprint" {
                continue; // names and types of files, which matter to nobody here
            }
            let value = STANDARD.decode(value.trim()).ok();
            let value = value.and_then(|bytes| String::from_utf8(bytes).ok());
            let value = value.filter(|value| value.len() <= FINGERPRINT_LEN_MAX);
            wish.fingerprint =
                value.ok_or(Refusal::Malformed("the fingerprint in Upload-Metadata is none"))?;
        }
        Ok(wish)
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Digits and nothing else.
fn number(text: Option<&str>) -> Option<u64> {
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
    fn methods_and_paths_say_what_is_asked() {
        use Asked::{Append, Create, Discover, Look, Nothing};
        for (method, meant, id, expected) in [
            ("OPTIONS", "", None, Discover),
            ("POST", "", None, Create),
            ("POST", "", Some("a"), Nothing),
            ("HEAD", "", Some("a"), Look("a")),
            ("HEAD", "", None, Nothing),
            ("PATCH", "", Some("a"), Append("a")),
            ("PATCH", "", None, Nothing),
            ("POST", "PATCH", Some("a"), Append("a")),
            ("POST", "HEAD", Some("a"), Look("a")),
            ("GET", "PATCH", Some("a"), Nothing),
            ("DELETE", "", Some("a"), Nothing),
        ] {
            let mut request = Request::builder().method(method);
            if !meant.is_empty() {
                request = request.header(names::OVERRIDE, meant);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(asked(&parts, id), expected, "{method} {meant} {id:?}");
        }
    }

    #[test]
    fn a_wish_has_a_length_and_perhaps_a_fingerprint() {
        let read = |length, metadata| {
            let found =
                Wish::read(&headers(&[("upload-length", length), ("upload-metadata", metadata)]));
            found.map(|wish| (wish.length, wish.fingerprint)).ok()
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
        assert!(Wish::read(&headers(&[])).is_err());
    }

    #[test]
    fn a_digest_is_the_sha_256_of_all() {
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
