//! A stand-in for oVirt: engine and image server in one, written from the public protocol, with faults.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::stub::{Stub, StubRequest, StubResponse};

/// The disk's id, its image's id, and the id of the one snapshot that is known.
pub const DISK: &str = "8bb0a5d8-0000-4000-8000-000000000001";
/// See [`DISK`].
pub const IMAGE: &str = "8bb0a5d8-0000-4000-8000-000000000002";
/// See [`DISK`].
pub const SNAPSHOT: &str = "8bb0a5d8-0000-4000-8000-000000000003";
/// The ticket of the one transfer.
pub const TICKET: &str = "8bb0a5d8-0000-4000-8000-000000000004";

/// The served disk, the faults, and the recorded requests.
#[derive(Clone, Debug, Default)]
pub struct OvirtState {
    /// The bytes of the transfer: a raw disk, or the qcow2 of a delta.
    pub bytes: Vec<u8>,
    /// The list of extents, if the image server supports them.
    pub extents: Option<String>,
    /// There is no single sign-on: only name and password.
    pub without_tokens: bool,
    /// For this number of requests the disk is locked.
    pub locked: u32,
    /// For this number of requests the transfer is initialising.
    pub slow: u32,
    /// The request for bytes with this number, and all after it, find the ticket expired until it is extended.
    pub expires_at: Option<usize>,
    /// The same, and the transfer is paused until it is resumed.
    pub pauses_at: Option<usize>,
    /// More or fewer bytes than there are, in every response from the second on.
    pub another_length: i64,
    /// The transfer fails by itself at this request for bytes.
    pub fails_at: Option<usize>,
    /// The phase of the transfer.
    pub phase: String,
    /// Requests to the engine: `begin raw snapshot …`, `extend`, `finalize` …
    pub actions: Vec<String>,
    /// Requests for bytes.
    pub gets: usize,
    /// The ticket is of no use until it is extended.
    pub expired: bool,
}

/// Engine and image server. Name and password are `admin@internal` and `hush`.
#[derive(Debug)]
pub struct Ovirt {
    stub: Stub,
    state: Arc<Mutex<OvirtState>>,
}

impl Ovirt {
    /// Serves according to `state`.
    pub fn start(state: OvirtState) -> Self {
        Self::start_on(IpAddr::V4(Ipv4Addr::LOCALHOST), state)
    }

    /// The same on another address of this machine, which pods of a cluster reach.
    pub fn start_on(address: IpAddr, state: OvirtState) -> Self {
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        let stub = Stub::start_on(address, move |request| {
            let mut state = shared.lock();
            let host = request.header("host").unwrap_or_default().to_owned();
            if request.target.starts_with("/images/") {
                state.image(request)
            } else {
                state.engine(request, &host)
            }
        });
        Self { stub, state }
    }

    /// The address of the engine's interface.
    pub fn endpoint(&self) -> String {
        self.stub.url("/ovirt-engine/api")
    }

    /// The recorded requests, and the faults, which can be changed.
    pub fn state(&self) -> MutexGuard<'_, OvirtState> {
        self.state.lock()
    }
}

