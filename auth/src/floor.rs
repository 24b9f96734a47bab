//! The least that a server accepts of TLS, as clusters configure it.

use rustls::crypto::CryptoProvider;
use rustls::{ProtocolVersion, SupportedCipherSuite, SupportedProtocolVersion};

/// The oldest version and, for TLS 1.2, the suites that are taken. Suites of TLS 1.3 are all good, and are not configurable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    /// Only TLS 1.3 will do.
    only_13: bool,
    /// Names as OpenSSL has them. Empty: every suite of the provider.
    suites: Vec<String>,
}

impl Floor {
    /// `min_version` is one of `VersionTLS10` … `VersionTLS13` or empty; `ciphers` a list of OpenSSL names with commas
    /// between. What is older than TLS 1.2 is raised to it: nothing here speaks it.
    ///
    /// # Errors
    /// With the version that is not known.
    pub fn parse(min_version: &str, ciphers: &str) -> Result<Self, String> {
        let only_13 = match min_version {
            "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => false,
            "VersionTLS13" => true,
            other => return Err(other.to_owned()),
        };
        let suites = ciphers.split(',').map(str::trim).filter(|name| !name.is_empty());
        Ok(Self { only_13, suites: suites.map(str::to_owned).collect() })
    }

    /// Newest first.
    pub(crate) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        static ONLY_13: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];
        if self.only_13 { &ONLY_13 } else { rustls::ALL_VERSIONS }
    }

    /// `provider` with no more than what is allowed. Where no suite of TLS 1.2 that is named is known, none is taken: a
    /// client then needs TLS 1.3.
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

/// Whether servers here speak a suite of TLS 1.2, by its OpenSSL name.
pub fn is_spoken(suite: &str) -> bool {
    let all = rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
    all.iter().any(|one| openssl_name(&format!("{:?}", one.suite())) == Some(suite))
}

/// The suites of TLS 1.2 that are still good, in both spellings.
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

    fn suites(floor: &Floor) -> Vec<String> {
        let provider = floor.restrict(rustls::crypto::aws_lc_rs::default_provider());
        let old =
            |suite: &&SupportedCipherSuite| suite.version().version == ProtocolVersion::TLSv1_2;
        provider.cipher_suites.iter().filter(old).map(|s| format!("{:?}", s.suite())).collect()
    }

    #[test]
    fn every_good_suite_has_a_name_of_openssl() {
        let all = suites(&Floor::default());
        assert_eq!(all.len(), 6);
        for name in all {
            assert!(openssl_name(&name).is_some_and(is_spoken), "{name}");
        }
    }

    #[test]
    fn only_named_suites_are_taken() {
        let named = "ECDHE-RSA-AES128-GCM-SHA256, AES128-SHA,TLS_AES_128_GCM_SHA256";
        let floor = Floor::parse("VersionTLS12", named).unwrap();
        assert_eq!(suites(&floor), ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]);
        assert!(suites(&Floor::parse("", "AES128-SHA").unwrap()).is_empty());
        assert!(!is_spoken("AES128-SHA") && !is_spoken(""));
    }

    #[test]
    fn versions_are_read_as_clusters_write_them() {
        for (text, versions) in [
            ("", 2),
            ("VersionTLS10", 2),
            ("VersionTLS11", 2),
            ("VersionTLS12", 2),
            ("VersionTLS13", 1),
        ] {
            assert_eq!(Floor::parse(text, "").unwrap().versions().len(), versions, "{text}");
        }
        assert_eq!(Floor::parse("TLS1.3", ""), Err("TLS1.3".to_owned()));
    }
}
