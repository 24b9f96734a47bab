//! The job of an upload server's pod: what the controller writes into its environment, and how the server reads it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use jiff::Timestamp;

use crate::byte_count::ByteCount;
use crate::go_bool::go_bool;
use crate::overhead::Overhead;
use crate::paths;
use crate::quantity::Quantity;

/// Names of the variables.
pub mod name {
    #![allow(missing_docs)] // documented at the fields of `UploadJob`
    pub use crate::import::name::{
        OVERHEAD, OWNER_UID, PREALLOCATION, REQUIRE_SANDBOX, SOURCE_FORMAT, TLS_CIPHERS,
        TLS_MIN_VERSION,
    };

    pub const LISTEN_ADDRESS: &str = "LISTEN_ADDRESS";
    pub const LISTEN_PORT: &str = "LISTEN_PORT";
    pub const TLS_KEY_FILE: &str = "TLS_KEY_FILE";
    pub const TLS_CERT_FILE: &str = "TLS_CERT_FILE";
    pub const CLIENT_CA_FILE: &str = "CLIENT_CERT_FILE";
    pub const IMAGE_SIZE: &str = "UPLOAD_IMAGE_SIZE";
    pub const CLIENT_NAME: &str = "CLIENT_NAME";
    pub const DEADLINE: &str = "DEADLINE";
    pub const DESTINATION: &str = "DESTINATION";
    pub const JOURNAL: &str = "JOURNAL";
}

/// Common name of the upload proxy's client certificate. The server of a clone expects another client: the pod that reads
/// the source.
pub const PROXY_CLIENT_NAME: &str = "client.upload-server.cdi.kubevirt.io";
/// Response header of an upload server that has completed the volume, and ends. The upload proxy removes it.
pub const COMPLETE_HEADER: &str = "x-cdi-upload-complete";
/// The port of every upload server that is started by the controller.
pub const PORT: u16 = 8443;
/// Mount of the Secret with the server's certificate.
const TLS_MOUNT: &str = "/etc/tls";
const RAW: &str = "raw";
/// Go's `klog.Fatal` exits with this code; upstream's server calls it for a deadline that cannot be parsed.
const EXIT_CODE_BAD_DEADLINE: u8 = 255;

/// Files of the server's TLS identity, all PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadTlsFiles {
    /// The server's certificate chain.
    pub certificate: String,
    /// The key of `certificate`.
    pub key: String,
    /// The CA that client certificates are signed by.
    pub client_ca: String,
}

impl UploadTlsFiles {
    /// The keys of a `kubernetes.io/tls` Secret that is mounted at `directory`.
    pub fn mounted_at(directory: &str) -> Self {
        let file = |key: &str| format!("{directory}/{key}");
        Self { certificate: file("tls.crt"), key: file("tls.key"), client_ca: file("ca.crt") }
    }
}

/// One upload server. An empty text means that the default applies.
#[derive(Clone, Debug, PartialEq)]
pub struct UploadJob {
    /// Written only if it is not the default, all addresses and [`PORT`].
    pub listen: SocketAddr,
    /// Where the server finds its certificate.
    pub tls: UploadTlsFiles,
    /// `VersionTLS10` … `VersionTLS13`, or empty for the default.
    pub tls_min_version: String,
    /// OpenSSL names. Empty: every suite of the TLS library.
    pub tls_ciphers: Vec<String>,
    /// Common name of the only client certificate that may send a body.
    pub client_name: String,
    /// A block device, or the disk's file in a directory. Written only if it is not [`paths::DISK`].
    pub destination: String,
    /// Directory of the completion mark. Written only if it is not [`paths::JOURNAL`].
    pub journal: String,
    /// What the PVC requests. `None`: images are limited by the free space alone.
    pub image_size: Option<Quantity>,
    /// Share of the volume that its file system needs.
    pub overhead: Overhead,
    /// Allocate all blocks of the disk.
    pub preallocate: bool,
    /// Store the bytes unchanged instead of detecting the format.
    pub raw: bool,
    /// The server's certificates expire then; an idle server exits so that the controller replaces it.
    pub deadline: Option<Timestamp>,
    /// Label of the metrics: UID of the object that shows the progress.
    pub owner_uid: String,
}

/// A variable of an upload server that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot use {variable}={value:?}: {because}")]
pub struct BadUploadJob {
    /// Name of the variable.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
    /// What the value should be.
    pub because: String,
}

impl BadUploadJob {
    /// What the process exits with.
    pub fn exit_code(&self) -> u8 {
        if self.variable == name::DEADLINE { EXIT_CODE_BAD_DEADLINE } else { 1 }
    }
}

