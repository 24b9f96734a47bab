//! Keystone, version 3 of its interface: a token, and the address of the images.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use crate::error::Error;
use crate::secret::{RedactedUrl, Secret};
use crate::web::call::{Call, Called, Caller};

/// Longer responses are rejected. A catalogue of services is the longest.
pub(super) const ANSWER_MAX: usize = 4 << 20;
/// Of a message only so much is repeated.
const MESSAGE_LEN_MAX: usize = 400;

pub(super) struct Session {
    pub(super) token: Secret,
    /// Where Glance is.
    pub(super) images: Url,
}

/// The variables of a Secret.
type Variables = BTreeMap<String, String>;

#[derive(Deserialize)]
struct KeystoneResponse {
    token: Token,
}

#[derive(Deserialize)]
struct Token {
    #[serde(default)]
    catalog: Vec<Service>,
}

#[derive(Deserialize)]
struct Service {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

#[derive(Deserialize)]
struct Endpoint {
    #[serde(default)]
    interface: String,
    #[serde(default)]
    url: String,
    region: Option<String>,
    region_id: Option<String>,
}

/// Logs in at `endpoint` by the variables, and finds the images of their region.
pub(super) fn login(
    caller: &Caller,
    endpoint: &str,
    variables: &Variables,
) -> Result<Session, Error> {
    let wrong = |because: String| Error::Address { url: RedactedUrl::of_text(endpoint), because };
    let mut url = Url::parse(endpoint).map_err(|error| wrong(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("Keystone has a http or https address".into()));
    }
    extend(&mut url, "v3", &["auth", "tokens"]);
    let wanted = spec(variables)?;
    let answer = caller.call(Call {
        method: "POST",
        url: &url,
        headers: &[
            ("accept", "application/json".into()),
            ("content-type", "application/json".into()),
        ],
        body: wanted.to_string().into_bytes(),
        answer_max: ANSWER_MAX,
    })?;
    if !(200..300).contains(&answer.status) {
        return Err(refusal(&url, &answer));
    }
    let nonsense =
        |because: &str| Error::Answer { url: RedactedUrl::from(&url), because: because.to_owned() };
    let token = answer.headers.get("x-subject-token").and_then(|value| value.to_str().ok());
    let token = Secret::new(token.ok_or_else(|| nonsense("it gives no token"))?);
    let answer: KeystoneResponse = serde_json::from_slice(&answer.body)
        .map_err(|_| nonsense("its description of the token is not readable"))?;
    let images = images(&answer.token.catalog, variables)
        .ok_or_else(|| nonsense("its catalogue has no images for this region and availability"))?;
    Ok(Session { token, images })
}

/// Puts `path` behind an address that may have its version already, or not.
pub(super) fn extend(url: &mut Url, version: &str, path: &[&str]) {
    url.set_query(None);
    let has_version = url.path().trim_end_matches('/').ends_with(&format!("/{version}"));
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty();
        segments.extend(Some(version).filter(|_| !has_version));
        segments.extend(path);
    }
}

/// The server's message for a refusal.
pub(super) fn refusal(url: &Url, answer: &Called) -> Error {
    let value: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let outcome = value["error"]["message"].as_str().or_else(|| value["message"].as_str());
    let outcome: String = outcome.unwrap_or_default().chars().take(MESSAGE_LEN_MAX).collect();
    let outcome =
        if outcome.is_empty() { outcome } else { format!(": {}", outcome.escape_debug()) };
    let because = format!("it responded with status {}{outcome}", answer.status);
    Error::Refused { url: RedactedUrl::from(url), because }
}

/// The address of Glance that is meant for us.
fn images(catalog: &[Service], variables: &Variables) -> Option<Url> {
    let wanted = get(variables, "availability").unwrap_or("public");
    let region = get(variables, "regionName");
    let fits = |endpoint: &&Endpoint| {
        let regions = [endpoint.region.as_deref(), endpoint.region_id.as_deref()];
        // `publicURL` is what older clients call it.
        endpoint.interface == wanted.trim_end_matches("URL")
            && region.is_none_or(|region| regions.contains(&Some(region)))
    };
    let services = catalog.iter().filter(|service| service.kind == "image");
    let found = services.flat_map(|service| &service.endpoints).find(fits)?;
    Url::parse(&found.url).ok().filter(|url| matches!(url.scheme(), "http" | "https"))
}

