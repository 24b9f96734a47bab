//! Keeps the certificates: looks at what is there, asks the plan, and writes what it says. Each write is guarded by the
//! version that was looked at, so two keepers at once only disturb each other; the next look puts it right.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use api::annotations::operator as note;
use api::v1beta1::{Cdi, CdiConfig, CertSettings, TlsFloor, tls_floor};
use api::{labels, names};
use auth::rotation::{self, Chain, Kept, Plan};
use auth::{Authority, Certificate, Floor, Identity, Life, Lifetimes};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use runtime::decoded::{Decoded, decodable};

use crate::chains::{Chains, Leaf, Link};
use crate::error::Error;
use crate::page::Readiness;

/// What one look at an installation needs.
pub struct Keeper {
    client: Client,
    namespace: String,
    chains: Chains,
}

/// What one look came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Certificates that were made.
    pub made: usize,
    /// Everybody who has to know the authorities is installed.
    pub is_complete: bool,
    /// What the CDI object says of the installation.
    pub readiness: Readiness,
    /// The least of TLS, where the settings could be read.
    pub floor: Option<Floor>,
}

/// A Secret of the type `kubernetes.io/tls`.
struct Place<'a> {
    name: &'a str,
    present: Option<Secret>,
}

impl Keeper {
    /// Of the installation in this namespace.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned(), chains: Chains::of(namespace) }
    }

    /// Looks at everything once, and puts right what is not.
    ///
    /// # Errors
    /// When the cluster does not answer, or somebody else wrote at the same moment. Looking again is always safe.
    pub async fn look(&self, now: SystemTime) -> Result<Look, Error> {
        let api: Api<Decoded<Cdi>> = Api::all(self.client.clone());
        let list = api.list(&ListParams::default()).await.map_err(Error::cluster("list CDIs"))?;
        let installations = decodable(list);
        let lifetimes = lifetimes(&installations);
        let mut made = 0;
        for link in &self.chains.0 {
            made += self.keep(link, &lifetimes, now).await?;
        }
        let is_complete = crate::trust::spread(&self.client, &self.namespace).await?;
        let readiness = Readiness::of(&installations);
        Ok(Look { made, is_complete, readiness, floor: self.floor().await })
    }

    /// The least of TLS that the settings ask for. No certificate waits for them.
    async fn floor(&self) -> Option<Floor> {
        let api: Api<CdiConfig> = Api::all(self.client.clone());
        match api.get_opt(names::CDI_CONFIG).await {
            Ok(config) => {
                let profile = config.and_then(|config| config.spec.tls_security_profile);
                let TlsFloor { min_version, ciphers } = tls_floor(profile.as_ref());
                Floor::parse(min_version.as_str(), &ciphers.join(",")).ok()
            }
            Err(error) => {
                tracing::debug!("cannot read the settings: {}", runtime::chain(&error));
                None
            }
        }
    }

    async fn keep(
        &self,
        link: &Link,
        lifetimes: &Lifetimes,
        now: SystemTime,
    ) -> Result<usize, Error> {
        let signer = self.place(link.signer).await?;
        let leaf = match &link.leaf {
            Some(leaf) => Some((leaf, self.place(leaf.secret).await?)),
            None => None,
        };
        let bundles: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let bundle = bundles.get_opt(link.bundle).await;
        let bundle = bundle.map_err(Error::cluster(format!("read ConfigMap {}", link.bundle)))?;
        let chain = Chain {
            authority: signer.present.as_ref().map(kept),
            bundle: Certificate::read_all(bundle_text(bundle.as_ref())),
            leaf: leaf.as_ref().and_then(|(_, place)| place.present.as_ref()).map(kept),
        };
        let wanted = link.wanted(lifetimes);
        let plan = rotation::plan(&chain, &wanted, now);
        report(link, &plan);
        let authority = match plan.authority {
            Some(_) => {
                let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
                let name = format!("{}@{seconds}", link.signer);
                let made = Authority::make(&name, wanted.authority.lifetime, now)?;
                self.write(&signer, &made, wanted.authority, &[]).await?;
                made
            }
            None => identity(signer.present.as_ref()),
        };
        let certificate = Certificate::read(&authority.certificate).ok_or(Error::Unreadable)?;
        let text = rotation::bundle(&chain.bundle, &certificate, now);
        if text != bundle_text(bundle.as_ref()) {
            self.write_bundle(link.bundle, bundle, text).await?;
        }
        if let (Some(_), Some((leaf, place)), Some(wanted)) = (plan.leaf, &leaf, &wanted.leaf) {
            let Leaf { hosts, name, .. } = leaf;
            let authority = Authority::read(&authority)?;
            let made = match hosts.as_slice() {
                [] => authority.client(name, wanted.life.lifetime, now)?,
                hosts => authority.server(hosts, wanted.life.lifetime, now)?,
            };
            self.write(place, &made, wanted.life, hosts).await?;
        }
        Ok([plan.authority, plan.leaf].into_iter().flatten().count())
    }

    async fn place<'a>(&self, name: &'a str) -> Result<Place<'a>, Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let present =
            api.get_opt(name).await.map_err(Error::cluster(format!("read Secret {name}")))?;
        Ok(Place { name, present })
    }

    async fn write(
        &self,
        place: &Place<'_>,
        identity: &Identity,
        life: Life,
        hosts: &[String],
    ) -> Result<(), Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = secret(&self.namespace, place, identity, life, hosts)?;
        let written = match &place.present {
            Some(_) => api.replace(place.name, &PostParams::default(), &secret).await,
            None => api.create(&PostParams::default(), &secret).await,
        };
        written.map(drop).map_err(Error::cluster(format!("write Secret {}", place.name)))
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
            metadata: metadata(&self.namespace, name),
            ..ConfigMap::default()
        });
        config.data.get_or_insert_default().insert(names::CA_BUNDLE_KEY.to_owned(), text);
        let written = match is_new {
            true => api.create(&PostParams::default(), &config).await,
            false => api.replace(name, &PostParams::default(), &config).await,
        };
        written.map(drop).map_err(Error::cluster(format!("write ConfigMap {name}")))
    }
}

