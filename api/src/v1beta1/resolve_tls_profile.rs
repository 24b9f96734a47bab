//! Resolves a TLS profile to a minimum version and ciphers.

use super::cdi_config::{TlsProfileType, TlsSecurityProfile, TlsVersion};

/// The minimum version and the ciphers that servers offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedTlsProfile {
    /// The minimum version.
    pub min_version: TlsVersion,
    /// Ciphers by their OpenSSL names, and those of TLS 1.3 by their own.
    pub ciphers: Vec<String>,
}

impl TlsVersion {
    /// As on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::VersionTLS10 => "VersionTLS10",
            Self::VersionTLS11 => "VersionTLS11",
            Self::VersionTLS12 => "VersionTLS12",
            Self::VersionTLS13 => "VersionTLS13",
        }
    }
}

const MODERN: [&str; 3] =
    ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

const INTERMEDIATE: [&str; 8] = [
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
    "DHE-RSA-AES128-GCM-SHA256",
    "DHE-RSA-AES256-GCM-SHA384",
];

const OLD: [&str; 18] = [
    "DHE-RSA-CHACHA20-POLY1305",
    "ECDHE-ECDSA-AES128-SHA256",
    "ECDHE-RSA-AES128-SHA256",
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-RSA-AES128-SHA",
    "ECDHE-ECDSA-AES256-SHA384",
    "ECDHE-RSA-AES256-SHA384",
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-RSA-AES256-SHA",
    "DHE-RSA-AES128-SHA256",
    "DHE-RSA-AES256-SHA256",
    "AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-SHA256",
    "AES256-SHA256",
    "AES128-SHA",
    "AES256-SHA",
    "DES-CBC3-SHA",
];

/// Resolves `profile`: `custom` takes precedence over the type, and no profile means Intermediate.
pub fn resolve_tls_profile(profile: Option<&TlsSecurityProfile>) -> ResolvedTlsProfile {
    if let Some(custom) = profile.and_then(|profile| profile.custom.as_ref()) {
        return ResolvedTlsProfile {
            min_version: custom.min_tls_version,
            ciphers: custom.ciphers.clone(),
        };
    }
    let of = |min_version, lists: &[&[&str]]| ResolvedTlsProfile {
        min_version,
        ciphers: lists.concat().into_iter().map(str::to_owned).collect(),
    };
    match profile.and_then(|profile| profile.type_) {
        Some(TlsProfileType::Old) => of(TlsVersion::VersionTLS10, &[&MODERN, &INTERMEDIATE, &OLD]),
        Some(TlsProfileType::Modern) => of(TlsVersion::VersionTLS13, &[&MODERN]),
        Some(TlsProfileType::Intermediate | TlsProfileType::Custom) | None => {
            of(TlsVersion::VersionTLS12, &[&MODERN, &INTERMEDIATE])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cdi_config::TlsCustomProfile;
    use super::*;

    #[test]
    fn profiles_resolve_as_in_openshift() {
        let of_type = |type_| TlsSecurityProfile { type_, ..TlsSecurityProfile::default() };
        let custom = TlsCustomProfile {
            ciphers: vec!["AES128-SHA".into()],
            min_tls_version: TlsVersion::VersionTLS11,
        };
        for (profile, version, ciphers) in [
            (None, "VersionTLS12", 11),
            (Some(of_type(None)), "VersionTLS12", 11),
            (Some(of_type(Some(TlsProfileType::Old))), "VersionTLS10", 29),
            (Some(of_type(Some(TlsProfileType::Intermediate))), "VersionTLS12", 11),
            (Some(of_type(Some(TlsProfileType::Modern))), "VersionTLS13", 3),
            (Some(of_type(Some(TlsProfileType::Custom))), "VersionTLS12", 11),
            (
                Some(TlsSecurityProfile {
                    custom: Some(custom),
                    ..of_type(Some(TlsProfileType::Modern))
                }),
                "VersionTLS11",
                1,
            ),
        ] {
            let floor = resolve_tls_profile(profile.as_ref());
            assert_eq!(
                (floor.min_version.as_str(), floor.ciphers.len()),
                (version, ciphers),
                "{profile:?}"
            );
        }
    }
}
