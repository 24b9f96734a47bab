//! Reconciles the certificates: reads the Secrets and bundles, plans, writes. Each write is guarded by the resource version
//! that was read, so of two concurrent operators one fails with a conflict and retries.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use api::annotations::operator as annotation;
use api::v1beta1::{Cdi, CdiConfig, CertSettings, ResolvedTlsProfile, resolve_tls_profile};
use api::{labels, names};
use auth::rotation::{self, CertificateChain, RotationPlan, StoredCertificate};
use auth::{
    Certificate, CertificateAuthority, CertificateLifetime, CertificateLifetimes, Identity,
    TlsMinimum,
};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use runtime::decoded::{Decoded, decodable};

use crate::chains::{ChainSpec, InstallationChains, LeafSpec};
use crate::error::Error;
use crate::metrics::Readiness;

/// Reconciles the certificates of one installation.
pub struct CertificateManager {
    client: Client,
    namespace: String,
    chains: InstallationChains,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconcileOutcome {
    /// Number of created certificates.
    pub created: usize,
    /// All webhooks and the APIService are installed.
    pub is_complete: bool,
    pub readiness: Readiness,
    /// `None`: the settings could not be read.
    pub tls_minimum: Option<TlsMinimum>,
}

/// A Secret of the type `kubernetes.io/tls`, if it exists.
struct SecretRef<'a> {
    name: &'a str,
    present: Option<Secret>,
}

impl CertificateManager {
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned(), chains: InstallationChains::new(namespace) }
    }

    /// One pass: creates what is missing or due, and distributes the bundles. Safe to repeat.
    ///
    /// # Errors
    /// When the API server cannot be reached or refuses, or on a conflict with another writer.
    pub async fn reconcile(&self, now: SystemTime) -> Result<ReconcileOutcome, Error> {
        let api: Api<Decoded<Cdi>> = Api::all(self.client.clone());
        let list = api.list(&ListParams::default()).await.map_err(Error::cluster("list CDIs"))?;
        let installations = decodable(list);
        let created = self.reconcile_chains(&lifetimes(&installations), now).await?;
        let is_complete =
            crate::ca_injection::inject_ca_bundle(&self.client, &self.namespace).await?;
        let readiness = Readiness::from_cdi_objects(&installations);
        Ok(ReconcileOutcome {
            created,
            is_complete,
            readiness,
            tls_minimum: self.tls_minimum().await,
        })
    }

    /// Creates what is missing or due. Returns the number of created certificates.
    ///
    /// # Errors
    /// As for [`Self::reconcile`].
    pub(crate) async fn reconcile_chains(
        &self,
        lifetimes: &CertificateLifetimes,
        now: SystemTime,
    ) -> Result<usize, Error> {
        let mut created = 0;
        for spec in &self.chains.0 {
            created += self.reconcile_chain(spec, lifetimes, now).await?;
        }
        Ok(created)
    }

    // A failure does not delay the certificates.
    pub(crate) async fn tls_minimum(&self) -> Option<TlsMinimum> {
        let api: Api<CdiConfig> = Api::all(self.client.clone());
        match api.get_opt(names::CDI_CONFIG).await {
            Ok(config) => {
                let profile = config.and_then(|config| config.spec.tls_security_profile);
                let ResolvedTlsProfile { min_version, ciphers } =
                    resolve_tls_profile(profile.as_ref());
                TlsMinimum::parse(min_version.as_str(), &ciphers.join(",")).ok()
            }
            Err(error) => {
                tracing::debug!("cannot read the CDIConfig: {}", runtime::chain(&error));
                None
            }
        }
    }

    async fn reconcile_chain(
        &self,
        spec: &ChainSpec,
        lifetimes: &CertificateLifetimes,
        now: SystemTime,
    ) -> Result<usize, Error> {
        let signer = self.read_secret(spec.signer).await?;
        let leaf = match &spec.leaf {
            Some(leaf) => Some((leaf, self.read_secret(leaf.secret).await?)),
            None => None,
        };
        let bundles: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let bundle = bundles.get_opt(spec.bundle).await;
        let bundle = bundle.map_err(Error::cluster(format!("read ConfigMap {}", spec.bundle)))?;
        let chain = CertificateChain {
            ca: signer.present.as_ref().map(kept),
            bundle: Certificate::read_all(bundle_text(bundle.as_ref())),
            leaf: leaf.as_ref().and_then(|(_, secret)| secret.present.as_ref()).map(kept),
        };
        let desired = spec.desired_chain(lifetimes);
        let plan = rotation::plan_rotation(&chain, &desired, now);
        log_plan(spec, &plan);
        let ca = match plan.ca {
            Some(_) => {
                let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
                let name = format!("{}@{seconds}", spec.signer);
                let created = CertificateAuthority::create(&name, desired.ca.lifetime, now)?;
                self.write_secret(&signer, &created, desired.ca, &[]).await?;
                created
            }
            None => identity(signer.present.as_ref()),
        };
        let certificate = Certificate::read(&ca.certificate).ok_or(Error::Unreadable)?;
        let text = rotation::renewed_bundle(&chain.bundle, &certificate, now);
        if text != bundle_text(bundle.as_ref()) {
            self.write_bundle(spec.bundle, bundle, text).await?;
        }
        if let (Some(_), Some((leaf, secret)), Some(desired)) = (plan.leaf, &leaf, &desired.leaf) {
            let LeafSpec { hosts, name, .. } = leaf;
            let ca = CertificateAuthority::from_identity(&ca)?;
            let created = match hosts.as_slice() {
                [] => ca.client(name, desired.life.lifetime, now)?,
                hosts => ca.server(hosts, desired.life.lifetime, now)?,
            };
            self.write_secret(secret, &created, desired.life, hosts).await?;
        }
        Ok([plan.ca, plan.leaf].into_iter().flatten().count())
    }

    async fn read_secret<'a>(&self, name: &'a str) -> Result<SecretRef<'a>, Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let present =
            api.get_opt(name).await.map_err(Error::cluster(format!("read Secret {name}")))?;
        Ok(SecretRef { name, present })
    }

    async fn write_secret(
        &self,
        target: &SecretRef<'_>,
        identity: &Identity,
        life: CertificateLifetime,
        hosts: &[String],
    ) -> Result<(), Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = build_secret(&self.namespace, target, identity, life, hosts)?;
        let written = match &target.present {
            Some(_) => api.replace(target.name, &PostParams::default(), &secret).await,
            None => api.create(&PostParams::default(), &secret).await,
        };
        written.map(drop).map_err(Error::cluster(format!("write Secret {}", target.name)))
    }

    async fn write_bundle(
        &self,
        name: &str,
        present: Option<ConfigMap>,
        text: String,
    ) -> Result<(), Error> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let is_new = present.is_none();
        let mut config = present.unwrap_or_else(|| ConfigMap {
            metadata: new_metadata(&self.namespace, name),
            ..ConfigMap::default()
        });
        config.data.get_or_insert_default().insert(names::CA_BUNDLE_KEY.to_owned(), text);
        let written = if is_new {
            api.create(&PostParams::default(), &config).await
        } else {
            api.replace(name, &PostParams::default(), &config).await
        };
        written.map(drop).map_err(Error::cluster(format!("write ConfigMap {name}")))
    }
}

