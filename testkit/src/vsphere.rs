//! A stand-in for vSphere's interface, written from its public description, and a program that passes for nbdkit with
//! VMware's plugin.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::stub::{Stub, StubRequest, StubResponse};
use crate::tool::require_tool;

/// The machine: UUID of its BIOS, and name.
pub const MACHINE_UUID: &str = "42300000-0000-4000-8000-000000000001";
/// See [`MACHINE_UUID`].
pub const MACHINE: &str = "vm-7";
/// The files of its disk: now, in `snapshot-1` and `snapshot-2`, and at the bottom.
pub const FILES: [&str; 4] =
    ["[ds] m/d-000002.vmdk", "[ds] m/d-000001.vmdk", "[ds] m/d-000003.vmdk", "[ds] m/base.vmdk"];
/// The states of the two snapshots.
pub const CHANGE_IDS: [&str; 2] = ["52 aa/1", "52 aa/2"];

/// The responses, and the calls so far.
#[derive(Clone, Debug, Default)]
pub struct VsphereState {
    /// Bytes of the disk.
    pub capacity: u64,
    /// What has changed between the snapshots: start and length.
    pub areas: Vec<(u64, u64)>,
    /// The length of the range that one response about changes covers. 0: all.
    pub page: u64,
    /// The session ends before the call with this number.
    pub expires_at: Option<usize>,
    /// Replaces the response about changed areas.
    pub changes: Option<String>,
    /// Changes are not tracked.
    pub untracked: bool,
    /// The calls so far, with their change ids.
    pub calls: Vec<String>,
    /// The session that is good, by number.
    pub session: usize,
}

/// The interface. Name and password are `root` and `hush & <hush>`.
#[derive(Debug)]
pub struct Vsphere {
    stub: Stub,
    state: Arc<Mutex<VsphereState>>,
}

impl Vsphere {
    /// Responds according to `state`; over TLS or without.
    pub fn start(state: VsphereState, tls: bool) -> Self {
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        let answer = move |request: &StubRequest| shared.lock().answer(request);
        let stub = if tls { Stub::start_tls(answer) } else { Stub::start(answer) };
        Self { stub, state }
    }

    /// The same without TLS on another address of this machine, which pods of a cluster reach.
    pub fn start_on(address: IpAddr, state: VsphereState) -> Self {
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        let stub = Stub::start_on(address, move |request| shared.lock().answer(request));
        Self { stub, state }
    }

    pub fn endpoint(&self) -> String {
        self.stub.url("/any")
    }

    pub fn certificate(&self) -> &[u8] {
        self.stub.certificate()
    }

    /// The responses, and the recorded calls.
    pub fn state(&self) -> MutexGuard<'_, VsphereState> {
        self.state.lock()
    }
}

impl VsphereState {
    fn answer(&mut self, request: &StubRequest) -> StubResponse {
        let body = request.body.as_str();
        let inside = body.split("<Body><").nth(1).unwrap_or_default();
        let method = inside.split(' ').next().unwrap_or_default().to_owned();
        if request.target != "/sdk" || request.header("soapaction").is_none() {
            return StubResponse::new(404, "");
        }
        if self.expires_at == Some(self.calls.len()) {
            self.session += 1;
        }
        let change = element(body, "changeId").map(|id| format!(" {id}")).unwrap_or_default();
        let path = element(body, "pathSet").map(|path| format!(" {path}")).unwrap_or_default();
        self.calls.push(format!("{method}{change}{path}"));
        let cookie = format!("vmware_soap_session=\"s-{}\"", self.session);
        let open = ["RetrieveServiceContent", "Login"].contains(&method.as_str());
        if !open && request.header("cookie") != Some(&cookie) {
            return fault("The session is not authenticated.", "NotAuthenticatedFault");
        }
        let value = match method.as_str() {
            "RetrieveServiceContent" => concat!(
                "<returnval><rootFolder type=\"Folder\">group-d1</rootFolder>",
                "<propertyCollector type=\"PropertyCollector\">pc</propertyCollector>",
                "<sessionManager type=\"SessionManager\">sm</sessionManager>",
                "<searchIndex type=\"SearchIndex\">si</searchIndex></returnval>"
            )
            .to_owned(),
            "Login" => {
                let right = element(body, "userName") == Some("root")
                    && element(body, "password") == Some("hush &amp; &lt;hush&gt;");
                if !right {
                    return fault("Cannot complete login", "InvalidLoginFault");
                }
                let answer = envelope(&method, "<returnval><key>k</key></returnval>");
                return StubResponse::new(200, answer)
                    .with("set-cookie", format!("{cookie}; Path=/; HttpOnly"));
            }
            "FindByUuid" => {
                let found = element(body, "uuid") == Some(MACHINE_UUID)
                    && element(body, "instanceUuid") == Some("false");
                let machine = format!("<returnval type=\"VirtualMachine\">{MACHINE}</returnval>");
                if found { machine } else { String::new() }
            }
            "RetrieveProperties" => self.property(body),
            "QueryChangedDiskAreas" => self.changes(body),
            _ => return fault("no such method", "Other"),
        };
        StubResponse::new(200, envelope(&method, &value))
    }

