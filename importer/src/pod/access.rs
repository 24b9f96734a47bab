//! Credentials, headers and CAs as a pod is given them: by variables, and by the files of Secrets and ConfigMaps.

use std::fs;
use std::path::{Path, PathBuf};

use contract::ImportJob;
use contract::import::name;
use contract::paths;

use super::mounts::{Paths, visible_files};
use crate::error::Error;
use crate::{
    BasicAuth, ExtraHeader, GcsCredentials, GcsOptions, HttpOptions, ProxySettings, S3Credentials,
    S3Options, Secret, gcs_location, s3_location,
};

/// The directory of secret headers has one directory for each Secret.
const HEADER_DEPTH: usize = 1;

/// How web servers are to be requested this job.
///
/// # Errors
/// When the directory of certificates cannot be read.
pub fn http_options(job: &ImportJob, paths: &Paths) -> Result<HttpOptions, Error> {
    let auth = job.credentials.as_ref().map(|credentials| BasicAuth {
        username: credentials.access_key.clone(),
        password: Secret::new(&credentials.secret_key),
    });
    Ok(HttpOptions {
        auth,
        headers: headers(job, paths),
        ca_pem: authorities(job, paths)?,
        insecure_tls: job.insecure_tls,
        proxy: proxy(job),
        ..HttpOptions::default()
    })
}

/// Where in S3 the object is, and its credentials: the keys of its Secret, the pod's identity at Amazon's, or
/// as a public one.
///
/// # Errors
/// When the address holds no bucket and key, or the directory of certificates cannot be read.
pub fn s3(job: &ImportJob, paths: &Paths) -> Result<(String, HttpOptions), Error> {
    let (location, endpoint) = s3_location(&job.endpoint)?;
    let credentials = match &job.credentials {
        None if job.aws_files.is_some() => S3Credentials::Environment,
        None => S3Credentials::Anonymous,
        Some(keys) => S3Credentials::Keys {
            access_key_id: keys.access_key.clone(),
            secret_key: Secret::new(&keys.secret_key),
            session_token: None,
        },
    };
    let s3 = S3Options { endpoint, credentials, ..S3Options::default() };
    Ok((location, HttpOptions { s3, ..http_options(job, paths)? }))
}

/// Where in Google's store the object is, and how it is requested: with the mounted key, or as a public one.
///
/// # Errors
/// When the address holds no bucket and object, or the directory of certificates cannot be read.
pub fn gcs(job: &ImportJob, paths: &Paths) -> Result<(String, HttpOptions), Error> {
    let (location, endpoint) = gcs_location(&job.endpoint)?;
    let credentials = match job.google_credentials.as_str() {
        "" => GcsCredentials::Anonymous,
        path => GcsCredentials::File(paths.at(path)),
    };
    let gcs = GcsOptions { endpoint, credentials };
    Ok((location, HttpOptions { gcs, ..http_options(job, paths)? }))
}

/// The directories of the files with the pod's AWS identity. The kubelet replaces the files, so a rule for the files
/// alone would not do.
pub fn aws_folders(job: &ImportJob, paths: &Paths) -> Vec<PathBuf> {
    let files = job.aws_files.iter().flatten().map(Path::new);
    let directory = |file: &'_ Path| match file.parent() {
        Some(directory) if directory.components().count() > 1 => directory.to_owned(),
        _ => file.to_owned(), // at the root: that is too much
    };
    files.map(directory).filter_map(|path| Some(paths.at(path.to_str()?))).collect()
}

/// From the usual variables.
pub fn proxy(job: &ImportJob) -> ProxySettings {
    let proxy = &job.proxy;
    ProxySettings::from_variables(|variable| match variable {
        name::HTTP_PROXY => Some(proxy.http.clone()),
        name::HTTPS_PROXY => Some(proxy.https.clone()),
        name::NO_PROXY => Some(proxy.except.clone()),
        _ => None,
    })
}

/// Those of the job, then those of mounted Secrets. What is no header is left out, as it always was.
fn headers(job: &ImportJob, paths: &Paths) -> Vec<ExtraHeader> {
    let mut headers: Vec<_> =
        job.extra_headers.iter().filter_map(|line| ExtraHeader::parse(line, false)).collect();
    let directory = paths.at(paths::EXTRA_HEADERS);
    // Mostly there is none.
    for file in visible_files(&directory, HEADER_DEPTH).unwrap_or_default() {
        let header =
            fs::read_to_string(&file).ok().and_then(|line| ExtraHeader::parse(&line, true));
        match header {
            Some(header) => headers.push(header),
            None => tracing::warn!("{} holds no header 'Name: value'", file.display()),
        }
    }
    headers
}

