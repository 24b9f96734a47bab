//! What a source refers to by name: credentials, headers and authorities, out of the Secrets and ConfigMaps of the
//! manifests.

use api::data_volume::{GcsSource, HttpSource, RegistrySource, S3Source};
use importer::{
    BasicAuth, ExtraHeader, GcsCredentials, GcsOptions, RegistryOptions, S3Credentials, S3Options,
    Secret,
};

use super::manifest::References;
use super::plan::Refusal;
use crate::access::Access;

/// What a source can refer to.
pub(super) struct Given<'a> {
    /// Of the volume.
    pub(super) namespace: &'a str,
    /// Of the manifests.
    pub(super) references: &'a References,
}

impl Given<'_> {
    /// Credentials, headers and authorities that an http source names.
    pub(super) fn access(&self, http: &HttpSource) -> Result<Access, Refusal> {
        let insecure_tls = http.insecure_skip_verify.unwrap_or(false);
        let auth = self.basic_auth(&http.secret_ref, "spec.source.http.secretRef")?;
        let mut access = Access { insecure_tls, auth, ..Access::default() };
        let field = "spec.source.http.certConfigMap";
        access.ca_pem.extend(self.authorities(&http.cert_config_map, field)?);
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

    /// Credentials, authorities and the architecture that a registry source names.
    pub(super) fn registry(&self, registry: &RegistrySource) -> Result<Access, Refusal> {
        let field = "spec.source.registry.certConfigMap";
        let architecture = registry.platform.as_ref().and_then(|one| one.architecture.clone());
        let architecture = architecture.filter(|name| !name.is_empty());
        Ok(Access {
            auth: self.basic_auth(&registry.secret_ref, "spec.source.registry.secretRef")?,
            ca_pem: self.authorities(&registry.cert_config_map, field)?.into_iter().collect(),
            registry: RegistryOptions { architecture, ..RegistryOptions::default() },
            ..Access::default()
        })
    }

    /// Where an object in S3 is, and whose keys to use: without any, it has to be public.
    pub(super) fn s3(&self, s3: &S3Source) -> Result<(String, Access), Refusal> {
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
            ca_pem: self.authorities(&s3.cert_config_map, field)?.into_iter().collect(),
            s3: S3Options { endpoint, credentials, ..S3Options::default() },
            ..Access::default()
        };
        Ok((url, access))
    }

    /// Where an object in Google's store is, and whose key to use: without one, it has to be public.
    pub(super) fn gcs(&self, gcs: &GcsSource) -> Result<(String, Access), Refusal> {
        let (url, endpoint) = importer::gcs_location(&gcs.url)
            .map_err(|error| bad_address("spec.source.gcs.url", &error))?;
        let mut credentials = GcsCredentials::Anonymous;
        if let Some(name) = named(&gcs.secret_ref) {
            let (field, key) = ("spec.source.gcs.secretRef", "credentials.json");
            let value = self.secret(name, field)?.values()?.remove(key);
            let value = value.ok_or(Refusal::NoKey { name: name.to_owned(), key, field })?;
            credentials =
                GcsCredentials::Json(Secret::new(text("Secret", name, key.into(), value)?));
        }
        let gcs = GcsOptions { endpoint, credentials };
        Ok((url, Access { gcs, ..Access::default() }))
    }

    /// User and password, used only when neither is empty.
    fn basic_auth(
        &self,
        secret: &Option<String>,
        field: &'static str,
    ) -> Result<Option<BasicAuth>, Refusal> {
        let Some(name) = named(secret) else { return Ok(None) };
        let (username, password, _) = self.keys(name, field)?;
        let complete = !username.is_empty() && !password.is_empty();
        Ok(complete.then(|| BasicAuth { username, password: Secret::new(password) }))
    }

    fn secret(&self, name: &str, field: &'static str) -> Result<&api::Secret, Refusal> {
        let missing = || self.missing("Secret", name, field);
        self.references.secret(self.namespace, name).ok_or_else(missing)
    }

    fn missing(&self, kind: &'static str, name: &str, field: &'static str) -> Refusal {
        let (namespace, name) = (self.namespace.to_owned(), name.to_owned());
        Refusal::Missing { kind, namespace, name, field }
    }

    /// One bundle: a value without a certificate does no harm beside one that has some.
    fn authorities(
        &self,
        name: &Option<String>,
        field: &'static str,
    ) -> Result<Option<String>, Refusal> {
        let Some(name) = named(name) else { return Ok(None) };
        let config = self.references.config_map(self.namespace, name);
        let config = config.ok_or_else(|| self.missing("ConfigMap", name, field))?;
        let values = config.values()?.into_iter();
        let texts = values.map(|(key, value)| text("ConfigMap", name, key, value));
        Ok(Some(texts.collect::<Result<Vec<_>, _>>()?.join("\n")))
    }

    /// `accessKeyId` and `secretKey`, which have to be there though they may be empty, and `sessionToken`, which need
    /// not.
    fn keys(
        &self,
        name: &str,
        field: &'static str,
    ) -> Result<(String, String, Option<String>), Refusal> {
        let mut values = self.secret(name, field)?.values()?;
        let mut take = |key: &'static str| {
            values.remove(key).map(|value| text("Secret", name, key.to_owned(), value)).transpose()
        };
        let missing = |key| Refusal::NoKey { name: name.to_owned(), key, field };
        let id = take("accessKeyId")?.ok_or_else(|| missing("accessKeyId"))?;
        let key = take("secretKey")?.ok_or_else(|| missing("secretKey"))?;
        let token = take("sessionToken")?.filter(|token| !token.is_empty());
        Ok((id, key, token))
    }
}

/// A name that is there: the reference treats an empty one as none.
fn named(name: &Option<String>) -> Option<&str> {
    name.as_deref().filter(|name| !name.is_empty())
}

fn bad_address(field: &'static str, error: &importer::Error) -> Refusal {
    Refusal::Address { field, because: error.to_string() }
}

fn header(
    line: &str,
    secret: bool,
    place: impl FnOnce() -> String,
) -> Result<ExtraHeader, Refusal> {
    ExtraHeader::parse(line, secret).ok_or_else(|| Refusal::Header { place: place() })
}

fn text(kind: &'static str, name: &str, key: String, value: Vec<u8>) -> Result<String, Refusal> {
    String::from_utf8(value).map_err(|_| Refusal::NotText { kind, name: name.to_owned(), key })
}
