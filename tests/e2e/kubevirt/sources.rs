//! Disks of `dataVolumeTemplates` from sources other than web servers.

use e2e::files_of_disk;
use serde_json::json;
use testkit::Fault;

use crate::vm::{Vm, manifest};
use crate::world::{
    DATA_SIZE, DEVICE, FILE, GUEST_SIZE, data_disk, guest_disk, run_with_machines, volume,
};

const USER: &str = "image-reader";

#[test]
fn vm_boots_from_a_registry_with_a_disk_from_an_object_store() {
    run_with_machines("vm-sources", async |test| {
        let image = test.push("guest", "latest", files_of_disk(guest_disk()?))?;
        // Only to requests that are signed with the key of the Secret.
        let refused = Fault::Refuse(403, "<Error><Code>AccessDenied</Code></Error>".into());
        let is_signed = format!("X-Amz-Credential={USER}%2F");
        let store = e2e::server(&data_disk())
            .tls()
            .when(move |request| !request.target.contains(&is_signed), refused);
        test.apply(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "keys" },
            "stringData": { "accessKeyId": USER, "secretKey": "not-a-real-password" },
        }))
        .await?;
        test.apply(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "ca" },
            "data": { "ca.pem": store.ca_pem() },
        }))
        .await?;
        let registry = json!({ "registry": { "url": image.url() } });
        let s3 = json!({ "s3": {
            "url": store.url_of("/bucket/images/data.img"), "secretRef": "keys", "certConfigMap": "ca",
        } });
        let templates =
            [volume("root", FILE, GUEST_SIZE, registry), volume("data", DEVICE, DATA_SIZE, s3)];
        let vm = Vm::create(&test, manifest("guest", &["root", "data"], &templates)).await?;
        vm.sees(&[&guest_disk()?, &data_disk()]).await?;
        vm.delete().await?;
        test.only_these_are_left(&[]).await
    });
}
