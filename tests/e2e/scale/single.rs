//! One DataVolume at a time in a whole cluster, by our controllers and workers and by upstream CDI's alternately: the time from
//! its creation until it has succeeded.

use std::io::Write;
use std::net::IpAddr;

use api::v1beta1::StorageProfile;
use cluster::{Tools, VIRTCTL};
use e2e::{NAMESPACE, server, volume};
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, Patch, PatchParams};
use reference::{Programs, Whose};
use testkit::{Compressor, FaultServer, MIB, Qcow2Options, QemuImg, SparseDisk, compress};

use super::*;

/// Bytes of the disk.
const LEN: u64 = 256 * MIB;
/// Bytes of the disk that `virtctl` uploads.
const UPLOAD_LEN: u64 = 65 * MIB;
/// Of each volume: in a file system, too, the disk fits.
const SIZE: &str = "320Mi";
const GOLDEN: &str = "golden";
/// One that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(300);
/// For the cleanup after each.
const REST: Duration = Duration::from_secs(2);

/// What a DataVolume is filled from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Qcow2,
    Gzip,
    Blank,
    Clone,
    /// The whole command `virtctl image-upload`.
    Upload,
}

/// One that is measured.
pub struct Case {
    /// As the report names it.
    pub what: &'static str,
    kind: Kind,
    class: &'static str,
    mode: &'static str,
    /// In seconds.
    pub goal: f64,
}

impl Case {
    /// Upstream CDI's controllers issue the certificates of upload servers only by RSA keys, and those of this installation are others.
    pub fn is_compared(&self) -> bool {
        self.kind != Kind::Upload && (self.kind, self.class) != (Kind::Clone, "plain")
    }
}

const fn case(
    what: &'static str,
    kind: Kind,
    class: &'static str,
    mode: &'static str,
    goal: f64,
) -> Case {
    Case { what, kind, class, mode, goal }
}

/// The class `csi` clones volumes, `plain` does not.
pub const CASES: [Case; 7] = [
    case("http qcow2 to a device", Kind::Qcow2, "csi", "Block", 2.5),
    case("http qcow2 to a file", Kind::Qcow2, "csi", "Filesystem", 2.5),
    case("http raw.gz to a device", Kind::Gzip, "csi", "Block", 2.5),
    case("blank device", Kind::Blank, "csi", "Block", 2.5),
    case("clone by CSI", Kind::Clone, "csi", "Block", 1.0),
    case("clone by copy", Kind::Clone, "plain", "Block", 3.0),
    case("`virtctl image-upload`, 65 MiB", Kind::Upload, "csi", "Block", 6.0),
];

/// Where the content comes from.
struct Sources {
    qcow2: FaultServer,
    gzip: FaultServer,
    upload: tempfile::NamedTempFile,
    /// Of the upload proxy.
    proxy: IpAddr,
}

/// The seconds of each case, `runs` times by each.
pub async fn measure(state: &State, runs: usize) -> Result<Vec<Value>> {
    let client = client(state).await?;
    let sources = Sources::prepare(&client).await?;
    let programs = Programs::load_next_to_ours(&client, state).await?;
    let profiles = Api::<StorageProfile>::all(client.clone());
    let strategy = Patch::Merge(json!({ "spec": { "cloneStrategy": "csi-clone" } }));
    profiles.patch("csi", &PatchParams::default(), &strategy).await?;
    let mut figures = Vec::new();
    for run in 0..runs {
        for whose in Whose::in_turn(run) {
            let namespace = format!("single-{run}-{}", whose.name());
            programs.turn(whose).await?;
            namespaces::create(&client, &namespace).await?;
            let measured = |case: &&Case| whose == Whose::Ours || case.is_compared();
            let cases: Vec<_> = CASES.iter().filter(measured).collect();
            let seconds = measure_run(&client, state, &sources, &namespace, &cases).await;
            let seconds = seconds.with_context(|| namespace.clone())?;
            namespaces::remove(&client, &namespace).await?;
            for (case, seconds) in cases.iter().zip(seconds) {
                let figure = json!({
                    "by": whose.name(), "run": run, "case": case.what, "seconds": seconds,
                });
                eprintln!("{figure}");
                figures.push(figure);
            }
        }
    }
    programs.leave().await?;
    let strategy = Patch::Merge(json!({ "spec": { "cloneStrategy": null } }));
    profiles.patch("csi", &PatchParams::default(), &strategy).await?;
    Ok(figures)
}

