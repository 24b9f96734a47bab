//! A registry of our own on loopback, Debian's `docker-registry`, with one container disk in it.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::server::free_address;
use crate::shell;

/// Serves `bench:latest` until dropped.
pub struct Registry {
    process: Child,
    address: SocketAddr,
}

impl Registry {
    /// Starts it and pushes an image of one layer, a gzipped tar; its own files go to `work`.
    ///
    /// # Errors
    /// When it cannot be started, does not respond, or rejects the image.
    pub fn start(layer: &Path, work: &Path) -> Result<Self> {
        let home = work.join("registry");
        fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
        let (address, settings) = (free_address()?, home.join("config.yml"));
        fs::write(&settings, configuration(&home, address))
            .with_context(|| format!("cannot write {}", settings.display()))?;
        let log = home.join("log");
        let log = File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
        // It ends with this program, however that ends.
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "docker-registry", "serve"])
            .arg(&settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("cannot start docker-registry")?;
        let mut registry = Self { process, address };
        registry.wait_until_it_answers()?;
        let variables = [
            ("LAYER", layer.display().to_string()),
            ("IMAGE", home.join("image").display().to_string()),
            ("REGISTRY", registry.host()),
        ];
        let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
        shell::script(PUSH, &variables).context("cannot push a container disk")?;
        Ok(registry)
    }

    /// Host and port.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    fn wait_until_it_answers(&mut self) -> Result<()> {
        for _ in 0..200 {
            if TcpStream::connect(self.address).is_ok() {
                return Ok(());
            }
            if let Some(status) =
                self.process.try_wait().context("cannot look at docker-registry")?
            {
                bail!("docker-registry ended at once: {status}");
            }
            thread::sleep(Duration::from_millis(50));
        }
        bail!("docker-registry does not respond")
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        if self.process.kill().is_ok() {
            drop(self.process.wait());
        }
    }
}

fn configuration(home: &Path, address: SocketAddr) -> String {
    format!(
        "version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {}/blobs}}}}
http: {{addr: '{address}'}}
",
        home.display()
    )
}

/// An image in a folder, as the OCI image layout describes it, and from there to the registry.
const PUSH: &str = r#"
mkdir -p "$IMAGE/blobs/sha256"
size() { stat --dereference --format=%s "$1"; }
digest() { sha256sum "$1" | cut -d' ' -f1; }
blob() { # stores stdin under its digest, and prints that
    cat > "$IMAGE/new"; local name; name=$(digest "$IMAGE/new"); mv "$IMAGE/new" "$IMAGE/blobs/sha256/$name"; echo "$name"
}
described() { echo "\"digest\":\"sha256:$1\",\"size\":$(size "$IMAGE/blobs/sha256/$1")"; }
layer=$(digest "$LAYER")
ln -s "$LAYER" "$IMAGE/blobs/sha256/$layer"
content=$(gzip -dc "$LAYER" | sha256sum | cut -d' ' -f1)
config=$(echo "{\"architecture\":\"amd64\",\"os\":\"linux\",\"config\":{},\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"sha256:$content\"]}}" | blob)
oci=application/vnd.oci.image
manifest=$(echo "{\"schemaVersion\":2,\"mediaType\":\"$oci.manifest.v1+json\",\"config\":{\"mediaType\":\"$oci.config.v1+json\",$(described "$config")},\"layers\":[{\"mediaType\":\"$oci.layer.v1.tar+gzip\",$(described "$layer")}]}" | blob)
echo '{"imageLayoutVersion":"1.0.0"}' > "$IMAGE/oci-layout"
echo "{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":\"$oci.manifest.v1+json\",$(described "$manifest"),\"annotations\":{\"org.opencontainers.image.ref.name\":\"bench\"}}]}" > "$IMAGE/index.json"
skopeo copy --quiet --insecure-policy --dest-tls-verify=false "oci:$IMAGE:bench" "docker://$REGISTRY/bench:latest"
"#;
