//! Certificates in files that somebody renews while a process runs.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SignatureScheme};

use crate::certificates::{CLIENTS, asking, certificates, trusting};
use crate::{Error, Floor};

/// How soon after its renewal a certificate is used, at the latest.
pub const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// No certificate and no key is longer.
const LENGTH_MAX: u64 = 1 << 20;

/// Why a certificate in files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is none.
    #[error("{} holds nothing that can be used", path.display())]
    Pem {
        /// Which.
        path: PathBuf,
        /// What is wrong with the text.
        source: pem::Error,
    },
    /// Certificate and key do not belong together.
    #[error("{} and its key cannot be used", path.display())]
    Pair {
        /// The certificate.
        path: PathBuf,
        /// What is wrong with them.
        source: rustls::Error,
    },
}

/// A certificate and its key in two files, as a Secret is mounted. Whoever uses it looks at the files again when the last
/// look is a while ago; a pair that cannot be used leaves the one before in use, which is told once. Nothing runs while nobody
/// asks.
pub struct ReloadingIdentity {
    certificate: PathBuf,
    key: PathBuf,
    look_again: Duration,
    provider: Arc<CryptoProvider>,
    loaded: Mutex<Loaded>,
}

struct Loaded {
    looked: Instant,
    texts: [Vec<u8>; 2],
    key: Arc<CertifiedKey>,
    /// Why what is in the files is not in use.
    complaint: Option<String>,
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
    /// Reads both. `look_again` is usually [`LOOK_AGAIN`].
    ///
    /// # Errors
    /// When they cannot be used now.
    pub fn open(certificate: &Path, key: &Path, look_again: Duration) -> Result<Self, ReloadError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let texts = [read(certificate)?, read(key)?];
        let pair = pair(certificate, key, &texts, &provider)?;
        let loaded = Loaded { looked: Instant::now(), texts, key: pair, complaint: None };
        let loaded = Mutex::new(loaded);
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        Ok(Self { certificate, key, look_again, provider, loaded })
    }

    /// What to prove oneself with now.
    pub fn current(&self) -> Arc<CertifiedKey> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if loaded.looked.elapsed() >= self.look_again {
            loaded.looked = Instant::now();
            if let Some(complaint) = self.renew(&mut loaded) {
                tracing::warn!(
                    "a certificate could not be renewed, the old one stays in use: {complaint}"
                );
            }
        }
        Arc::clone(&loaded.key)
    }

    /// Returns what is wrong with the files, unless it was wrong with them before.
    fn renew(&self, loaded: &mut Loaded) -> Option<String> {
        let complaint = self.look(loaded).err().map(|error| error.to_string());
        let is_known = complaint == loaded.complaint;
        loaded.complaint.clone_from(&complaint);
        complaint.filter(|_| !is_known)
    }

    fn look(&self, loaded: &mut Loaded) -> Result<(), ReloadError> {
        let texts = [read(&self.certificate)?, read(&self.key)?];
        if texts != loaded.texts {
            loaded.key = pair(&self.certificate, &self.key, &texts, &self.provider)?;
            loaded.texts = texts;
            tracing::info!("the certificate in {} was renewed", self.certificate.display());
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ReloadError> {
    let failed = |source| ReloadError::Read { path: path.to_owned(), source };
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > LENGTH_MAX {
        return Err(failed(io::Error::other("it is longer than any certificate")));
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

/// TLS for a server that proves itself with `identity`, and asks as [`LiveTls`](crate::LiveTls) says.
pub(crate) fn serving(
    identity: Arc<ReloadingIdentity>,
    clients: &str,
    floor: &Floor,
    protocols: &[&str],
) -> Result<ServerConfig, Error> {
    let roots = trusting(certificates(clients.as_bytes(), CLIENTS)?, CLIENTS);
    let clients = (!roots.is_empty()).then_some(roots);
    let mut config = asking(floor, clients)?.with_cert_resolver(identity);
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::{Authority, Identity};

    fn identity(name: &str) -> Identity {
        let hour = Duration::from_secs(3600);
        let authority = Authority::make("a", hour, SystemTime::now()).unwrap();
        let authority = Authority::read(&authority).unwrap();
        authority.server(&[name.to_owned()], hour, SystemTime::now()).unwrap()
    }

    fn write(folder: &Path, identity: &Identity) {
        std::fs::write(folder.join("tls.crt"), &identity.certificate).unwrap();
        std::fs::write(folder.join("tls.key"), &identity.key).unwrap();
    }

    fn name(key: &CertifiedKey) -> String {
        crate::common_name(&key.cert[0]).unwrap()
    }

    #[test]
    fn a_renewed_pair_is_used_and_a_broken_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let open = || ReloadingIdentity::open(&certificate, &key, Duration::ZERO);
        assert!(matches!(open(), Err(ReloadError::Read { .. })));
        write(folder.path(), &identity("one"));
        let reloading = open().unwrap();
        assert_eq!(name(&reloading.current()), "one");
        // The two files are never written at once.
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
    fn what_is_wrong_with_the_files_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &identity("one"));
        let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let reloading = ReloadingIdentity::open(&certificate, &key, Duration::ZERO).unwrap();
        let told = || reloading.renew(&mut reloading.loaded.lock().unwrap());
        assert_eq!(told(), None);
        for _ in 0..2 {
            std::fs::write(&certificate, "nothing").unwrap();
            assert!(told().unwrap().contains("tls.crt"));
            assert_eq!(told(), None);
            std::fs::remove_file(&key).unwrap();
            assert!(told().unwrap().contains("cannot read"), "something else is wrong");
            assert_eq!(told(), None);
            write(folder.path(), &identity("two"));
            assert_eq!(told(), None);
        }
    }

    #[test]
    fn files_are_left_alone_until_it_is_time() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &identity("one"));
        let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let hour = Duration::from_secs(3600);
        let reloading = ReloadingIdentity::open(&certificate, &key, hour).unwrap();
        write(folder.path(), &identity("two"));
        assert_eq!(name(&reloading.current()), "one");
    }

    #[test]
    fn clients_need_no_authority_but_a_broken_one_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let one = identity("one");
        write(folder.path(), &one);
        let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let reloading = Arc::new(ReloadingIdentity::open(&certificate, &key, LOOK_AGAIN).unwrap());
        let serving =
            |clients| serving(Arc::clone(&reloading), clients, &Floor::default(), &["h2"]);
        assert!(serving("").is_ok());
        assert!(serving(&one.certificate).is_ok());
        assert!(serving("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n").is_err());
    }
}
