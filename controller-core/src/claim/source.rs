//! The annotations from which a worker's import job is made.

use api::annotations::{import, request, state};
use api::v1beta1::ImportSource;

use crate::meta::Pairs;

/// All that the controller that creates the worker needs to know of the source.
pub fn annotations(source: &ImportSource) -> Pairs {
    let mut pairs = Pairs::new();
    let mut add = |key: &str, value: Option<&String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            pairs.insert(key.to_owned(), value.clone());
        }
    };
    let yes = "true".to_owned();
    let kind = if let Some(http) = &source.http {
        add(import::ENDPOINT, Some(&http.url));
        add(import::SECRET_NAME, http.secret_ref.as_ref());
        add(import::CERT_CONFIG_MAP, http.cert_config_map.as_ref());
        add(import::CHECKSUM, http.checksum.as_ref());
        add(import::INSECURE_SKIP_VERIFY, http.insecure_skip_verify.filter(|b| *b).map(|_| &yes));
        for (number, header) in http.extra_headers.iter().flatten().enumerate() {
            add(&format!("{}.{number}", import::EXTRA_HEADERS), Some(header));
        }
        for (number, secret) in http.secret_extra_headers.iter().flatten().enumerate() {
            add(&format!("{}.{number}", import::SECRET_EXTRA_HEADERS), Some(secret));
        }
        "http"
    } else if let Some(s3) = &source.s3 {
        add(import::ENDPOINT, Some(&s3.url));
        add(import::SECRET_NAME, s3.secret_ref.as_ref());
        add(import::CERT_CONFIG_MAP, s3.cert_config_map.as_ref());
        "s3"
    } else if let Some(gcs) = &source.gcs {
        add(import::ENDPOINT, Some(&gcs.url));
        add(import::SECRET_NAME, gcs.secret_ref.as_ref());
        "gcs"
    } else if let Some(registry) = &source.registry {
        let url = registry.url.as_ref().filter(|url| !url.is_empty());
        let stream = registry.image_stream.as_ref().filter(|name| !name.is_empty());
        add(import::ENDPOINT, url.or(stream));
        let is_stream = url.is_none() && stream.is_some();
        add(import::REGISTRY_IMAGE_STREAM, is_stream.then_some(&yes));
        add(import::REGISTRY_METHOD, registry.pull_method.as_ref());
        add(import::SECRET_NAME, registry.secret_ref.as_ref());
        add(import::CERT_CONFIG_MAP, registry.cert_config_map.as_ref());
        let platform = registry.platform.as_ref();
        let architecture = platform.and_then(|platform| platform.architecture.as_ref());
        add(import::REGISTRY_ARCHITECTURE, architecture);
        "registry"
    } else if let Some(imageio) = &source.imageio {
        add(import::ENDPOINT, Some(&imageio.url));
        add(import::DISK_ID, Some(&imageio.disk_id));
        add(import::SECRET_NAME, imageio.secret_ref.as_ref());
        add(import::CERT_CONFIG_MAP, imageio.cert_config_map.as_ref());
        let insecure = imageio.insecure_skip_verify.filter(|b| *b);
        add(import::INSECURE_SKIP_VERIFY, insecure.map(|_| &yes));
        "imageio"
    } else if let Some(vddk) = &source.vddk {
        add(import::ENDPOINT, vddk.url.as_ref());
        add(import::UUID, vddk.uuid.as_ref());
        add(import::BACKING_FILE, vddk.backing_file.as_ref());
        add(import::VDDK_THUMBPRINT, vddk.thumbprint.as_ref());
        add(import::SECRET_NAME, vddk.secret_ref.as_ref());
        add(import::CERT_CONFIG_MAP, vddk.cert_config_map.as_ref());
        add(request::VDDK_INIT_IMAGE, vddk.init_image_url.as_ref());
        add(request::VDDK_EXTRA_ARGS, vddk.extra_args.as_ref());
        "vddk"
    } else {
        "none"
    };
    pairs.insert(import::SOURCE.into(), kind.into());
    pairs
}

/// Annotations of a PVC that waits for an upload.
pub fn upload_annotations() -> Pairs {
    Pairs::from([(request::UPLOAD_TARGET.into(), String::new())])
}

