//! Access to the cluster through `kubectl`, which supports all kinds of credentials and
//! keeps this program small.

use std::io::{BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use api::annotations::request;
use api::names::UPLOAD_PROXY_SERVICE;
use http::HeaderValue;
use serde_json::{Value, json};

use super::args::UploadArgs;
use super::forward::ForwardedPort;
use crate::args::Format;

const TOKENS: &str = "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces";

/// The APIService of upload tokens, which names the namespace of the installation.
const TOKEN_API_SERVICE: &str = "v1beta1.upload.cdi.kubevirt.io";
/// The namespace of the installation for users who may not read [`TOKEN_API_SERVICE`].
const DEFAULT_NAMESPACE: &str = "cdi";
/// In the namespace of the installation: the CA that signs the upload proxy's certificate.
const PROXY_CA_BUNDLE: &str = "cdi-uploadproxy-signer-bundle";
const PROXY_CA_KEY: &str = "ca-bundle.crt";

pub struct Kubectl<'a> {
    args: &'a UploadArgs,
}

/// The address of the upload proxy and the CA that signs its certificate.
#[derive(Default)]
pub struct ProxyEndpoint {
    pub url: String,
    pub ca_pem: Option<String>,
    /// Connections go through this port instead of to the address.
    pub forwarded: Option<ForwardedPort>,
}

impl<'a> Kubectl<'a> {
    pub fn new(args: &'a UploadArgs) -> Self {
        Self { args }
    }

    pub fn volume(&self) -> Result<Option<Value>> {
        let name = &self.args.volume.name;
        let found =
            self.run(&["get", "datavolume", name, "-o", "json", "--ignore-not-found"], None);
        let found = found.context("cannot read the DataVolume")?;
        if found.trim().is_empty() {
            return Ok(None);
        }
        serde_json::from_str(&found)
            .map(Some)
            .context("cannot parse the output of kubectl as an object")
    }

    /// Creates the DataVolume with the quantity `size`.
    pub fn create(&self, size: &str) -> Result<()> {
        let object = data_volume(self.args, size).to_string();
        self.run(&["create", "-f", "-"], Some(&object)).context("cannot create the DataVolume")?;
        Ok(())
    }

    /// Waits until `reached` is true of the DataVolume.
    pub fn wait(
        &self,
        patience: Duration,
        what: &str,
        reached: impl Fn(&Value) -> Result<bool>,
    ) -> Result<()> {
        let limit = format!("--request-timeout={}s", patience.as_secs().max(1));
        let name = &self.args.volume.name;
        let arguments = ["get", "datavolume", name, "-o", "json", "--watch", &limit];
        let mut command = self.command(&arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut watching = KillOnDrop(self.start(&mut command)?);
        let stdout = watching.0.stdout.take().context("kubectl has no standard output")?;
        let objects = serde_json::Deserializer::from_reader(BufReader::new(stdout));
        for object in objects.into_iter::<Value>() {
            if reached(&object.context("cannot parse the output of kubectl as an object")?)? {
                return Ok(());
            }
        }
        bail!("the DataVolume was not {what} within {} s", patience.as_secs());
    }

    /// Requests an upload token for the PVC.
    pub fn token(&self) -> Result<HeaderValue> {
        let path = format!("{TOKENS}/{}/uploadtokenrequests", self.args.volume.namespace);
        let request = json!({
            "apiVersion": "upload.cdi.kubevirt.io/v1beta1",
            "kind": "UploadTokenRequest",
            "metadata": { "generateName": "token-for-cdi-" },
            "spec": { "pvcName": self.args.volume.name },
        });
        let response = self.run(&["create", "--raw", &path, "-f", "-"], Some(&request.to_string()));
        let response = response.context("cannot get a token for the upload")?;
        let response: Value = serde_json::from_str(&response)
            .context("cannot parse the output of kubectl as an object")?;
        let token = response["status"]["token"].as_str().context("the response has no token")?;
        bearer_header(token)
    }

    /// The upload proxy at the address in the CDIConfig or, where that has none, through a forwarded port.
    ///
    /// # Errors
    /// When the CDIConfig cannot be read, or it has no address and the port cannot be forwarded.
    pub fn proxy_endpoint(&self) -> Result<ProxyEndpoint> {
        let found = self.run(&["get", "cdiconfig", "config", "-o", "json"], None);
        let found = found.context(
            "cannot read the CDIConfig, which has the address of the upload proxy; --url sets it",
        )?;
        let config: Value = serde_json::from_str(&found)
            .context("cannot parse the output of kubectl as an object")?;
        let (url, ca_pem) = published_endpoint(&config);
        match url {
            Some(url) => Ok(ProxyEndpoint { url, ca_pem, forwarded: None }),
            None => self.forwarded_endpoint().context(
                "the CDIConfig has no address of the upload proxy (set one with --url), and no port can be forwarded to it",
            ),
        }
    }

    /// The upload proxy's service, through `kubectl port-forward`.
    fn forwarded_endpoint(&self) -> Result<ProxyEndpoint> {
        let namespace = self.installation_namespace();
        // What else the user trusts may be all that is needed, so reading it is not a permission that every user has to have.
        let ca_pem = match self.proxy_ca(&namespace) {
            Ok(ca_pem) => Some(ca_pem),
            Err(_) if self.args.insecure || !self.args.ca.is_empty() => None,
            Err(error) => return Err(error),
        };
        let command = self.detached_command(&namespace);
        let forwarded = ForwardedPort::start(move |port| {
            let mut command = command.to_command();
            let service = format!("service/{UPLOAD_PROXY_SERVICE}");
            let ports = format!("{}:443", if port == 0 { String::new() } else { port.to_string() });
            command.args(["port-forward", "--address", "127.0.0.1", &service, &ports]);
            command
        })
        .with_context(|| {
            format!("cannot forward a port to service {namespace}/{UPLOAD_PROXY_SERVICE}")
        })?;
        let url = format!("https://{UPLOAD_PROXY_SERVICE}.{namespace}.svc");
        Ok(ProxyEndpoint { url, ca_pem, forwarded: Some(forwarded) })
    }

    /// The namespace that the upload API is served from, or the usual one if the user may not know.
    fn installation_namespace(&self) -> String {
        let found = self.run(&["get", "apiservice", TOKEN_API_SERVICE, "-o", "json"], None);
        let found = found.ok().and_then(|found| serde_json::from_str::<Value>(&found).ok());
        let namespace =
            found.as_ref().and_then(|found| found["spec"]["service"]["namespace"].as_str());
        namespace.unwrap_or(DEFAULT_NAMESPACE).to_owned()
    }

    fn proxy_ca(&self, namespace: &str) -> Result<String> {
        let failed = || {
            format!(
                "cannot read the upload proxy's CA from ConfigMap {namespace}/{PROXY_CA_BUNDLE}; --ca sets it"
            )
        };
        let mut command = self.detached_command(namespace).to_command();
        command.args(["get", "configmap", PROXY_CA_BUNDLE, "-o", "json"]);
        let found = self.run_command(command, None).with_context(failed)?;
        let bundle: Value = serde_json::from_str(&found)
            .context("cannot parse the output of kubectl as an object")?;
        let ca_pem = bundle["data"][PROXY_CA_KEY].as_str().map(str::to_owned);
        ca_pem.with_context(|| format!("missing key {PROXY_CA_KEY}")).with_context(failed)
    }

    /// kubectl with the user's context in another namespace.
    fn detached_command(&self, namespace: &str) -> KubectlInvocation {
        KubectlInvocation {
            program: self.args.kubectl.clone(),
            context: self.args.context.clone(),
            namespace: namespace.to_owned(),
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.detached_command(&self.args.volume.namespace).to_command();
        command.args(arguments);
        command
    }

    fn start(&self, command: &mut Command) -> Result<Child> {
        let program = self.args.kubectl.display();
        command
            .spawn()
            .with_context(|| format!("cannot run {program}, which is needed to access the cluster"))
    }

    /// Runs kubectl and returns its standard output.
    fn run(&self, arguments: &[&str], input: Option<&str>) -> Result<String> {
        self.run_command(self.command(arguments), input)
    }

    fn run_command(&self, mut command: Command, input: Option<&str>) -> Result<String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = self.start(&mut command)?;
        if let Some(mut stdin) = running.stdin.take() {
            // Smaller than a pipe's buffer. A failure shows in the exit code.
            let _ = stdin.write_all(input.unwrap_or_default().as_bytes());
        }
        let output = running.wait_with_output().context("cannot read the output of kubectl")?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        String::from_utf8(output.stdout).context("the output of kubectl is not UTF-8")
    }
}

/// How kubectl is called, without its subcommand.
struct KubectlInvocation {
    program: PathBuf,
    context: Option<String>,
    namespace: String,
}

impl KubectlInvocation {
    fn to_command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(context) = &self.context {
            command.arg("--context").arg(context);
        }
        command.args(["--namespace", &self.namespace]);
        command
    }
}

