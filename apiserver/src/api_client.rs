//! Reads objects of the cluster, each with one request.

use std::sync::Arc;

use api::v1beta1::{Cdi, CdiConfig, DataImportCron, DataSource, DataVolume, VolumeCloneSource};
use api::{labels, names};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Client, Resource, ResourceExt};
use runtime::decoded::{Decoded, decodable};
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use crate::claim_stores::{ClaimStores, StorageFacts};
use crate::error::Error;
use crate::review::User;
use crate::rules::claims::{Original, PvcFacts};
use crate::rules::clone::{Kind as CopySourceKind, Original as CopySource};
use crate::rules::installation::NAMED;
use crate::rules::object_transfer::{Destination, Kind};

/// A client of the cluster's API server, with this program's own permissions.
#[derive(Clone)]
pub struct ApiClient {
    client: Client,
    stores: Arc<ClaimStores>,
    reading_crons: Arc<Mutex<()>>,
}

/// DataImportCrons of a namespace that one call reads at most, and in one page. Each may have 1.5 MiB.
const CRONS_MAX: usize = 500;
const CRONS_PAGE: u32 = 10;
/// How many of them one call takes.
const CRONS_TAKEN: usize = 4;

/// The ConfigMap with the CA and headers of the front proxy, and its namespace.
pub const AUTHENTICATION: (&str, &str) = ("kube-system", "extension-apiserver-authentication");