/// The request for a token: user and project.
fn spec(variables: &Variables) -> Result<Value, Error> {
    let get = |name| get(variables, name);
    let missing = |what: &str| Error::Option { what: format!("the secret has no {what}") };
    let identity = match get("authType").unwrap_or("password") {
        "password" => {
            let password = get("password").ok_or_else(|| missing("password"))?;
            let mut user = user(variables).ok_or_else(|| missing("username or userID"))?;
            user["password"] = password.into();
            json!({ "methods": ["password"], "password": { "user": user } })
        }
        "token" => {
            let token = get("token").ok_or_else(|| missing("token"))?;
            json!({ "methods": ["token"], "token": { "id": token } })
        }
        "applicationcredential" => {
            let name = "applicationCredentialSecret";
            let secret = get(name).ok_or_else(|| missing(name))?;
            let credential = match get("applicationCredentialID") {
                Some(id) => json!({ "id": id, "secret": secret }),
                None => {
                    let name = "applicationCredentialName";
                    let name = get(name).ok_or_else(|| missing("applicationCredentialID"))?;
                    let user = user(variables).ok_or_else(|| missing("username or userID"))?;
                    json!({ "name": name, "secret": secret, "user": user })
                }
            };
            // Such a credential is for one project, and takes no other.
            let identity = json!({
                "methods": ["application_credential"], "application_credential": credential,
            });
            return Ok(json!({ "auth": { "identity": identity } }));
        }
        _ => return Err(Error::Option { what: "unsupported authentication type".into() }),
    };
    let mut auth = json!({ "identity": identity });
    if let Some(scope) = scope(variables) {
        auth["scope"] = scope;
    }
    Ok(json!({ "auth": auth }))
}

fn user(variables: &Variables) -> Option<Value> {
    match get(variables, "userID") {
        Some(id) => Some(json!({ "id": id })),
        None => {
            let name = get(variables, "username")?;
            let domain = domain(variables, ["userDomainID", "userDomainName"])?;
            Some(json!({ "name": name, "domain": domain }))
        }
    }
}

fn scope(variables: &Variables) -> Option<Value> {
    if let Some(id) = get(variables, "projectID") {
        return Some(json!({ "project": { "id": id } }));
    }
    let Some(name) = get(variables, "projectName") else {
        let id = get(variables, "domainID").map(|id| json!({ "id": id }));
        let domain = id.or_else(|| Some(json!({ "name": get(variables, "domainName")? })))?;
        return Some(json!({ "domain": domain }));
    };
    let domain = domain(variables, ["projectDomainID", "projectDomainName"])?;
    Some(json!({ "project": { "name": name, "domain": domain } }))
}

/// The domain that is given, the general one, or the usual name of the first one.
fn domain(variables: &Variables, [id, name]: [&str; 2]) -> Option<Value> {
    let by_id = |name| get(variables, name).map(|id| json!({ "id": id }));
    let by_name = |name| get(variables, name).map(|name| json!({ "name": name }));
    let outcome = by_id(id).or_else(|| by_name(name));
    let general = || by_id("domainID").or_else(|| by_name("domainName"));
    outcome
        .or_else(general)
        .or_else(|| by_id("defaultDomain"))
        .or_else(|| Some(json!({ "id": "default" })))
}

