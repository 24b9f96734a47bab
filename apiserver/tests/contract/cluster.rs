//! The parts of a Kubernetes API that the program uses: get, list, watch and create objects, and review permissions. Plain HTTP
//! on loopback. `tests/e2e` has a real one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use http::{Method, Request, StatusCode};
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch as watched};

#[derive(Clone)]
pub struct TestCluster {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    /// By their paths.
    objects: Mutex<BTreeMap<String, Value>>,
    /// `user verb group/resource/subresource namespace/name`
    permissions: Mutex<BTreeSet<String>>,
    /// The access reviews, in order.
    reviews: Mutex<Vec<String>>,
    /// All that was requested, in order: method, path and query.
    requests: Mutex<Vec<String>>,
    /// Requests for paths that begin so wait.
    held: watched::Sender<Option<String>>,
    /// Collection, and the object that changed.
    changes: broadcast::Sender<(String, Value)>,
}

pub const AUTHENTICATION: &str =
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
pub const CONFIG: &str = "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs/config";
pub const KEY: &str = "/api/v1/namespaces/cdi/secrets/cdi-api-signing-key";

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

const COLLECTIONS: [&str; 9] = [
    "cdiconfigs",
    "cdis",
    "configmaps",
    "dataimportcrons",
    "datasources",
    "datavolumes",
    "persistentvolumes",
    "storageclasses",
    "storageprofiles",
];

impl TestCluster {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            objects: Mutex::default(),
            permissions: Mutex::default(),
            reviews: Mutex::default(),
            requests: Mutex::default(),
            held: watched::Sender::new(None),
            changes: broadcast::Sender::new(16),
        });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, shared }
    }

    /// Creates or changes an object, and notifies watches.
    pub fn set(&self, path: &str, mut object: Value) {
        let (collection, name) = path.rsplit_once('/').unwrap();
        object["metadata"]["name"] = name.into();
        object["metadata"]["resourceVersion"] = "2".into();
        self.shared.objects.lock().insert(path.to_owned(), object.clone());
        // There may be no watch.
        let _ = self.shared.changes.send((collection.to_owned(), object));
    }

    pub fn get(&self, path: &str) -> Option<Value> {
        self.shared.objects.lock().get(path).cloned()
    }

    pub fn allow(&self, right: &str) {
        self.shared.permissions.lock().insert(right.to_owned());
    }

    /// The requests since the last call.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.requests.lock())
    }

    /// Holds requests for paths with this prefix until called with `None`.
    pub fn hold(&self, path: Option<&str>) {
        self.shared.held.send_replace(path.map(str::to_owned));
    }

    /// The access reviews since the last call.
    pub fn reviews(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.reviews.lock())
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request<Body>) -> Response {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let query =
        percent_decode_str(head.uri.query().unwrap_or_default()).decode_utf8_lossy().into_owned();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    shared.requests.lock().push(format!("{} {path} {query}", head.method));
    let mut held = shared.held.subscribe();
    let is_free = |held: &Option<String>| held.as_ref().is_none_or(|held| !path.starts_with(held));
    held.wait_for(is_free).await.unwrap();
    match (head.method, path.as_str()) {
        (Method::POST, REVIEWS) => review(&shared, &serde_json::from_slice(&body).unwrap()),
        (Method::POST, _) => make(&shared, &path, serde_json::from_slice(&body).unwrap()),
        (Method::GET, _) => read(&shared, &path, &query),
        _ => status(StatusCode::METHOD_NOT_ALLOWED, &path),
    }
}

fn status(code: StatusCode, what: &str) -> Response {
    let reason = if code == StatusCode::CONFLICT { "AlreadyExists" } else { "NotFound" };
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure",
        "message": format!("{what}: {reason}"), "reason": reason, "code": code.as_u16(),
    });
    (code, axum::Json(status)).into_response()
}

