//! What has to be looked up in the cluster, each thing with one call.

use api::v1beta1::{
    Cdi, CdiConfig, DataImportCron, DataSource, DataVolume, StorageProfile, VolumeCloneSource,
};
use api::{labels, names};
use cdi_controller::volume::PersistentVolume;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use runtime::decoded::{Decoded, decodable};
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::review::User;
use crate::rules::claims::{Facts, Original};
use crate::rules::clone::{Kind as CopySourceKind, Original as CopySource};
use crate::rules::installation::COUNTED;
use crate::rules::object_transfer::{Destination, Kind};

/// The cluster, seen with this program's own rights.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
}

/// The ConfigMap that tells how the cluster's API server vouches for users, and its namespace.
pub const AUTHENTICATION: (&str, &str) = ("kube-system", "extension-apiserver-authentication");

impl Cluster {
    /// Through this client, whose namespace is that of the installation.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The way in.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The namespace of the installation.
    pub fn namespace(&self) -> &str {
        self.client.default_namespace()
    }

    async fn look<K>(&self, api: Api<K>, what: &str, name: &str) -> Result<Option<K>, Error>
    where
        K: Clone + std::fmt::Debug + DeserializeOwned,
    {
        api.get_opt(name).await.map_err(Error::cluster(format!("read {what} {name}")))
    }

    fn within<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client(), namespace)
    }

    /// A claim.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn claim(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<PersistentVolumeClaim>, Error> {
        self.look(self.within(namespace), "PersistentVolumeClaim", name).await
    }

    /// A DataSource.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn data_source(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<DataSource>, Error> {
        self.look(self.within(namespace), "DataSource", name).await
    }

    /// The DataImportCrons of a namespace.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn crons(&self, namespace: &str) -> Result<Vec<DataImportCron>, Error> {
        self.list(self.within(namespace), "list DataImportCrons").await
    }

    /// A DataImportCron.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn cron(&self, namespace: &str, name: &str) -> Result<Option<DataImportCron>, Error> {
        self.look(self.within(namespace), "DataImportCron", name).await
    }

    /// The metadata of a volume that can be copied.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn metadata_of(&self, volume: &CopySource) -> Result<Option<ObjectMeta>, Error> {
        let (namespace, name) = (&volume.namespace, &volume.name);
        Ok(match volume.kind {
            CopySourceKind::Claim => self.claim(namespace, name).await?.map(|claim| claim.metadata),
            CopySourceKind::Snapshot => {
                let found = self.look(self.snapshots(namespace), "VolumeSnapshot", name).await?;
                found.map(|snapshot| snapshot.metadata)
            }
        })
    }

    /// The DataSources of a namespace.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn data_sources(&self, namespace: &str) -> Result<Vec<DataSource>, Error> {
        self.list(self.within(namespace), "list DataSources").await
    }

    /// One object that does not decode leaves the others readable.
    async fn list<K>(&self, api: Api<Decoded<K>>, action: &str) -> Result<Vec<K>, Error>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        let list = api.list(&ListParams::default()).await.map_err(Error::cluster(action))?;
        Ok(decodable(list))
    }

    /// Whether there is such a namespace.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn has_namespace(&self, name: &str) -> Result<bool, Error> {
        let api: Api<Namespace> = Api::all(self.client());
        Ok(self.look(api, "Namespace", name).await?.is_some())
    }

    /// The settings.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn config(&self) -> Result<Option<CdiConfig>, Error> {
        self.look(Api::all(self.client()), "CDIConfig", names::CDI_CONFIG).await
    }

    /// How the cluster's API server vouches for users.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn authentication(&self) -> Result<Option<ConfigMap>, Error> {
        let (namespace, name) = AUTHENTICATION;
        self.look(self.within(namespace), "ConfigMap", name).await
    }

    /// Whether `user` may do this; and why not, as far as the cluster says.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn may(
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
        let status =
            answer.map_err(Error::cluster("ask who may do what"))?.status.unwrap_or_default();
        if status.allowed && status.denied != Some(true) {
            return Ok(Ok(()));
        }
        Ok(Err(status.reason.unwrap_or_default()))
    }

    /// Whether `user` may do all of one of these lists.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn may_any(
        &self,
        user: &User,
        lists: Vec<Vec<ResourceAttributes>>,
    ) -> Result<bool, Error> {
        'lists: for list in lists {
            for what in list {
                if self.may(user, what).await?.is_err() {
                    continue 'lists;
                }
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// How many DataVolumes there are that no DataImportCron made; no more than [`COUNTED`] are counted.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn volumes(&self) -> Result<usize, Error> {
        let api: Api<DataVolume> = Api::all(self.client());
        let limit = u32::try_from(COUNTED).unwrap_or(u32::MAX);
        let params =
            ListParams::default().labels(&format!("!{}", labels::DATA_IMPORT_CRON)).limit(limit);
        let list = api.list_metadata(&params).await.map_err(Error::cluster("list DataVolumes"))?;
        Ok(list.items.len())
    }

    /// Whether there is something where a transfer wants to go.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn is_taken(&self, destination: &Destination) -> Result<bool, Error> {
        let Destination { kind, namespace, name } = destination;
        Ok(match kind {
            Kind::Claim => self.claim(namespace, name).await?.is_some(),
            Kind::DataVolume => {
                let api: Api<DataVolume> = self.within(namespace);
                self.look(api, "DataVolume", name).await?.is_some()
            }
        })
    }

    /// The installation, where there is exactly one that is not going.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn installation(&self) -> Result<Option<Cdi>, Error> {
        let api: Api<Cdi> = Api::all(self.client());
        let list = api.list(&ListParams::default()).await.map_err(Error::cluster("list CDIs"))?;
        let mut staying =
            list.items.into_iter().filter(|cdi| cdi.meta().deletion_timestamp.is_none());
        let first = staying.next();
        Ok(first.filter(|_| staying.next().is_none()))
    }

    /// What a claim is completed from; its original too, where it is asked for.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn claim_facts(
        &self,
        claim: &PersistentVolumeClaim,
        namespace: &str,
        with_original: bool,
    ) -> Result<Facts, Error> {
        let all = ListParams::default();
        let classes: Api<StorageClass> = Api::all(self.client());
        let classes =
            classes.list(&all).await.map_err(Error::cluster("list StorageClasses"))?.items;
        let profiles: Api<StorageProfile> = Api::all(self.client());
        let profiles =
            profiles.list(&all).await.map_err(Error::cluster("list StorageProfiles"))?.items;
        let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
        let is_foreign = |name: &str| !classes.iter().any(|class| class.name_any() == name);
        let volumes = if class.is_some_and(is_foreign) {
            let volumes: Api<PersistentVolume> = Api::all(self.client());
            volumes.list(&all).await.map_err(Error::cluster("list PersistentVolumes"))?.items
        } else {
            Vec::new()
        };
        let config = self.config().await?;
        let original = if with_original { self.original(claim, namespace).await? } else { None };
        Ok(Facts { classes, profiles, volumes, config, original })
    }

    /// What the VolumeCloneSource of a claim stands for, if that is in the claim's own namespace. A user's claim may name any
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
        let sources: Api<VolumeCloneSource> = self.within(namespace);
        let Some(source) = self.look(sources, "VolumeCloneSource", &reference.name).await? else {
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
        let found = self.look(self.snapshots(namespace), "VolumeSnapshot", name).await?;
        let size = |object: DynamicObject| {
            let size = object.data.pointer("/status/restoreSize")?.as_str()?.to_owned();
            Some(Quantity(size))
        };
        Ok(found.map(|object| Original::Snapshot(size(object))))
    }
}
