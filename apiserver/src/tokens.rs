//! `UploadTokenRequest`: issues upload tokens to authorized users.

use std::time::SystemTime;

use api::names::{UPLOAD_GROUP, VERSION};
use auth::token::{Claims, ISSUER_API_SERVER, LIFETIME, SigningKey};
use http::StatusCode;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use serde_json::{Value, json};

/// The permission that the user needs.
pub fn permission(namespace: &str) -> ResourceAttributes {
    ResourceAttributes {
        namespace: Some(namespace.to_owned()),
        verb: Some("create".into()),
        group: Some(UPLOAD_GROUP.into()),
        version: Some(VERSION.into()),
        resource: Some("uploadtokenrequests".into()),
        ..ResourceAttributes::default()
    }
}

/// `[a-z0-9][a-z0-9-]*`
pub fn is_namespace(text: &str) -> bool {
    api::metadata::is_namespace_name(text.trim_end_matches('-'))
        && text.len() <= api::metadata::NAMESPACE_LENGTH_MAX
}

/// The response to an authorized request: the object as sent, with its token.
///
/// # Errors
/// Status and message, when the body is not such an object, or the key does not sign.
pub fn issue_token(
    body: &[u8],
    namespace: &str,
    key: &SigningKey,
    now: SystemTime,
) -> Result<Value, (StatusCode, String)> {
    let refused = |reason: &str| (StatusCode::BAD_REQUEST, reason.to_owned());
    let mut object: Value = serde_json::from_slice(body)
        .map_err(|error| refused(&format!("cannot parse the body as JSON: {error}")))?;
    let claim = object.pointer("/spec/pvcName").and_then(Value::as_str).unwrap_or_default();
    if !api::metadata::is_object_name(claim) {
        return Err(refused("spec.pvcName is not a valid PVC name"));
    }
    let claims = Claims::upload(namespace, claim);
    let token = key.sign(&claims, ISSUER_API_SERVER, LIFETIME, now).map_err(|error| {
        tracing::error!("cannot sign a token: {error}");
        (StatusCode::INTERNAL_SERVER_ERROR, "cannot sign a token".to_owned())
    })?;
    object["status"] = json!({ "token": token });
    Ok(object)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use auth::token::{KeyTexts, VerifyingKey};

    use super::*;

    #[test]
    fn request_is_returned_with_a_token() {
        let texts = KeyTexts::generate().unwrap();
        let key = SigningKey::from_pem(texts.private.as_bytes()).unwrap();
        let verifying = VerifyingKey::from_pem(texts.public.as_bytes()).unwrap();
        let now = UNIX_EPOCH + Duration::from_secs(1000);
        let answer = |body: &str| issue_token(body.as_bytes(), "ns", &key, now);
        let body = r#"{"kind":"UploadTokenRequest","metadata":{"generateName":"t-"},"spec":{"pvcName":"disk"},"x":1}"#;
        let object = answer(body).unwrap();
        assert_eq!(
            (&object["kind"], &object["metadata"]["generateName"], &object["x"]),
            (&json!("UploadTokenRequest"), &json!("t-"), &json!(1))
        );
        let token = object["status"]["token"].as_str().unwrap();
        assert_eq!(
            verifying.verify(token, ISSUER_API_SERVER, now).unwrap(),
            Claims::upload("ns", "disk")
        );
        for body in [
            "",
            "[]",
            "7",
            "{}",
            r#"{"spec":{"pvcName":""}}"#,
            r#"{"spec":{"pvcName":7}}"#,
            r#"{"spec":{"pvcName":"a/b"}}"#,
        ] {
            assert_eq!(answer(body).unwrap_err().0, StatusCode::BAD_REQUEST, "{body}");
        }
    }

    #[test]
    fn namespace_syntax_is_checked() {
        for (text, expected) in [
            ("a", true),
            ("0-a", true),
            ("a-", true),
            ("", false),
            ("-a", false),
            ("A", false),
            ("a.b", false),
            ("a/b", false),
            (&"a".repeat(64), false),
        ] {
            assert_eq!(is_namespace(text), expected, "{text}");
        }
    }
}
