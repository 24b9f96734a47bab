//! Why a store refuses, in its own word, and what helps.

use std::time::{Duration, SystemTime};

use http::StatusCode;
use http::header::DATE;

use crate::web::Refusal;

/// Further apart than this, and signatures are refused.
const SKEW_MAX: Duration = Duration::from_secs(300);

/// The error code of S3 and compatible stores. Nothing else of a response is shown: some servers repeat the request in
/// it, signature included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Code(String);

impl Code {
    /// Out of the XML of a refusal, or of its status, where there is none.
    pub(crate) fn from_refusal(refusal: &Refusal) -> Self {
        let found = field(&refusal.body, "Code").filter(|code| {
            (1..=64).contains(&code.len())
                && code.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c))
        });
        Self(found.map(str::to_owned).unwrap_or_else(|| match refusal.status {
            StatusCode::NOT_FOUND => "NotFound".into(),
            StatusCode::MOVED_PERMANENTLY => "PermanentRedirect".into(),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "AccessDenied".into(),
            status => format!("status-{}", status.as_u16()),
        }))
    }

    /// Whether the signature was good once, and a new one may be now.
    pub(crate) fn is_about_expiry(&self, refusal: &Refusal) -> bool {
        let message = field(&refusal.body, "Message").unwrap_or_default();
        let expired = || message.to_ascii_lowercase().contains("expired");
        match &*self.0 {
            "ExpiredToken"
            | "RequestExpired"
            | "ExpiredTokenException"
            | "TokenRefreshRequired" => true,
            "AccessDenied" | "InvalidArgument" | "AuthorizationQueryParametersError" => expired(),
            _ => false,
        }
    }

    /// What is wrong, and what to do about it. `anonymous`: nothing was signed.
    pub(crate) fn explain(&self, refusal: &Refusal, anonymous: bool) -> String {
        let code = &self.0;
        let advice = match &**code {
            "NoSuchBucket" => "there is no such bucket: check its name, and the endpoint",
            "NoSuchKey" | "NotFound" => {
                "there is no such object: check the key, which is case-sensitive"
            }
            "NoSuchVersion" => "there is no such version of the object",
            "AccessDenied" | "AllAccessDisabled" | "AuthenticationRequired" if anonymous => {
                "the object is not public: give keys that may read it"
            }
            "AccessDenied" | "AllAccessDisabled" => {
                "the keys may not read it, or there is no such object: they need the right to get objects, and \
                 to list the bucket to learn what is missing"
            }
            "InvalidAccessKeyId" => "the store does not know the access key id",
            "SignatureDoesNotMatch" => "the secret key does not belong to the access key id",
            "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" => {
                "the session token has expired: get new credentials"
            }
            "InvalidToken" => "the session token is not one of these keys",
            "RequestTimeTooSkewed" => "this machine's clock is wrong: set it",
            "PermanentRedirect" | "AuthorizationHeaderMalformed" | "TemporaryRedirect" => {
                "the bucket is in another region or at another endpoint: give them"
            }
            "InvalidObjectState" => "the object is archived: restore it first",
            "MethodNotAllowed" => "this version of the object is a deletion",
            _ => "the store refuses",
        };
        let mut text = format!("{advice} ({code}, status {})", refusal.status.as_u16());
        if let Some(skew) = skew(refusal).filter(|skew| *skew > SKEW_MAX) {
            text += &format!(
                "; this machine's clock and the store's are {} minutes apart",
                skew.as_secs() / 60
            );
        }
        text
    }
}

/// How far the clocks are apart.
fn skew(refusal: &Refusal) -> Option<Duration> {
    let date = httpdate::parse_http_date(refusal.headers.get(DATE)?.to_str().ok()?).ok()?;
    let now = SystemTime::now();
    now.duration_since(date).or_else(|_| date.duration_since(now)).ok()
}

/// The text of the first element of that name. Refusals are flat, and what they hold needs no unescaping to be compared.
pub(crate) fn field<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    Some(text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;

    fn refusal(status: u16, body: &str) -> Refusal {
        let status = StatusCode::from_u16(status).unwrap();
        Refusal { status, headers: HeaderMap::new(), body: body.into() }
    }

    #[test]
    fn each_refusal_is_explained() {
        let xml = |code: &str| format!("<Error><Code>{code}</Code><Message>m</Message></Error>");
        let table = [
            (
                404,
                xml("NoSuchKey"),
                false,
                "check the key, which is case-sensitive (NoSuchKey, status 404)",
            ),
            (404, xml("NoSuchBucket"), false, "no such bucket"),
            (404, String::new(), false, "no such object"),
            (403, xml("AccessDenied"), true, "not public: give keys"),
            (403, xml("AccessDenied"), false, "need the right to get objects"),
            (403, "<html>".into(), false, "(AccessDenied, status 403)"),
            (403, xml("RequestTimeTooSkewed"), false, "set it"),
            (400, xml("ExpiredToken"), false, "get new credentials"),
            (400, xml("Odd.Thing"), false, "the store refuses (Odd.Thing, status 400)"),
            (400, xml("a b\n"), false, "(status-400, status 400)"),
        ];
        for (status, body, anonymous, phrase) in table {
            let refusal = refusal(status, &body);
            let outcome = Code::from_refusal(&refusal).explain(&refusal, anonymous);
            assert!(outcome.contains(phrase), "{body}: {outcome}");
        }
    }

    #[test]
    fn a_wrong_clock_is_named() {
        let mut refusal = refusal(403, "<Code>SignatureDoesNotMatch</Code>");
        let date = SystemTime::now() + Duration::from_secs(3660);
        refusal.headers.insert(DATE, httpdate::fmt_http_date(date).parse().unwrap());
        let outcome = Code::from_refusal(&refusal).explain(&refusal, false);
        assert!(
            outcome.contains("the store's are 60 minutes apart") || outcome.contains("61"),
            "{outcome}"
        );
    }

    #[test]
    fn an_expired_signature_is_distinguished_from_a_refused_one() {
        let table = [
            ("<Code>ExpiredToken</Code>", true),
            ("<Code>AccessDenied</Code><Message>Request has expired</Message>", true),
            ("<Code>AccessDenied</Code><Message>Access Denied</Message>", false),
            ("<Code>NoSuchKey</Code><Message>expired</Message>", false),
            ("", false),
        ];
        for (body, expected) in table {
            let refusal = refusal(403, body);
            assert_eq!(Code::from_refusal(&refusal).is_about_expiry(&refusal), expected, "{body}");
        }
    }

    #[test]
    fn parsing_error_bodies_never_panics() {
        let table = [
            ("<Error><Code> A </Code></Error>", Some("A")),
            ("<Code>A", None),
            ("</Code><Code>", None),
            ("<Code><Code>A</Code>", Some("<Code>A")),
        ];
        for (xml, expected) in table {
            assert_eq!(field(xml, "Code"), expected, "{xml}");
        }
    }
}
