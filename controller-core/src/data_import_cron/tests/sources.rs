//! What the DataVolumes of a cron import or clone from.

use super::*;

#[test]
fn a_claim_is_cloned_only_with_the_right_to_read_it() {
    let mut world = World::new(json!({ "template": { "spec": {
        "source": { "pvc": { "namespace": "other", "name": "disk" } },
        "storage": { "resources": { "requests": { "storage": "10Gi" } } },
    } } }));
    world.annotate(key::DESIRED_DIGEST, Some("uid:0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"));
    world.may_clone = false;
    world.settle();
    assert_eq!(
        world.says("Progressing"),
        "False NotAuthorized: Not authorized to create DataVolume"
    );
    assert!(world.volumes.is_empty());
    world.may_clone = true;
    world.settle();
    assert_eq!(world.volumes[0].metadata.name.as_deref(), Some("fedora-0a1b2c3d-0a1"));
    assert!(world.volumes[0].spec.source.as_ref().unwrap().pvc.is_some());
}

#[test]
fn nothing_else_of_another_namespace_is_cloned_with_our_rights() {
    // The webhook refuses these; whoever came past it gets no further.
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
        let mut world = World::new(json!({ "template": { "spec": template } }));
        world.annotate(key::DESIRED_DIGEST, Some("uid:0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"));
        world.may_clone = false;
        world.settle();
        assert!(world.volumes.is_empty());
    }
}

#[test]
fn an_image_stream_is_imported_from_where_it_points() {
    let mut world = World::new(json!({ "template": { "spec": {
        "source": { "registry": { "imageStream": "fedora:v1", "pullMethod": "node" } },
        "storage": { "resources": { "requests": { "storage": "10Gi" } } },
    } } }));
    let answer = PollResult::Newest {
        digest: digest(7),
        image_stream_ref: Some(format!("registry:5000/images/fedora@{}", digest(7))),
    };
    world.look_with(Some(&Polled { at: world.now, result: answer }));
    let registry = world.volumes[0].spec.source.as_ref().unwrap().registry.as_ref().unwrap();
    assert_eq!(registry.url, Some(format!("docker://registry:5000/images/fedora@{}", digest(7))));
    assert_eq!((&registry.image_stream, registry.pull_method.as_deref()), (&None, Some("node")));
    assert_eq!(world.current(), Some(name(7)));
}

#[test]
fn a_file_of_the_web_is_checked_by_its_hash_where_that_is_known() {
    for (said, checksum) in
        [(digest(7), Some(digest(7))), (digest(7).replace("sha256", "etag"), None)]
    {
        let mut world = World::new(json!({ "template": { "spec": {
            "source": { "http": { "url": "https://host/disk.img" } },
            "storage": { "resources": { "requests": { "storage": "10Gi" } } },
        } } }));
        world.annotate(key::DESIRED_DIGEST, Some(&said));
        world.settle();
        let http = world.volumes[0].spec.source.as_ref().unwrap().http.as_ref().unwrap();
        assert_eq!((http.url.as_str(), &http.checksum), ("https://host/disk.img", &checksum));
    }
}

#[test]
fn a_digest_of_no_known_form_is_told_and_imports_nothing() {
    let mut world = World::new(json!({}));
    world.import(1);
    world.annotate(key::DESIRED_DIGEST, Some("latest"));
    world.settle();
    assert!(world.says("UpToDate").starts_with("False IllegalDigest: \"latest\" is no digest"));
    assert_eq!(world.stands_for(), Some(format!("pvc {}", name(1))));
    assert_eq!(world.volumes.len(), 1);
}