impl Default for UploadJob {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT),
            tls: UploadTlsFiles::mounted_at(TLS_MOUNT),
            tls_min_version: String::new(),
            tls_ciphers: Vec::new(),
            client_name: PROXY_CLIENT_NAME.to_owned(),
            destination: paths::DISK.to_owned(),
            journal: paths::JOURNAL.to_owned(),
            image_size: None,
            overhead: Overhead::ZERO,
            preallocate: false,
            raw: false,
            deadline: None,
            owner_uid: String::new(),
        }
    }
}

impl UploadJob {
    /// Reads a server's environment. A variable that is absent or empty has the value of [`UploadJob::default`]. Existing
    /// servers accept any overhead and preallocation: what cannot be parsed counts as 0 and as false.
    ///
    /// # Errors
    /// [`BadUploadJob`] for the first variable that cannot be parsed.
    pub fn from_environment(variables: &BTreeMap<String, String>) -> Result<Self, BadUploadJob> {
        let get = |name: &str| variables.get(name).map(String::as_str).unwrap_or_default();
        let text = |name: &str, default: String| match get(name) {
            "" => default,
            value => value.to_owned(),
        };
        let bad = |variable, because: String| BadUploadJob {
            variable,
            value: get(variable).to_owned(),
            because,
        };
        let default = Self::default();
        let address = match get(name::LISTEN_ADDRESS) {
            "" => default.listen.ip(),
            text => text
                .parse()
                .map_err(|_| bad(name::LISTEN_ADDRESS, "not an IP address".to_owned()))?,
        };
        let port = match get(name::LISTEN_PORT) {
            "" => default.listen.port(),
            text => {
                text.parse().map_err(|_| bad(name::LISTEN_PORT, "not a port number".to_owned()))?
            }
        };
        let deadline = match get(name::DEADLINE) {
            "" => None,
            text => Some(text.parse().map_err(|_| {
                let because = "not an RFC 3339 time such as 2026-11-21T20:00:00Z";
                bad(name::DEADLINE, because.to_owned())
            })?),
        };
        let ciphers = get(name::TLS_CIPHERS).split(',').map(str::trim);
        Ok(Self {
            listen: SocketAddr::new(address, port),
            tls: UploadTlsFiles {
                certificate: text(name::TLS_CERT_FILE, default.tls.certificate),
                key: text(name::TLS_KEY_FILE, default.tls.key),
                client_ca: text(name::CLIENT_CA_FILE, default.tls.client_ca),
            },
            tls_min_version: text(name::TLS_MIN_VERSION, default.tls_min_version),
            tls_ciphers: ciphers.filter(|name| !name.is_empty()).map(str::to_owned).collect(),
            client_name: text(name::CLIENT_NAME, default.client_name),
            destination: text(name::DESTINATION, default.destination),
            journal: text(name::JOURNAL, default.journal),
            image_size: image_size(get(name::IMAGE_SIZE))
                .map_err(|because| bad(name::IMAGE_SIZE, because))?,
            overhead: get(name::OVERHEAD).parse().unwrap_or(Overhead::ZERO),
            preallocate: go_bool(get(name::PREALLOCATION)).unwrap_or(false),
            raw: get(name::SOURCE_FORMAT) == RAW,
            deadline,
            owner_uid: get(name::OWNER_UID).to_owned(),
        })
    }

