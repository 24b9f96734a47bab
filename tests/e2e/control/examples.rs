//! Every manifest of `docs/examples` of a kind that one cluster alone can serve is applied, and ends as documented.

use anyhow::{Context, Result, ensure};
use e2e::{Test, condition, condition_is_false_with, manifest, run_installed};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testkit::{Fault, FaultServer};

use crate::world::{apply_all, disk, example, name, server_of, small};

/// The path of the image's URL in a DataVolume or VolumeImportSource.
fn url(object: &mut Value) -> Option<&mut Value> {
    let source = object.pointer_mut("/spec/source")?.as_object_mut()?;
    source.values_mut().find_map(|source| source.get_mut("url"))
}

/// The path of an address.
fn path_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find('/').map_or("/", |at| &rest[at..])
}

/// Applies an example whose image is imported from a web server, and checks the content of its volume.
async fn imported(test: &Test, example: &str, dress: fn(FaultServer) -> FaultServer) -> Result<()> {
    let mut objects = small(example)?;
    let asked = objects.iter_mut().find_map(url).context("an example has an address")?;
    let path = path_of(asked.as_str().context("an address is text")?).to_owned();
    let is_secure = asked.as_str().is_some_and(|url| url.starts_with("https")) && !is_public(&path);
    let server = dress(server_of(&path)?);
    let server = if is_secure { server.tls() } else { server };
    *asked = server.url_of(&path).into();
    if is_secure {
        trust(&mut objects, &server)?;
    }
    let claim = name(objects.last().context("an example has objects")?);
    let is_volume = objects.iter().any(|object| object["kind"] == "DataVolume");
    apply_all(test, objects).await?;
    finished(test, &claim, is_volume).await.with_context(|| example.to_owned())?;
    test.holds(&claim, &disk()).await.with_context(|| example.to_owned())
}

/// Examples of servers whose certificates a public CA has signed, as no test server's is.
fn is_public(path: &str) -> bool {
    !["/rhel/", "/api/export", "/vm-bucket/"].iter().any(|start| path.starts_with(start))
}

/// Creates the ConfigMap that the example names, with the server's CA.
fn trust(objects: &mut Vec<Value>, server: &FaultServer) -> Result<()> {
    let source = objects.iter().find_map(|object| object["spec"]["source"].as_object());
    let map = source.and_then(|source| source.values().find_map(|s| s["certConfigMap"].as_str()));
    let name = map.context("an example with an authority names it")?.to_owned();
    objects.insert(
        0,
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name },
            "data": { "ca.pem": server.ca_pem() },
        }),
    );
    Ok(())
}

async fn finished(test: &Test, claim: &str, is_volume: bool) -> Result<()> {
    if is_volume {
        let volume = test.succeeded(claim).await?;
        let restarts = volume.status.as_ref().and_then(|status| status.restart_count);
        ensure!(restarts.unwrap_or(0) == 0, "it took {restarts:?} restarts");
        let running = condition(&volume, "Running").context("it reports how the worker ended")?;
        let reported = (running.reason.as_deref(), running.message.as_deref());
        ensure!(reported == (Some("Completed"), Some("Import Complete")), "{running:?}");
        for reason in ["Bound", "ImportSucceeded"] {
            test.event_message(claim, reason).await?;
        }
    }
    let claim = test.wait(claim, "filled", is_filled).await?;
    let phase = claim.annotations().get("cdi.kubevirt.io/storage.pod.phase");
    ensure!(phase.map(String::as_str) == Some("Succeeded"), "{:?}", claim.annotations());
    Ok(())
}

fn is_filled(claim: &PersistentVolumeClaim) -> bool {
    e2e::is_bound(claim)
}

fn as_it_is(server: FaultServer) -> FaultServer {
    server
}

/// Requires the user and password of `secret-data-source.yaml`.
fn guarded(server: FaultServer) -> FaultServer {
    // image-reader:not-a-real-password
    let basic = "Basic aW1hZ2UtcmVhZGVyOm5vdC1hLXJlYWwtcGFzc3dvcmQ=";
    server.when(move |asked| asked.header("authorization") != Some(basic), Fault::Status(401))
}

/// Requires the header of `secret-export-token-header.yaml`.
fn with_token(server: FaultServer) -> FaultServer {
    let token = "x-kubevirt-export-token";
    server.when(move |asked| asked.header(token) != Some("not-a-real-token"), Fault::Status(401))
}

/// Requires requests signed with the keys of `secret-data-source.yaml`.
fn signed(server: FaultServer) -> FaultServer {
    let refused = Fault::Refuse(403, "<Error><Code>AccessDenied</Code></Error>".into());
    server.when(|asked| !asked.target.contains("X-Amz-Credential=image-reader%2F"), refused)
}

#[test]
fn http_examples_are_imported_in_every_format() {
    run_installed("web-formats", async |test| {
        for example in [
            "dv-import-http-qcow2",
            "dv-import-http-iso",
            "dv-import-http-qcow2-xz",
            "dv-import-http-raw-gz",
        ] {
            imported(&test, example, as_it_is).await?;
        }
        Ok(())
    });
}

