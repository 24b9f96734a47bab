//! The Kubernetes API from inside a pod: reads one object, changes one.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use url::Url;

use crate::error::Error;
use crate::pod::Paths;
use crate::secret::{RedactedUrl, Secret};
use crate::web::HttpOptions;
use crate::web::call::{Call, Called, Caller};

/// What the kubelet mounts for a service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TOKEN_LEN_MAX: usize = 64 << 10;
/// The API server's own limit is less.
const OBJECT_LEN_MAX: usize = 8 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// The API server and the credentials for it.
pub(super) struct Cluster {
    caller: Caller,
    base: Url,
    token: Secret,
}

impl Cluster {
    /// By the environment and the files of a pod.
    pub(super) fn of_pod(
        paths: &Paths,
        variables: &BTreeMap<String, String>,
    ) -> Result<Self, Error> {
        let text = |name: &str| variables.get(name).filter(|text| !text.is_empty());
        let missing = || Error::Option {
            what: "there is no cluster: KUBERNETES_SERVICE_HOST and _PORT are not set".into(),
        };
        let host = text("KUBERNETES_SERVICE_HOST").ok_or_else(missing)?;
        let port =
            text("KUBERNETES_SERVICE_PORT_HTTPS").or_else(|| text("KUBERNETES_SERVICE_PORT"));
        let port = port.ok_or_else(missing)?;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let address = format!("https://{host}:{port}/");
        let base = Url::parse(&address).map_err(|error| Error::Address {
            url: RedactedUrl::of_text(&address),
            because: error.to_string(),
        })?;
        let read = |name: &str| {
            let path: PathBuf = paths.at(&format!("{ACCOUNT}/{name}"));
            let failed = |source| Error::File { what: "read", path: path.clone(), source };
            fs::read_to_string(&path).map_err(failed)
        };
        let token = read("token")?;
        if token.len() > TOKEN_LEN_MAX {
            return Err(Error::Option { what: "the service account's token is too long".into() });
        }
        let options = HttpOptions {
            ca_pem: vec![read("ca.crt")?],
            stall_timeout: PATIENCE,
            ..HttpOptions::default()
        };
        let token = Secret::new(format!("Bearer {}", token.trim()));
        Ok(Self { caller: Caller::new(&options)?, base, token })
    }

    pub(super) fn get(&self, path: &str) -> Result<Value, Error> {
        let (url, called) = self.call("GET", path, "application/json", Vec::new())?;
        serde_json::from_slice(&called.body).map_err(|error| Error::Answer {
            url: RedactedUrl::from(&url),
            because: format!("no object ({error})"),
        })
    }

    /// Changes what `change` holds of an object, and nothing else.
    pub(super) fn merge(&self, path: &str, change: &Value) -> Result<(), Error> {
        let body = change.to_string().into_bytes();
        self.call("PATCH", path, "application/merge-patch+json", body)?;
        Ok(())
    }

    fn call(
        &self,
        method: &'static str,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<(Url, Called), Error> {
        let url = self.base.join(path).map_err(|error| Error::Address {
            url: RedactedUrl::of_text(path),
            because: error.to_string(),
        })?;
        let headers = [
            ("authorization", self.token.reveal().to_owned()),
            ("accept", "application/json".to_owned()),
            ("content-type", content_type.to_owned()),
        ];
        let call = Call { method, url: &url, headers: &headers, body, answer_max: OBJECT_LEN_MAX };
        let called = self.caller.call(call)?;
        if (200..300).contains(&called.status) {
            return Ok((url, called));
        }
        // The API server explains the status in its body.
        let outcome = serde_json::from_slice::<Value>(&called.body).ok();
        let message = outcome.as_ref().and_then(|outcome| outcome.get("message")?.as_str());
        let message: String = message.unwrap_or("no reason is given").chars().take(300).collect();
        let because = format!("{message} (status {})", called.status);
        Err(Error::Refused { url: RedactedUrl::from(&url), because })
    }
}
