//! Certificates of the cloner and the upload server.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use auth::{CertificateAuthority, Identity};

use super::CLIENT;
use super::wire::SERVER_NAMES;
use crate::work::WorkFolder;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Certificates of both sides.
pub(super) struct Trust {
    pub(super) client: Identity,
    /// The CA of the server.
    pub(super) authority: String,
    pub(super) folder: PathBuf,
}

impl Trust {
    pub(super) fn new(work: &WorkFolder) -> Result<Self> {
        let now = SystemTime::now();
        let (servers, clients) = (
            CertificateAuthority::create("servers", DAY, now)?,
            CertificateAuthority::create("clients", DAY, now)?,
        );
        let server = CertificateAuthority::from_identity(&servers)?.server(
            &SERVER_NAMES.map(str::to_owned),
            DAY,
            now,
        )?;
        let client = CertificateAuthority::from_identity(&clients)?.client(CLIENT, DAY, now)?;
        let folder = work.path().join("identities");
        fs::create_dir_all(&folder).context("cannot make a folder")?;
        work.file("identities/server.crt", &server.certificate)?;
        work.file("identities/server.key", &server.key)?;
        work.file("identities/clients.pem", &clients.certificate)?;
        Ok(Self { client, authority: servers.certificate, folder })
    }
}
