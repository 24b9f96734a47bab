//! What a request does, and its response.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};

use super::{Failure, MemoryApi, PLATFORM, SeenRequest, State};

impl State {
    fn respond(&mut self, method: &Method, path: &str, query: &str, body: Value) -> (u16, Value) {
        self.count += 1;
        self.kinds.push(*method != Method::GET);
        let failure = self.failure.filter(|(number, _)| *number == self.count);
        match failure {
            Some((_, Failure::Refused)) => status(500, "InternalError", "refused by the test"),
            Some((_, Failure::ResponseLost)) => {
                self.carry_out(method, path, query, body);
                status(504, "Timeout", "lost by the test")
            }
            None => self.carry_out(method, path, query, body),
        }
    }

    fn carry_out(&mut self, method: &Method, path: &str, query: &str, body: Value) -> (u16, Value) {
        let words: Vec<_> = path.trim_start_matches('/').split('/').collect();
        let (group, words) = match words.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            other => panic!("unknown path {other:?}"),
        };
        if words.is_empty() {
            return self.discover(group);
        }
        let (namespace, words) = match words {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let plural = words[0];
        let name = words.get(1).copied().unwrap_or_default();
        let subresource = words.get(2).copied();
        self.see(method, group, plural, namespace, name, subresource);
        let kind = format!("{group}/{plural}");
        let is_platform = PLATFORM.iter().any(|(served, _)| *served == kind);
        if is_platform && !self.served.contains(kind.as_str()) {
            return status(404, "NotFound", "the server could not find the requested resource");
        }
        let key = format!("{kind}/{namespace}/{name}");
        match *method {
            Method::GET if name.is_empty() => (200, self.list(&kind, namespace, query)),
            Method::GET => match self.objects.get(&key) {
                Some(object) => (200, object.clone()),
                None => status(404, "NotFound", "not found"),
            },
            Method::POST if plural == "events" => {
                self.events.push(body.clone());
                (201, body)
            }
            Method::POST => {
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                self.create(&format!("{kind}/{namespace}/{name}"), body)
            }
            Method::PUT => self.update(&key, body, subresource),
            Method::PATCH => panic!("the operator sends no patches here: {path}"),
            Method::DELETE => self.remove(&key, &body),
            _ => status(405, "MethodNotAllowed", "no"),
        }
    }

    fn see(
        &mut self,
        method: &Method,
        group: &str,
        plural: &str,
        namespace: &str,
        name: &str,
        subresource: Option<&str>,
    ) {
        let verb = match *method {
            Method::GET if name.is_empty() => "list",
            Method::GET => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            _ => "delete",
        };
        let resource = match subresource {
            Some(subresource) => format!("{plural}/{subresource}"),
            None => plural.to_owned(),
        };
        self.requests.push(SeenRequest {
            verb,
            group: group.to_owned(),
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        });
    }

    fn discover(&self, group: &str) -> (u16, Value) {
        let mut kinds: Vec<_> = PLATFORM
            .iter()
            .filter(|(served, _)| self.served.contains(served))
            .filter(|(served, _)| served.starts_with(&format!("{group}/")))
            .map(|(_, kind)| json!({ "kind": kind }))
            .collect();
        if group == "networking.k8s.io" {
            kinds.extend([json!({ "kind": "Ingress" }), json!({ "kind": "NetworkPolicy" })]);
        }
        if kinds.is_empty() {
            return status(404, "NotFound", "no such group");
        }
        (200, json!({ "kind": "APIResourceList", "resources": kinds }))
    }

    fn list(&self, kind: &str, namespace: &str, query: &str) -> Value {
        let prefix = match namespace {
            "" => format!("{kind}/"),
            namespace => format!("{kind}/{namespace}/"),
        };
        let selector = query.split('&').find_map(|part| part.strip_prefix("labelSelector="));
        let selector = selector.map(decode);
        let items: Vec<_> = self
            .objects
            .iter()
            .filter(|(key, _)| key.starts_with(&prefix))
            .map(|(_, object)| {
                let mut item = object.clone();
                item.as_object_mut().unwrap().remove("kind");
                item.as_object_mut().unwrap().remove("apiVersion");
                item
            })
            .filter(|object| selector.as_deref().is_none_or(|text| is_selected(object, text)))
            .collect();
        json!({ "items": items, "metadata": { "resourceVersion": self.version.to_string() } })
    }

