//! Creates CA certificates, which are valid for days, and the server and client certificates that they sign.

use std::fmt;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use time::OffsetDateTime;

/// Allows for the issuer's clock being ahead of the verifier's.
const BACKDATED: Duration = Duration::from_secs(60);

/// A certificate and its key, as in a Secret of the type `kubernetes.io/tls`.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// PEM: `tls.crt`.
    pub certificate: String,
    /// PEM: `tls.key`.
    pub key: String,
}

/// Without the key.
impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { certificate, key: _ } = self;
        formatter.debug_struct("Identity").field("certificate", certificate).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The CA is unreadable, or its key does not match.
    #[error("cannot use the certificate and key of the CA")]
    Ca(#[source] rcgen::Error),
    /// The name is not allowed in a certificate, or the kernel returned no random bytes.
    #[error("cannot create a certificate for {name:?}")]
    Certificate { name: String, source: rcgen::Error },
    /// The certificate would end after the year 9999.
    #[error("cannot create a certificate that is valid for {lifetime:?}")]
    Lifetime { lifetime: Duration },
}

/// A CA that signs certificates.
pub struct CertificateAuthority(Issuer<'static, KeyPair>);

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CertificateAuthority(…)")
    }
}

impl CertificateAuthority {
    /// Creates a self-signed CA. `name` has to differ from those of earlier CAs.
    ///
    /// # Errors
    /// When the kernel returns no random bytes, or the lifetime is too long.
    pub fn create(name: &str, lifetime: Duration, now: SystemTime) -> Result<Identity, IssueError> {
        let failed = |source| IssueError::Certificate { name: name.to_owned(), source };
        let mut params = params(&[], name, lifetime, now)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.self_signed(&key).map_err(failed)?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    ///
    /// # Errors
    /// When certificate or key cannot be parsed.
    pub fn from_identity(identity: &Identity) -> Result<Self, IssueError> {
        let key = KeyPair::from_pem(&identity.key).map_err(IssueError::Ca)?;
        let issuer = Issuer::from_ca_cert_pem(&identity.certificate, key);
        issuer.map(Self).map_err(IssueError::Ca)
    }

    /// Signs a server certificate for `hosts`, the first of which is its common name.
    ///
    /// # Errors
    /// When a host is not a DNS name or address.
    pub fn server(
        &self,
        hosts: &[String],
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<Identity, IssueError> {
        let name = hosts.first().map(String::as_str).unwrap_or_default();
        self.leaf(params(hosts, name, lifetime, now)?, ExtendedKeyUsagePurpose::ServerAuth, name)
    }

    /// Signs a client certificate with the common name `name`.
    ///
    /// # Errors
    /// When the kernel returns no random bytes, or the lifetime is too long.
    pub fn client(
        &self,
        name: &str,
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<Identity, IssueError> {
        self.leaf(params(&[], name, lifetime, now)?, ExtendedKeyUsagePurpose::ClientAuth, name)
    }

    fn leaf(
        &self,
        mut params: CertificateParams,
        purpose: ExtendedKeyUsagePurpose,
        name: &str,
    ) -> Result<Identity, IssueError> {
        let failed = |source| IssueError::Certificate { name: name.to_owned(), source };
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.0).map_err(failed)?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

fn params(
    hosts: &[String],
    name: &str,
    lifetime: Duration,
    now: SystemTime,
) -> Result<CertificateParams, IssueError> {
    let failed = |source| IssueError::Certificate { name: name.to_owned(), source };
    let mut params = CertificateParams::new(hosts).map_err(failed)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let begin = now.checked_sub(BACKDATED).unwrap_or(now);
    let end = begin.checked_add(lifetime).ok_or(IssueError::Lifetime { lifetime })?;
    // Times of certificates end with the year 9999, and rcgen panics there.
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    if end.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|end| end > LAST) {
        return Err(IssueError::Lifetime { lifetime });
    }
    params.not_before = OffsetDateTime::from(begin);
    params.not_after = OffsetDateTime::from(end);
    Ok(params)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::Certificate;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn noon() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    #[test]
    fn certificates_have_subject_issuer_hosts_and_lifetime() {
        let made = CertificateAuthority::create("signer@1", 2 * DAY, noon()).unwrap();
        let ca = CertificateAuthority::from_identity(&made).unwrap();
        let hosts = ["cdi-api".to_owned(), "cdi-api.cdi.svc".to_owned()];
        let server = ca.server(&hosts, DAY, noon()).unwrap();
        let client = ca.client("client.upload-server", DAY, noon()).unwrap();
        let read = |identity: &Identity| Certificate::read(&identity.certificate).unwrap();
        let (ca, server, client) = (read(&made), read(&server), read(&client));
        assert_eq!((ca.subject.as_str(), ca.issuer.as_str()), ("signer@1", "signer@1"));
        assert_eq!((server.subject.as_str(), server.issuer.as_str()), ("cdi-api", "signer@1"));
        assert_eq!(server.hosts, hosts);
        assert_eq!(client.subject, "client.upload-server");
        assert_eq!(server.not_before, noon() - BACKDATED);
        assert_eq!(server.not_after, noon() - BACKDATED + DAY);
        assert_eq!(ca.not_after, noon() - BACKDATED + 2 * DAY);
    }

    #[test]
    fn impossible_certificates_are_errors_and_debug_hides_keys() {
        let made = CertificateAuthority::create("a", DAY, noon()).unwrap();
        assert!(!format!("{made:?}").contains("PRIVATE"));
        let ca = CertificateAuthority::from_identity(&made).unwrap();
        assert!(ca.server(&["höst".to_owned()], DAY, noon()).is_err());
        let centuries = Duration::from_secs(u64::MAX / 2);
        assert!(ca.client("a", centuries, noon()).is_err());
        assert!(ca.client("a", 3_000_000 * DAY, noon()).is_err());
        let mixed = Identity { key: "nothing".into(), ..made };
        assert!(CertificateAuthority::from_identity(&mixed).is_err());
    }
}
