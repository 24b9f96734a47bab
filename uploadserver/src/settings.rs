//! What the controller tells an upload pod, by its environment.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use auth::Floor;
use contract::job::{go_bool, name};
use contract::{ByteCount, Overhead, Quantity};
use pipeline::SourceFormat;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A client may have to wait for its own source, but not for ever.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
/// The common name of the upload proxy's client certificate. A server for a clone expects another one, that of the pod
/// that reads the source.
pub const UPLOAD_CLIENT: &str = "client.upload-server.cdi.kubevirt.io";
/// A lost process costs so much work at most.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(5);

/// Everything that a process is told at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// PEM: the server's certificate.
    pub certificate: PathBuf,
    /// PEM: its key.
    pub key: PathBuf,
    /// PEM: who vouches for clients.
    pub client_authority: PathBuf,
    /// The common name of the one client that may upload.
    pub client_name: String,
    /// The least of TLS.
    pub floor: Floor,
    /// The volume: a device, or a file on it.
    pub destination: PathBuf,
    /// Where the mark is kept that the volume is complete, if this folder is there.
    pub journal: PathBuf,
    /// What the claim requests.
    pub image_size: Option<ByteCount>,
    /// Of the file system.
    pub overhead: Overhead,
    /// Every byte gets its room.
    pub preallocate: bool,
    /// How the format of an image is determined.
    pub format: SourceFormat,
    /// When the certificates have had their time: an idle process then ends.
    pub deadline: Option<SystemTime>,
    /// UID of the object whose progress this is, where the controller says it.
    pub owner_uid: String,
    /// How long a client may say nothing in the middle of a transfer.
    pub patience: Duration,
    /// Of an upload that can be gone on with: how often what has come is made durable.
    pub checkpoint_every: Duration,
}

/// Why an environment cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable} cannot be {value:?}: {because}")]
pub struct BadSetting {
    /// Its name.
    pub variable: &'static str,
    /// What it is.
    pub value: String,
    /// A clause.
    pub because: String,
}

