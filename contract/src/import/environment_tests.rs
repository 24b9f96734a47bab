use super::*;

fn read(changes: &[(&str, &str)]) -> Result<ImportJob, BadImportJob> {
    let mut variables: BTreeMap<String, String> =
        ImportJob::new(SourceKind::Http, "http://host/disk.img")
            .to_environment()
            .into_iter()
            .collect();
    variables.extend(changes.iter().map(|(name, value)| ((*name).into(), (*value).into())));
    ImportJob::from_environment(&variables)
}

#[test]
fn each_variable_sets_its_field() {
    type Check = fn(&ImportJob) -> bool;
    let table: &[(&str, &str, Check)] = &[
        ("IMPORTER_SOURCE", "http", |job| job.source == SourceKind::Http),
        ("IMPORTER_SOURCE", "s3", |job| job.source == SourceKind::S3),
        ("IMPORTER_SOURCE", "gcs", |job| job.source == SourceKind::Gcs),
        ("IMPORTER_SOURCE", "none", |job| job.source == SourceKind::Blank),
        ("IMPORTER_SOURCE", "registry", |job| job.source == SourceKind::Registry),
        ("IMPORTER_SOURCE", "imageio", |job| job.source == SourceKind::Imageio),
        ("IMPORTER_SOURCE", "vddk", |job| job.source == SourceKind::Vddk),
        ("IMPORTER_SOURCE", "glance", |job| job.source == SourceKind::Unknown("glance".into())),
        ("IMPORTER_SOURCE", "HTTP", |job| job.source == SourceKind::Unknown("HTTP".into())),
        ("IMPORTER_CONTENTTYPE", "kubevirt", |job| job.content == ContentType::Kubevirt),
        ("IMPORTER_CONTENTTYPE", "archive", |job| job.content == ContentType::Archive),
        ("IMPORTER_CONTENTTYPE", "", |job| job.content == ContentType::Other),
        ("IMPORTER_IMAGE_SIZE", "", |job| job.image_size.is_none()),
        ("IMPORTER_IMAGE_SIZE", "1Gi", |job| job.image_size == Some(ByteCount::mebibytes(1024))),
        ("IMPORTER_IMAGE_SIZE", "500M", |job| job.image_size == Some(ByteCount::new(500_000_000))),
        ("IMPORTER_IMAGE_SIZE", "12", |job| job.image_size == Some(ByteCount::new(12))),
        ("FILESYSTEM_OVERHEAD", "0.06", |job| job.overhead.to_string() == "0.06"),
        ("FILESYSTEM_OVERHEAD", "much", |job| job.overhead == Overhead::ZERO),
        ("INSECURE_TLS", "true", |job| job.insecure_tls),
        ("INSECURE_TLS", "t", |job| job.insecure_tls),
        ("INSECURE_TLS", "yes", |job| !job.insecure_tls),
        ("PREALLOCATION", "1", |job| job.preallocation),
        ("PREALLOCATION", "False", |job| !job.preallocation),
        ("CACHE_MODE", "TRYNONE", |job| job.direct_io),
        ("CACHE_MODE", "", |job| !job.direct_io),
        ("IMPORTER_SOURCE_FORMAT", "raw", |job| job.raw),
        ("IMPORTER_SOURCE_FORMAT", "", |job| !job.raw),
        ("IMPORTER_SOURCE_FORMAT", "qcow2", |job| !job.raw),
        ("IMPORTER_PULL_METHOD", "node", |job| job.node_pull),
        ("IMPORTER_PULL_METHOD", "", |job| !job.node_pull),
        ("IMPORTER_FINAL_CHECKPOINT", "true", |job| job.checkpoints.last),
        ("IMPORTER_CHECKSUM", "", |job| job.checksum.is_none()),
        ("IMPORTER_ACCESS_KEY_ID", "alone", |job| job.credentials.is_none()),
        ("AWS_REGION", "eu-west-1", |job| job.aws_files.is_none()),
        ("AWS_PROFILE", "", |job| job.aws_files.is_none()),
        ("AWS_PROFILE", "import", |job| job.aws_files == Some(vec![])),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/token", |job| {
            job.aws_files == Some(vec!["/token".into()])
        }),
    ];
    for (name, value, check) in table {
        let job = read(&[(name, value)]).unwrap();
        assert!(check(&job), "{name}={value:?}: {job:?}");
    }
}