#[test]
fn target_examples_are_created() {
    run_installed("web-targets", async |test| {
        for example in [
            "dv-target-block",
            "dv-target-filesystem",
            "dv-target-pvc-form",
            "dv-immediate-binding",
            "dv-multus-default-network",
        ] {
            imported(&test, example, as_it_is).await?;
        }
        let claims = ["block-target", "filesystem-target", "pvc-form", "bind-now"];
        test.only_these_are_left(&[&claims[..], &["datavolume-example"]].concat()).await
    });
}

#[test]
fn example_secrets_and_cas_reach_the_server() {
    run_installed("web-secrets", async |test| {
        apply_all(&test, small("secret-data-source")?).await?;
        apply_all(&test, small("secret-export-token-header")?).await?;
        imported(&test, "dv-import-http-basic-auth", guarded).await?;
        imported(&test, "dv-import-https-custom-ca", as_it_is).await?;
        imported(&test, "dv-import-vmexport", with_token).await
    });
}

#[test]
fn s3_example_signs_its_requests() {
    run_installed("s3", async |test| {
        apply_all(&test, small("secret-data-source")?).await?;
        imported(&test, "dv-import-s3", signed).await
    });
}

#[test]
fn pvc_with_an_import_source_needs_no_data_volume() {
    run_installed("populator", async |test| {
        imported(&test, "populator-import", as_it_is).await?;
        test.only_these_are_left(&["populated-by-import"]).await
    });
}

#[test]
fn blank_disks_are_empty_and_preallocated_on_request() {
    run_installed("blank", async |test| {
        let names = ["blank-image-datavolume", "fast-data"];
        for example in ["dv-blank", "dv-blank-preallocated"] {
            apply_all(&test, small(example)?).await?;
        }
        for claim in names {
            test.succeeded(claim).await?;
            test.holds(claim, &vec![0; 32 << 20]).await?;
        }
        let claim = test.all::<PersistentVolumeClaim>().get("fast-data").await?;
        let preallocated = claim.annotations().get("cdi.kubevirt.io/storage.preallocation");
        ensure!(preallocated.map(String::as_str) == Some("true"), "{:?}", claim.annotations());
        test.only_these_are_left(&names).await
    });
}

/// The CA bundles of the examples do not match the servers of the tests: the imports fail with a certificate error, and
/// succeed when an administrator corrects the bundles.
#[test]
fn example_ca_bundle_is_required_and_reread() {
    run_installed("web-bundles", async |test| {
        apply_all(&test, small("secret-export-token-header")?).await?;
        let rows: [(&str, &str, fn(FaultServer) -> FaultServer); 2] = [
            ("configmap-tls-certs", "dv-import-https-custom-ca", as_it_is),
            ("configmap-export-ca", "dv-import-vmexport", with_token),
        ];
        for (bundle, example, dress) in rows {
            let bundle = small(bundle)?;
            let map = name(bundle.first().context("an example has an object")?);
            apply_all(&test, bundle).await?;
            let mut objects = small(example)?;
            let asked = objects.iter_mut().find_map(url).context("an example has an address")?;
            let path = path_of(asked.as_str().context("an address is text")?).to_owned();
            let server = dress(server_of(&path)?).tls();
            *asked = server.url_of(&path).into();
            let volume = name(objects.last().context("an example has objects")?);
            apply_all(&test, objects).await?;
            let refused = |volume: &api::v1beta1::DataVolume| {
                condition_is_false_with(volume, "Running", "certificate")
            };
            test.wait(&volume, "refused", refused).await?;
            ensure!(
                server.body_bytes_sent() == 0,
                "an image came from a server that is not trusted"
            );
            let patch = Patch::Merge(json!({ "data": { "ca.pem": server.ca_pem() } }));
            let maps = test.all::<ConfigMap>();
            maps.patch(&map, &PatchParams::default(), &patch).await?;
            test.succeeded(&volume).await.with_context(|| example.to_owned())?;
            test.holds(&volume, &disk()).await?;
        }
        Ok(())
    });
}

/// Upload clients send this request and read the token from the response.
#[test]
fn example_token_request_returns_a_token() {
    run_installed("token", async |test| {
        apply_all(&test, small("dv-upload-block")?).await?;
        let request = manifest(&example("uploadtokenrequest")?);
        let made = test.kubectl_ok(&["create", "-f", "-", "-o", "json"], &request)?.json()?;
        let token = made["status"]["token"].as_str().unwrap_or_default();
        ensure!(token.split('.').count() == 3, "the token is {token:?}");
        Ok(())
    });
}

#[test]
fn image_stream_without_openshift_is_reported() {
    run_installed("image-stream", async |test| {
        apply_all(&test, small("dv-import-registry-imagestream")?).await?;
        // A node finds no image of that name; the OpenShift component that would replace it is absent.
        let is_reported = |volume: &api::v1beta1::DataVolume| {
            condition_is_false_with(volume, "Running", "ImagePullFailed")
        };
        test.wait("from-imagestream", "reported", is_reported).await.map(|_| ())
    });
}