fn lifetimes(installations: &[Cdi]) -> Lifetimes {
    let settings = installations.iter().find_map(|cdi| cdi.spec.cert_config.clone());
    let settings = settings.unwrap_or_default();
    fn group(group: &Option<CertSettings>) -> auth::Setting<'_> {
        let group = group.as_ref();
        (
            group.and_then(|group| group.duration.as_deref()),
            group.and_then(|group| group.renew_before.as_deref()),
        )
    }
    Lifetimes::from_settings(group(&settings.ca), group(&settings.server), group(&settings.client))
}

fn report(link: &Link, Plan { authority, leaf }: &Plan) {
    let secret = link.leaf.as_ref().map(|leaf| leaf.secret).unwrap_or_default();
    for (name, reason) in [(link.signer, authority), (secret, leaf)] {
        if let Some(reason) = reason {
            tracing::info!("making the certificate of {name}, because {}", reason.as_str());
        }
    }
}

/// The text of a bundle, empty where there is none.
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

/// A pair that does not belong together is as good as none.
fn kept(secret: &Secret) -> Kept {
    let annotations = secret.metadata.annotations.as_ref();
    let life = annotations
        .and_then(|all| all.get(note::CERT_CONFIG))
        .and_then(|text| Life::from_note(text));
    let identity = identity(Some(secret));
    let certificate = Certificate::read(&identity.certificate)
        .filter(|_| identity.key.contains("PRIVATE KEY-----"));
    Kept { certificate, life }
}

fn metadata(namespace: &str, name: &str) -> ObjectMeta {
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

/// The Secret as it is going to be: what others noted on it stays.
fn secret(
    namespace: &str,
    place: &Place<'_>,
    identity: &Identity,
    life: Life,
    hosts: &[String],
) -> Result<Secret, Error> {
    let certificate = Certificate::read(&identity.certificate).ok_or(Error::Unreadable)?;
    let mut metadata = match &place.present {
        Some(secret) => secret.metadata.clone(),
        None => metadata(namespace, place.name),
    };
    let mut notes: BTreeMap<_, _> = metadata.annotations.take().unwrap_or_default();
    notes.extend([
        (note::CERT_CONFIG.to_owned(), life.note()),
        (note::CERT_NOT_BEFORE.to_owned(), stamp(certificate.not_before)),
        (note::CERT_NOT_AFTER.to_owned(), stamp(certificate.not_after)),
        (note::CERT_ISSUER.to_owned(), certificate.issuer.clone()),
    ]);
    if !hosts.is_empty() {
        notes.insert(note::CERT_HOSTNAMES.to_owned(), hosts.join(","));
    }
    metadata.annotations = Some(notes);
    let data = [("tls.crt", &identity.certificate), ("tls.key", &identity.key)];
    let data = data.map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes())));
    Ok(Secret {
        metadata,
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(data.into()),
        ..Secret::default()
    })
}

/// RFC 3339, to the second.
fn stamp(moment: SystemTime) -> String {
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
    fn a_secret_tells_what_it_holds_and_is_read_again() {
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_060);
        let life = Lifetimes::default().server;
        let authority = Authority::make("signer@1", 2 * life.lifetime, now).unwrap();
        let hosts = ["cdi-api".to_owned(), "cdi-api.cdi".to_owned()];
        let server =
            Authority::read(&authority).unwrap().server(&hosts, life.lifetime, now).unwrap();
        let mut present = Secret { metadata: metadata("cdi", "x"), ..Secret::default() };
        present.metadata.resource_version = Some("7".into());
        present.metadata.annotations = Some([("mine".to_owned(), "kept".to_owned())].into());
        let place = Place { name: "x", present: Some(present) };
        let secret = secret("cdi", &place, &server, life, &hosts).unwrap();
        let notes = secret.metadata.annotations.clone().unwrap();
        assert_eq!(notes["mine"], "kept");
        assert_eq!(notes[note::CERT_NOT_BEFORE], "2027-01-15T08:00:00Z");
        assert_eq!(notes[note::CERT_NOT_AFTER], "2027-01-16T08:00:00Z");
        assert_eq!(notes[note::CERT_ISSUER], "signer@1");
        assert_eq!(notes[note::CERT_HOSTNAMES], "cdi-api,cdi-api.cdi");
        assert_eq!(secret.metadata.resource_version.as_deref(), Some("7"));
        let kept = kept(&secret);
        assert_eq!(kept.life, Some(life));
        assert_eq!(kept.certificate.unwrap().hosts, hosts);
        assert_eq!(identity(Some(&secret)), server);
    }

    #[test]
    fn half_a_pair_is_none() {
        let certificate =
            Authority::make("a", Duration::from_secs(3600), SystemTime::now()).unwrap().certificate;
        let data = BTreeMap::from([("tls.crt".to_owned(), ByteString(certificate.into_bytes()))]);
        let secret = Secret { data: Some(data), ..Secret::default() };
        assert_eq!(kept(&secret), Kept { certificate: None, life: None });
    }
}
