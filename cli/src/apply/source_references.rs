//! Resolves the Secrets and ConfigMaps that a source names to credentials, headers and CAs, from the
//! manifests.

use api::data_volume::{GcsSource, HttpSource, RegistrySource, S3Source};
use importer::{
    BasicAuth, ExtraHeader, GcsCredentials, GcsOptions, RegistryOptions, S3Credentials, S3Options,
    Secret,
};

use super::manifest::References;
use super::plan::ManifestRefusal;
use crate::access::Access;

pub(super) struct SourceReferences<'a> {
    /// The DataVolume's.
    pub(super) namespace: &'a str,
    pub(super) references: &'a References,
}

impl SourceReferences<'_> {
    pub(super) fn access(&self, http: &HttpSource) -> Result<Access, ManifestRefusal> {
        let insecure_tls = http.insecure_skip_verify.unwrap_or(false);
        let auth = self.basic_auth(&http.secret_ref, "spec.source.http.secretRef")?;
        let mut access = Access { insecure_tls, auth, ..Access::default() };
        let field = "spec.source.http.certConfigMap";
        access.ca_pem.extend(self.ca_bundle(&http.cert_config_map, field)?);
        for (index, line) in http.extra_headers.iter().enumerate() {
            let place = || format!("spec.source.http.extraHeaders[{index}]");
            access.headers.push(header(line, false, place)?);
        }
        for name in &http.secret_extra_headers {
            for (key, value) in
                self.secret(name, "spec.source.http.secretExtraHeaders")?.values()?
            {
                let place = format!("the value of {key} in Secret {name}");
                access.headers.push(header(&text("Secret", name, key, value)?, true, || place)?);
            }
        }
        Ok(access)
    }

    pub(super) fn registry(&self, registry: &RegistrySource) -> Result<Access, ManifestRefusal> {
        let field = "spec.source.registry.certConfigMap";
        let architecture = registry.platform.as_ref().and_then(|one| one.architecture.clone());
        let architecture = architecture.filter(|name| !name.is_empty());
        Ok(Access {
            auth: self.basic_auth(&registry.secret_ref, "spec.source.registry.secretRef")?,
            ca_pem: self.ca_bundle(&registry.cert_config_map, field)?.into_iter().collect(),
            registry: RegistryOptions { architecture, ..RegistryOptions::default() },
            ..Access::default()
        })
    }

    /// The object's URL and the credentials. Without a Secret the object has to be public.
    pub(super) fn s3(&self, s3: &S3Source) -> Result<(String, Access), ManifestRefusal> {
        let (url, endpoint) = importer::s3_location(&s3.url)
            .map_err(|error| bad_address("spec.source.s3.url", &error))?;
        let mut credentials = S3Credentials::Anonymous;
        if let Some(name) = named(&s3.secret_ref) {
            let (access_key_id, secret_key, session_token) =
                self.keys(name, "spec.source.s3.secretRef")?;
            if !access_key_id.is_empty() || !secret_key.is_empty() {
                let secret_key = Secret::new(secret_key);
                let session_token = session_token.map(Secret::new);
                credentials = S3Credentials::Keys { access_key_id, secret_key, session_token };
            }
        }
        let field = "spec.source.s3.certConfigMap";
        let access = Access {
            ca_pem: self.ca_bundle(&s3.cert_config_map, field)?.into_iter().collect(),
            s3: S3Options { endpoint, credentials, ..S3Options::default() },
            ..Access::default()
        };
        Ok((url, access))
    }

    /// The object's URL and the credentials. Without a Secret the object has to be public.
    pub(super) fn gcs(&self, gcs: &GcsSource) -> Result<(String, Access), ManifestRefusal> {
        let (url, endpoint) = importer::gcs_location(&gcs.url)
            .map_err(|error| bad_address("spec.source.gcs.url", &error))?;
        let mut credentials = GcsCredentials::Anonymous;
        if let Some(name) = named(&gcs.secret_ref) {
            let (field, key) = ("spec.source.gcs.secretRef", "credentials.json");
            let value = self.secret(name, field)?.values()?.remove(key);
            let value =
                value.ok_or(ManifestRefusal::NoKey { name: name.to_owned(), key, field })?;
            credentials =
                GcsCredentials::Json(Secret::new(text("Secret", name, key.into(), value)?));
        }
        let gcs = GcsOptions { endpoint, credentials };
        Ok((url, Access { gcs, ..Access::default() }))
    }

    /// User and password, used only if neither is empty.
    fn basic_auth(
        &self,
        secret: &Option<String>,
        field: &'static str,
    ) -> Result<Option<BasicAuth>, ManifestRefusal> {
        let Some(name) = named(secret) else { return Ok(None) };
        let (username, password, _) = self.keys(name, field)?;
        let complete = !username.is_empty() && !password.is_empty();
        Ok(complete.then(|| BasicAuth { username, password: Secret::new(password) }))
    }

    fn secret(&self, name: &str, field: &'static str) -> Result<&api::Secret, ManifestRefusal> {
        let missing = || self.missing("Secret", name, field);
        self.references.secret(self.namespace, name).ok_or_else(missing)
    }

    fn missing(&self, kind: &'static str, name: &str, field: &'static str) -> ManifestRefusal {
        let (namespace, name) = (self.namespace.to_owned(), name.to_owned());
        ManifestRefusal::Missing { kind, namespace, name, field }
    }

    /// All values in one bundle, so that a value without a certificate is no error.
    fn ca_bundle(
        &self,
        name: &Option<String>,
        field: &'static str,
    ) -> Result<Option<String>, ManifestRefusal> {
        let Some(name) = named(name) else { return Ok(None) };
        let config = self.references.config_map(self.namespace, name);
        let config = config.ok_or_else(|| self.missing("ConfigMap", name, field))?;
        let values = config.values()?.into_iter();
        let texts = values.map(|(key, value)| text("ConfigMap", name, key, value));
        Ok(Some(texts.collect::<Result<Vec<_>, _>>()?.join("\n")))
    }

    /// `accessKeyId` and `secretKey`, which are required but may be empty, and the optional
    /// `sessionToken`.
    fn keys(
        &self,
        name: &str,
        field: &'static str,
    ) -> Result<(String, String, Option<String>), ManifestRefusal> {
        let mut values = self.secret(name, field)?.values()?;
        let mut take = |key: &'static str| {
            values.remove(key).map(|value| text("Secret", name, key.to_owned(), value)).transpose()
        };
        let missing = |key| ManifestRefusal::NoKey { name: name.to_owned(), key, field };
        let id = take("accessKeyId")?.ok_or_else(|| missing("accessKeyId"))?;
        let key = take("secretKey")?.ok_or_else(|| missing("secretKey"))?;
        let token = take("sessionToken")?.filter(|token| !token.is_empty());
        Ok((id, key, token))
    }
}

/// A non-empty name: upstream CDI treats an empty one as none.
fn named(name: &Option<String>) -> Option<&str> {
    name.as_deref().filter(|name| !name.is_empty())
}

fn bad_address(field: &'static str, error: &importer::Error) -> ManifestRefusal {
    ManifestRefusal::Address { field, because: error.to_string() }
}

fn header(
    line: &str,
    secret: bool,
    place: impl FnOnce() -> String,
) -> Result<ExtraHeader, ManifestRefusal> {
    ExtraHeader::parse(line, secret).ok_or_else(|| ManifestRefusal::Header { place: place() })
}

fn text(
    kind: &'static str,
    name: &str,
    key: String,
    value: Vec<u8>,
) -> Result<String, ManifestRefusal> {
    String::from_utf8(value).map_err(|_| ManifestRefusal::NotText {
        kind,
        name: name.to_owned(),
        key,
    })
}