/// The seconds of each case.
async fn measure_run(
    client: &Client,
    state: &State,
    sources: &Sources,
    namespace: &str,
    cases: &[&Case],
) -> Result<Vec<f64>> {
    let all = Api::<DataVolume>::namespaced(client.clone(), namespace);
    // A controller that has filled one of each class leads, and the images of workers are on the node.
    for class in ["csi", "plain"] {
        let golden = format!("{GOLDEN}-{class}");
        fill(&all, &golden, class, "Block", sources.manifest_source(Kind::Qcow2, class, namespace))
            .await?;
    }
    fill(&all, "first", "csi", "Block", json!({ "blank": {} })).await?;
    let mut figures = Vec::new();
    for &&Case { kind, class, mode, .. } in cases {
        tokio::time::sleep(REST).await;
        let begin = Instant::now();
        if kind == Kind::Upload {
            sources.upload(state, namespace, class).await?;
        } else {
            fill(&all, "disk", class, mode, sources.manifest_source(kind, class, namespace))
                .await?;
        }
        figures.push(begin.elapsed().as_secs_f64());
        let name = if kind == Kind::Upload { "uploaded" } else { "disk" };
        all.delete(name, &DeleteParams::default()).await?;
        while all.get_opt(name).await?.is_some() {
            tokio::time::sleep(GLANCE).await;
        }
    }
    Ok(figures)
}

/// Creates a DataVolume and waits until it has succeeded.
async fn fill(
    all: &Api<DataVolume>,
    name: &str,
    class: &str,
    mode: &str,
    source: Value,
) -> Result<()> {
    let mut object = volume(name, class, mode, source);
    object["spec"]["pvc"]["resources"]["requests"]["storage"] = SIZE.into();
    all.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    let begin = Instant::now();
    loop {
        let volume = all.get(name).await?;
        if phase(&volume) == "Succeeded" {
            return Ok(());
        }
        ensure!(begin.elapsed() < PATIENCE, "{name} has not succeeded: {:?}", volume.status);
        tokio::time::sleep(GLANCE / 4).await;
    }
}

impl Sources {
    async fn prepare(client: &Client) -> Result<Self> {
        let sparse = SparseDisk::mixed(LEN, 24);
        let qemu = QemuImg::require().context("there is no qemu-img")?;
        let gzip = compress(Compressor::GZIP, &sparse.bytes()).context("there is no gzip")?;
        let mut upload = tempfile::NamedTempFile::with_suffix(".img")?;
        upload.write_all(&SparseDisk::mixed(UPLOAD_LEN, 25).bytes())?;
        let services = Api::<Service>::namespaced(client.clone(), NAMESPACE);
        let proxy = services.get("cdi-uploadproxy").await?;
        let proxy = proxy.spec.and_then(|spec| spec.cluster_ip).context("it has no address")?;
        Ok(Self {
            qcow2: server(&qemu.qcow2(&sparse, &Qcow2Options::default()).bytes()),
            gzip: server(&gzip),
            upload,
            proxy: proxy.parse()?,
        })
    }

    fn manifest_source(&self, kind: Kind, class: &str, namespace: &str) -> Value {
        let http = |server: &FaultServer| json!({ "http": { "url": server.url_of("/disk.img") } });
        match kind {
            Kind::Qcow2 => http(&self.qcow2),
            Kind::Gzip => http(&self.gzip),
            Kind::Blank => json!({ "blank": {} }),
            Kind::Upload => json!({ "upload": {} }),
            Kind::Clone => {
                let golden = format!("{GOLDEN}-{class}");
                json!({ "pvc": { "namespace": namespace, "name": golden } })
            }
        }
    }

    async fn upload(&self, state: &State, namespace: &str, class: &str) -> Result<()> {
        let mut command = Command::new(Tools::ready(&[VIRTCTL])?.path("virtctl")?);
        command.args(["image-upload", "dv", "uploaded", "--insecure", "--volume-mode=block"]);
        // The profile of the tests' class names none.
        command.arg("--access-mode=ReadWriteOnce");
        command.arg(format!("--namespace={namespace}")).arg(format!("--storage-class={class}"));
        command.arg(format!("--size={SIZE}"));
        command.arg(format!("--image-path={}", self.upload.path().display()));
        command.arg(format!("--uploadproxy-url=https://{}", self.proxy));
        command.env("KUBECONFIG", state.kubeconfig()).stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let printed = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "virtctl: {printed}");
        Ok(())
    }
}
