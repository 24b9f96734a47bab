//! The cluster, by way of the program that everybody has who has one: it knows the person's credentials, however they come
//! about, and makes this program no larger.

use std::io::{BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use api::annotations::request;
use http::HeaderValue;
use serde_json::{Value, json};

use super::args::UploadArgs;
use crate::args::Format;

const TOKENS: &str = "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces";

/// `kubectl`, or what is like it.
pub struct Kubectl<'a> {
    args: &'a UploadArgs,
}

/// Where uploads to the cluster go, and whom to trust there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Door {
    pub url: Option<String>,
    pub authority: Option<String>,
}

impl<'a> Kubectl<'a> {
    pub fn new(args: &'a UploadArgs) -> Self {
        Self { args }
    }

    /// The DataVolume, if it is there.
    pub fn volume(&self) -> Result<Option<Value>> {
        let name = &self.args.volume.name;
        let found =
            self.run(&["get", "datavolume", name, "-o", "json", "--ignore-not-found"], None);
        let found = found.context("cannot look at the DataVolume")?;
        if found.trim().is_empty() {
            return Ok(None);
        }
        serde_json::from_str(&found).map(Some).context("kubectl prints no object")
    }

    /// Makes the DataVolume, for a disk of `size` as Kubernetes writes it.
    pub fn create(&self, size: &str) -> Result<()> {
        let object = data_volume(self.args, size).to_string();
        self.run(&["create", "-f", "-"], Some(&object)).context("cannot make the DataVolume")?;
        Ok(())
    }

    /// Waits until `reached` says so of the DataVolume.
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
        let mut watching = Ended(self.start(&mut command)?);
        let stdout = watching.0.stdout.take().context("kubectl has no output")?;
        let objects = serde_json::Deserializer::from_reader(BufReader::new(stdout));
        for object in objects.into_iter::<Value>() {
            if reached(&object.context("kubectl prints no object")?)? {
                return Ok(());
            }
        }
        bail!("the DataVolume was not {what} within {} s", patience.as_secs());
    }

    /// A token for an upload to the claim.
    pub fn token(&self) -> Result<HeaderValue> {
        let path = format!("{TOKENS}/{}/uploadtokenrequests", self.args.volume.namespace);
        let request = json!({
            "apiVersion": "upload.cdi.kubevirt.io/v1beta1",
            "kind": "UploadTokenRequest",
            "metadata": { "generateName": "token-for-cdi-" },
            "spec": { "pvcName": self.args.volume.name },
        });
        let answer = self.run(&["create", "--raw", &path, "-f", "-"], Some(&request.to_string()));
        let answer = answer.context("cannot get a token for the upload")?;
        let answer: Value = serde_json::from_str(&answer).context("kubectl prints no object")?;
        let token =
            answer["status"]["token"].as_str().context("there is no token in the answer")?;
        bearer(token)
    }

    /// As the cluster's settings say.
    pub fn door(&self) -> Result<Door> {
        let found = self.run(&["get", "cdiconfig", "config", "-o", "json"], None);
        let found =
            found.context("cannot find out where the upload proxy is; --url says it too")?;
        let config: Value = serde_json::from_str(&found).context("kubectl prints no object")?;
        let text =
            |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let override_ = text(&config["spec"]["uploadProxyURLOverride"]);
        Ok(Door {
            url: override_.or_else(|| text(&config["status"]["uploadProxyURL"])),
            authority: text(&config["status"]["uploadProxyCA"]),
        })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.args.kubectl);
        if let Some(context) = &self.args.context {
            command.arg("--context").arg(context);
        }
        command.args(["--namespace", &self.args.volume.namespace]).args(arguments);
        command
    }

    fn start(&self, command: &mut Command) -> Result<Child> {
        let program = self.args.kubectl.display();
        command
            .spawn()
            .with_context(|| format!("cannot run {program}, by which the cluster is asked"))
    }

    /// Runs it to the end, and returns what it has printed.
    fn run(&self, arguments: &[&str], input: Option<&str>) -> Result<String> {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = self.start(&mut command)?;
        if let Some(mut stdin) = running.stdin.take() {
            // Less than a pipe holds. Whether it was read, its exit code tells.
            let _ = stdin.write_all(input.unwrap_or_default().as_bytes());
        }
        let output = running.wait_with_output().context("cannot hear what kubectl says")?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        String::from_utf8(output.stdout).context("kubectl prints no text")
    }
}

/// Ends with whoever started it.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait()); // it may have ended by itself
    }
}

/// The header with a token, which shows in no log.
pub fn bearer(token: &str) -> Result<HeaderValue> {
    let header = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
    let mut header = header.context("what should be a token is none")?;
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
