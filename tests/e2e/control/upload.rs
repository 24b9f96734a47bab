//! Uploads by hand, where `virtctl` would not go.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use cluster::{KUBERNETES, Tools};
use e2e::{run_installed, run_installed_alone, upload_token};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::rbac::v1::RoleBinding;
use serde_json::json;

use crate::uploader::{Uploader, qcow2};
use crate::world::{SIZE, apply_all, disk, small};

#[test]
fn pvc_with_an_upload_source_accepts_an_upload() {
    run_installed("populator-upload", async |test| {
        let uploader = Uploader::new(&test).await?;
        let image = uploader.file("disk.img", &disk())?;
        apply_all(&test, small("populator-upload")?).await?;
        let claim = "populated-by-upload";
        let token = upload_token(&test, claim).await?;
        // The proxy waits ten seconds for the server; its creation may take longer here.
        let mut answer = (0, String::new());
        for _ in 0..30 {
            answer = uploader.post("/v1beta1/upload", &token, &image)?;
            if answer.0 != 503 {
                break;
            }
        }
        ensure!(answer.0 == 200, "{answer:?}");
        // At once: the response comes when the end of the upload is recorded.
        let again = uploader.post("/v1beta1/upload", &token, &image)?;
        ensure!(again.0 == 503 && again.1.contains("already finished uploading"), "{again:?}");
        test.wait::<PersistentVolumeClaim>(claim, "bound", e2e::is_bound).await?;
        test.holds(claim, &disk()).await?;
        test.only_these_are_left(&[claim]).await
    });
}

#[test]
fn upload_token_is_valid_for_one_pvc_and_a_bad_image_is_reported() {
    run_installed("upload-refused", async |test| {
        let uploader = Uploader::new(&test).await?;
        apply_all(&test, small("dv-upload")?).await?;
        test.upload_ready("uploaded-disk").await?;
        let image = uploader.file("disk.img", &disk())?;
        let foreign = upload_token(&test, "another").await?;
        let answer = uploader.post("/v1beta1/upload", &foreign, &image)?;
        ensure!(answer.0 == 503 && answer.1.contains("doesn"), "{answer:?}");
        let answer = uploader.post("/v1beta1/upload", "no-token", &image)?;
        ensure!(answer.0 == 401, "{answer:?}");
        let mut large = qcow2()?;
        large[24..32].copy_from_slice(&(1_u64 << 40).to_be_bytes()); // its virtual size
        let large = uploader.file("large.qcow2", &large)?;
        let token = upload_token(&test, "uploaded-disk").await?;
        let answer = uploader.post("/v1beta1/upload", &token, &large)?;
        ensure!(answer.0 == 400 && answer.1.contains("Saving stream failed"), "{answer:?}");
        // The server is there for the next one.
        let answer = uploader.post("/v1beta1/upload", &token, &image)?;
        ensure!(answer.0 == 200, "{answer:?}");
        test.succeeded("uploaded-disk").await?;
        test.holds("uploaded-disk", &disk()).await
    });
}

#[test]
fn editors_may_upload_and_viewers_may_not() {
    run_installed("upload-rights", async |test| {
        for (role, allowed) in [("admin", true), ("edit", true), ("view", false)] {
            test.create::<RoleBinding>(json!({
                "metadata": { "name": role },
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                    "name": format!("cdi.kubevirt.io:{role}"),
                },
                "subjects": [{
                    "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": role,
                }],
            }))
            .await?;
            let may = async |verb: &str, group: &str, resource: &str| -> Result<bool> {
                let question = json!({ "spec": { "user": role, "resourceAttributes": {
                    "group": group, "resource": resource, "verb": verb,
                    "namespace": test.namespace(),
                } } });
                let review = test.create_global::<SubjectAccessReview>(question).await?;
                Ok(review.status.is_some_and(|status| status.allowed))
            };
            // The binding takes a moment.
            while !may("get", "cdi.kubevirt.io", "datavolumes").await? {}
            let found = may("create", "upload.cdi.kubevirt.io", "uploadtokenrequests").await?;
            ensure!(found == allowed, "{role}: {found}");
        }
        Ok(())
    });
}

/// The CDIConfig of this cluster publishes no address, and the proxy's name means nothing outside of it.
#[test]
fn cdi_upload_forwards_a_port_without_a_published_address() {
    // Another test has an address published for a while.
    run_installed_alone("port-forward", async |test| {
        let uploader = Uploader::new(&test).await?;
        let image = uploader.file("disk.img", &disk())?;
        let kubectl = Tools::ready(&[KUBERNETES])?.path("kubectl")?;
        let volume = format!("{}/disk", test.namespace());
        let output = Command::new(testkit::cdi())
            .arg("upload")
            .arg(&image)
            .args([&*volume, "--storage-class", "csi", "--size", SIZE, "--kubectl", &*kubectl])
            .env("KUBECONFIG", test.state().kubeconfig())
            .output()
            .context("cannot run cdi")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{error}");
        test.succeeded("disk").await?;
        test.holds("disk", &disk()).await?;
        test.only_these_are_left(&["disk"]).await
    });
}
