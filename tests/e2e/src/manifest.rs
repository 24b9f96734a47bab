//! Manifests of DataVolumes as the tests of the installed system want them, and servers that their images come from.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};
use testkit::FaultServer;

/// This machine, as pods see it.
pub const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 98, 0, 1));
/// As small as a file system with a disk of 32 MiB in it may be.
pub const SIZE: &str = "48Mi";

/// A server with these bytes under every path.
pub fn server(bytes: &[u8]) -> FaultServer {
    FaultServer::in_memory_on(HOST, bytes)
}

/// A DataVolume of a class, a mode and this source.
pub fn volume(name: &str, class: &str, mode: &str, source: Value) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": { "name": name },
        "spec": { "source": source, "pvc": {
            "storageClassName": class, "volumeMode": mode, "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": SIZE } },
        } },
    })
}

/// From the web, onto a volume of a class and a mode.
pub fn imported(name: &str, class: &str, mode: &str, server: &FaultServer) -> Value {
    volume(name, class, mode, json!({ "http": { "url": server.url_of("/disk.img") } }))
}

/// With an annotation.
pub fn annotated(mut object: Value, key: &str, value: &str) -> Value {
    object["metadata"]["annotations"][key] = value.into();
    object
}
