use super::super::manifest::Manifest;
use super::*;
use importer::{BasicAuth, ExtraHeader, GcsCredentials, S3Credentials, Secret};

const GIB: u64 = 1 << 30;

fn example(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples");
    std::fs::read_to_string(format!("{folder}/{name}.yaml")).unwrap()
}

/// All examples; each DataVolume may refer to each Secret and ConfigMap.
fn examples() -> Vec<(String, DataVolume, References)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples");
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let names = names.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let mut names: Vec<_> =
        names.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    let others: Vec<_> =
        names.iter().filter(|name| !name.starts_with("dv-")).map(|n| example(n)).collect();
    let volumes = names.iter().filter(|name| name.starts_with("dv-"));
    volumes
        .map(|name| {
            let mut manifest = Manifest::default();
            others.iter().for_each(|text| manifest.add(text).unwrap());
            manifest.add(&example(name)).unwrap();
            (name.clone(), manifest.volumes.pop().unwrap(), manifest.references)
        })
        .collect()
}

/// A plan as text: content, PVC size and usable size in bytes.
fn summary(plan: &VolumePlan) -> String {
    match plan {
        VolumePlan::Keep => "keep".into(),
        VolumePlan::Refuse(refusal) => format!("refuse: {refusal}"),
        VolumePlan::Make(job) => {
            let DiskJob { content, claim, usable, preallocate, format } = &**job;
            let what = match content {
                Content::Blank => "blank".to_owned(),
                Content::Image { url, access, .. } | Content::Archive { url, access, .. } => {
                    let anonymous = access.s3.credentials == S3Credentials::Anonymous;
                    let keys = if url.starts_with("s3:") && !anonymous { ", keys" } else { "" };
                    let auth = access.auth.as_ref().map_or("", |_| ", auth");
                    let headers = if access.headers.is_empty() { "" } else { ", headers" };
                    let ca = if access.ca_pem.is_empty() { "" } else { ", ca" };
                    format!("{url}{auth}{keys}{headers}{ca}")
                }
            };
            let allocate = if *preallocate { ", preallocated" } else { "" };
            let raw = if *format == SourceFormat::Raw { ", as it is" } else { "" };
            format!("{what}: claim {claim}, disk {}{allocate}{raw}", usable.human())
        }
    }
}

fn plan(volume: &DataVolume, references: &References, existing: Existing) -> VolumePlan {
    plan_volume(volume, Overhead::default(), &VolumeFacts { references, existing })
}

fn plan_of(text: &str) -> VolumePlan {
    let mut manifest = Manifest::default();
    manifest.add(text).unwrap();
    plan(&manifest.volumes[0], &manifest.references, Existing::Nothing)
}