/// The address and the CA that a CDIConfig publishes. An administrator's override counts before the address that was found.
fn published_endpoint(config: &Value) -> (Option<String>, Option<String>) {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let overridden = text(&config["spec"]["uploadProxyURLOverride"]);
    let url = overridden.or_else(|| text(&config["status"]["uploadProxyURL"]));
    (url, text(&config["status"]["uploadProxyCA"]))
}

/// Kills the process when dropped.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait()); // it may have exited already
    }
}

/// The `Authorization` header, marked as sensitive.
pub fn bearer_header(token: &str) -> Result<HeaderValue> {
    let header = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
    let mut header = header.context("the token contains characters that a header cannot have")?;
    header.set_sensitive(true);
    Ok(header)
}

fn data_volume(args: &UploadArgs, size: &str) -> Value {
    let mut storage = json!({ "resources": { "requests": { "storage": size } } });
    if let Some(class) = &args.storage_class {
        storage["storageClassName"] = json!(class);
    }
    if let Some(mode) = &args.access_mode {
        storage["accessModes"] = json!([mode]);
    }
    if let Some(mode) = &args.volume_mode {
        storage["volumeMode"] = json!(mode);
    }
    let mut metadata = json!({ "name": args.volume.name, "namespace": args.volume.namespace });
    if args.bind_now {
        metadata["annotations"][request::BIND_IMMEDIATE] = json!("");
    }
    if args.format == Format::Raw {
        metadata["annotations"][request::SOURCE_FORMAT] = json!("raw");
    }
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": metadata,
        "spec": { "source": { "upload": {} }, "storage": storage },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_proxy_address_takes_precedence() {
        for (config, expected) in [
            (json!({}), (None, None)),
            (
                json!({ "spec": { "uploadProxyURLOverride": "" }, "status": { "uploadProxyURL": "" } }),
                (None, None),
            ),
            (
                json!({ "status": { "uploadProxyURL": "a", "uploadProxyCA": "pem" } }),
                (Some("a"), Some("pem")),
            ),
            (
                json!({ "spec": { "uploadProxyURLOverride": "b" }, "status": { "uploadProxyURL": "a" } }),
                (Some("b"), None),
            ),
        ] {
            let (url, ca_pem) = published_endpoint(&config);
            assert_eq!((url.as_deref(), ca_pem.as_deref()), expected, "{config}");
        }
    }
}
