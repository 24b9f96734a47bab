//! The minimum TLS version and cipher suites of a server.

use rustls::crypto::CryptoProvider;
use rustls::{ProtocolVersion, SupportedCipherSuite, SupportedProtocolVersion};

use crate::requires_extended_master_secret;

/// The oldest version and, for TLS 1.2, the cipher suites accepted. Suites of TLS 1.3 are not configurable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsMinimum {
    /// TLS 1.2 is refused.
    only_13: bool,
    /// OpenSSL names. Empty: every suite of the provider.
    suites: Vec<String>,
    /// TLS 1.2 is refused without the extension.
    extended_master_secret: bool,
}

/// Every version and suite of the provider, as far as FIPS mode permits.
impl Default for TlsMinimum {
    fn default() -> Self {
        Self {
            only_13: false,
            suites: Vec::new(),
            extended_master_secret: requires_extended_master_secret(),
        }
    }
}

impl TlsMinimum {
    /// `min_version` is `VersionTLS10` … `VersionTLS13` or empty; `ciphers` is a comma-separated list of OpenSSL names.
    /// Versions older than TLS 1.2 are raised to it, as rustls does not support them.
    ///
    /// # Errors
    /// The unknown version.
    pub fn parse(min_version: &str, ciphers: &str) -> Result<Self, String> {
        let only_13 = match min_version {
            "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => false,
            "VersionTLS13" => true,
            other => return Err(other.to_owned()),
        };
        let suites = ciphers.split(',').map(str::trim).filter(|name| !name.is_empty());
        Ok(Self { only_13, suites: suites.map(str::to_owned).collect(), ..Self::default() })
    }

    /// As on a system in FIPS mode: TLS 1.2 requires the Extended Master Secret extension.
    #[must_use]
    pub fn with_extended_master_secret(self) -> Self {
        Self { extended_master_secret: true, ..self }
    }

    pub(crate) fn requires_extended_master_secret(&self) -> bool {
        self.extended_master_secret
    }

    /// Newest first.
    pub(crate) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        static ONLY_13: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];
        if self.only_13 { &ONLY_13 } else { rustls::ALL_VERSIONS }
    }

    /// `provider` reduced to the accepted suites. If none of the named TLS 1.2 suites is known, none is left, and clients
    /// need TLS 1.3.
    pub(crate) fn restrict(&self, mut provider: CryptoProvider) -> CryptoProvider {
        if !self.suites.is_empty() {
            provider.cipher_suites.retain(|suite| self.allows(suite));
        }
        provider
    }

    fn allows(&self, suite: &SupportedCipherSuite) -> bool {
        let name = format!("{:?}", suite.suite());
        suite.version().version == ProtocolVersion::TLSv1_3
            || openssl_name(&name).is_some_and(|name| self.suites.iter().any(|one| one == name))
    }
}

/// Whether rustls supports a TLS 1.2 suite, given by its OpenSSL name.
pub fn is_supported_tls12_suite(suite: &str) -> bool {
    let all = rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
    all.iter().any(|one| openssl_name(&format!("{:?}", one.suite())) == Some(suite))
}

// rustls name → OpenSSL name, for the TLS 1.2 suites that rustls supports.
fn openssl_name(name: &str) -> Option<&'static str> {
    Some(match name {
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256" => "ECDHE-ECDSA-AES128-GCM-SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384" => "ECDHE-ECDSA-AES256-GCM-SHA384",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256" => "ECDHE-ECDSA-CHACHA20-POLY1305",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256" => "ECDHE-RSA-AES128-GCM-SHA256",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384" => "ECDHE-RSA-AES256-GCM-SHA384",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256" => "ECDHE-RSA-CHACHA20-POLY1305",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suites(minimum: &TlsMinimum) -> Vec<String> {
        let provider = minimum.restrict(rustls::crypto::aws_lc_rs::default_provider());
        let old =
            |suite: &&SupportedCipherSuite| suite.version().version == ProtocolVersion::TLSv1_2;
        provider.cipher_suites.iter().filter(old).map(|s| format!("{:?}", s.suite())).collect()
    }

    #[test]
    fn every_tls12_suite_of_rustls_has_an_openssl_name() {
        let all = suites(&TlsMinimum::default());
        assert_eq!(all.len(), 6);
        for name in all {
            assert!(openssl_name(&name).is_some_and(is_supported_tls12_suite), "{name}");
        }
    }

    #[test]
    fn only_named_suites_are_accepted() {
        let named = "ECDHE-RSA-AES128-GCM-SHA256, AES128-SHA,TLS_AES_128_GCM_SHA256";
        let minimum = TlsMinimum::parse("VersionTLS12", named).unwrap();
        assert_eq!(suites(&minimum), ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]);
        assert!(suites(&TlsMinimum::parse("", "AES128-SHA").unwrap()).is_empty());
        assert!(!is_supported_tls12_suite("AES128-SHA") && !is_supported_tls12_suite(""));
    }

    #[test]
    fn versions_parse_as_openshift_names() {
        for (text, versions) in [
            ("", 2),
            ("VersionTLS10", 2),
            ("VersionTLS11", 2),
            ("VersionTLS12", 2),
            ("VersionTLS13", 1),
        ] {
            assert_eq!(TlsMinimum::parse(text, "").unwrap().versions().len(), versions, "{text}");
        }
        assert_eq!(TlsMinimum::parse("TLS1.3", ""), Err("TLS1.3".to_owned()));
    }
}