impl Settings {
    /// Reads the variables of a container; what is not there has its documented default.
    ///
    /// # Errors
    /// With the first variable that cannot be used.
    pub fn from_environment(variables: &BTreeMap<String, String>) -> Result<Self, BadSetting> {
        let text = |name: &str, default: &str| match variables.get(name) {
            Some(value) if !value.is_empty() => value.clone(),
            _ => default.to_owned(),
        };
        let bad =
            |variable, because: String| BadSetting { variable, value: text(variable, ""), because };
        let address = text("LISTEN_ADDRESS", "0.0.0.0");
        let address =
            address.parse().map_err(|_| bad("LISTEN_ADDRESS", "it is no IP address".into()))?;
        let port = text("LISTEN_PORT", "8443");
        let port = port.parse().map_err(|_| bad("LISTEN_PORT", "it is no port".into()))?;
        let image_size = match text("UPLOAD_IMAGE_SIZE", "").as_str() {
            "" => None,
            size => {
                let parsed = size.parse::<Quantity>();
                let parsed = parsed.map_err(|error| bad("UPLOAD_IMAGE_SIZE", error.to_string()))?;
                let too_large = || bad("UPLOAD_IMAGE_SIZE", "no volume is that large".into());
                Some(parsed.bytes().ok_or_else(too_large)?)
            }
        };
        let deadline = match text("DEADLINE", "").as_str() {
            "" => None,
            moment => {
                let parsed = OffsetDateTime::parse(moment, &Rfc3339);
                Some(parsed.map_err(|error| bad("DEADLINE", error.to_string()))?.into())
            }
        };
        let floor =
            Floor::parse(&text("TLS_MIN_VERSION", ""), &text("TLS_CIPHERS", "")).map_err(|_| {
                bad("TLS_MIN_VERSION", "it is none of VersionTLS10 … VersionTLS13".into())
            })?;
        Ok(Self {
            listen: SocketAddr::new(address, port),
            certificate: text("TLS_CERT_FILE", "/etc/tls/tls.crt").into(),
            key: text("TLS_KEY_FILE", "/etc/tls/tls.key").into(),
            client_authority: text("CLIENT_CERT_FILE", "/etc/tls/ca.crt").into(),
            client_name: text("CLIENT_NAME", UPLOAD_CLIENT),
            floor,
            destination: text("DESTINATION", contract::job::paths::DISK).into(),
            journal: text("JOURNAL", contract::job::paths::JOURNAL).into(),
            image_size,
            // An unreadable overhead or preallocation always counted as none.
            overhead: text("FILESYSTEM_OVERHEAD", "0").parse().unwrap_or(Overhead::ZERO),
            preallocate: go_bool(&text("PREALLOCATION", "")).unwrap_or(false),
            format: match text(name::SOURCE_FORMAT, "").as_str() {
                "raw" => SourceFormat::Raw,
                _ => SourceFormat::Detect,
            },
            deadline,
            owner_uid: text("OWNER_UID", ""),
            patience: PATIENCE,
            checkpoint_every: CHECKPOINT_EVERY,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn read(changes: &[(&str, &str)]) -> Result<Settings, BadSetting> {
        let variables =
            changes.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Settings::from_environment(&variables)
    }

    #[test]
    fn an_empty_environment_means_the_documented_defaults() {
        let settings = read(&[]).unwrap();
        assert_eq!(settings.listen.to_string(), "0.0.0.0:8443");
        assert_eq!(settings.certificate, PathBuf::from("/etc/tls/tls.crt"));
        assert_eq!(settings.key, PathBuf::from("/etc/tls/tls.key"));
        assert_eq!(settings.client_authority, PathBuf::from("/etc/tls/ca.crt"));
        assert_eq!(settings.client_name, "client.upload-server.cdi.kubevirt.io");
        assert_eq!(settings.destination, PathBuf::from("/data/disk.img"));
        assert_eq!(settings.journal, PathBuf::from("/journal"));
        assert_eq!((settings.image_size, settings.deadline), (None, None));
        assert!(!settings.preallocate);
        assert_eq!(settings.format, SourceFormat::Detect);
    }

    #[test]
    fn every_variable_is_read() {
        let settings = read(&[
            ("LISTEN_ADDRESS", "::1"),
            ("LISTEN_PORT", "1"),
            ("CLIENT_NAME", "a/b-c/d"),
            ("UPLOAD_IMAGE_SIZE", "1Gi"),
            ("FILESYSTEM_OVERHEAD", "0.06"),
            ("PREALLOCATION", "t"),
            ("DESTINATION", "/dev/cdi-block-volume"),
            ("JOURNAL", "/elsewhere"),
            ("DEADLINE", "1970-01-02T00:00:00Z"),
            ("TLS_MIN_VERSION", "VersionTLS13"),
            ("OWNER_UID", "1-2"),
            ("IMPORTER_SOURCE_FORMAT", "raw"),
        ])
        .unwrap();
        assert_eq!(settings.listen.to_string(), "[::1]:1");
        assert_eq!(settings.client_name, "a/b-c/d");
        assert_eq!(settings.image_size, Some(ByteCount::mebibytes(1024)));
        assert_eq!(settings.overhead.to_string(), "0.06");
        assert!(settings.preallocate);
        assert_eq!(settings.format, SourceFormat::Raw);
        assert_eq!(settings.journal, PathBuf::from("/elsewhere"));
        assert_eq!(settings.deadline, Some(UNIX_EPOCH + Duration::from_secs(86_400)));
        assert_eq!(settings.owner_uid, "1-2");
        assert_eq!(settings.floor, Floor::parse("VersionTLS13", "").unwrap());
        assert!(!read(&[("PREALLOCATION", "perhaps")]).unwrap().preallocate);
    }

    #[test]
    fn what_cannot_be_meant_is_named() {
        for (variable, value) in [
            ("LISTEN_ADDRESS", "here"),
            ("LISTEN_PORT", "65536"),
            ("UPLOAD_IMAGE_SIZE", "large"),
            ("DEADLINE", "tomorrow"),
            ("TLS_MIN_VERSION", "SSL3"),
        ] {
            let error = read(&[(variable, value)]).unwrap_err();
            assert_eq!((error.variable, error.value.as_str()), (variable, value));
        }
    }
}