fn review(shared: &Shared, review: &Value) -> Response {
    let what = &review["spec"]["resourceAttributes"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let right = format!(
        "{} {} {}/{}/{} {}/{}",
        text(&review["spec"]["user"]),
        text(&what["verb"]),
        text(&what["group"]),
        text(&what["resource"]),
        text(&what["subresource"]),
        text(&what["namespace"]),
        text(&what["name"])
    );
    let allowed = shared.permissions.lock().contains(&right);
    let mut answer = review.clone();
    answer["status"] =
        json!({ "allowed": allowed, "reason": if allowed { "" } else { "no role allows it" } });
    shared.reviews.lock().push(right);
    (StatusCode::CREATED, axum::Json(answer)).into_response()
}

fn make(shared: &Shared, collection: &str, object: Value) -> Response {
    let path = format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap());
    let mut objects = shared.objects.lock();
    if objects.contains_key(&path) {
        return status(StatusCode::CONFLICT, &path);
    }
    objects.insert(path, object.clone());
    (StatusCode::CREATED, axum::Json(object)).into_response()
}

fn read(shared: &Shared, path: &str, query: &str) -> Response {
    if query.contains("watch=true") {
        return watch(shared, path.to_owned(), query.to_owned());
    }
    let objects = shared.objects.lock();
    if let Some(object) = objects.get(path) {
        return axum::Json(object).into_response();
    }
    let last = path.rsplit('/').next().unwrap();
    if !COLLECTIONS.contains(&last) {
        return status(StatusCode::NOT_FOUND, path);
    }
    // A cluster-wide list holds the objects of all namespaces.
    let is_of = |key: &str| {
        let (collection, _) = key.rsplit_once('/').unwrap();
        collection == path
            || collection.ends_with(&format!("/{last}")) && !path.contains("/namespaces/")
    };
    let items: Vec<_> = objects
        .iter()
        .filter(|(key, object)| is_of(key) && is_selected(object, query))
        .map(|(_, object)| object)
        .collect();
    // One page, if a limit is requested. The continue token has the index of the next page.
    let number = |key: &str| parameter(query, key).and_then(|text| text.parse::<usize>().ok());
    let begin = number("continue=").unwrap_or(0).min(items.len());
    let end = number("limit=").map_or(items.len(), |limit| items.len().min(begin + limit));
    let mut metadata = json!({ "resourceVersion": "1" });
    if end < items.len() {
        metadata["continue"] = end.to_string().into();
    }
    let page = &items[begin..end];
    let list = json!({ "apiVersion": "v1", "kind": "List", "metadata": metadata, "items": page });
    axum::Json(list).into_response()
}

fn parameter<'a>(query: &'a str, key: &str) -> Option<&'a str> {
    query.split('&').find_map(|part| part.strip_prefix(key))
}

fn is_selected(object: &Value, query: &str) -> bool {
    let after = |key: &str| parameter(query, key);
    let is_named =
        after("fieldSelector=metadata.name=").is_none_or(|name| object["metadata"]["name"] == name);
    let has_no =
        after("labelSelector=!").is_none_or(|label| object["metadata"]["labels"][label].is_null());
    is_named && has_no
}

fn watch(shared: &Shared, collection: String, query: String) -> Response {
    let changes = shared.changes.subscribe();
    // A client that listed before a change and watches after it has to see it; twice does no harm.
    let present: Vec<_> = {
        let objects = shared.objects.lock();
        let of = |path: &str| path.rsplit_once('/').unwrap().0.to_owned();
        objects.iter().map(|(path, object)| (of(path), object.clone())).collect()
    };
    let changes = futures_util::stream::unfold(changes, |mut changes| async {
        let change = changes.recv().await.ok()?;
        Some((change, changes))
    });
    let lines =
        futures_util::stream::iter(present).chain(changes).filter_map(move |(of, object)| {
            let line = json!({ "type": "MODIFIED", "object": object });
            let is_wanted = of == collection && is_selected(&object, &query);
            async move { is_wanted.then(|| Ok::<_, std::io::Error>(format!("{line}\n"))) }
        });
    Body::from_stream(lines).into_response()
}
