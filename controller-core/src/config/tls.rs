//! The effective TLS settings, and those that servers cannot satisfy.

use api::events;
use api::v1beta1::{CdiConfigSpec, ResolvedTlsProfile, TlsVersion, resolve_tls_profile};
use auth::TlsMinimum;

use crate::event::Event;

/// Prefix of the cipher suites of TLS 1.3. All secure ones are supported, whatever is configured.
const OF_13: &str = "TLS_";

/// The minimum that servers accept.
pub fn floor(spec: &CdiConfigSpec) -> TlsMinimum {
    let ResolvedTlsProfile { min_version, ciphers } =
        resolve_tls_profile(spec.tls_security_profile.as_ref());
    TlsMinimum::parse(min_version.as_str(), &ciphers.join(",")).unwrap_or_default()
}

/// A warning about settings that no server here satisfies.
pub fn unmet(spec: &CdiConfigSpec) -> Option<Event> {
    let ResolvedTlsProfile { min_version, ciphers } =
        resolve_tls_profile(spec.tls_security_profile.as_ref());
    let mut words = Vec::new();
    if matches!(min_version, TlsVersion::VersionTLS10 | TlsVersion::VersionTLS11) {
        let version = min_version.as_str();
        words.push(format!("it allows {version}, and clients here need VersionTLS12 at least"));
    }
    let older: Vec<_> = ciphers.iter().filter(|name| !name.starts_with(OF_13)).collect();
    if min_version != TlsVersion::VersionTLS13
        && !older.is_empty()
        && !older.iter().any(|name| auth::is_supported_tls12_suite(name))
    {
        words.push(
            "none of its ciphers for TLS 1.2 is spoken here, so that clients need VersionTLS13"
                .to_owned(),
        );
    }
    let message = format!("tlsSecurityProfile cannot be met: {}", words.join("; "));
    (!words.is_empty()).then(|| Event::warning(events::TLS_PROFILE_NOT_MET, message))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(profile: Value) -> CdiConfigSpec {
        serde_json::from_value(json!({ "tlsSecurityProfile": profile })).unwrap()
    }

    fn custom(version: &str, ciphers: &[&str]) -> CdiConfigSpec {
        let custom = json!({ "minTLSVersion": version, "ciphers": ciphers });
        spec(json!({ "type": "Custom", "custom": custom }))
    }

    #[test]
    fn supported_settings_have_no_event() {
        for spec in [
            CdiConfigSpec::default(),
            spec(json!({ "type": "Intermediate", "intermediate": {} })),
            spec(json!({ "type": "Modern", "modern": {} })),
            custom("VersionTLS12", &["AES128-SHA", "ECDHE-RSA-AES128-GCM-SHA256"]),
            custom("VersionTLS12", &["TLS_AES_128_GCM_SHA256"]),
            custom("VersionTLS12", &[]),
            custom("VersionTLS13", &["AES128-SHA"]),
        ] {
            assert_eq!(unmet(&spec), None, "{spec:?}");
        }
    }

    #[test]
    fn unsupported_settings_are_reported_in_one_event() {
        for (spec, version, ciphers) in [
            (spec(json!({ "type": "Old", "old": {} })), true, false),
            (custom("VersionTLS11", &["ECDHE-RSA-AES128-GCM-SHA256"]), true, false),
            (custom("VersionTLS12", &["AES128-SHA", "DHE-RSA-AES128-GCM-SHA256"]), false, true),
            (custom("VersionTLS12", &["AES128-SHA", "TLS_AES_128_GCM_SHA256"]), false, true),
            (custom("VersionTLS10", &["AES128-SHA"]), true, true),
        ] {
            let Event { kind, reason, message } = unmet(&spec).unwrap();
            assert_eq!((kind, reason.as_str()), ("Warning", "TLSProfileNotMet"));
            assert_eq!(message.contains("VersionTLS12 at least"), version, "{message}");
            assert_eq!(message.contains("need VersionTLS13"), ciphers, "{message}");
        }
    }
}
