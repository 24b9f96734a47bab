//! A certificate in files that the kubelet replaces while the process runs.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SignatureScheme};

use crate::server_config::{
    CLIENT_CA, finish_server_config, parse_certificates, root_store, server_config_builder,
};
use crate::{Error, TlsMinimum};

/// A renewed certificate is used after this time at the latest.
pub const CERTIFICATE_RELOAD_INTERVAL: Duration = Duration::from_secs(5);
/// Size limit of each file, in bytes.
const LENGTH_MAX: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot parse {} as PEM", path.display())]
    Pem { path: PathBuf, source: pem::Error },
    /// Certificate and key do not match.
    #[error("cannot use the certificate {} with its key", path.display())]
    Pair { path: PathBuf, source: rustls::Error },
}

/// A certificate and its key in two files of a mounted Secret. Each use reads the files again if `reload_interval` has
/// passed. If the new pair cannot be used, the previous one stays in use and the failure is logged once. There is no
/// background task.
pub struct ReloadingIdentity {
    certificate: PathBuf,
    key: PathBuf,
    reload_interval: Duration,
    provider: Arc<CryptoProvider>,
    loaded: Mutex<Loaded>,
}

struct Loaded {
    checked_at: Instant,
    texts: [Vec<u8>; 2],
    key: Arc<CertifiedKey>,
    /// Why the files' present content is not in use.
    failure: Option<String>,
}

impl fmt::Debug for ReloadingIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { certificate, .. } = self;
        formatter
            .debug_struct("ReloadingIdentity")
            .field("certificate", certificate)
            .finish_non_exhaustive()
    }
}

