//! The common name of a peer's certificate.

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The common name of the certificate's subject, if it is text. The certificate has to be verified by the TLS layer
/// before.
pub fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let name = parsed.subject().iter_common_name().next()?.as_str().ok()?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn certificate(name: Option<&str>) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["other.name".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if let Some(name) = name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn common_name_is_that_of_the_subject_only() {
        for name in ["client.upload-server.cdi.kubevirt.io", "ns/source-ns/target"] {
            assert_eq!(common_name(&certificate(Some(name))).as_deref(), Some(name));
        }
        assert_eq!(common_name(&certificate(None)), None);
        assert_eq!(common_name(&CertificateDer::from(vec![0x30, 0x80])), None);
    }
}