impl OvirtState {
    fn engine(&mut self, request: &StubRequest, host: &str) -> StubResponse {
        let path = request.target.strip_prefix("/ovirt-engine").unwrap_or_default();
        if path == "/sso/oauth/token" {
            let right = request.body.contains("username=admin%40internal")
                && request.body.contains("password=hush")
                && request.body.contains("grant_type=password");
            return match (self.without_tokens, right) {
                (true, _) => StubResponse::new(404, ""),
                (false, true) => {
                    StubResponse::new(200, r#"{"access_token":"secret-token","exp":"1"}"#)
                }
                (false, false) => {
                    StubResponse::new(401, r#"{"error_description":"Cannot authenticate"}"#)
                }
            };
        }
        let wanted = if self.without_tokens {
            "Basic YWRtaW5AaW50ZXJuYWw6aHVzaA=="
        } else {
            "Bearer secret-token"
        };
        if request.header("authorization") != Some(wanted) {
            return StubResponse::new(401, "");
        }
        let transfer = |phase: &str| {
            format!(
                r#"{{"id":"t-1","phase":"{phase}","transfer_url":"http://{host}/images/{TICKET}"}}"#
            )
        };
        let path: Vec<_> = path.split('/').skip(2).collect();
        match (request.method.as_str(), path.as_slice()) {
            ("GET", ["disks", DISK]) => StubResponse::new(
                200,
                format!(
                    r#"{{"id":"{DISK}","image_id":"{IMAGE}","provisioned_size":"1",
                        "storage_domains":{{"storage_domain":[{{"id":"sd-1"}},{{"id":"sd-2"}}]}}}}"#
                ),
            ),
            ("GET", ["storagedomains", "sd-1", "disksnapshots"]) => StubResponse::new(200, "{}"),
            ("GET", ["storagedomains", "sd-2", "disksnapshots"]) => StubResponse::new(
                200,
                format!(r#"{{"disk_snapshot":[{{"id":"x"}},{{"id":"{SNAPSHOT}"}}]}}"#),
            ),
            ("POST", ["imagetransfers"]) if self.locked > 0 => {
                self.locked -= 1;
                let text = "[Cannot transfer Virtual Disk: Disk is locked. Please try again.]";
                StubResponse::new(
                    409,
                    format!(r#"{{"detail":"{text}","reason":"Operation Failed"}}"#),
                )
            }
            ("POST", ["imagetransfers"]) => {
                self.actions.push(format!("begin {}", request.body));
                self.phase = "initializing".into();
                StubResponse::new(201, transfer("initializing"))
            }
            ("GET", ["imagetransfers", "t-1"]) => {
                if self.phase == "initializing" || self.phase == "resuming" {
                    self.slow = self.slow.saturating_sub(1);
                    if self.slow == 0 {
                        self.phase = "transferring".into();
                    }
                }
                StubResponse::new(200, transfer(&self.phase))
            }
            ("POST", ["imagetransfers", "t-1", action]) => {
                self.actions.push((*action).to_owned());
                match *action {
                    "extend" => self.expired = false,
                    "resume" => self.phase = "resuming".into(),
                    "finalize" => self.phase = "finalizing_success".into(),
                    "cancel" => self.phase = "cancelled_user".into(),
                    _ => return StubResponse::new(404, ""),
                }
                StubResponse::new(200, "{}")
            }
            _ => StubResponse::new(404, r#"{"reason":"Not Found","detail":"no such thing"}"#),
        }
    }

    fn image(&mut self, request: &StubRequest) -> StubResponse {
        let here = format!("/images/{TICKET}");
        if request.method == "OPTIONS" {
            let features = if self.extents.is_some() { r#""extents","zero""# } else { "" };
            return StubResponse::new(
                200,
                format!(r#"{{"features":[{features}],"max_readers":4}}"#),
            );
        }
        if request.target == format!("{here}/extents") {
            return StubResponse::new(200, self.extents.clone().unwrap_or_default());
        }
        if request.target != here {
            return StubResponse::new(404, "");
        }
        let number = self.gets;
        self.gets += 1;
        self.expired |= self.expires_at == Some(number) || self.pauses_at == Some(number);
        if self.pauses_at == Some(number) {
            self.phase = "paused_system".into();
        }
        if self.fails_at.is_some_and(|at| number >= at) {
            self.phase = "finished_failure".into();
            return StubResponse::new(403, "no such ticket");
        }
        if self.expired {
            return StubResponse::new(403, "the ticket has expired");
        }
        let len = self.bytes.len() as u64;
        let shown = if number == 0 { len } else { len.saturating_add_signed(self.another_length) };
        match request.range() {
            Some((from, to)) if from < len => {
                let to = to.min(len);
                let part = self.bytes[from as usize..to as usize].to_vec();
                StubResponse::new(206, part)
                    .with("content-range", format!("bytes {from}-{}/{shown}", to - 1))
            }
            _ => StubResponse::new(200, self.bytes.clone()),
        }
    }
}
