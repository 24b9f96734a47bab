//! Requests for objects as JSON. The only code of the installer that talks to the API server; it decides nothing.

use kube::Client;
use kube::api::{
    DeleteParams, GetParams, ListParams, PostParams, Preconditions, PropagationPolicy, Request,
};
use serde_json::Value;

use crate::error::Error;
use crate::kinds::{Kind, ObjectId};
use crate::metadata;

/// Objects per response of a list.
const PAGE_LEN: u32 = 250;

#[derive(Clone)]
pub struct ApiClient {
    client: Client,
}

/// What happens to the objects that a deleted object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// It stays until they are gone.
    Foreground,
    Background,
}

impl ApiClient {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    pub async fn get(&self, id: &ObjectId) -> Result<Option<Value>, Error> {
        let request = collection(id).get(&id.name, &GetParams::default());
        absent_if_not_found(self.send(request).await).map_err(Error::cluster(format!("read {id}")))
    }

    /// All pages. A kind that is not served has no objects.
    pub async fn list(
        &self,
        kind: &'static Kind,
        namespace: &str,
        label_selector: Option<&str>,
    ) -> Result<Vec<Value>, Error> {
        self.list_path(&kind.collection_path(namespace), label_selector)
            .await
            .map_err(Error::cluster(format!("list {}", kind.plural)))
    }

    /// All objects under a path, such as `/apis/cdi.kubevirt.io/v1beta1/datavolumes`.
    pub async fn list_path(
        &self,
        path: &str,
        label_selector: Option<&str>,
    ) -> Result<Vec<Value>, kube::Error> {
        let request = Request::new(path);
        let mut params = ListParams::default().limit(PAGE_LEN);
        params.label_selector = label_selector.map(str::to_owned);
        let mut all = Vec::new();
        loop {
            let Some(mut page) = absent_if_not_found(self.send(request.list(&params)).await)?
            else {
                return Ok(Vec::new());
            };
            if let Some(items) = page["items"].as_array_mut() {
                all.append(items);
            }
            match page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token.to_owned()),
                None => return Ok(all),
            }
        }
    }

    pub async fn create(&self, id: &ObjectId, object: &Value) -> Result<Value, Error> {
        let request = collection(id).create(&PostParams::default(), bytes(object));
        self.send(request).await.map_err(Error::cluster(format!("create {id}")))
    }

    /// Fails with a conflict if the object has changed since it was read.
    pub async fn replace(&self, id: &ObjectId, object: &Value) -> Result<Value, Error> {
        let request = collection(id).replace(&id.name, &PostParams::default(), bytes(object));
        self.send(request).await.map_err(Error::cluster(format!("update {id}")))
    }

    pub async fn replace_status(&self, id: &ObjectId, object: &Value) -> Result<Value, Error> {
        let params = PostParams::default();
        let request =
            collection(id).replace_subresource("status", &id.name, &params, bytes(object));
        self.send(request).await.map_err(Error::cluster(format!("update the status of {id}")))
    }

    /// Writes an object of any kind back as it was read. `false`: it has changed or is gone, which both rewrote it.
    pub async fn rewrite(
        &self,
        collection_path: &str,
        object: &Value,
    ) -> Result<bool, kube::Error> {
        let name = metadata::name(object);
        let request =
            Request::new(collection_path).replace(name, &PostParams::default(), bytes(object));
        match self.send(request).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes this very object, not a later one of its name. One that is gone counts as deleted.
    pub async fn delete(
        &self,
        id: &ObjectId,
        uid: &str,
        propagation: Propagation,
    ) -> Result<(), Error> {
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            propagation_policy: Some(match propagation {
                Propagation::Foreground => PropagationPolicy::Foreground,
                Propagation::Background => PropagationPolicy::Background,
            }),
            ..DeleteParams::default()
        };
        let deleted = self.send(collection(id).delete(&id.name, &params)).await;
        absent_if_not_found(deleted).map(drop).map_err(Error::cluster(format!("delete {id}")))
    }

    /// The kinds that an API group serves in a version; none if the group is not served.
    pub async fn served_kinds(&self, group: &str, version: &str) -> Result<Vec<String>, Error> {
        let path = format!("/apis/{group}/{version}");
        let request = http::Request::get(&path).body(Vec::new());
        let request = request.map_err(kube::core::request::Error::BuildRequest);
        let listed = match self.send(request).await {
            // An aggregated API whose server is away: the next pass sees it again.
            Err(kube::Error::Api(status)) if status.code == 503 => return Ok(Vec::new()),
            other => absent_if_not_found(other).map_err(Error::cluster(format!("read {path}")))?,
        };
        let resources = listed.as_ref().and_then(|listed| listed["resources"].as_array());
        let kinds = resources.into_iter().flatten().filter_map(|one| one["kind"].as_str());
        Ok(kinds.map(str::to_owned).collect())
    }

    pub async fn create_event(&self, namespace: &str, event: &Value) -> Result<(), kube::Error> {
        let path = format!("/api/v1/namespaces/{namespace}/events");
        let request = Request::new(path).create(&PostParams::default(), bytes(event));
        self.send(request).await.map(drop)
    }

    async fn send(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Value, kube::Error> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        self.client.request(request).await
    }
}

fn collection(id: &ObjectId) -> Request {
    Request::new(id.kind.collection_path(&id.namespace))
}

fn bytes(object: &Value) -> Vec<u8> {
    object.to_string().into_bytes()
}

fn absent_if_not_found(outcome: Result<Value, kube::Error>) -> Result<Option<Value>, kube::Error> {
    match outcome {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}