    fn create(&mut self, key: &str, object: Value) -> (u16, Value) {
        if self.objects.contains_key(key) {
            return status(409, "AlreadyExists", "already exists");
        }
        if self.rejected.contains(key) {
            return status(422, "Invalid", "rejected by the test");
        }
        if object["metadata"]["resourceVersion"].is_string() {
            return status(422, "Invalid", "resourceVersion should not be set");
        }
        self.writes.push(format!("create {key}"));
        (201, self.store_new(key, object))
    }

    fn update(&mut self, key: &str, mut object: Value, subresource: Option<&str>) -> (u16, Value) {
        let Some(before) = self.objects.get(key).cloned() else {
            return status(404, "NotFound", "not found");
        };
        if object["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"] {
            return status(409, "Conflict", "the object has been modified");
        }
        if self.rejected.contains(key) {
            return status(422, "Invalid", "rejected by the test");
        }
        let immutable = ["/spec/selector/matchLabels", "/roleRef"];
        if ["apps/", "rbac."].iter().any(|group| key.starts_with(group))
            && immutable.iter().any(|field| object.pointer(field) != before.pointer(field))
        {
            return status(422, "Invalid", "field is immutable");
        }
        self.writes.push(format!("update {key}"));
        match subresource {
            Some("status") => {
                let mut changed = before.clone();
                changed["status"] = object["status"].clone();
                object = changed;
            }
            // The CDI object's status has no subresource.
            _ if !key.starts_with("cdi.kubevirt.io/") => {
                object["status"] = before["status"].clone();
                if object["status"].is_null() {
                    object.as_object_mut().unwrap().remove("status");
                }
            }
            _ => {}
        }
        for field in ["uid", "creationTimestamp", "generation"] {
            object["metadata"][field] = before["metadata"][field].clone();
        }
        (200, self.store_changed(key, object))
    }

    fn remove(&mut self, key: &str, options: &Value) -> (u16, Value) {
        let Some(object) = self.objects.get(key).cloned() else {
            return status(404, "NotFound", "not found");
        };
        let uid = &options["preconditions"]["uid"];
        if uid.is_string() && *uid != object["metadata"]["uid"] {
            return status(409, "Conflict", "another uid");
        }
        self.writes.push(format!("delete {key}"));
        let has_dependents = key.starts_with("apps/deployments/");
        self.delete(key, has_dependents && options["propagationPolicy"] == "Foreground");
        (200, object)
    }
}

fn status(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": message,
    });
    (code, status)
}

/// `key`, or `key in (a,b)`.
fn is_selected(object: &Value, selector: &str) -> bool {
    let labels = &object["metadata"]["labels"];
    match selector.split_once(" in (") {
        Some((key, values)) => {
            let value = labels[key].as_str();
            values.trim_end_matches(')').split(',').any(|one| Some(one.trim()) == value)
        }
        None => labels[selector].is_string(),
    }
}

fn decode(text: &str) -> String {
    let text = text.replace('+', " ");
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            let hex = std::str::from_utf8(&tail[..2]).unwrap();
            bytes.push(u8::from_str_radix(hex, 16).unwrap());
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).unwrap()
}

impl tower_service::Service<Request<Body>> for MemoryApi {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let api = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            let query = head.uri.query().unwrap_or_default();
            let (code, response) =
                api.0.lock().unwrap().respond(&head.method, head.uri.path(), query, body);
            let bytes = serde_json::to_vec(&response).unwrap();
            Ok(Response::builder().status(code).body(Body::from(bytes)).unwrap())
        })
    }
}