#[test]
fn unusable_variable_has_its_message() {
    for (name, value, expected) in [
        ("PREALLOCATION", "", "PREALLOCATION has to be true or false, not \"\""),
        ("PREALLOCATION", "maybe", "PREALLOCATION has to be true or false, not \"maybe\""),
        ("IMPORTER_IMAGE_SIZE", "big", "IMPORTER_IMAGE_SIZE cannot be used"),
        ("IMPORTER_IMAGE_SIZE", "-1", "IMPORTER_IMAGE_SIZE cannot be used: it is less than zero"),
        ("IMPORTER_CHECKSUM", "md5", "invalid checksum"),
    ] {
        let error = read(&[(name, value)]).expect_err(value);
        assert_eq!(error.to_string(), expected);
    }
    let blank = read(&[("IMPORTER_SOURCE", "none"), ("IMPORTER_CHECKSUM", "md5")]);
    assert_eq!(blank.unwrap().checksum, None, "an empty disk has nothing to be checked");
}

#[test]
fn extra_headers_are_sorted_by_number() {
    let headers: Vec<_> =
        [10, 2, 0].map(|n| (format!("IMPORTER_EXTRA_HEADER_{n}"), format!("N: {n}"))).into();
    let pairs: Vec<_> = headers.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    assert_eq!(read(&pairs).unwrap().extra_headers, ["N: 0", "N: 2", "N: 10"]);
}

#[test]
fn job_survives_its_environment() {
    let job = ImportJob {
        content: ContentType::Archive,
        image_size: Some(ByteCount::new(12_345)),
        owner_uid: "1-2-3".into(),
        overhead: "0.055".parse().unwrap(),
        insecure_tls: true,
        disk_id: "disk".into(),
        uuid: "uuid".into(),
        backing_file: "[store] a.vmdk".into(),
        thumbprint: "AA:BB".into(),
        node_pull: true,
        ready_file: crate::paths::READY_FILE.into(),
        done_file: crate::paths::DONE_FILE.into(),
        proxy: ProxyVariables {
            http: "http://a".into(),
            https: "http://b".into(),
            except: ".c".into(),
        },
        checkpoints: Checkpoints { current: "s2".into(), previous: "s1".into(), last: true },
        preallocation: true,
        direct_io: true,
        architecture: "arm64".into(),
        checksum: Some("md5:900150983cd24fb0d6963f7d28e17f72".parse().unwrap()),
        google_credentials: "/google/credentials.json".into(),
        cert_dir: crate::paths::CERTS.into(),
        raw: true,
        extra_headers: (0..12).map(|n| format!("X-{n}: value")).collect(),
        ..ImportJob::new(SourceKind::Registry, "docker://host/image")
    };
    let variables = job.to_environment().into_iter().collect();
    assert_eq!(ImportJob::from_environment(&variables), Ok(job));
    let plain = ImportJob::new(SourceKind::Blank, "");
    let variables: BTreeMap<_, _> = plain.to_environment().into_iter().collect();
    assert_eq!(variables["FILESYSTEM_OVERHEAD"], "0");
    assert_eq!(variables["PREALLOCATION"], "false");
    assert_eq!(ImportJob::from_environment(&variables), Ok(plain));
}

#[test]
fn credentials_are_neither_shown_nor_written() {
    let secrets = [("IMPORTER_ACCESS_KEY_ID", "hush-a"), ("IMPORTER_SECRET_KEY", "hush-b")];
    let mut job = read(&secrets).unwrap();
    job.proxy.http = "http://user:hush-c@proxy".into();
    assert!(job.credentials.is_some());
    assert!(!format!("{job:?}").contains("hush"));
    job.proxy = ProxyVariables::default();
    assert!(!format!("{:?}", job.to_environment()).contains("hush"));
}
