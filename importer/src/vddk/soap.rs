//! Calls of vSphere's interface: SOAP, with a session that is renewed when it has expired.

use std::fmt::Write as _;

use http::header::SET_COOKIE;
use parking_lot::Mutex;
use quick_xml::escape::escape;
use url::Url;

use super::xml::Node;
use crate::error::Error;
use crate::secret::{RedactedUrl, Secret};
use crate::web::HttpOptions;
use crate::web::call::{Call, Caller};
use crate::web::tls::Trust;

/// Longer responses are rejected. The longest are lists of changed areas.
const ANSWER_MAX: usize = 64 << 20;

/// An object of vSphere: its type, and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Moref {
    pub(super) kind: String,
    pub(super) id: String,
}

impl Moref {
    pub(super) fn new(kind: &str, id: &str) -> Self {
        Self { kind: kind.to_owned(), id: id.to_owned() }
    }

    /// As an argument called `name`.
    pub(super) fn argument(&self, name: &str) -> String {
        let (kind, id) = (escape(self.kind.as_str()), escape(self.id.as_str()));
        format!(r#"<{name} type="{kind}">{id}</{name}>"#)
    }

    fn from_node(node: &Node) -> Self {
        Self::new(&node.kind, node.text.trim())
    }
}

/// An argument that is text.
pub(super) fn argument(name: &str, value: &str) -> String {
    format!("<{name}>{}</{name}>", escape(value))
}

/// The services that everything begins with.
pub(super) struct Services {
    pub(super) search: Moref,
    pub(super) properties: Moref,
    session: Moref,
}

/// A session with a vCenter or a host.
pub(super) struct Soap {
    caller: Caller,
    url: Url,
    user: String,
    password: Secret,
    cookie: Mutex<Option<Secret>>,
    pub(super) services: Services,
}

impl Soap {
    /// Logs in at `url`, whose certificate `trust` has to accept.
    pub(super) fn login(
        url: Url,
        user: &str,
        password: &Secret,
        trust: Trust,
        http: &HttpOptions,
    ) -> Result<Self, Error> {
        let none = || Moref::new("", "");
        let mut soap = Self {
            caller: Caller::trusting(trust, http)?,
            url,
            user: user.to_owned(),
            password: password.clone(),
            cookie: Mutex::default(),
            services: Services { search: none(), properties: none(), session: none() },
        };
        let root = Moref::new("ServiceInstance", "ServiceInstance");
        let content = soap.once("RetrieveServiceContent", &root, "")?.map_err(|f| soap.fault(f))?;
        let service = |name: &str| {
            let found = content.at(&["returnval", name]).map(Moref::from_node);
            found.ok_or_else(|| soap.nonsense(format!("it has no {name}")))
        };
        let services = Services {
            search: service("searchIndex")?,
            properties: service("propertyCollector")?,
            session: service("sessionManager")?,
        };
        soap.services = services;
        soap.authenticate()?;
        Ok(soap)
    }

    /// Calls `method` of an object. `arguments` is XML, made of [`argument`]s.
    pub(super) fn call(&self, method: &str, this: &Moref, arguments: &str) -> Result<Node, Error> {
        match self.once(method, this, arguments)? {
            Ok(answer) => return Ok(answer),
            Err(fault) if !fault.is_not_authenticated() => return Err(self.fault(fault)),
            Err(_) => tracing::info!("the session has expired; logging in again"),
        }
        self.authenticate()?;
        self.once(method, this, arguments)?.map_err(|fault| self.fault(fault))
    }

    /// A property of an object.
    pub(super) fn property(&self, of: &Moref, path: &str) -> Result<Option<Node>, Error> {
        let wanted = format!(
            "<specSet><propSet>{}{}</propSet><objectSet>{}</objectSet></specSet>",
            argument("type", &of.kind),
            argument("pathSet", path),
            of.argument("obj"),
        );
        let answer = self.call("RetrieveProperties", &self.services.properties, &wanted)?;
        let found = answer.child("returnval").into_iter().flat_map(|object| object.all("propSet"));
        let mut named = found.filter(|property| property.text_of("name") == Some(path));
        Ok(named.find_map(|property| property.child("val")).cloned())
    }

    pub(super) fn nonsense(&self, because: String) -> Error {
        Error::Answer { url: RedactedUrl::from(&self.url), because }
    }

    pub(super) fn refused(&self, because: String) -> Error {
        Error::Refused { url: RedactedUrl::from(&self.url), because }
    }

    fn authenticate(&self) -> Result<(), Error> {
        *self.cookie.lock() = None;
        let password = self.password.reveal();
        let arguments = argument("userName", &self.user) + &argument("password", password);
        let answer = self.once("Login", &self.services.session, &arguments)?;
        answer.map(drop).map_err(|fault| self.fault(fault))
    }

    fn once(
        &self,
        method: &str,
        this: &Moref,
        arguments: &str,
    ) -> Result<Result<Node, Fault>, Error> {
        let this = this.argument("_this");
        let mut body = String::from(r#"<?xml version="1.0" encoding="UTF-8"?>"#);
        let _ = write!(
            body,
            concat!(
                r#"<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body>"#,
                r#"<{0} xmlns="urn:vim25">{1}{2}</{0}></Body></Envelope>"#,
            ),
            method, this, arguments
        );
        let mut headers = vec![
            ("content-type", "text/xml; charset=utf-8".to_owned()),
            ("soapaction", "urn:vim25/6.5".to_owned()),
        ];
        let cookie = self.cookie.lock().clone();
        headers.extend(cookie.map(|cookie| ("cookie", cookie.reveal().to_owned())));
        let answer = self.caller.call(Call {
            method: "POST",
            url: &self.url,
            headers: &headers,
            body: body.into_bytes(),
            answer_max: ANSWER_MAX,
        })?;
        let set = answer.headers.get(SET_COOKIE).and_then(|value| value.to_str().ok());
        if let Some(pair) = set.and_then(|value| value.split(';').next()) {
            let mut cookie = self.cookie.lock();
            *cookie = Some(Secret::new(pair.trim()));
        }
        let tree = Node::parse(&answer.body).map_err(|because| match answer.status {
            200 | 500 => self.nonsense(because),
            status => self.refused(format!("it responded with status {status}")),
        })?;
        let body = tree.child("Body").ok_or_else(|| self.nonsense("it is no SOAP".into()))?;
        if let Some(fault) = body.child("Fault") {
            return Ok(Err(Fault(fault.clone())));
        }
        let answer = body.child(&format!("{method}Response")).cloned();
        answer.map(Ok).ok_or_else(|| self.nonsense("an answer to something else".into()))
    }

    fn fault(&self, Fault(node): Fault) -> Error {
        let message: String =
            node.text_of("faultstring").unwrap_or_default().chars().take(400).collect();
        let kind = node.child("detail").and_then(|detail| detail.children.first());
        let kind = kind.map(|kind| kind.name.clone()).unwrap_or_default();
        self.refused(format!("{} ({})", message.escape_debug(), kind.escape_debug()))
    }
}

/// The body of a response that refuses the request.
struct Fault(Node);

impl Fault {
    fn is_not_authenticated(&self) -> bool {
        let detail = self.0.child("detail").map(|detail| detail.children.as_slice());
        detail.unwrap_or_default().iter().any(|kind| {
            kind.name.contains("NotAuthenticated") || kind.kind.contains("NotAuthenticated")
        })
    }
}
