//! The engine: who may, which disk, and the transfers of it. Everything is JSON over version 4 of its interface.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::Url;
use url::form_urlencoded::Serializer;

use super::ImageioSettings;
use crate::error::Error;
use crate::secret::{RedactedUrl, Secret};
use crate::web::call::{Call, Called, Caller};

/// Longer responses are rejected: the longest is a list of snapshots.
const ANSWER_MAX: usize = 8 << 20;
/// Of a message only so much is repeated.
const FAULT_MAX: usize = 400;

/// A session with the engine.
pub(super) struct Engine {
    caller: Caller,
    api: Url,
    authorization: Secret,
}

/// What is to be transferred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Disk(String),
    Snapshot(String),
}

/// A transfer as the engine shows it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Transfer {
    pub(super) id: String,
    #[serde(default)]
    pub(super) phase: String,
    pub(super) transfer_url: Option<String>,
}

#[derive(Deserialize)]
struct Disk {
    id: String,
    image_id: Option<String>,
    storage_domains: Option<StorageDomains>,
}

#[derive(Deserialize)]
struct StorageDomains {
    #[serde(default)]
    storage_domain: Vec<Named>,
}

#[derive(Deserialize)]
struct Snapshots {
    #[serde(default)]
    disk_snapshot: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    id: String,
}

