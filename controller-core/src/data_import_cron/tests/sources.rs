//! What the DataVolumes of a cron import or clone from.

use super::*;

#[test]
fn pvc_is_cloned_only_with_permission_to_read_it() {
    let mut cluster = TestCluster::new(json!({ "template": { "spec": {
        "source": { "pvc": { "namespace": "other", "name": "disk" } },
        "storage": { "resources": { "requests": { "storage": "10Gi" } } },
    } } }));
    cluster.annotate(key::DESIRED_DIGEST, Some("uid:0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"));
    cluster.may_clone = false;
    cluster.settle();
    assert_eq!(
        cluster.condition("Progressing"),
        "False NotAuthorized: Not authorized to create DataVolume"
    );
    assert!(cluster.volumes.is_empty());
    cluster.may_clone = true;
    cluster.settle();
    assert_eq!(cluster.volumes[0].metadata.name.as_deref(), Some("fedora-0a1b2c3d-0a1"));
    assert!(cluster.volumes[0].spec.source.as_ref().unwrap().pvc.is_some());
}

#[test]
fn other_sources_of_another_namespace_are_not_cloned_without_permission() {
    // The webhook rejects these crons. One that was created without the webhook imports nothing.
    let storage = json!({ "resources": { "requests": { "storage": "10Gi" } } });
    for template in [
        json!({ "source": { "snapshot": { "namespace": "other", "name": "disk" } } }),
        json!({ "sourceRef": { "kind": "DataSource", "namespace": "other", "name": "disk" } }),
        json!({
            "source": { "registry": { "url": "docker://host/a" } },
            "sourceRef": { "kind": "DataSource", "namespace": "other", "name": "disk" },
        }),
    ] {
        let mut template = template;
        template["storage"] = storage.clone();
        let mut cluster = TestCluster::new(json!({ "template": { "spec": template } }));
        cluster.annotate(key::DESIRED_DIGEST, Some("uid:0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"));
        cluster.may_clone = false;
        cluster.settle();
        assert!(cluster.volumes.is_empty());
    }
}

#[test]
fn image_stream_is_imported_from_its_docker_image_reference() {
    let mut cluster = TestCluster::new(json!({ "template": { "spec": {
        "source": { "registry": { "imageStream": "fedora:v1", "pullMethod": "node" } },
        "storage": { "resources": { "requests": { "storage": "10Gi" } } },
    } } }));
    let result = PollResult::Newest {
        digest: digest(7),
        image_stream_ref: Some(format!("registry:5000/images/fedora@{}", digest(7))),
    };
    cluster.reconcile_with(Some(&Polled { at: cluster.now, result }));
    let registry = cluster.volumes[0].spec.source.as_ref().unwrap().registry.as_ref().unwrap();
    assert_eq!(registry.url, Some(format!("docker://registry:5000/images/fedora@{}", digest(7))));
    assert_eq!((&registry.image_stream, registry.pull_method.as_deref()), (&None, Some("node")));
    assert_eq!(cluster.current(), Some(name(7)));
}

#[test]
fn http_import_verifies_the_checksum_if_the_digest_is_a_hash() {
    for (digest, checksum) in
        [(digest(7), Some(digest(7))), (digest(7).replace("sha256", "etag"), None)]
    {
        let mut cluster = TestCluster::new(json!({ "template": { "spec": {
            "source": { "http": { "url": "https://host/disk.img" } },
            "storage": { "resources": { "requests": { "storage": "10Gi" } } },
        } } }));
        cluster.annotate(key::DESIRED_DIGEST, Some(&digest));
        cluster.settle();
        let http = cluster.volumes[0].spec.source.as_ref().unwrap().http.as_ref().unwrap();
        assert_eq!((http.url.as_str(), &http.checksum), ("https://host/disk.img", &checksum));
    }
}

#[test]
fn invalid_digest_is_reported_and_not_imported() {
    let mut cluster = TestCluster::new(json!({}));
    cluster.import(1);
    cluster.annotate(key::DESIRED_DIGEST, Some("latest"));
    cluster.settle();
    assert!(
        cluster.condition("UpToDate").starts_with("False IllegalDigest: \"latest\" is no digest")
    );
    assert_eq!(cluster.data_source_target(), Some(format!("pvc {}", name(1))));
    assert_eq!(cluster.volumes.len(), 1);
}
