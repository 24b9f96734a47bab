//! `cdi apply`

use std::process::Stdio;

use testkit::process::run;
use testkit::{Fault, FaultServer, MIB, pattern};

use super::{Bench, LIMIT, files_in};

/// A DataVolume `name` in namespace `vms` with this source, and a request of `size`.
fn volume(name: &str, source: &str, size: &str) -> String {
    format!(
        "---\napiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume\nmetadata: {{name: {name}, namespace: vms}}\n\
         spec: {{source: {{{source}}}, storage: {{resources: {{requests: {{storage: {size}}}}}}}}}\n"
    )
}

#[test]
fn volumes_are_created_once_and_kept() {
    let bench = Bench::new();
    let disk = pattern(3 * MIB);
    let image = bench.write("image", &disk);
    let http = format!("http: {{url: 'file://{}'}}", image.display());
    let other = "---\nkind: Pod\napiVersion: v1\nmetadata: {name: p}\n";
    let text = volume("root", &http, "4Mi") + other + &volume("data", "blank: {}", "20M");
    bench.write("volumes.yaml", &text);
    let apply = ["apply", "-f", "volumes.yaml", "--volumes", "new/volumes"];

    let finished = bench.cdi(&apply).expect_success();
    assert_eq!(finished.stdout, "vms/root  Succeeded\nvms/data  Succeeded\n");
    assert!(
        finished
            .stderr
            .starts_with("warning: skipping Pod p: cdi apply supports only DataVolumes\n")
    );
    assert!(finished.stderr.contains("vms/root  ImportScheduled\n"), "{}", finished.stderr);
    let folder = bench.path("new/volumes/vms");
    assert_eq!(files_in(&folder.join("root")), [".cdi-volume.json", "disk.img"]);
    let mut expected = disk;
    expected.resize(4 * MIB as usize, 0);
    assert!(std::fs::read(folder.join("root/disk.img")).unwrap() == expected);
    // 20 MB, rounded up to whole MiB.
    assert_eq!(std::fs::metadata(folder.join("data/disk.img")).unwrap().len(), 20 * MIB);

    std::fs::write(folder.join("data/disk.img"), "used").unwrap();
    let finished = bench.cdi(&apply).expect_success();
    assert_eq!(
        finished.stdout,
        "vms/root  Succeeded  (was complete already)\nvms/data  Succeeded  (was complete already)\n"
    );
    assert_eq!(std::fs::read(folder.join("data/disk.img")).unwrap(), b"used");

    bench.write("volumes.yaml", volume("data", "blank: {}", "30M"));
    let finished = bench.cdi(&apply);
    assert_eq!(finished.stdout, "vms/data  Failed\n");
    let message = finished.expect_refusal();
    assert!(message.starts_with(
        "error: cannot create DataVolume vms/data\n  because: Cannot update DataVolume Spec"
    ));
    assert_eq!(std::fs::read(folder.join("data/disk.img")).unwrap(), b"used");
    std::fs::remove_dir_all(folder.join("data")).unwrap();
    bench.cdi(&apply).expect_success();
}

#[test]
fn failed_volume_does_not_stop_the_others() {
    let bench = Bench::new();
    let image = bench.write("image", pattern(3 * MIB));
    let http = format!("http: {{url: 'file://{}'}}", image.display());
    let text = volume("small", &http, "1Mi")
        + &volume("missing", "http: {url: 'file:///no/such'}", "1Mi")
        + &volume("upload", "upload: {}", "1Mi")
        + &volume("../evil", "blank: {}", "1Mi")
        + &volume("good", "blank: {}", "1Mi");
    let manifest = bench.write("volumes.yaml", text);
    let input = std::fs::File::open(manifest).unwrap();
    let mut command = bench.command(&["apply", "-f", "-", "--volumes", "volumes", "--json"]);
    let finished = run(command.stdin(Stdio::from(input)), LIMIT);
    assert_eq!(finished.status.code(), Some(1));
    let found: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    let volumes = found["volumes"].as_array().unwrap();
    let phases: Vec<_> = volumes.iter().map(|volume| volume["phase"].as_str().unwrap()).collect();
    assert_eq!(phases, ["Failed", "Failed", "Failed", "Failed", "Succeeded"]);
    assert_eq!(volumes[4]["disk"], "volumes/vms/good/disk.img");
    assert_eq!(volumes[4]["alreadyComplete"], false);
    assert_eq!(volumes[4]["report"]["virtualSize"], MIB);
    // 1 MiB × 1.055, rounded up: equality would fit.
    let too_large =
        "the disk needs 3 MiB, the requested volume has 1.1 MiB: request a larger volume";
    assert_eq!(volumes[0]["error"].as_array().unwrap().last().unwrap(), too_large);
    assert!(finished.stderr.contains("because: spec.source.upload is not supported by cdi apply"));
    assert_eq!(bench.files(), ["image", "volumes", "volumes.yaml"]);
    assert_eq!(files_in(&bench.path("volumes")), ["vms"]);
}

