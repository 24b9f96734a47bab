//! Making certificates: authorities that live for days, and the servers and clients that they vouch for.

use std::fmt;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use time::OffsetDateTime;

/// The clock of who made a certificate may be ahead of the clock of who looks at it.
const BACKDATED: Duration = Duration::from_secs(60);

/// A certificate and its key, as they are kept in a Secret of the type `kubernetes.io/tls`.
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

/// Why no certificate was made.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The authority is unreadable, or its key is not its key.
    #[error("the authority's certificate and key cannot be used")]
    Authority(#[source] rcgen::Error),
    /// A name that no certificate can hold, or no randomness.
    #[error("no certificate can be made for {name:?}")]
    Certificate {
        /// Whom it was for.
        name: String,
        /// What was wrong.
        source: rcgen::Error,
    },
    /// A life that ends after all calendars.
    #[error("no certificate can be valid for {lifetime:?} from now")]
    Lifetime {
        /// What was asked for.
        lifetime: Duration,
    },
}

/// Somebody who vouches for others.
pub struct Authority(Issuer<'static, KeyPair>);

impl fmt::Debug for Authority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Authority(…)")
    }
}

impl Authority {
    /// A new authority, which signs itself. `name` has to tell it from those before it.
    ///
    /// # Errors
    /// When there is no randomness, or the calendar ends.
    pub fn make(name: &str, lifetime: Duration, now: SystemTime) -> Result<Identity, IssueError> {
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

    /// An authority that was kept.
    ///
    /// # Errors
    /// When certificate or key cannot be read.
    pub fn read(identity: &Identity) -> Result<Self, IssueError> {
        let key = KeyPair::from_pem(&identity.key).map_err(IssueError::Authority)?;
        let issuer = Issuer::from_ca_cert_pem(&identity.certificate, key);
        issuer.map(Self).map_err(IssueError::Authority)
    }

    /// A server that answers to `hosts`, the first of which is its common name.
    ///
    /// # Errors
    /// When a host is no host.
    pub fn server(
        &self,
        hosts: &[String],
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<Identity, IssueError> {
        let name = hosts.first().map(String::as_str).unwrap_or_default();
        self.leaf(params(hosts, name, lifetime, now)?, ExtendedKeyUsagePurpose::ServerAuth, name)
    }

    /// A client whose common name is `name`.
    ///
    /// # Errors
    /// When there is no randomness, or the calendar ends.
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
    // The calendar of certificates ends with the year 9999, and that of this library panics there.
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
    fn a_certificate_says_who_it_is_for_and_for_how_long() {
        let made = Authority::make("signer@1", 2 * DAY, noon()).unwrap();
        let authority = Authority::read(&made).unwrap();
        let hosts = ["cdi-api".to_owned(), "cdi-api.cdi.svc".to_owned()];
        let server = authority.server(&hosts, DAY, noon()).unwrap();
        let client = authority.client("client.upload-server", DAY, noon()).unwrap();
        let read = |identity: &Identity| Certificate::read(&identity.certificate).unwrap();
        let (authority, server, client) = (read(&made), read(&server), read(&client));
        assert_eq!(
            (authority.subject.as_str(), authority.issuer.as_str()),
            ("signer@1", "signer@1")
        );
        assert_eq!((server.subject.as_str(), server.issuer.as_str()), ("cdi-api", "signer@1"));
        assert_eq!(server.hosts, hosts);
        assert_eq!(client.subject, "client.upload-server");
        assert_eq!(server.not_before, noon() - BACKDATED);
        assert_eq!(server.not_after, noon() - BACKDATED + DAY);
        assert_eq!(authority.not_after, noon() - BACKDATED + 2 * DAY);
    }

    #[test]
    fn what_cannot_be_made_is_refused_and_no_key_is_shown() {
        let made = Authority::make("a", DAY, noon()).unwrap();
        assert!(!format!("{made:?}").contains("PRIVATE"));
        let authority = Authority::read(&made).unwrap();
        assert!(authority.server(&["höst".to_owned()], DAY, noon()).is_err());
        let centuries = Duration::from_secs(u64::MAX / 2);
        assert!(authority.client("a", centuries, noon()).is_err());
        assert!(authority.client("a", 3_000_000 * DAY, noon()).is_err());
        let mixed = Identity { key: "nothing".into(), ..made };
        assert!(Authority::read(&mixed).is_err());
    }
}