    /// The variables of this job, in the order in which pods list them. No secret is among them: the server reads its key
    /// from a file.
    pub fn to_environment(&self) -> Vec<(String, String)> {
        let Self {
            listen,
            tls: UploadTlsFiles { certificate, key, client_ca },
            tls_min_version,
            tls_ciphers,
            client_name,
            destination,
            journal,
            image_size,
            overhead,
            preallocate,
            raw,
            deadline,
            owner_uid,
        } = self;
        let default = Self::default();
        let always = [
            (name::TLS_KEY_FILE, key.clone()),
            (name::TLS_CERT_FILE, certificate.clone()),
            (name::CLIENT_CA_FILE, client_ca.clone()),
            (name::OVERHEAD, overhead.to_string()),
            (name::IMAGE_SIZE, image_size.map(|size| size.to_string()).unwrap_or_default()),
            (name::CLIENT_NAME, client_name.clone()),
            (name::PREALLOCATION, preallocate.to_string()),
            (name::TLS_CIPHERS, tls_ciphers.join(",")),
            (name::TLS_MIN_VERSION, tls_min_version.clone()),
            (name::DEADLINE, deadline.map(|moment| moment.to_string()).unwrap_or_default()),
            (name::OWNER_UID, owner_uid.clone()),
        ];
        let unless_default =
            |name, value: &str, default: &str| (value != default).then(|| (name, value.to_owned()));
        let optional = [
            raw.then(|| (name::SOURCE_FORMAT, RAW.to_owned())),
            unless_default(name::DESTINATION, destination, &default.destination),
            unless_default(name::JOURNAL, journal, &default.journal),
            unless_default(
                name::LISTEN_ADDRESS,
                &listen.ip().to_string(),
                &default.listen.ip().to_string(),
            ),
            unless_default(
                name::LISTEN_PORT,
                &listen.port().to_string(),
                &default.listen.port().to_string(),
            ),
        ];
        let all = always.into_iter().chain(optional.into_iter().flatten());
        all.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// What the PVC requests, in bytes. `None` also for a negative size, which [`UploadJob::from_environment`] rejects.
    pub fn image_bytes(&self) -> Option<ByteCount> {
        self.image_size.and_then(Quantity::bytes)
    }
}

fn image_size(text: &str) -> Result<Option<Quantity>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let size: Quantity = text.parse().map_err(|error: crate::BadQuantity| error.to_string())?;
    match size.bytes() {
        Some(_) => Ok(Some(size)),
        None => Err("less than zero".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(changes: &[(&str, &str)]) -> Result<UploadJob, BadUploadJob> {
        let variables =
            changes.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        UploadJob::from_environment(&variables)
    }

    // Literals instead of constants: pods of earlier versions hold these names and defaults.
    #[test]
    fn empty_environment_has_the_documented_defaults() {
        for job in [read(&[]), read(&[("CLIENT_NAME", ""), ("LISTEN_PORT", "")])] {
            let job = job.unwrap();
            assert_eq!(job, UploadJob::default());
            assert_eq!(job.listen.to_string(), "0.0.0.0:8443");
            assert_eq!(job.tls.certificate, "/etc/tls/tls.crt");
            assert_eq!(job.tls.key, "/etc/tls/tls.key");
            assert_eq!(job.tls.client_ca, "/etc/tls/ca.crt");
            assert_eq!(job.client_name, "client.upload-server.cdi.kubevirt.io");
            assert_eq!(job.destination, "/data/disk.img");
            assert_eq!(job.journal, "/journal");
            assert_eq!((job.image_size, job.deadline), (None, None));
        }
    }

    #[test]
    fn each_variable_sets_its_field() {
        type Check = fn(&UploadJob) -> bool;
        let table: &[(&str, &str, Check)] = &[
            ("LISTEN_ADDRESS", "::1", |job| job.listen.to_string() == "[::1]:8443"),
            ("LISTEN_PORT", "1", |job| job.listen.to_string() == "0.0.0.0:1"),
            ("TLS_KEY_FILE", "/k", |job| job.tls.key == "/k"),
            ("TLS_CERT_FILE", "/c", |job| job.tls.certificate == "/c"),
            ("CLIENT_CERT_FILE", "/a", |job| job.tls.client_ca == "/a"),
            ("TLS_MIN_VERSION", "VersionTLS13", |job| job.tls_min_version == "VersionTLS13"),
            ("TLS_CIPHERS", "a, b,", |job| job.tls_ciphers == ["a", "b"]),
            ("CLIENT_NAME", "a/b-c/d", |job| job.client_name == "a/b-c/d"),
            ("UPLOAD_IMAGE_SIZE", "1Gi", |job| {
                job.image_bytes() == Some(ByteCount::mebibytes(1024))
            }),
            ("FILESYSTEM_OVERHEAD", "0.06", |job| job.overhead.to_string() == "0.06"),
            ("FILESYSTEM_OVERHEAD", "much", |job| job.overhead == Overhead::ZERO),
            ("PREALLOCATION", "t", |job| job.preallocate),
            ("PREALLOCATION", "perhaps", |job| !job.preallocate),
            ("DESTINATION", "/dev/cdi-block-volume", |job| {
                job.destination == "/dev/cdi-block-volume"
            }),
            ("JOURNAL", "/elsewhere", |job| job.journal == "/elsewhere"),
            ("DEADLINE", "1970-01-02T00:00:00Z", |job| {
                job.deadline.map(Timestamp::as_second) == Some(86_400)
            }),
            ("OWNER_UID", "1-2", |job| job.owner_uid == "1-2"),
            ("IMPORTER_SOURCE_FORMAT", "raw", |job| job.raw),
            ("IMPORTER_SOURCE_FORMAT", "qcow2", |job| !job.raw),
        ];
        for (name, value, check) in table {
            let job = read(&[(name, value)]).unwrap();
            assert!(check(&job), "{name}={value:?}: {job:?}");
        }
    }

    #[test]
    fn unusable_variable_is_named_and_has_its_exit_code() {
        for (variable, value, exit_code) in [
            ("LISTEN_ADDRESS", "here", 1),
            ("LISTEN_PORT", "65536", 1),
            ("UPLOAD_IMAGE_SIZE", "large", 1),
            ("UPLOAD_IMAGE_SIZE", "-1", 1),
            ("DEADLINE", "tomorrow", 255),
        ] {
            let error = read(&[(variable, value)]).unwrap_err();
            assert_eq!((error.variable, error.value.as_str()), (variable, value));
            assert_eq!(error.exit_code(), exit_code, "{error}");
        }
    }

    fn text() -> impl Strategy<Value = String> {
        "[ -~]{1,30}"
    }

    prop_compose! {
        fn tls_files()(certificate in text(), key in text(), client_ca in text()) -> UploadTlsFiles {
            UploadTlsFiles { certificate, key, client_ca }
        }
    }

    prop_compose! {
        fn jobs()(
            (listen, tls, client_name) in (any::<SocketAddr>(), tls_files(), text()),
            tls_min_version in "|VersionTLS1[0-3]",
            tls_ciphers in prop::collection::vec("[A-Z0-9_-]{1,20}", 0..4),
            (destination, journal, owner_uid) in (text(), text(), "[0-9a-f-]{0,36}"),
            image_size in prop::option::of(0..=i64::MAX as u64),
            overhead in 0..1000_u32,
            (preallocate, raw) in any::<(bool, bool)>(),
            deadline in prop::option::of((0..10_000_000_000_i64, 0..1_000_000_000_i32)),
        ) -> UploadJob {
            let listen = match listen {
                // A scope and a flow label are no part of an IP address.
                SocketAddr::V6(v6) => SocketAddr::new((*v6.ip()).into(), v6.port()),
                v4 @ SocketAddr::V4(_) => v4,
            };
            UploadJob {
                listen,
                tls,
                tls_min_version,
                tls_ciphers,
                client_name,
                destination,
                journal,
                image_size: image_size.map(|bytes| bytes.to_string().parse().unwrap()),
                overhead: format!("0.{overhead:03}").parse().unwrap(),
                preallocate,
                raw,
                deadline: deadline.map(|(second, nanosecond)| {
                    Timestamp::new(second, nanosecond).unwrap()
                }),
                owner_uid,
            }
        }
    }

    proptest! {
        #[test]
        fn every_job_survives_its_environment(job in jobs()) {
            let variables = job.to_environment().into_iter().collect();
            prop_assert_eq!(UploadJob::from_environment(&variables), Ok(job));
        }

        #[test]
        fn any_environment_is_read_or_rejected(
            variables in prop::collection::btree_map("[A-Z_]{1,20}", "\\PC{0,20}", 0..4),
            size in "\\PC{0,20}",
            deadline in "\\PC{0,20}",
        ) {
            let mut variables = variables;
            variables.insert(name::IMAGE_SIZE.to_owned(), size);
            variables.insert(name::DEADLINE.to_owned(), deadline);
            let _ = UploadJob::from_environment(&variables);
        }
    }

    #[test]
    fn environment_lists_the_names_that_pods_have() {
        let names = |job: &UploadJob| -> Vec<String> {
            job.to_environment().into_iter().map(|(name, _)| name).collect()
        };
        let always = [
            "TLS_KEY_FILE",
            "TLS_CERT_FILE",
            "CLIENT_CERT_FILE",
            "FILESYSTEM_OVERHEAD",
            "UPLOAD_IMAGE_SIZE",
            "CLIENT_NAME",
            "PREALLOCATION",
            "TLS_CIPHERS",
            "TLS_MIN_VERSION",
            "DEADLINE",
            "OWNER_UID",
        ];
        assert_eq!(names(&UploadJob::default()), always);
        let raw_device = UploadJob {
            raw: true,
            destination: paths::BLOCK_DEVICE.into(),
            ..UploadJob::default()
        };
        let more = ["IMPORTER_SOURCE_FORMAT", "DESTINATION"];
        assert_eq!(names(&raw_device), [&always[..], &more[..]].concat());
    }
}
