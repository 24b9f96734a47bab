//! JSON patches by which HyperConverged's users change the CDI object: the CRD accepts the result, and it takes effect.

use serde_json::{Value, json};

use super::world::TestCluster;
use super::{DONE, blank, places, reasons};

const CDI: &str = "cdis//cdi-kubevirt-hyperconverged";

/// As HyperConverged creates it.
fn create_installation(world: &TestCluster) {
    world.fake.put(
        "cdis",
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDI",
            "metadata": {
                "name": "cdi-kubevirt-hyperconverged",
                "annotations": { "cdi.kubevirt.io/configAuthority": "" },
            },
            "spec": {
                "config": {
                    "featureGates": ["HonorWaitForFirstConsumer"],
                    "tlsSecurityProfile": { "type": "Intermediate", "intermediate": {} },
                },
                "uninstallStrategy": "BlockUninstallIfWorkloadsExist",
                "infra": {}, "workload": {},
            },
        }),
    );
}

/// Applies the text of the annotation `containerizeddataimporter.kubevirt.io/jsonpatch`, as HyperConverged does.
fn apply_annotation(world: &TestCluster, annotation: &str) {
    let patch: json_patch::Patch = serde_json::from_str(annotation).unwrap();
    world.fake.change(CDI, |cdi| json_patch::patch(cdi, &patch).unwrap());
    let cdi = world.fake.0.lock().unwrap().objects[CDI].clone();
    assert_eq!(refusals("spec", &schema_of_spec(), &cdi["spec"]), [""; 0], "{annotation}");
}

fn schema_of_spec() -> Value {
    let crd = api::v1beta1::crds().into_iter().find(|crd| crd.spec.names.kind == "CDI").unwrap();
    let version = crd.spec.versions.into_iter().find(|version| version.storage).unwrap();
    let schema = version.schema.unwrap().open_api_v3_schema.unwrap();
    serde_json::to_value(schema).unwrap()["properties"]["spec"].take()
}

/// What the API server refuses or removes of a value: unknown fields, wrong types, and null unless the field may be null.
fn refusals(path: &str, schema: &Value, value: &Value) -> Vec<String> {
    let is_type = match schema["type"].as_str() {
        _ if value.is_null() => schema["nullable"] == true,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64(),
        _ => schema["x-kubernetes-int-or-string"] == true,
    };
    let is_listed =
        schema["enum"].as_array().is_none_or(|all| value.is_null() || all.contains(value));
    let mut found = Vec::new();
    if !is_type || !is_listed {
        found.push(format!("{path}: {value}"));
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        found.extend(refusals(&format!("{path}/{index}"), &schema["items"], item));
    }
    for (name, member) in value.as_object().into_iter().flatten() {
        let path = format!("{path}/{name}");
        match schema["properties"].get(name).or_else(|| schema.get("additionalProperties")) {
            Some(schema) => found.extend(refusals(&path, schema, member)),
            None => found.push(format!("{path} is unknown")),
        }
    }
    found
}

#[test]
fn refusals_name_what_the_schema_does_not_accept() {
    let refused = |spec: Value| refusals("spec", &schema_of_spec(), &spec);
    for (spec, expected) in [
        (
            json!({ "config": { "dataVolumeTtlSeconds": 1 } }),
            "spec/config/dataVolumeTtlSeconds is unknown",
        ),
        (
            json!({ "config": { "dataVolumeTTLSeconds": "1" } }),
            "spec/config/dataVolumeTTLSeconds: \"1\"",
        ),
        (json!({ "config": { "featureGates": [null] } }), "spec/config/featureGates/0: null"),
        (json!({ "uninstallStrategy": "Never" }), "spec/uninstallStrategy: \"Never\""),
    ] {
        assert_eq!(refused(spec), [expected]);
    }
}

fn config(world: &TestCluster) -> Value {
    world.fake.get("cdiconfigs", "", "config").unwrap()
}

#[tokio::test(start_paused = true)]
async fn patched_upload_proxy_url_is_published() {
    let mut world = TestCluster::new("Immediate", true);
    create_installation(&world);
    world.work().await;
    assert_eq!(config(&world)["status"]["uploadProxyURL"], Value::Null);
    apply_annotation(
        &world,
        r#"[{ "op": "add", "path": "/spec/config/uploadProxyURLOverride", "value": "https://uploads.example.test" }]"#,
    );
    world.work().await;
    assert_eq!(config(&world)["status"]["uploadProxyURL"], "https://uploads.example.test");
}

#[tokio::test(start_paused = true)]
async fn patched_ttl_decides_whether_a_finished_data_volume_is_deleted() {
    for (seconds, kept) in [(-1, &["datavolumes/vms/disk"][..]), (0, &[])] {
        let mut world = TestCluster::new("Immediate", true);
        create_installation(&world);
        world.work().await;
        let add =
            json!({ "op": "add", "path": "/spec/config/dataVolumeTTLSeconds", "value": seconds });
        apply_annotation(&world, &json!([add]).to_string());
        world.work().await;
        assert_eq!(config(&world)["spec"]["dataVolumeTTLSeconds"], seconds);
        world.volume("disk", blank());
        for _ in 0..12 {
            world.work().await;
            world.simulate_cluster(DONE);
        }
        assert_eq!(places(&world, "datavolumes"), kept, "{seconds}");
        assert_eq!(places(&world, "persistentvolumeclaims"), ["persistentvolumeclaims/vms/disk"]);
    }
}

/// The minimum TLS version of the next worker.
async fn tls_minimum_of_worker(world: &mut TestCluster) -> Value {
    world.volume("disk", blank());
    let place = world.until_worker(DONE).await;
    let pod = world.fake.0.lock().unwrap().objects[&place].clone();
    let env = pod["spec"]["containers"][0]["env"].as_array().unwrap().clone();
    let found = env.into_iter().find(|variable| variable["name"] == "TLS_MIN_VERSION");
    found.unwrap_or_default()["value"].clone()
}

#[tokio::test(start_paused = true)]
async fn patched_tls_profile_with_nulls_for_the_others_applies_to_workers() {
    let old =
        r#"{ "old": {}, "type": "Old", "intermediate": null, "modern": null, "custom": null }"#;
    let modern =
        r#"{ "type": "Modern", "modern": {}, "old": null, "intermediate": null, "custom": null }"#;
    let custom = r#"{ "type": "Custom", "old": null, "intermediate": null, "modern": null, "custom":
        { "minTLSVersion": "VersionTLS13", "ciphers": ["TLS_AES_128_GCM_SHA256"] } }"#;
    for (profile, minimum, unmet) in [
        (old, json!("VersionTLS10"), &["TLSProfileNotMet"][..]),
        (modern, json!("VersionTLS13"), &[]),
        (custom, json!("VersionTLS13"), &[]),
        ("null", Value::Null, &[]),
    ] {
        let mut world = TestCluster::new("Immediate", true);
        create_installation(&world);
        world.work().await;
        let path = "/spec/config/tlsSecurityProfile";
        apply_annotation(
            &world,
            &format!(r#"[{{ "op": "replace", "path": "{path}", "value": {profile} }}]"#),
        );
        world.work().await;
        assert_eq!(reasons(&world), unmet, "{profile}");
        assert_eq!(tls_minimum_of_worker(&mut world).await, minimum, "{profile}");
    }
}