#[test]
fn source_is_requested_with_its_secrets_and_config_maps() {
    let bench = Bench::new();
    let disk = pattern(2 * MIB);
    let server = FaultServer::in_memory(&disk)
        .tls()
        .always(Fault::BasicAuth("anna".into(), "hush".into()))
        .always(Fault::RequireHeader("X-Token".into(), "secret".into()));
    let source = format!(
        "http: {{url: '{}', secretRef: login, certConfigMap: ca, secretExtraHeaders: [token]}}",
        server.url()
    );
    bench.write("volume.yaml", volume("root", &source, "2Mi"));
    let pem = server.ca_pem().trim().replace('\n', "\n    ");
    bench.write(
        "secrets.yaml",
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: login, namespace: vms}}\n\
             data: {{accessKeyId: YW5uYQ==, secretKey: aHVzaA==}}\n---\n\
             apiVersion: v1\nkind: Secret\nmetadata: {{name: token, namespace: vms}}\n\
             stringData: {{token: 'X-Token:secret'}}\n---\n\
             apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: ca, namespace: vms}}\n\
             data:\n  ca.pem: |\n    {pem}\n  notes: not a certificate\n"
        ),
    );
    let both = ["apply", "-f", "volume.yaml", "-f", "secrets.yaml", "--volumes", "volumes", "-vv"];
    let finished = bench.cdi(&both).expect_success();
    assert!(!finished.stderr.contains("hush") && !finished.stderr.contains("secret\""));
    assert!(std::fs::read(bench.path("volumes/vms/root/disk.img")).unwrap() == disk);

    let alone = ["apply", "-f", "volume.yaml", "--volumes", "other"];
    let message = bench.cdi(&alone).expect_refusal();
    assert!(message.contains(
        "missing Secret vms/login in the manifests, which spec.source.http.secretRef names"
    ));
    assert!(!bench.path("other").exists(), "nothing is made of what is refused");
}

#[test]
fn checksum_in_the_manifest_is_verified() {
    let bench = Bench::new();
    let image = bench.write("image", pattern(MIB));
    let http =
        format!("http: {{url: 'file://{}', checksum: 'md5:{}'}}", image.display(), "0".repeat(32));
    bench.write("volume.yaml", volume("root", &http, "1Mi"));
    let message =
        bench.cdi(&["apply", "-f", "volume.yaml", "--volumes", "volumes"]).expect_refusal();
    assert!(
        message.contains("checksum validation failed: checksum mismatch: expected md5:0000"),
        "{message}"
    );
    assert_eq!(files_in(&bench.path("volumes/vms/root")), [".cdi-volume.json"]);
}

#[test]
fn manifest_without_volumes_is_an_error() {
    let bench = Bench::new();
    bench.write("pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n");
    let message = bench.cdi(&["apply", "-f", "pod.yaml", "--volumes", "volumes"]).expect_refusal();
    assert!(message.ends_with("error: the manifests contain no DataVolume\n"), "{message}");
    bench.write(
        "broken.yaml",
        volume("root", "blank: {}", "1Mi").replace("storage: {", "storag: {"),
    );
    let message =
        bench.cdi(&["apply", "-f", "broken.yaml", "--volumes", "volumes"]).expect_refusal();
    assert_eq!(
        message,
        "error: cannot use broken.yaml\n  \
         because: unknown field spec.storag in document 1 of the manifest\n"
    );
}