pub(crate) fn lifetimes(installations: &[Cdi]) -> CertificateLifetimes {
    let settings = installations.iter().find_map(|cdi| cdi.spec.cert_config.clone());
    let settings = settings.unwrap_or_default();
    fn group(group: &Option<CertSettings>) -> auth::LifetimeSetting<'_> {
        let group = group.as_ref();
        (
            group.and_then(|group| group.duration.as_deref()),
            group.and_then(|group| group.renew_before.as_deref()),
        )
    }
    CertificateLifetimes::from_settings(
        group(&settings.ca),
        group(&settings.server),
        group(&settings.client),
    )
}

fn log_plan(spec: &ChainSpec, RotationPlan { ca, leaf }: &RotationPlan) {
    let secret = spec.leaf.as_ref().map(|leaf| leaf.secret).unwrap_or_default();
    for (name, reason) in [(spec.signer, ca), (secret, leaf)] {
        if let Some(reason) = reason {
            tracing::info!("creating the certificate of Secret {name}: {}", reason.as_str());
        }
    }
}

/// The text of a bundle; empty if there is none.
pub fn bundle_text(config: Option<&ConfigMap>) -> &str {
    let text = config.and_then(|config| config.data.as_ref()?.get(names::CA_BUNDLE_KEY));
    text.map(String::as_str).unwrap_or_default()
}

fn text(secret: &Secret, key: &str) -> String {
    let bytes = secret.data.as_ref().and_then(|data| data.get(key));
    bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default()
}

fn identity(secret: Option<&Secret>) -> Identity {
    let text = |key| secret.map(|secret| text(secret, key)).unwrap_or_default();
    Identity { certificate: text("tls.crt"), key: text("tls.key") }
}

/// A Secret without a private key counts as unreadable. An earlier end in the Secret's annotation counts instead of the
/// certificate's: so an administrator has it replaced.
fn kept(secret: &Secret) -> StoredCertificate {
    let annotations = secret.metadata.annotations.as_ref();
    let annotation = |key| annotations.and_then(|all| all.get(key));
    let life = annotation(annotation::CERT_CONFIG)
        .and_then(|text| CertificateLifetime::from_annotation(text));
    let identity = identity(Some(secret));
    let mut certificate = Certificate::read(&identity.certificate)
        .filter(|_| identity.key.contains("PRIVATE KEY-----"));
    let end = annotation(annotation::CERT_NOT_AFTER);
    let end = end.and_then(|text| text.parse::<jiff::Timestamp>().ok()).map(SystemTime::from);
    if let (Some(certificate), Some(end)) = (&mut certificate, end) {
        certificate.not_after = certificate.not_after.min(end);
    }
    StoredCertificate { certificate, life }
}