impl ReloadingIdentity {
    /// Reads both files. `reload_interval` is usually [`CERTIFICATE_RELOAD_INTERVAL`].
    ///
    /// # Errors
    /// When the pair cannot be used.
    pub fn open(
        certificate: &Path,
        key: &Path,
        reload_interval: Duration,
    ) -> Result<Self, ReloadError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let texts = [read(certificate)?, read(key)?];
        let pair = pair(certificate, key, &texts, &provider)?;
        let loaded = Loaded { checked_at: Instant::now(), texts, key: pair, failure: None };
        let loaded = Mutex::new(loaded);
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        Ok(Self { certificate, key, reload_interval, provider, loaded })
    }

    /// The certificate and key for the next handshake.
    pub fn current(&self) -> Arc<CertifiedKey> {
        let mut loaded = self.loaded.lock();
        if loaded.checked_at.elapsed() >= self.reload_interval {
            loaded.checked_at = Instant::now();
            if let Some(failure) = self.reload_and_report(&mut loaded) {
                tracing::warn!(
                    "cannot reload a certificate, the previous one stays in use: {failure}"
                );
            }
        }
        Arc::clone(&loaded.key)
    }

    /// Returns a failure only if it differs from the previous one.
    fn reload_and_report(&self, loaded: &mut Loaded) -> Option<String> {
        let failure = self.reload(loaded).err().map(|error| error.to_string());
        let is_known = failure == loaded.failure;
        loaded.failure.clone_from(&failure);
        failure.filter(|_| !is_known)
    }

    fn reload(&self, loaded: &mut Loaded) -> Result<(), ReloadError> {
        let texts = [read(&self.certificate)?, read(&self.key)?];
        if texts != loaded.texts {
            loaded.key = pair(&self.certificate, &self.key, &texts, &self.provider)?;
            loaded.texts = texts;
            tracing::info!("reloaded the renewed certificate in {}", self.certificate.display());
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ReloadError> {
    let failed = |source| ReloadError::Read { path: path.to_owned(), source };
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > LENGTH_MAX {
        return Err(failed(io::Error::other("the file is larger than 1 MiB")));
    }
    std::fs::read(path).map_err(failed)
}

fn pair(
    certificate: &Path,
    key: &Path,
    [certificate_text, key_text]: &[Vec<u8>; 2],
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, ReloadError> {
    let broken = |path: &Path| {
        let path = path.to_owned();
        move |source| ReloadError::Pem { path, source }
    };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate_text)
        .collect::<Result<_, _>>()
        .map_err(broken(certificate))?;
    let key = PrivateKeyDer::from_pem_slice(key_text).map_err(broken(key))?;
    CertifiedKey::from_der(chain, key, provider)
        .map(Arc::new)
        .map_err(|source| ReloadError::Pair { path: certificate.to_owned(), source })
}

impl ResolvesServerCert for ReloadingIdentity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl ResolvesClientCert for ReloadingIdentity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Server settings with the certificate `identity` and optional client certificates signed by `clients`.
pub(crate) fn resolving_server_config(
    identity: Arc<ReloadingIdentity>,
    clients: &str,
    minimum: &TlsMinimum,
    protocols: &[&str],
) -> Result<ServerConfig, Error> {
    let roots = root_store(parse_certificates(clients.as_bytes(), CLIENT_CA)?, CLIENT_CA);
    let clients = (!roots.is_empty()).then_some(roots);
    let config = server_config_builder(minimum, clients)?.with_cert_resolver(identity);
    Ok(finish_server_config(config, minimum, protocols))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::{CertificateAuthority, Identity};

    fn identity(name: &str) -> Identity {
        let hour = Duration::from_secs(3600);
        let ca = CertificateAuthority::create("a", hour, SystemTime::now()).unwrap();
        let ca = CertificateAuthority::from_identity(&ca).unwrap();
        ca.server(&[name.to_owned()], hour, SystemTime::now()).unwrap()
    }

    fn write(folder: &Path, identity: &Identity) {
        std::fs::write(folder.join("tls.crt"), &identity.certificate).unwrap();
        std::fs::write(folder.join("tls.key"), &identity.key).unwrap();
    }

    fn name(key: &CertifiedKey) -> String {
        crate::common_name(&key.cert[0]).unwrap()
    }

    #[test]
    fn renewed_pair_is_used_but_not_a_broken_one() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let open = || ReloadingIdentity::open(&certificate, &key, Duration::ZERO);
        assert!(matches!(open(), Err(ReloadError::Read { .. })));
        write(folder.path(), &identity("one"));
        let reloading = open().unwrap();
        assert_eq!(name(&reloading.current()), "one");
        // The two files are not replaced atomically.
        let two = identity("two");
        std::fs::write(&certificate, &two.certificate).unwrap();
        assert_eq!(name(&reloading.current()), "one");
        std::fs::write(&key, &two.key).unwrap();
        assert_eq!(name(&reloading.current()), "two");
        std::fs::write(&certificate, "nothing").unwrap();
        assert_eq!(name(&reloading.current()), "two");
        std::fs::remove_file(&key).unwrap();
        assert_eq!(name(&reloading.current()), "two");
        assert!(open().is_err());
    }

    #[test]
    fn each_failure_is_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &identity("one"));
        let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let reloading = ReloadingIdentity::open(&certificate, &key, Duration::ZERO).unwrap();
        let failure = || reloading.reload_and_report(&mut reloading.loaded.lock());
        assert_eq!(failure(), None);
        for _ in 0..2 {
            std::fs::write(&certificate, "nothing").unwrap();
            assert!(failure().unwrap().contains("tls.crt"));
            assert_eq!(failure(), None);
            std::fs::remove_file(&key).unwrap();
            assert!(failure().unwrap().contains("cannot read"), "another failure");
            assert_eq!(failure(), None);
            write(folder.path(), &identity("two"));
            assert_eq!(failure(), None);
        }
    }

    #[test]
    fn files_are_not_read_before_the_interval_has_passed() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &identity("one"));
        let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let hour = Duration::from_secs(3600);
        let reloading = ReloadingIdentity::open(&certificate, &key, hour).unwrap();
        write(folder.path(), &identity("two"));
        assert_eq!(name(&reloading.current()), "one");
    }

    #[test]
    fn client_ca_is_optional_but_a_broken_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let one = identity("one");
        write(folder.path(), &one);
        let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let reloading = Arc::new(
            ReloadingIdentity::open(&certificate, &key, CERTIFICATE_RELOAD_INTERVAL).unwrap(),
        );
        let resolving_server_config = |clients| {
            resolving_server_config(
                Arc::clone(&reloading),
                clients,
                &TlsMinimum::default(),
                &["h2"],
            )
        };
        assert!(resolving_server_config("").is_ok());
        assert!(resolving_server_config(&one.certificate).is_ok());
        assert!(
            resolving_server_config("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n")
                .is_err()
        );
    }
}