#[test]
fn examples_are_planned_or_refused_with_a_reason() {
    let cluster = "clones need a cluster";
    let node = "the node pull needs a cluster";
    let source = |field: &str, because: &str| {
        format!(
            "refuse: spec.source.{field} is not supported by cdi apply (supported: http, s3, gcs, registry, blank): {because}"
        )
    };
    let image = |what: &str, claim: u64, disk: &str| format!("{what}: claim {claim}, disk {disk}");
    let export = "https://vmexport-proxy.test.example/api/export.kubevirt.io/v1alpha1/namespaces/example/\
                  virtualmachineexports/example-export/volumes/example-disk/disk.img.gz";
    // 10 GiB × 1.055 and so on, rounded up.
    let (one, two, six, seven) = (1_132_797_625, 2_265_595_249, 6_796_785_746, 7_929_583_371);
    let (ten, twelve, twenty, thirty, forty) =
        (11_327_976_244, 13_593_571_492, 22_655_952_487, 33_983_928_730_u64, 45_311_904_973);
    let (five, fifteen) = (5_663_988_122, 16_991_964_365_u64);
    let expected = [
        ("dv-blank", image("blank", two, "2 GiB")),
        ("dv-blank-preallocated", image("blank", 9_062_380_995, "8 GiB") + ", preallocated"),
        ("dv-clone-pvc", source("pvc", cluster)),
        ("dv-clone-pvc-cross-namespace", source("pvc", cluster)),
        ("dv-clone-pvc-expand", source("pvc", cluster)),
        ("dv-clone-pvc-mode-change", source("pvc", cluster)),
        ("dv-clone-snapshot", source("snapshot", cluster)),
        (
            "dv-from-datasource",
            "refuse: spec.sourceRef refers to objects of a cluster, which cdi apply does not have: set \
             spec.source"
                .into(),
        ),
        ("dv-immediate-binding", image("https://images.example.test/tiny/cirros.img", one, "1 GiB")),
        (
            "dv-import-http-basic-auth",
            image("https://downloads.example.test/protected/image.qcow2, auth", twelve, "12 GiB"),
        ),
        (
            "dv-import-http-iso",
            image("https://software.example.test/windows/install-media.iso", seven, "7 GiB"),
        ),
        (
            "dv-import-http-qcow2",
            image("https://images.example.test/fedora/fedora-cloud.x86_64.qcow2", ten, "10 GiB"),
        ),
        (
            "dv-import-http-qcow2-xz",
            image("http://mirror.example.test/appliance/disk.qcow2.xz", twenty, "20 GiB"),
        ),
        (
            "dv-import-http-raw-gz",
            image("http://mirror.example.test/appliance/disk.img.gz", six, "6 GiB"),
        ),
        (
            "dv-import-https-custom-ca",
            image("https://images.corp.internal/rhel/base.qcow2, ca", ten, "10 GiB"),
        ),
        ("dv-import-registry", image("docker://quay.io/containerdisks/centos-stream:9", thirty, "30 GiB")),
        ("dv-import-registry-imagestream", source("registry", node)),
        (
            "dv-import-registry-insecure",
            image("docker://private-registry-example-1:5000/lab/tiny:dev", two, "2 GiB"),
        ),
        ("dv-import-registry-node-pull", source("registry", node)),
        (
            "dv-import-registry-preallocated",
            image("docker://quay.io/containerdisks/fedora:latest", five, "5 GiB") + ", preallocated",
        ),
        (
            "dv-import-registry-private",
            image("docker://registry.corp.internal:5000/golden/base:1.4, auth, ca", fifteen, "15 GiB"),
        ),
        (
            "dv-import-registry-short-name",
            image("docker://kubevirt/fedora-cloud-container-disk-demo:latest", ten, "10 GiB"),
        ),
        ("dv-import-s3", image("s3://vm-bucket/images/db-server.qcow2, keys, ca", forty, "40 GiB")),
        ("dv-import-vmexport", image(&format!("{export}, headers, ca"), thirty, "30 GiB")),
        ("dv-multus-default-network", image("http://10.20.30.40/images/base.qcow2", ten, "10 GiB")),
        (
            "dv-multus-secondary-network",
            image("docker://registry.storage-net.example:5000/base:1", ten, "10 GiB"),
        ),
        ("dv-target-block", format!("refuse: {}", ManifestRefusal::Block)),
        (
            "dv-target-filesystem",
            image("https://images.example.test/debian/debian.qcow2", ten, "10 GiB"),
        ),
        ("dv-target-pvc-form", image("https://images.example.test/tiny/cirros.img", GIB, "970 MiB")),
        ("dv-upload", source("upload", "there is no upload server; use cdi import with a file")),
        ("dv-upload-block", source("upload", "there is no upload server; use cdi import with a file")),
    ];
    let found: Vec<_> = examples()
        .into_iter()
        .map(|(name, volume, references)| {
            (name, summary(&plan(&volume, &references, Existing::Nothing)))
        })
        .collect();
    for ((name, summary), (expected_name, expected)) in found.iter().zip(&expected) {
        assert_eq!((name.as_str(), summary), (*expected_name, expected));
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn references_have_to_be_in_the_manifests() {
    for (name, expected) in [
        (
            "dv-import-http-basic-auth",
            "missing Secret vm-images/data-source-secret in the manifests, which spec.source.http.secretRef names",
        ),
        (
            "dv-import-https-custom-ca",
            "missing ConfigMap vm-images/tls-certs in the manifests, which spec.source.http.certConfigMap names",
        ),
        (
            "dv-import-vmexport",
            "missing ConfigMap migrated/example-export-ca in the manifests, which spec.source.http.certConfigMap names",
        ),
    ] {
        assert_eq!(summary(&plan_of(&example(name))), format!("refuse: {expected}"));
    }
}

fn http(fields: &str, more: &str) -> VolumePlan {
    plan_of(&format!(
        "apiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume\nmetadata: {{name: a}}\nspec: {{source: {{http: \
         {{url: 'https://host/a', {fields}}}}}, storage: {{resources: {{requests: {{storage: 1Gi}}}}}}}}\n---\n\
         apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\n{more}\n"
    ))
}

fn access_of(plan: VolumePlan) -> Access {
    match plan {
        VolumePlan::Make(job) => match job.content {
            Content::Image { access, .. } => *access,
            Content::Archive { .. } | Content::Blank => panic!("no image"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn credentials_are_used_only_if_both_are_set() {
    let auth = |values: &str| http("secretRef: s", &format!("stringData: {{{values}}}"));
    let expected = BasicAuth { username: "anna".into(), password: Secret::new("word") };
    assert_eq!(access_of(auth("accessKeyId: anna, secretKey: word")).auth, Some(expected));
    assert_eq!(access_of(auth("accessKeyId: anna, secretKey: ''")).auth, None);
    assert_eq!(access_of(auth("accessKeyId: '', secretKey: ''")).auth, None);
    assert_eq!(
        summary(&auth("accessKeyId: anna")),
        "refuse: missing key secretKey in Secret s, which spec.source.http.secretRef needs"
    );
    assert_eq!(access_of(http("secretRef: ''", "")).auth, None);
}

fn store(source: &str, values: &str) -> VolumePlan {
    plan_of(&format!(
        "apiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume\nmetadata: {{name: a}}\nspec: {{source:          {{{source}}}, storage: {{resources: {{requests: {{storage: 1Gi}}}}}}}}\n---\napiVersion: v1\nkind:          Secret\nmetadata: {{name: s}}\nstringData: {{{values}}}\n"
    ))
}

#[test]
fn s3_object_uses_its_secret_or_is_public() {
    let source = "s3: {url: 'http://host:9000/bucket/key', secretRef: s}";
    let access = access_of(store(source, "accessKeyId: anna, secretKey: word, sessionToken: x"));
    let keys = |token: Option<&str>| S3Credentials::Keys {
        access_key_id: "anna".into(),
        secret_key: Secret::new("word"),
        session_token: token.map(Secret::new),
    };
    assert_eq!(access.s3.credentials, keys(Some("x")));
    assert_eq!(access.s3.endpoint.as_deref(), Some("http://host:9000/"));
    let access = access_of(store(source, "accessKeyId: anna, secretKey: word"));
    assert_eq!(access.s3.credentials, keys(None));
    for public in [source.replace(", secretRef: s", ""), source.to_owned()] {
        let access = access_of(store(&public, "accessKeyId: '', secretKey: ''"));
        assert_eq!(access.s3.credentials, S3Credentials::Anonymous, "{public}");
    }
    assert_eq!(
        summary(&store(source, "accessKeyId: anna")),
        "refuse: missing key secretKey in Secret s, which spec.source.s3.secretRef needs"
    );
    let summary = summary(&store("s3: {url: 'http://host/bucket'}", ""));
    assert!(
        summary.starts_with("refuse: spec.source.s3.url: http://host/bucket is not"),
        "{summary}"
    );
}

#[test]
fn gcs_key_is_one_value_of_the_secret() {
    let source = "gcs: {url: 'gs://bucket/object', secretRef: s}";
    let access = access_of(store(source, "credentials.json: '{}'"));
    assert_eq!(access.gcs.credentials, GcsCredentials::Json(Secret::new("{}")));
    let access = access_of(store("gcs: {url: 'https://host/bucket/object'}", ""));
    assert_eq!(access.gcs.credentials, GcsCredentials::Anonymous);
    assert_eq!(access.gcs.endpoint.as_deref(), Some("https://host/"));
    assert_eq!(
        summary(&store(source, "key.json: '{}'")),
        "refuse: missing key credentials.json in Secret s, which spec.source.gcs.secretRef needs"
    );
}

#[test]
fn headers_come_from_manifest_and_secrets() {
    let fields = "extraHeaders: ['X-A: 1', 'X-B:2'], secretExtraHeaders: [s]";
    let access = access_of(http(fields, "stringData: {k: \"X-Token: hush\\n\"}"));
    let expected = [("X-A: 1", false), ("X-B: 2", false), ("X-Token: hush", true)];
    let expected = expected.map(|(line, secret)| ExtraHeader::parse(line, secret).unwrap());
    assert_eq!(access.headers, expected);
    for (fields, more, expected) in [
        (
            "extraHeaders: ['hush']",
            "",
            "cannot parse spec.source.http.extraHeaders[0] as a request header: expected 'Name: value'",
        ),
        (
            "secretExtraHeaders: [s]",
            "stringData: {k: hush}",
            "cannot parse the value of k in Secret s as a request header: expected 'Name: value'",
        ),
        (
            "secretExtraHeaders: [s]",
            "data: {k: '/w=='}",
            "cannot use key k of Secret s: its value is not UTF-8 text",
        ),
        (
            "secretExtraHeaders: [s]",
            "data: {k: 'hush!'}",
            "cannot decode key k of Secret s: its value is not base64",
        ),
    ] {
        assert_eq!(summary(&http(fields, more)), format!("refuse: {expected}"));
    }
}

#[test]
fn raw_source_annotation_works_as_in_a_cluster() {
    let mut manifest = Manifest::default();
    manifest.add(&example("dv-immediate-binding")).unwrap();
    let mut volume = manifest.volumes.pop().unwrap();
    for (value, raw) in [("raw", true), ("qcow2", false), ("", false)] {
        volume.metadata.annotations.insert(request::SOURCE_FORMAT.into(), value.into());
        let summary = summary(&plan(&volume, &manifest.references, Existing::Nothing));
        assert_eq!(summary.ends_with(", as it is"), raw, "{value}: {summary}");
    }
}

#[test]
fn complete_disk_is_kept_and_changed_spec_refused() {
    let mut manifest = Manifest::default();
    manifest.add(&example("dv-blank")).unwrap();
    let volume = manifest.volumes.pop().unwrap();
    let complete = || Existing::Complete { spec: fingerprint(&volume.spec) };
    let plan = |volume: &DataVolume, existing| plan(volume, &manifest.references, existing);
    assert_eq!(plan(&volume, complete()), VolumePlan::Keep);
    let mut changed = volume.clone();
    changed.spec.preallocation = Some(true);
    assert_eq!(plan(&changed, complete()), VolumePlan::Refuse(ManifestRefusal::Changed));
    assert_eq!(plan(&volume, Existing::Foreign), VolumePlan::Refuse(ManifestRefusal::Foreign));
    let mut labelled = volume.clone();
    labelled.metadata.labels.insert("a".into(), "b".into());
    assert_eq!(plan(&labelled, complete()), VolumePlan::Keep, "labels are no part of the spec");
}

#[test]
fn usable_size_of_an_enlarged_pvc_is_the_requested_size() {
    for overhead in ["0", "0.055", "0.06", "0.5", "1"] {
        let overhead: Overhead = overhead.parse().unwrap();
        for (name, volume, references) in examples() {
            let facts = VolumeFacts { references: &references, existing: Existing::Nothing };
            let VolumePlan::Make(job) = plan_volume(&volume, overhead, &facts) else { continue };
            assert!(job.usable <= job.claim, "{name}");
            if let Some(storage) = &volume.spec.storage {
                assert!(job.usable >= storage.requested().unwrap().bytes().unwrap(), "{name}");
            }
        }
    }
}

#[test]
fn fingerprint_does_not_depend_on_notation() {
    let fingerprint_of = |spec: &str| {
        let text = format!("apiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume\nspec: {spec}\n");
        let mut manifest = Manifest::default();
        manifest.add(&text).unwrap();
        fingerprint(&manifest.volumes[0].spec)
    };
    let first =
        fingerprint_of("{source: {blank: {}}, storage: {resources: {requests: {storage: 1Gi}}}}");
    let same = fingerprint_of(
        "{storage: {resources: {requests: {storage: 1024Mi}}}, source: {blank: {}}}",
    );
    let other =
        fingerprint_of("{storage: {resources: {requests: {storage: 2Gi}}}, source: {blank: {}}}");
    assert_eq!(first, same);
    assert_ne!(first, other);
}