fn new_metadata(namespace: &str, name: &str) -> ObjectMeta {
    let labels = [
        (labels::COMPONENT, ""),
        (labels::APP, labels::APP_VALUE),
        (labels::MANAGED_BY, labels::component::OPERATOR),
        (labels::APP_COMPONENT, "storage"),
    ];
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
        ..ObjectMeta::default()
    }
}

/// The Secret to write. Annotations and labels of other writers stay.
fn build_secret(
    namespace: &str,
    target: &SecretRef<'_>,
    identity: &Identity,
    life: CertificateLifetime,
    hosts: &[String],
) -> Result<Secret, Error> {
    let certificate = Certificate::read(&identity.certificate).ok_or(Error::Unreadable)?;
    let mut metadata = match &target.present {
        Some(secret) => secret.metadata.clone(),
        None => new_metadata(namespace, target.name),
    };
    let mut annotations: BTreeMap<_, _> = metadata.annotations.take().unwrap_or_default();
    annotations.extend([
        (annotation::CERT_CONFIG.to_owned(), life.to_annotation()),
        (annotation::CERT_NOT_BEFORE.to_owned(), rfc3339(certificate.not_before)),
        (annotation::CERT_NOT_AFTER.to_owned(), rfc3339(certificate.not_after)),
        (annotation::CERT_ISSUER.to_owned(), certificate.issuer.clone()),
    ]);
    if !hosts.is_empty() {
        annotations.insert(annotation::CERT_HOSTNAMES.to_owned(), hosts.join(","));
    }
    metadata.annotations = Some(annotations);
    let data = [("tls.crt", &identity.certificate), ("tls.key", &identity.key)];
    let data = data.map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes())));
    Ok(Secret {
        metadata,
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(data.into()),
        ..Secret::default()
    })
}

/// RFC 3339, in whole seconds.
fn rfc3339(moment: SystemTime) -> String {
    let seconds = moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let stamp =
        i64::try_from(seconds).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    stamp.unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn secret_round_trips_and_keeps_other_annotations() {
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_060);
        let life = CertificateLifetimes::default().server;
        let ca = CertificateAuthority::create("signer@1", 2 * life.lifetime, now).unwrap();
        let hosts = ["cdi-api".to_owned(), "cdi-api.cdi".to_owned()];
        let server = CertificateAuthority::from_identity(&ca)
            .unwrap()
            .server(&hosts, life.lifetime, now)
            .unwrap();
        let mut present = Secret { metadata: new_metadata("cdi", "x"), ..Secret::default() };
        present.metadata.resource_version = Some("7".into());
        present.metadata.annotations = Some([("mine".to_owned(), "kept".to_owned())].into());
        let target = SecretRef { name: "x", present: Some(present) };
        let secret = build_secret("cdi", &target, &server, life, &hosts).unwrap();
        let annotations = secret.metadata.annotations.clone().unwrap();
        assert_eq!(annotations["mine"], "kept");
        assert_eq!(annotations[annotation::CERT_NOT_BEFORE], "2027-01-15T08:00:00Z");
        assert_eq!(annotations[annotation::CERT_NOT_AFTER], "2027-01-16T08:00:00Z");
        assert_eq!(annotations[annotation::CERT_ISSUER], "signer@1");
        assert_eq!(annotations[annotation::CERT_HOSTNAMES], "cdi-api,cdi-api.cdi");
        assert_eq!(secret.metadata.resource_version.as_deref(), Some("7"));
        let kept = kept(&secret);
        assert_eq!(kept.life, Some(life));
        assert_eq!(kept.certificate.unwrap().hosts, hosts);
        assert_eq!(identity(Some(&secret)), server);
    }

    #[test]
    fn annotation_with_an_earlier_end_shortens_the_validity() {
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let life = CertificateLifetimes::default().ca;
        let ca = CertificateAuthority::create("signer@1", life.lifetime, now).unwrap();
        let target = SecretRef { name: "x", present: None };
        let mut secret = build_secret("cdi", &target, &ca, life, &[]).unwrap();
        let end = |secret: &Secret| kept(secret).certificate.unwrap().not_after;
        let issued = end(&secret);
        for (annotation, expected) in [
            ("2020-01-01T00:00:00Z", UNIX_EPOCH + Duration::from_secs(1_577_836_800)),
            ("2099-01-01T00:00:00Z", issued),
            ("soon", issued),
        ] {
            let annotations = secret.metadata.annotations.as_mut().unwrap();
            annotations.insert(annotation::CERT_NOT_AFTER.into(), annotation.into());
            assert_eq!(end(&secret), expected, "{annotation}");
        }
    }

    #[test]
    fn secret_without_a_private_key_counts_as_unreadable() {
        let certificate =
            CertificateAuthority::create("a", Duration::from_secs(3600), SystemTime::now())
                .unwrap()
                .certificate;
        let data = BTreeMap::from([("tls.crt".to_owned(), ByteString(certificate.into_bytes()))]);
        let secret = Secret { data: Some(data), ..Secret::default() };
        assert_eq!(kept(&secret), StoredCertificate { certificate: None, life: None });
    }
}