impl ApiClient {
    /// The default namespace of `client` has to be that of the installation.
    pub fn new(client: Client) -> Self {
        Self { client, stores: Arc::default(), reading_crons: Arc::default() }
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Runs the watches as long as it is polled.
    pub async fn follow(&self) {
        self.stores.follow(self.client()).await;
    }

    pub fn namespace(&self) -> &str {
        self.client.default_namespace()
    }

    async fn get_optional<K>(&self, api: Api<K>, what: &str, name: &str) -> Result<Option<K>, Error>
    where
        K: Clone + std::fmt::Debug + DeserializeOwned,
    {
        api.get_opt(name).await.map_err(Error::cluster(format!("read {what} {name}")))
    }

    fn namespaced<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client(), namespace)
    }

    ///
    /// # Errors
    /// When the API server cannot be reached or refuses.
    pub async fn claim(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<PersistentVolumeClaim>, Error> {
        self.get_optional(self.namespaced(namespace), "PersistentVolumeClaim", name).await
    }

    ///
    /// # Errors
    /// When the API server cannot be reached or refuses.
    pub async fn data_source(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<DataSource>, Error> {
        self.get_optional(self.namespaced(namespace), "DataSource", name).await
    }

    /// The first DataImportCrons of a namespace that `is_wanted`, a few at most. One call at a time reads them, and a page
    /// at a time: tenants decide how many there are and how large.
    ///
    /// # Errors
    /// When the API server cannot be reached or refuses.
    pub async fn crons(
        &self,
        namespace: &str,
        is_wanted: impl Fn(&DataImportCron) -> bool,
    ) -> Result<Vec<DataImportCron>, Error> {
        let api: Api<Decoded<DataImportCron>> = self.namespaced(namespace);
        let _reading = self.reading_crons.lock().await;
        let mut page = ListParams::default().limit(CRONS_PAGE);
        let mut found = Vec::new();
        let mut left = CRONS_MAX;
        loop {
            let mut list = api.list(&page).await.map_err(Error::cluster("list DataImportCrons"))?;
            let next = list.metadata.continue_.take().filter(|next| !next.is_empty());
            left = left.saturating_sub(list.items.len().max(1));
            found.extend(decodable(list).into_iter().filter(&is_wanted));
            match next {
                Some(next) if left > 0 && found.len() < CRONS_TAKEN => {
                    page.continue_token = Some(next)
                }
                _ => break,
            }
        }
        found.truncate(CRONS_TAKEN);
        Ok(found)
    }

    /// A DataImportCron.
    ///
    /// # Errors
    /// When the API server cannot be reached or refuses.
    pub async fn cron(&self, namespace: &str, name: &str) -> Result<Option<DataImportCron>, Error> {
        self.get_optional(self.namespaced(namespace), "DataImportCron", name).await
    }

    /// The metadata of a PVC or VolumeSnapshot.
    ///
    /// # Errors
    /// When the API server cannot be reached or refuses.
    pub async fn metadata_of(&self, volume: &CopySource) -> Result<Option<ObjectMeta>, Error> {
        let (namespace, name) = (&volume.namespace, &volume.name);
        Ok(match volume.kind {
            CopySourceKind::Claim => self.claim(namespace, name).await?.map(|claim| claim.metadata),
            CopySourceKind::Snapshot => {
                let found =
                    self.get_optional(self.snapshots(namespace), "VolumeSnapshot", name).await?;
                found.map(|snapshot| snapshot.metadata)
            }
        })
    }

    ///
    /// # Errors
    /// When the API server cannot be reached or refuses.
    pub async fn has_namespace(&self, name: &str) -> Result<bool, Error> {
        let api: Api<Namespace> = Api::all(self.client());
        Ok(self.get_optional(api, "Namespace", name).await?.is_some())
    }

    ///
    /// # Errors
    /// When the API server cannot be reached or refuses.
    pub async fn config(&self) -> Result<Option<CdiConfig>, Error> {
        self.get_optional(Api::all(self.client()), "CDIConfig", names::CDI_CONFIG).await
    }

    /// The ConfigMap [`AUTHENTICATION`].
    ///
    /// # Errors
    /// When the API server cannot be reached or refuses.
    pub async fn authentication(&self) -> Result<Option<ConfigMap>, Error> {
        let (namespace, name) = AUTHENTICATION;
        self.get_optional(self.namespaced(namespace), "ConfigMap", name).await
    }

    /// A SubjectAccessReview. The inner error is the API server's reason for a denial.
    ///
    /// # Errors
    /// When the API server cannot be reached or refuses.
    pub async fn check_access(
        &self,
        user: &User,
        what: ResourceAttributes,
    ) -> Result<Result<(), String>, Error> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.username.clone()),
                uid: Some(user.uid.clone()).filter(|uid| !uid.is_empty()),
                groups: Some(user.groups.clone()),
                extra: Some(user.extra.clone()),
                resource_attributes: Some(what),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.client());
        let answer = api.create(&PostParams::default(), &review).await;
        let status = answer
            .map_err(Error::cluster("create a SubjectAccessReview"))?
            .status
            .unwrap_or_default();
        if status.allowed && status.denied != Some(true) {
            return Ok(Ok(()));
        }
        Ok(Err(status.reason.unwrap_or_default()))
    }

    /// Whether `user` is allowed every access of at least one of the lists.
    ///
    /// # Errors
    /// When the API server cannot be reached or refuses.
    pub async fn check_any_access(
        &self,
        user: &User,
        lists: Vec<Vec<ResourceAttributes>>,
    ) -> Result<bool, Error> {
        'lists: for list in lists {
            for what in list {
                if self.check_access(user, what).await?.is_err() {
                    continue 'lists;
                }
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// "namespace/name" of DataVolumes that no DataImportCron created, at most [`NAMED`]` + 1`.
    ///
    /// # Errors
    /// When the API server cannot be reached or refuses.
    pub async fn volumes(&self) -> Result<Vec<String>, Error> {
        let api: Api<DataVolume> = Api::all(self.client());
        let limit = u32::try_from(NAMED + 1).unwrap_or(u32::MAX);
        let params =
            ListParams::default().labels(&format!("!{}", labels::DATA_IMPORT_CRON)).limit(limit);
        let list = api.list_metadata(&params).await.map_err(Error::cluster("list DataVolumes"))?;
        let name = |volume: &PartialObjectMeta<DataVolume>| {
            format!("{}/{}", volume.namespace().unwrap_or_default(), volume.name_any())
        };
        Ok(list.items.iter().map(name).collect())
    }

    /// Whether the target of a transfer exists.
    ///
    /// # Errors
    /// When the API server cannot be reached or refuses.
    pub async fn is_taken(&self, destination: &Destination) -> Result<bool, Error> {
        let Destination { kind, namespace, name } = destination;
        Ok(match kind {
            Kind::Claim => self.claim(namespace, name).await?.is_some(),
            Kind::DataVolume => {
                let api: Api<DataVolume> = self.namespaced(namespace);
                self.get_optional(api, "DataVolume", name).await?.is_some()
            }
        })
    }

    /// The CDI object, if exactly one exists that is not terminating.
    ///
    /// # Errors
    /// When the API server cannot be reached or refuses.
    pub async fn installation(&self) -> Result<Option<Cdi>, Error> {
        let api: Api<Cdi> = Api::all(self.client());
        let list = api.list(&ListParams::default()).await.map_err(Error::cluster("list CDIs"))?;
        let mut staying =
            list.items.into_iter().filter(|cdi| cdi.meta().deletion_timestamp.is_none());
        let first = staying.next();
        Ok(first.filter(|_| staying.next().is_none()))
    }

    /// The facts for completing a PVC; with its clone source if `with_original`. All but the clone source
    /// is watched, so that a call, which every pod may make, costs no request.
    ///
    /// # Errors
    /// When the API server cannot be reached or refuses.
    pub async fn claim_facts(
        &self,
        claim: &PersistentVolumeClaim,
        namespace: &str,
        with_original: bool,
        config: Option<Arc<CdiConfig>>,
    ) -> Result<PvcFacts, Error> {
        let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
        let StorageFacts { classes, profiles, volumes } = self.stores.facts(class).await;
        let original = if with_original { self.original(claim, namespace).await? } else { None };
        Ok(PvcFacts { classes, profiles, volumes, config, original })
    }

    /// What the VolumeCloneSource of a PVC refers to, if that is in the PVC's own namespace. A user's PVC may name any
    /// namespace, and no permission is verified here; the controller sets the size of clones across namespaces.
    async fn original(
        &self,
        claim: &PersistentVolumeClaim,
        namespace: &str,
    ) -> Result<Option<Original>, Error> {
        let annotations = claim.metadata.annotations.as_ref();
        let noted =
            annotations.and_then(|all| all.get(api::annotations::state::DATA_SOURCE_NAMESPACE));
        if noted.is_some_and(|noted| noted != namespace) {
            return Ok(None);
        }
        let spec = claim.spec.as_ref();
        let Some(reference) = spec.and_then(|spec| spec.data_source_ref.as_ref()) else {
            return Ok(None);
        };
        let sources: Api<VolumeCloneSource> = self.namespaced(namespace);
        let Some(source) = self.get_optional(sources, "VolumeCloneSource", &reference.name).await?
        else {
            return Ok(None);
        };
        let source = source.spec.source;
        if source.kind == "VolumeSnapshot" {
            return self.snapshot(namespace, &source.name).await;
        }
        let claim = self.claim(namespace, &source.name).await?;
        Ok(claim.map(|claim| Original::Claim(Box::new(claim))))
    }

    fn snapshots(&self, namespace: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", "VolumeSnapshot");
        Api::namespaced_with(self.client(), namespace, &ApiResource::from_gvk(&kind))
    }

    async fn snapshot(&self, namespace: &str, name: &str) -> Result<Option<Original>, Error> {
        let found = self.get_optional(self.snapshots(namespace), "VolumeSnapshot", name).await?;
        let size = |object: DynamicObject| {
            let size = object.data.pointer("/status/restoreSize")?.as_str()?.to_owned();
            Some(Quantity(size))
        };
        Ok(found.map(|object| Original::Snapshot(size(object))))
    }
}