/// Every certificate of the user's and of the proxy's directory, as text.
///
/// # Errors
/// When the user's directory is named and cannot be read.
pub fn authorities(job: &ImportJob, paths: &Paths) -> Result<Vec<String>, Error> {
    if job.insecure_tls {
        return Ok(Vec::new()); // any certificate will do
    }
    let mut found = Vec::new();
    if !job.cert_dir.is_empty() {
        let directory = paths.at(&job.cert_dir);
        let failed = |source| Error::File { what: "list", path: directory.clone(), source };
        for file in visible_files(&directory, 0).map_err(failed)? {
            found.extend(certificates(&file));
        }
    }
    for file in visible_files(&paths.at(paths::PROXY_CERTS), 0).unwrap_or_default() {
        found.extend(certificates(&file));
    }
    Ok(found)
}

/// A directory may hold other things too: they are logged and skipped.
fn certificates(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok().filter(|text| text.contains("-----BEGIN"));
    if text.is_none() {
        tracing::warn!("{} holds no certificates", file.display());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::import::{Credentials, ProxyVariables, SourceKind};

    fn job() -> ImportJob {
        ImportJob::new(SourceKind::Http, "https://host/disk.img")
    }

    fn root(files: &[(&str, &str)]) -> (tempfile::TempDir, Paths) {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let paths = Paths::under(root.path());
        (root, paths)
    }

    #[test]
    fn headers_of_variables_come_first_and_those_of_secrets_never_show() {
        let (_root, paths) = root(&[
            ("extraheaders/0/token", "X-Token: hush\n"),
            ("extraheaders/1/other", "X-Other:hush"),
            ("extraheaders/1/broken", "hush"),
            ("extraheaders/1/.hidden", "X-Hidden: hush"),
        ]);
        let job = ImportJob { extra_headers: vec!["X-A: b".into(), "none".into()], ..job() };
        let headers = headers(&job, &paths);
        let names: Vec<_> = headers.iter().map(|header| header.name.as_str()).collect();
        assert_eq!(names, ["X-A", "X-Token", "X-Other"]);
        assert!(!format!("{headers:?}").contains("hush"));
    }

    #[test]
    fn objects_are_read_with_the_keys_of_their_secret_or_anonymously() {
        let (_root, paths) = root(&[]);
        let endpoint = "https://minio:9000/images/disk.img".to_owned();
        let keys = Credentials { access_key: "anna".into(), secret_key: "hush".into() };
        let job = ImportJob { endpoint, credentials: Some(keys), ..job() };
        let (location, options) = s3(&job, &paths).unwrap();
        assert_eq!(location, "s3://images/disk.img");
        assert_eq!(options.s3.endpoint.as_deref(), Some("https://minio:9000/"));
        assert!(matches!(options.s3.credentials, S3Credentials::Keys { .. }));
        assert!(!format!("{options:?}").contains("hush"));
        let job = ImportJob { credentials: None, ..job };
        let (_, options) = s3(&job, &paths).unwrap();
        assert_eq!(options.s3.credentials, S3Credentials::Anonymous);
        let (_, options) = s3(&ImportJob { aws_files: Some(vec![]), ..job }, &paths).unwrap();
        assert_eq!(options.s3.credentials, S3Credentials::Environment);

        let endpoint = "gs://images/disk.img".to_owned();
        let google_credentials = "/google/credentials.json".to_owned();
        let job = ImportJob { endpoint, google_credentials, ..self::job() };
        let (location, options) = gcs(&job, &paths).unwrap();
        assert_eq!(location, "gs://images/disk.img");
        let file = paths.at("/google/credentials.json");
        assert_eq!(options.gcs.credentials, GcsCredentials::File(file));
    }

    #[test]
    fn ca_files_of_both_directories_are_used_unless_tls_is_insecure() {
        let pem = |n: u8| format!("-----BEGIN CERTIFICATE-----\n{n}\n");
        let (_root, paths) = root(&[
            ("certs/ca.pem", &pem(1)),
            ("certs/any name", &pem(2)),
            ("certs/README", "read me"),
            ("certs/..data", &pem(3)),
            ("proxycerts/ca.crt", &pem(4)),
        ]);
        let with = |cert_dir: &str, insecure_tls| {
            let job = ImportJob { cert_dir: cert_dir.into(), insecure_tls, ..job() };
            authorities(&job, &paths)
        };
        assert_eq!(with("/certs", false).unwrap(), [pem(2), pem(1), pem(4)]);
        assert_eq!(with("", false).unwrap(), [pem(4)]);
        assert!(with("/certs", true).unwrap().is_empty());
        assert!(with("/absent", false).is_err());
    }

    #[test]
    fn proxies_and_credentials_are_those_of_the_job() {
        let (_root, paths) = root(&[]);
        let job = ImportJob {
            proxy: ProxyVariables {
                http: "http://p:1".into(),
                https: String::new(),
                except: ".a".into(),
            },
            credentials: Some(Credentials { access_key: "u".into(), secret_key: "hush".into() }),
            ..job()
        };
        let options = http_options(&job, &paths).unwrap();
        assert_eq!(options.proxy.http.as_deref(), Some("http://p:1"));
        assert_eq!(options.proxy.https, None);
        assert!(options.proxy.no_proxy.ends_with(".a"));
        assert_eq!(options.auth.as_ref().map(|auth| auth.username.as_str()), Some("u"));
        assert!(!format!("{options:?}").contains("hush"));
    }
}
