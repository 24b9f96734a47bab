//! The settings of one process: those of its [`UploadJob`], as types of the libraries that use them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use auth::TlsMinimum;
use contract::upload::{BadUploadJob, UploadTlsFiles, name};
use contract::{ByteCount, Overhead, UploadJob};
use pipeline::SourceFormat;

/// A client may have to wait for its own source, but only for a limited time.
const CLIENT_SILENCE_MAX: Duration = Duration::from_secs(15 * 60);
/// A process that is killed loses at most the bytes of this time.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(5);

/// The settings of one upload server.
#[derive(Clone, Debug)]
pub struct Settings {
    pub listen: SocketAddr,
    /// PEM file of the server's certificate chain.
    pub certificate: PathBuf,
    /// PEM file of its key.
    pub key: PathBuf,
    /// PEM file of the CA that signs client certificates.
    pub client_ca: PathBuf,
    /// Common name of the only client certificate that may send a body.
    pub client_name: String,
    pub tls_minimum: TlsMinimum,
    /// A block device, or the disk's file in a directory.
    pub destination: PathBuf,
    /// Directory of the completion mark. Without it, a process that is killed right after completion leaves no mark.
    pub journal: PathBuf,
    /// What the PVC requests.
    pub image_size: Option<ByteCount>,
    pub overhead: Overhead,
    /// Allocate all blocks of the disk.
    pub preallocate: bool,
    pub format: SourceFormat,
    /// The certificates expire then: an idle process exits.
    pub deadline: Option<SystemTime>,
    /// UID of the object that shows the progress; empty in pods of older controllers.
    pub owner_uid: String,
    /// A client that sends nothing for this long in the middle of a transfer is disconnected.
    pub client_silence_max: Duration,
    /// How often a resumable upload syncs what it has received.
    pub checkpoint_every: Duration,
}

impl Settings {
    /// # Errors
    /// As [`UploadJob::from_environment`], and for an unknown TLS version.
    pub fn from_environment(variables: &BTreeMap<String, String>) -> Result<Self, BadUploadJob> {
        let job = UploadJob::from_environment(variables)?;
        let image_size = job.image_bytes();
        let UploadJob {
            listen,
            tls: UploadTlsFiles { certificate, key, client_ca },
            tls_min_version,
            tls_ciphers,
            client_name,
            destination,
            journal,
            image_size: _,
            overhead,
            preallocate,
            raw,
            deadline,
            owner_uid,
        } = job;
        let tls_minimum =
            TlsMinimum::parse(&tls_min_version, &tls_ciphers.join(",")).map_err(|_| {
                let because = "not one of VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13";
                BadUploadJob {
                    variable: name::TLS_MIN_VERSION,
                    value: tls_min_version.clone(),
                    because: because.to_owned(),
                }
            })?;
        Ok(Self {
            listen,
            certificate: certificate.into(),
            key: key.into(),
            client_ca: client_ca.into(),
            client_name,
            tls_minimum,
            destination: destination.into(),
            journal: journal.into(),
            image_size,
            overhead,
            preallocate,
            format: if raw { SourceFormat::Raw } else { SourceFormat::Detect },
            deadline: deadline.map(SystemTime::from),
            owner_uid,
            client_silence_max: CLIENT_SILENCE_MAX,
            checkpoint_every: CHECKPOINT_INTERVAL,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn read(changes: &[(&str, &str)]) -> Result<Settings, BadUploadJob> {
        let variables =
            changes.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Settings::from_environment(&variables)
    }

    #[test]
    fn settings_convert_each_field_of_the_job() {
        let settings = read(&[
            (name::LISTEN_ADDRESS, "::1"),
            (name::LISTEN_PORT, "1"),
            (name::IMAGE_SIZE, "1Gi"),
            (name::DEADLINE, "1970-01-02T00:00:00Z"),
            (name::TLS_MIN_VERSION, "VersionTLS13"),
            (name::TLS_CIPHERS, "a,b"),
            (name::SOURCE_FORMAT, "raw"),
        ])
        .unwrap();
        assert_eq!(settings.listen.to_string(), "[::1]:1");
        assert_eq!(settings.image_size, Some(ByteCount::mebibytes(1024)));
        assert_eq!(settings.format, SourceFormat::Raw);
        assert_eq!(settings.deadline, Some(UNIX_EPOCH + Duration::from_secs(86_400)));
        assert_eq!(settings.tls_minimum, TlsMinimum::parse("VersionTLS13", "a,b").unwrap());
        assert_eq!(read(&[]).unwrap().format, SourceFormat::Detect);
    }

    #[test]
    fn unknown_tls_version_is_rejected() {
        let error = read(&[("TLS_MIN_VERSION", "SSL3")]).unwrap_err();
        assert_eq!((error.variable, error.value.as_str()), ("TLS_MIN_VERSION", "SSL3"));
        assert_eq!(error.exit_code(), 1);
    }
}