    fn property(&self, body: &str) -> String {
        let path = element(body, "pathSet").unwrap_or_default();
        let value = match path {
            "config.hardware.device" => {
                let which = ["snapshot-1", "snapshot-2"]
                    .iter()
                    .position(|snapshot| body.contains(&format!(">{snapshot}</obj>")));
                self.devices(which)
            }
            "snapshot" => concat!(
                "<rootSnapshotList><snapshot type=\"VirtualMachineSnapshot\">snapshot-1</snapshot>",
                "<childSnapshotList><snapshot type=\"VirtualMachineSnapshot\">snapshot-2</snapshot>",
                "</childSnapshotList></rootSnapshotList>"
            )
            .to_owned(),
            _ => String::new(),
        };
        format!(
            "<returnval><obj>x</obj><propSet><name>{path}</name><val>{value}</val></propSet></returnval>"
        )
    }

    fn devices(&self, snapshot: Option<usize>) -> String {
        let file = snapshot.map_or(FILES[0], |which| FILES[1 + which]);
        let change = snapshot
            .filter(|_| !self.untracked)
            .map_or(String::new(), |which| format!("<changeId>{}</changeId>", CHANGE_IDS[which]));
        format!(
            concat!(
                "<VirtualDevice xsi:type=\"VirtualIDEController\"><key>200</key></VirtualDevice>",
                "<VirtualDevice xsi:type=\"VirtualDisk\"><key>2000</key>",
                "<backing xsi:type=\"VirtualDiskFlatVer2BackingInfo\"><fileName>{0}</fileName>{1}",
                "<parent><fileName>[ds] m/between.vmdk</fileName><parent><fileName>{2}</fileName>",
                "</parent></parent></backing><capacityInKB>1</capacityInKB>",
                "<capacityInBytes>{3}</capacityInBytes></VirtualDevice>"
            ),
            file, change, FILES[3], self.capacity
        )
    }

    fn changes(&self, body: &str) -> String {
        if let Some(changes) = &self.changes {
            return changes.clone();
        }
        let start: u64 = element(body, "startOffset").and_then(|at| at.parse().ok()).unwrap_or(0);
        let page = if self.page == 0 { self.capacity } else { self.page };
        let end = (start + page).min(self.capacity);
        let mut text = format!(
            "<returnval><startOffset>{start}</startOffset><length>{}</length>",
            end - start
        );
        for (at, len) in &self.areas {
            let (from, to) = ((*at).max(start), (at + len).min(end));
            if from < to {
                let _ = write!(
                    text,
                    "<changedArea><start>{from}</start><length>{}</length></changedArea>",
                    to - from
                );
            }
        }
        text + "</returnval>"
    }
}

fn element<'a>(body: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(value, _)| value)
}

fn envelope(method: &str, value: &str) -> String {
    format!(
        concat!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>",
            "<soapenv:Envelope xmlns:soapenv=\"http://schemas.xmlsoap.org/soap/envelope/\" ",
            "xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\"><soapenv:Body>",
            "<{0}Response xmlns=\"urn:vim25\">{1}</{0}Response></soapenv:Body></soapenv:Envelope>"
        ),
        method, value
    )
}

fn fault(text: &str, kind: &str) -> StubResponse {
    let body = format!(
        concat!(
            "<s:Envelope xmlns:s=\"http://schemas.xmlsoap.org/soap/envelope/\"><s:Body><s:Fault>",
            "<faultcode>ServerFaultCode</faultcode><faultstring>{0}</faultstring>",
            "<detail><{1}/></detail></s:Fault></s:Body></s:Envelope>"
        ),
        text, kind
    );
    StubResponse::new(500, body)
}

/// Creates a program `nbdkit` in `folder` that serves the file `disk` whatever its arguments are, logs what the real one logs, and
/// stores its arguments and the password there. `None` where there is no nbdkit: the test is skipped.
///
/// # Panics
/// When it cannot be written.
pub fn fake_nbdkit(folder: &Path, disk: &Path) -> Option<PathBuf> {
    fake_nbdkit_seen_at(folder, folder, disk)
}

/// The same for a container in which `folder` is at `seen`, and the disk's path is another too.
///
/// # Panics
/// As [`fake_nbdkit`].
pub fn fake_nbdkit_seen_at(folder: &Path, seen: &Path, disk: &Path) -> Option<PathBuf> {
    let real = require_tool("nbdkit")?;
    let program = folder.join("nbdkit");
    let script = format!(
        concat!(
            "#!/bin/sh\n",
            "for word in \"$@\"; do echo \"$word\"; done > {0}/arguments\n",
            "while [ $# -gt 0 ]; do case $1 in\n",
            "  --unix) socket=$2; shift;;\n",
            "  --pidfile) pid=$2; shift;;\n",
            "  password=-*) cat /proc/self/fd/${{1#password=-}} > {0}/password;;\n",
            "esac; shift; done\n",
            "[ -e {0}/broken ] && {{ echo 'nbdkit: error: no such library' >&2; exit 1; }}\n",
            "echo 'nbdkit: debug: VMware VixDiskLib (8.0.2) Release build-1' >&2\n",
            "echo \"nbdkit: vddk[1]: debug: Opened 'vpxa-nfcssl://[ds] m/d.vmdk@esx.example:902'\" >&2\n",
            "exec {1} --foreground --readonly --unix \"$socket\" --pidfile \"$pid\" file {2}\n"
        ),
        seen.display(),
        real.path().display(),
        disk.display()
    );
    std::fs::write(&program, script).expect("cannot write a program");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("cannot make a program");
    Some(program)
}
