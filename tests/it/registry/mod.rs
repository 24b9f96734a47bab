//! Container disks: contents of registries and archives, the requests for them, and what is refused.

mod access;
mod hostile;
mod images;

use tests::registry::StandIn;
use tests::{Import, Target};

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// An import of an image of a registry without TLS.
fn import(host: &str, name: &str, target: &Target) -> Import {
    Import::new(format!("docker://{host}/{name}"), target.path())
        .option("--insecure-registry", host)
        .option("--architecture", "amd64")
}

fn expect(import: &Import, target: &Target, disk: &[u8], case: &str) -> serde_json::Value {
    let report = import.report();
    target.expect(disk, case);
    report
}

/// The error about an image of a stand-in; nothing looks finished then.
fn refusal(registry: &StandIn, name: &str) -> String {
    let target = Target::file();
    let message = import(&registry.host(), name, &target).refusal();
    target.expect_unfinished(&[], name);
    message
}