impl Engine {
    /// Logs in: for a token where the engine gives one, otherwise by name and password with each request.
    pub(super) fn login(settings: &ImageioSettings) -> Result<Self, Error> {
        let mut api = Url::parse(&settings.endpoint).map_err(|error| Error::Address {
            url: RedactedUrl::of_text(&settings.endpoint),
            because: error.to_string(),
        })?;
        if !matches!(api.scheme(), "http" | "https") {
            let because = "an engine has a http or https address".into();
            return Err(Error::Address { url: RedactedUrl::of_text(&settings.endpoint), because });
        }
        api.set_query(None);
        let path = api.path().trim_end_matches('/').to_owned();
        api.set_path(&path);
        let caller = Caller::new(&settings.http)?;
        let (user, password) = (&settings.username, settings.password.reveal());
        let form = Serializer::new(String::new())
            .append_pair("grant_type", "password")
            .append_pair("scope", "ovirt-app-api")
            .append_pair("username", user)
            .append_pair("password", password)
            .finish();
        let mut sso = api.clone();
        sso.set_path(&format!("{}/sso/oauth/token", path.strip_suffix("/api").unwrap_or(&path)));
        let answer = caller.call(Call {
            method: "POST",
            url: &sso,
            headers: &[
                ("accept", "application/json".into()),
                ("content-type", "application/x-www-form-urlencoded".into()),
            ],
            body: form.into_bytes(),
            answer_max: ANSWER_MAX,
        })?;
        #[derive(Deserialize)]
        struct Token {
            access_token: String,
        }
        let authorization = match answer.status {
            200 => format!("Bearer {}", parse::<Token>(&sso, &answer)?.access_token),
            404 | 405 => format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))),
            _ => return Err(refusal(&sso, &answer)),
        };
        Ok(Self { caller, api, authorization: authorization.into() })
    }

    /// The disk, or the state of it that a checkpoint names.
    pub(super) fn subject(
        &self,
        disk_id: &str,
        checkpoint: Option<&str>,
    ) -> Result<Subject, Error> {
        let (url, answer) = self.get(&["disks", disk_id])?;
        let disk: Disk = parse(&url, &answer)?;
        let Some(checkpoint) = checkpoint else { return Ok(Subject::Disk(disk.id)) };
        let domains = disk.storage_domains.map(|domains| domains.storage_domain);
        for domain in domains.unwrap_or_default() {
            let (url, answer) = self.get(&["storagedomains", &domain.id, "disksnapshots"])?;
            let found = parse::<Snapshots>(&url, &answer)?.disk_snapshot;
            if let Some(snapshot) = found.into_iter().find(|snapshot| snapshot.id == checkpoint) {
                return Ok(Subject::Snapshot(snapshot.id));
            }
        }
        if disk.image_id.as_deref() == Some(checkpoint) {
            return Ok(Subject::Disk(disk.id));
        }
        let because = format!("the disk {disk_id} has no snapshot {checkpoint}");
        Err(Error::Refused { url: RedactedUrl::from(&self.api), because })
    }

    /// Begins to transfer. `None`: something else is being done with the disk.
    pub(super) fn start_transfer(
        &self,
        subject: &Subject,
        format: &str,
    ) -> Result<Option<Transfer>, Error> {
        let mut wanted = json!({
            "direction": "download",
            "format": format,
            "inactivity_timeout": 60,
        });
        match subject {
            Subject::Disk(id) => wanted["disk"] = json!({ "id": id }),
            Subject::Snapshot(id) => wanted["snapshot"] = json!({ "id": id }),
        }
        let url = self.url(&["imagetransfers"]);
        let answer = self.call("POST", &url, Some(&wanted))?;
        match answer.status {
            200..=202 => parse(&url, &answer).map(Some),
            400..=499 if fault(&answer.body).to_lowercase().contains("disk is locked") => Ok(None),
            _ => Err(refusal(&url, &answer)),
        }
    }

    /// The transfer as it is now. `None`: the engine has forgotten it.
    pub(super) fn transfer(&self, id: &str) -> Result<Option<Transfer>, Error> {
        let url = self.url(&["imagetransfers", id]);
        let answer = self.call("GET", &url, None)?;
        match answer.status {
            200 => parse(&url, &answer).map(Some),
            404 => Ok(None),
            _ => Err(refusal(&url, &answer)),
        }
    }

    /// `extend`, `resume`, `finalize` or `cancel` of a transfer.
    pub(super) fn act(&self, id: &str, action: &str) -> Result<(), Error> {
        let url = self.url(&["imagetransfers", id, action]);
        let answer = self.call("POST", &url, Some(&json!({})))?;
        if (200..300).contains(&answer.status) { Ok(()) } else { Err(refusal(&url, &answer)) }
    }

    /// Small things at the address of a transfer, which is itself the right to have them.
    pub(super) fn fetch(
        &self,
        method: &'static str,
        url: &Url,
        range: Option<&str>,
        answer_max: usize,
    ) -> Result<Called, Error> {
        let range = range.map(|range| ("range", range.to_owned()));
        let headers: Vec<_> = range.into_iter().collect();
        let answer =
            self.caller.call(Call { method, url, headers: &headers, body: vec![], answer_max })?;
        if (200..300).contains(&answer.status) { Ok(answer) } else { Err(refusal(url, &answer)) }
    }

    fn url(&self, segments: &[&str]) -> Url {
        let mut url = self.api.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.extend(segments);
        }
        url
    }

    fn get(&self, segments: &[&str]) -> Result<(Url, Called), Error> {
        let url = self.url(segments);
        let answer = self.call("GET", &url, None)?;
        if answer.status == 200 { Ok((url, answer)) } else { Err(refusal(&url, &answer)) }
    }

    fn call(&self, method: &'static str, url: &Url, body: Option<&Value>) -> Result<Called, Error> {
        let headers = [
            ("accept", "application/json".to_owned()),
            ("authorization", self.authorization.reveal().to_owned()),
            ("content-type", "application/json".to_owned()),
            ("version", "4".to_owned()),
        ];
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        self.caller.call(Call { method, url, headers: &headers, body, answer_max: ANSWER_MAX })
    }
}

/// Reads JSON of a server.
pub(super) fn parse<T: DeserializeOwned>(url: &Url, answer: &Called) -> Result<T, Error> {
    serde_json::from_slice(&answer.body).map_err(|error| Error::Answer {
        url: RedactedUrl::from(url),
        // Not what was read: a token may be in it.
        because: format!("its answer is not what was expected (line {})", error.line()),
    })
}

fn refusal(url: &Url, answer: &Called) -> Error {
    let outcome = fault(&answer.body);
    let outcome = if outcome.is_empty() { outcome } else { format!(": {outcome}") };
    let because = format!("it responded with status {}{outcome}", answer.status);
    Error::Refused { url: RedactedUrl::from(url), because }
}

/// The server's message for a failure.
fn fault(body: &[u8]) -> String {
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return String::new() };
    let inner = value.get("fault").unwrap_or(&value);
    let texts = ["reason", "detail", "error", "error_description", "explanation"];
    let texts: Vec<_> = texts.iter().filter_map(|key| inner.get(key)?.as_str()).collect();
    let text: String = texts.join(": ").chars().take(FAULT_MAX).collect();
    text.escape_debug().collect()
}
