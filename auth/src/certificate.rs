//! The fields of a certificate that its renewal needs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate, X509Name};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    pub der: CertificateDer<'static>,
    /// Common name of the subject.
    pub subject: String,
    /// Common name of the issuer.
    pub issuer: String,
    /// Subject alternative names.
    pub hosts: Vec<String>,
    pub not_before: SystemTime,
    pub not_after: SystemTime,
}

impl Certificate {
    /// The first certificate of a PEM text that can be read.
    pub fn read(pem: &str) -> Option<Self> {
        Self::parse(CertificateDer::from_pem_slice(pem.as_bytes()).ok()?)
    }

    /// All certificates of a PEM text that can be read. Others are skipped.
    pub fn read_all(pem: &str) -> Vec<Self> {
        let all = CertificateDer::pem_slice_iter(pem.as_bytes());
        all.filter_map(Result::ok).filter_map(Self::parse).collect()
    }

    fn parse(der: CertificateDer<'static>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(&der).ok()?;
        let hosts = match parsed.subject_alternative_name().ok()? {
            Some(names) => names.value.general_names.iter().filter_map(host).collect(),
            None => Vec::new(),
        };
        let validity = parsed.validity();
        let (subject, issuer) = (common_name(parsed.subject()), common_name(parsed.issuer()));
        let not_before = moment(validity.not_before.timestamp())?;
        let not_after = moment(validity.not_after.timestamp())?;
        Some(Self { subject, issuer, hosts, not_before, not_after, der })
    }

    pub fn is_valid(&self, now: SystemTime) -> bool {
        self.not_before <= now && now < self.not_after
    }

    pub fn pem(&self) -> String {
        let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
        pem::encode_config(&pem::Pem::new("CERTIFICATE", self.der.to_vec()), lines)
    }
}

fn common_name(name: &X509Name<'_>) -> String {
    let first = name.iter_common_name().next();
    first.and_then(|name| name.as_str().ok()).unwrap_or_default().to_owned()
}

fn host(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    }
}

// Times before 1970 are refused.
fn moment(seconds: i64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CertificateAuthority;

    #[test]
    fn unreadable_certificates_of_a_bundle_are_skipped() {
        let make = |name| {
            CertificateAuthority::create(name, Duration::from_secs(3600), SystemTime::now())
                .unwrap()
                .certificate
        };
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let bundle = format!("words\n{}{broken}{}", make("a"), make("b"));
        let names: Vec<_> =
            Certificate::read_all(&bundle).into_iter().map(|one| one.subject).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(Certificate::read("nothing"), None);
        assert_eq!(Certificate::read(broken), None);
    }

    #[test]
    fn pem_round_trips() {
        let pem = CertificateAuthority::create("a", Duration::from_secs(3600), SystemTime::now())
            .unwrap();
        let certificate = Certificate::read(&pem.certificate).unwrap();
        assert_eq!(Certificate::read(&certificate.pem()), Some(certificate));
    }
}