/// Annotations of any source: content type and preallocation.
pub fn common_annotations(content: api::v1beta1::ContentType, preallocation: bool) -> Pairs {
    Pairs::from([
        (request::CONTENT_TYPE.into(), content.as_str().into()),
        (state::PREALLOCATION_REQUESTED.into(), preallocation.to_string()),
    ])
}

#[cfg(test)]
mod tests {
    use api::v1beta1::DataVolumeSource;
    use serde_json::{Value, json};

    use super::*;
    use crate::operation::import_source;

    fn annotations_for(source: Value) -> Vec<String> {
        let source: DataVolumeSource = serde_json::from_value(source).unwrap();
        let pairs = annotations(&import_source(&source).unwrap());
        let short = |key: &str| {
            key.trim_start_matches("cdi.kubevirt.io/storage.")
                .trim_start_matches("import.")
                .to_owned()
        };
        pairs.iter().map(|(key, value)| format!("{}={value}", short(key))).collect()
    }

    #[test]
    fn annotations_of_each_source() {
        let secret = json!("creds");
        assert_eq!(
            annotations_for(json!({ "http": {
                "url": "https://h/a", "secretRef": secret, "certConfigMap": "ca", "checksum": "md5:00",
                "insecureSkipVerify": true, "extraHeaders": ["A: b", "C: d"], "secretExtraHeaders": ["s"],
            } })),
            [
                "certConfigMap=ca",
                "checksum=md5:00",
                "endpoint=https://h/a",
                "extraHeaders.0=A: b",
                "extraHeaders.1=C: d",
                "insecureSkipVerify=true",
                "secretExtraHeaders.0=s",
                "secretName=creds",
                "source=http",
            ]
        );
        assert_eq!(
            annotations_for(
                json!({ "http": { "url": "http://h/a", "insecureSkipVerify": false } })
            ),
            ["endpoint=http://h/a", "source=http"]
        );
        assert_eq!(
            annotations_for(
                json!({ "s3": { "url": "https://s/b/k", "secretRef": secret, "certConfigMap": "ca" } })
            ),
            ["certConfigMap=ca", "endpoint=https://s/b/k", "secretName=creds", "source=s3"]
        );
        assert_eq!(
            annotations_for(json!({ "gcs": { "url": "gs://b/o", "secretRef": secret } })),
            ["endpoint=gs://b/o", "secretName=creds", "source=gcs"]
        );
        assert_eq!(
            annotations_for(json!({ "registry": {
                "url": "docker://r/i", "pullMethod": "node", "platform": { "architecture": "arm64" },
            } })),
            [
                "endpoint=docker://r/i",
                "registryImageArchitecture=arm64",
                "registryImportMethod=node",
                "source=registry",
            ]
        );
        assert_eq!(
            annotations_for(json!({ "registry": { "imageStream": "s:t", "pullMethod": "node" } })),
            [
                "endpoint=s:t",
                "registryImageStream=true",
                "registryImportMethod=node",
                "source=registry",
            ]
        );
        assert_eq!(
            annotations_for(
                json!({ "imageio": { "url": "https://e", "diskId": "d", "insecureSkipVerify": true } })
            ),
            ["diskId=d", "endpoint=https://e", "insecureSkipVerify=true", "source=imageio"]
        );
        assert_eq!(
            annotations_for(json!({ "vddk": {
                "url": "https://v", "uuid": "u", "backingFile": "[s] a.vmdk", "thumbprint": "AA",
                "secretRef": secret, "initImageURL": "img", "extraArgs": "args",
            } })),
            [
                "backingFile=[s] a.vmdk",
                "endpoint=https://v",
                "secretName=creds",
                "source=vddk",
                "uuid=u",
                "vddk.thumbprint=AA",
                "pod.vddk.extraargs=args",
                "pod.vddk.initimageurl=img",
            ]
        );
        assert_eq!(annotations_for(json!({ "blank": {} })), ["source=none"]);
    }

    #[test]
    fn other_sources_have_no_import_annotations() {
        for source in [
            json!({ "upload": {} }),
            json!({ "pvc": { "namespace": "a", "name": "b" } }),
            json!({ "snapshot": { "namespace": "a", "name": "b" } }),
        ] {
            let source: DataVolumeSource = serde_json::from_value(source).unwrap();
            assert_eq!(import_source(&source), None);
        }
    }
}
