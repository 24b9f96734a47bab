//! A stand-in for OpenStack: Keystone and Glance in one, written from their public interfaces.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::stub::{Stub, StubRequest, StubResponse};

/// The one image.
pub const IMAGE: &str = "2b7f1c1e-0000-4000-8000-000000000001";
const TOKEN: &str = "secret-token";

/// The served objects, the faults, and the recorded requests.
#[derive(Clone, Debug, Default)]
pub struct OpenstackState {
    /// The bytes of the image.
    pub bytes: Vec<u8>,
    /// Algorithm and digest that Glance states for them.
    pub hash: Option<(String, String)>,
    /// Instead of `active`.
    pub status: Option<String>,
    /// Whether it serves ranges.
    pub ranges: bool,
    /// The bytes are at this address instead.
    pub elsewhere: Option<String>,
    /// The response to the request for bytes with this number, counted from 0, is 503.
    pub busy_at: Option<usize>,
    /// Bodies of requests for a token.
    pub logins: Vec<String>,
    /// Requests for bytes.
    pub gets: usize,
}

/// Keystone and Glance. Name and password are `anna` and `hush`.
#[derive(Debug)]
pub struct Openstack {
    stub: Stub,
    state: Arc<Mutex<OpenstackState>>,
}

impl Openstack {
    /// Serves according to `state`.
    pub fn start(state: OpenstackState) -> Self {
        Self::start_on(IpAddr::V4(Ipv4Addr::LOCALHOST), state)
    }

    /// The same on another address of this machine, which pods of a cluster reach.
    pub fn start_on(address: IpAddr, state: OpenstackState) -> Self {
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        let stub = Stub::start_on(address, move |request| shared.lock().answer(request));
        Self { stub, state }
    }

    /// Keystone's address, without its version.
    pub fn endpoint(&self) -> String {
        self.stub.url("/identity")
    }

    /// The recorded requests, and the faults, which can be changed.
    pub fn state(&self) -> MutexGuard<'_, OpenstackState> {
        self.state.lock()
    }
}

impl OpenstackState {
    fn answer(&mut self, request: &StubRequest) -> StubResponse {
        let host = request.header("host").unwrap_or_default();
        if request.method == "POST" && request.target == "/identity/v3/auth/tokens" {
            return self.login(request, host);
        }
        if request.header("x-auth-token") != Some(TOKEN) {
            return StubResponse::new(401, r#"{"message":"This server could not verify"}"#);
        }
        let image = format!("/image/v2/images/{IMAGE}");
        if request.target == image {
            let hash = self.hash.as_ref().map(|(algorithm, digits)| {
                format!(r#","os_hash_algo":"{algorithm}","os_hash_value":"{digits}""#)
            });
            return StubResponse::new(
                200,
                format!(
                    r#"{{"id":"{IMAGE}","status":"{}","disk_format":"raw","size":{},"checksum":null{}}}"#,
                    self.status.as_deref().unwrap_or("active"),
                    self.bytes.len(),
                    hash.unwrap_or_default()
                ),
            );
        }
        if request.target == format!("{image}/file") {
            return self.file(request);
        }
        StubResponse::new(404, r#"{"message":"No image found with that ID"}"#)
    }

    fn login(&mut self, request: &StubRequest, host: &str) -> StubResponse {
        self.logins.push(request.body.clone());
        let right = request.body.contains(r#""name":"anna""#)
            && request.body.contains(r#""password":"hush""#)
            && request.body.contains(r#""project""#);
        if !right {
            let message = "The request you have made requires authentication.";
            return StubResponse::new(
                401,
                format!(r#"{{"error":{{"code":401,"message":"{message}"}}}}"#),
            );
        }
        let endpoint = |interface: &str, path: &str| {
            format!(r#"{{"interface":"{interface}","region":"one","url":"http://{host}/{path}"}}"#)
        };
        let catalog = format!(
            r#"[{{"type":"compute","endpoints":[{}]}},{{"type":"image","endpoints":[{},{}]}}]"#,
            endpoint("public", "compute"),
            endpoint("internal", "nowhere"),
            endpoint("public", "image")
        );
        StubResponse::new(201, format!(r#"{{"token":{{"catalog":{catalog}}}}}"#))
            .with("x-subject-token", TOKEN)
    }

    fn file(&mut self, request: &StubRequest) -> StubResponse {
        let number = self.gets;
        self.gets += 1;
        if self.busy_at == Some(number) {
            return StubResponse::new(503, "").with("retry-after", "0");
        }
        if let Some(address) = &self.elsewhere {
            return StubResponse::new(302, "").with("location", address.clone());
        }
        let len = self.bytes.len() as u64;
        match request.range().filter(|(from, _)| self.ranges && *from < len) {
            Some((from, to)) => {
                let to = to.min(len);
                let part = self.bytes[from as usize..to as usize].to_vec();
                StubResponse::new(206, part)
                    .with("content-range", format!("bytes {from}-{}/{len}", to - 1))
            }
            None => StubResponse::new(200, self.bytes.clone()),
        }
    }
}
