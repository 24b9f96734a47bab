//! Credentials, headers and CAs for a source, from the command line, the environment or a manifest.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use importer::{
    BasicAuth, Credentials, ExtraHeader, GcsCredentials, GcsOptions, HttpOptions, ProxySettings,
    RegistryOptions, S3Credentials, S3Options, Secret,
};

use crate::args::{RegistryArgs, StoreArgs, WebArgs};

/// Secret parts are not shown by `Debug`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    pub auth: Option<BasicAuth>,
    pub headers: Vec<ExtraHeader>,
    /// PEM files of CAs to trust.
    pub ca_files: Vec<PathBuf>,
    /// PEM texts of CAs to trust.
    pub ca_pem: Vec<String>,
    /// Certificates are not verified.
    pub insecure_tls: bool,
    /// Certificates of these hosts are not verified.
    pub insecure_hosts: Vec<String>,
    /// For `docker://` images.
    pub registry: RegistryOptions,
    /// For `s3://` URLs.
    pub s3: S3Options,
    /// For `gs://` URLs.
    pub gcs: GcsOptions,
}

impl Access {
    /// From the command line; `password` is from the environment.
    ///
    /// # Errors
    /// When a file cannot be read, a header is malformed, or a user has no password.
    pub fn from_args(args: &WebArgs, password: Option<Secret>) -> Result<Self> {
        let auth = match &args.user {
            None => None,
            Some(user) => Some(BasicAuth {
                username: user.clone(),
                password: match (&args.password_file, password) {
                    (Some(path), _) => password_in(path)?,
                    (None, Some(password)) => password,
                    (None, None) => bail!(
                        "missing password of user {user}: set CDI_PASSWORD or --password-file"
                    ),
                },
            }),
        };
        let mut headers = Vec::new();
        for line in &args.header {
            // The value may be secret, so the message does not quote it.
            let header = ExtraHeader::parse(line, false);
            headers.push(header.context("cannot parse --header: expected 'Name: value'")?);
        }
        for path in &args.header_file {
            headers.extend(headers_in(path)?);
        }
        let mut ca_files = Vec::new();
        for path in &args.ca {
            ca_files.extend(files_of(path)?);
        }
        Ok(Self { auth, headers, ca_files, insecure_tls: args.insecure, ..Self::default() })
    }

    /// Adds the registry arguments. An architecture that is set already stays.
    ///
    /// # Errors
    /// When the file of credentials cannot be read.
    pub fn with_registry(mut self, args: &RegistryArgs) -> Result<Self> {
        let RegistryArgs { architecture, registry_config, mirror, insecure_registry } = args;
        if let Some(path) = registry_config {
            self.registry.credentials =
                Credentials::parse(&read(path, "the registry credentials")?)?;
        }
        self.registry.architecture = self.registry.architecture.or_else(|| architecture.clone());
        self.registry.mirrors.clone_from(mirror);
        self.insecure_hosts.clone_from(insecure_registry);
        Ok(self)
    }

    /// Adds the object store arguments; `google_key` is from the environment.
    #[must_use]
    pub fn with_stores(self, args: &StoreArgs, google_key: Option<PathBuf>) -> Self {
        let StoreArgs { s3_endpoint, s3_region, s3_virtual_host, gcs_endpoint, gcs_key, anonymous } =
            args;
        let s3 = S3Options {
            endpoint: s3_endpoint.clone(),
            region: s3_region.clone(),
            virtual_host: *s3_virtual_host,
            credentials: if *anonymous {
                S3Credentials::Anonymous
            } else {
                S3Credentials::Environment
            },
        };
        let key = gcs_key.clone().or(google_key).filter(|_| !*anonymous);
        let credentials = key.map_or(GcsCredentials::Anonymous, GcsCredentials::File);
        Self { s3, gcs: GcsOptions { endpoint: gcs_endpoint.clone(), credentials }, ..self }
    }

    pub fn into_options(self, connections: usize, proxy: &ProxySettings) -> HttpOptions {
        let Self {
            auth,
            headers,
            ca_files,
            ca_pem,
            insecure_tls,
            insecure_hosts,
            registry,
            s3,
            gcs,
        } = self;
        HttpOptions {
            auth,
            headers,
            ca_files,
            ca_pem,
            insecure_tls,
            insecure_hosts,
            registry,
            proxy: proxy.clone(),
            streams_max: connections,
            s3,
            gcs,
            ..HttpOptions::default()
        }
    }
}

/// The password in a file. A trailing line end, which editors add, is removed.
fn password_in(path: &Path) -> Result<Secret> {
    let text = read(path, "the password file")?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(Secret::new(text.strip_suffix('\r').unwrap_or(text)))
}