fn get<'a>(variables: &'a Variables, name: &str) -> Option<&'a str> {
    variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(text: &str) -> Variables {
        let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn keystone_supports_each_documented_method() {
        let table = [
            (
                "username=anna password=p projectName=vms domainName=Default",
                json!({
                    "identity": { "methods": ["password"], "password": { "user": {
                        "name": "anna", "domain": { "name": "Default" }, "password": "p" } } },
                    "scope": { "project": { "name": "vms", "domain": { "name": "Default" } } },
                }),
            ),
            (
                "authType=password userID=7 password=p projectID=9",
                json!({
                    "identity": { "methods": ["password"], "password": { "user": {
                        "id": "7", "password": "p" } } },
                    "scope": { "project": { "id": "9" } },
                }),
            ),
            (
                "username=anna userDomainID=d1 password=p projectName=vms projectDomainName=d2 \
                 defaultDomain=d3",
                json!({
                    "identity": { "methods": ["password"], "password": { "user": {
                        "name": "anna", "domain": { "id": "d1" }, "password": "p" } } },
                    "scope": { "project": { "name": "vms", "domain": { "name": "d2" } } },
                }),
            ),
            (
                "authType=token token=t domainID=d",
                json!({
                    "identity": { "methods": ["token"], "token": { "id": "t" } },
                    "scope": { "domain": { "id": "d" } },
                }),
            ),
            (
                "authType=applicationcredential applicationCredentialID=c \
                 applicationCredentialSecret=s projectID=9",
                json!({ "identity": { "methods": ["application_credential"],
                    "application_credential": { "id": "c", "secret": "s" } } }),
            ),
            (
                "authType=applicationcredential applicationCredentialName=c \
                 applicationCredentialSecret=s username=anna",
                json!({ "identity": { "methods": ["application_credential"],
                    "application_credential": { "name": "c", "secret": "s",
                        "user": { "name": "anna", "domain": { "id": "default" } } } } }),
            ),
        ];
        for (text, expected) in table {
            assert_eq!(spec(&variables(text)).unwrap(), json!({ "auth": expected }), "{text}");
        }
        for (text, phrase) in [
            ("authType=kerberos", "unsupported authentication type"),
            ("username=anna", "the secret has no password"),
            ("password=hush", "the secret has no username or userID"),
            ("authType=token", "the secret has no token"),
            ("authType=applicationcredential", "no applicationCredentialSecret"),
        ] {
            assert_eq!(spec(&variables(text)).unwrap_err().to_string().find("hush"), None);
            let outcome = spec(&variables(text)).unwrap_err().to_string();
            assert!(outcome.contains(phrase), "{text}: {outcome}");
        }
    }

    #[test]
    fn the_images_of_the_right_region_and_side_are_taken() {
        let endpoint = |interface: &str, region: &str, host: &str| json!({ "interface": interface, "region": region, "url": format!("http://{host}/") });
        let catalog: Vec<Service> = serde_json::from_value(json!([
            { "type": "compute", "endpoints": [endpoint("public", "one", "nova")] },
            { "type": "image", "endpoints": [
                endpoint("internal", "one", "inside"),
                endpoint("public", "one", "first"),
                endpoint("public", "two", "second"),
                { "interface": "public", "region_id": "three", "url": "ftp://third/" },
            ] },
        ]))
        .unwrap();
        for (text, expected) in [
            ("", Some("http://first/")),
            ("regionName=two", Some("http://second/")),
            ("availability=internal", Some("http://inside/")),
            ("availability=publicURL regionName=one", Some("http://first/")),
            ("availability=admin", None),
            ("regionName=three", None),
            ("regionName=four", None),
        ] {
            let found = images(&catalog, &variables(text)).map(String::from);
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn an_address_gets_its_version_once() {
        for (base, expected) in [
            ("https://k:5000", "https://k:5000/v3/auth/tokens"),
            ("https://k:5000/v3/", "https://k:5000/v3/auth/tokens"),
            ("https://k/identity/v3?x=1", "https://k/identity/v3/auth/tokens"),
            ("https://k/identity", "https://k/identity/v3/auth/tokens"),
        ] {
            let mut url = Url::parse(base).unwrap();
            extend(&mut url, "v3", &["auth", "tokens"]);
            assert_eq!(url.as_str(), expected);
        }
    }
}