/// One header per line; empty lines and comments (`#`) are skipped.
fn headers_in(path: &Path) -> Result<Vec<ExtraHeader>> {
    let text = read(path, "the header file")?;
    (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            let wrong = || {
                format!(
                    "cannot parse line {number} of {} as a header 'Name: value'",
                    path.display()
                )
            };
            ExtraHeader::parse(line, true).with_context(wrong)
        })
        .collect()
}

/// The file itself, or the files of a directory without hidden ones (a mounted ConfigMap has some).
fn files_of(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed = || format!("cannot list the certificates in {}", path.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(path).with_context(failed)? {
        let file = entry.with_context(failed)?.path();
        let hidden = file.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && file.is_file() {
            files.push(file);
        }
    }
    ensure!(!files.is_empty(), "the directory {} holds no certificates", path.display());
    files.sort();
    Ok(files)
}

fn read(path: &Path, what: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {what} {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> WebArgs {
        WebArgs {
            user: None,
            password_file: None,
            header: Vec::new(),
            header_file: Vec::new(),
            ca: Vec::new(),
            insecure: false,
            connections: std::num::NonZeroUsize::MIN,
        }
    }

    fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn password_comes_from_environment_or_file() {
        let folder = tempfile::tempdir().unwrap();
        let user = || Some("anna".to_owned());
        let auth = |args: WebArgs, password: Option<&str>| {
            Access::from_args(&args, password.map(Secret::new)).map(|access| access.auth)
        };
        let expected = |password: &str| {
            Some(BasicAuth { username: "anna".into(), password: Secret::new(password) })
        };
        assert_eq!(auth(none(), Some("word")).unwrap(), None);
        assert_eq!(
            auth(WebArgs { user: user(), ..none() }, Some("word")).unwrap(),
            expected("word")
        );
        for (text, password) in
            [("word\n", "word"), ("word\r\n", "word"), (" word \n\n", " word \n")]
        {
            let password_file = Some(file(&folder, "password", text));
            let args = WebArgs { user: user(), password_file, ..none() };
            assert_eq!(auth(args, Some("other")).unwrap(), expected(password), "{text:?}");
        }
        let error = auth(WebArgs { user: user(), ..none() }, None).unwrap_err();
        assert!(error.to_string().contains("CDI_PASSWORD"), "{error}");
    }

    #[test]
    fn headers_from_files_are_secret() {
        let folder = tempfile::tempdir().unwrap();
        let header_file = vec![file(&folder, "headers", "# for the mirror\n\nX-Token: hush\r\n")];
        let args = WebArgs { header: vec!["X-Mood: good".into()], header_file, ..none() };
        let access = Access::from_args(&args, None).unwrap();
        assert_eq!(access.headers.len(), 2);
        assert!(!format!("{access:?}").contains("hush"));
        assert_eq!(access.headers[1], ExtraHeader::parse("X-Token: hush", true).unwrap());
    }

    #[test]
    fn malformed_header_is_not_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let header_file = vec![file(&folder, "headers", "X: y\nhush\n")];
        let error = Access::from_args(&WebArgs { header_file, ..none() }, None).unwrap_err();
        assert!(error.to_string().starts_with("cannot parse line 2 of "), "{error}");
        let typed = WebArgs { header: vec!["hush".into()], ..none() };
        for error in [error, Access::from_args(&typed, None).unwrap_err()] {
            assert!(!format!("{error:?}").contains("hush"));
        }
    }

    #[test]
    fn keys_come_from_the_environment_unless_anonymous() {
        let gcs_key = Some(PathBuf::from("key.json"));
        let signed = StoreArgs { gcs_key, s3_region: Some("x".into()), ..StoreArgs::default() };
        let access = Access::default().with_stores(&signed, Some("other.json".into()));
        assert_eq!(access.s3.credentials, S3Credentials::Environment);
        assert_eq!(access.s3.region.as_deref(), Some("x"));
        assert_eq!(access.gcs.credentials, GcsCredentials::File("key.json".into()));
        let access = Access::default().with_stores(&StoreArgs { anonymous: true, ..signed }, None);
        assert_eq!(access.s3.credentials, S3Credentials::Anonymous);
        assert_eq!(access.gcs.credentials, GcsCredentials::Anonymous);
        let none = StoreArgs::default();
        let access = Access::default().with_stores(&none, Some("other.json".into()));
        assert_eq!(access.gcs.credentials, GcsCredentials::File("other.json".into()));
    }

    #[test]
    fn cas_are_a_file_or_the_visible_files_of_a_directory() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (file(&folder, "a.pem", ""), file(&folder, "b", ""));
        file(&folder, ".hidden", "");
        fs::create_dir(folder.path().join("sub")).unwrap();
        assert_eq!(files_of(&a).unwrap(), std::slice::from_ref(&a));
        assert_eq!(files_of(folder.path()).unwrap(), [a, b]);
        assert!(files_of(&folder.path().join("sub")).is_err());
    }
}
