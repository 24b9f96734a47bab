//! Rules on `spec.source`, `spec.sourceRef` and external population.

use contract::Checksum;
use url::Url;

use super::Invalid;
use crate::claim::{ClaimSpec, ObjectReference};
use crate::data_volume::{
    ContentType, DataVolumeSpec, HttpSource, ImageioSource, NamedSource, RegistrySource, Source,
    SourceRef, VddkSource,
};

type Checked = Result<(), Invalid>;

fn invalid(field: &str, message: impl Into<String>) -> Checked {
    Err(Invalid::new(field, message))
}

pub(super) fn check(spec: &DataVolumeSpec, schemes: &[&str]) -> Checked {
    let claim = spec.pvc.as_ref().or(spec.storage.as_ref());
    if let Some(claim) = claim.filter(|c| c.data_source.is_some() || c.data_source_ref.is_some()) {
        return external(spec, claim);
    }
    let sources = match (&spec.source, &spec.source_ref) {
        (None, None) | (Some(_), Some(_)) => {
            let message =
                "Data volume should have either Source or SourceRef, or be externally populated";
            return invalid("spec.source", message);
        }
        (None, Some(source_ref)) => return by_reference(source_ref),
        (Some(sources), None) => sources,
    };
    let source = match sources.members()[..] {
        [] => return invalid("spec.source", "Missing Data volume source"),
        [source] => source,
        ref members => {
            let fields: Vec<_> =
                members.iter().map(|member| format!("spec.source.{}", member.field())).collect();
            let message = format!("Multiple Data volume sources: {}", fields.join(", "));
            return invalid("spec.source", message);
        }
    };
    let Some(content) = spec.content_type() else {
        return invalid("spec.contentType", "ContentType not one of: kubevirt, archive");
    };
    check_one(source, content, schemes)
}

pub(super) fn check_one(source: Source<'_>, content: ContentType, schemes: &[&str]) -> Checked {
    match source {
        Source::Http(http) => check_http(http, schemes),
        Source::S3(s3) => address("S3", &s3.url, schemes),
        Source::Gcs(gcs) => address("GCS", &gcs.url, schemes),
        Source::Registry(registry) => check_registry(registry, content),
        Source::Pvc(pvc) => named("PVC", "PVC", pvc),
        Source::Snapshot(snapshot) => named("Snapshot", "snapshot", snapshot),
        Source::Upload => Ok(()),
        Source::Blank if content == ContentType::Archive => {
            let message = "SourceType cannot be blank and the contentType be archive";
            invalid("spec.contentType", message)
        }
        Source::Blank => Ok(()),
        Source::Imageio(imageio) => check_imageio(imageio, schemes),
        Source::Vddk(vddk) => check_vddk(vddk, schemes),
    }
}

/// The PVC has a `dataSource` or `dataSourceRef` of its own, for a foreign populator.
fn external(spec: &DataVolumeSpec, claim: &ClaimSpec) -> Checked {
    if spec.source.is_some() || spec.source_ref.is_some() {
        let message = "External population is incompatible with Source and SourceRef";
        return invalid("spec.source", message);
    }
    let whole = |member: &str, field: &str, reference: &ObjectReference| {
        for (part, value) in [("name", &reference.name), ("kind", &reference.kind)] {
            if value.is_empty() {
                let message = format!("Required value: {member} {part}");
                return invalid(&format!("{field}.{part}"), message);
            }
        }
        let group = reference.api_group.as_deref().unwrap_or_default();
        if group.is_empty() && reference.kind != "PersistentVolumeClaim" {
            let message = format!(
                "Required value: {member} apiGroup when kind is not 'PersistentVolumeClaim'"
            );
            return invalid(&format!("{field}.apiGroup"), message);
        }
        Ok(())
    };
    match (&claim.data_source, &claim.data_source_ref) {
        (Some(source), Some(reference)) if source != reference => {
            invalid("spec.dataSourceRef", "DataSourceRef and DataSource must match")
        }
        (_, Some(reference)) if reference.namespace.is_some() => {
            let message = "Invalid value: DataSourceRef namespace not supported";
            invalid("spec.dataSourceRef.namespace", message)
        }
        (_, Some(reference)) => whole("DataSourceRef", "spec.dataSourceRef", reference),
        (Some(source), None) => whole("DataSource", "spec.dataSource", source),
        (None, None) => Ok(()),
    }
}

fn by_reference(source_ref: &SourceRef) -> Checked {
    match (source_ref.kind.as_str(), source_ref.name.as_str()) {
        ("", _) => invalid("spec.sourceRef.Kind", "Missing sourceRef kind"),
        ("DataSource", "") => invalid("spec.sourceRef.Name", "Missing sourceRef name"),
        ("DataSource", _) => Ok(()),
        (kind, _) => invalid(
            "spec.sourceRef.Kind",
            format!("Unsupported sourceRef kind {kind}, currently only DataSource is supported"),
        ),
    }
}

fn address(member: &str, url: &str, schemes: &[&str]) -> Checked {
    let field = format!("spec.source.{member}.url");
    if url.is_empty() {
        return invalid(&field, "spec.source source URL is empty");
    }
    // The URL may contain a password, so messages do not quote it.
    match Url::parse(url) {
        Err(error) => invalid(&field, format!("spec.source Invalid source URL: {error}")),
        Ok(url) if !schemes.contains(&url.scheme()) => invalid(
            &field,
            format!(
                "spec.source Invalid source URL scheme: {:?}, expected {}",
                url.scheme(),
                schemes.join(", ")
            ),
        ),
        Ok(_) => Ok(()),
    }
}

fn check_http(http: &HttpSource, schemes: &[&str]) -> Checked {
    address("HTTP", &http.url, schemes)?;
    let checksum = http.checksum.as_deref().filter(|text| !text.is_empty());
    match checksum.map(str::parse::<Checksum>) {
        Some(Err(error)) => {
            invalid("spec.source.HTTP.checksum", format!("Invalid checksum format: {error}"))
        }
        Some(Ok(_)) | None => Ok(()),
    }
}

fn check_registry(registry: &RegistrySource, content: ContentType) -> Checked {
    let field = "spec.source.Registry";
    if content != ContentType::DiskImage {
        let message = "ContentType must be kubevirt when Source is Registry";
        return invalid("spec.contentType", message);
    }
    match registry.pull_method.as_deref() {
        None | Some("" | "pod" | "node") => {}
        Some(other) => {
            let other: String = other.chars().take(40).collect();
            let message = format!("ImportMethod {other} is neither pod, node or \"\"");
            return invalid(&format!("{field}.importMethod"), message);
        }
    }
    // Some clients write an absent field as an empty string.
    let url = registry.url.as_deref();
    let stream = registry.image_stream.as_deref();
    let is_set = |text: Option<&str>| text.is_some_and(|text| !text.is_empty());
    let (url, stream) = match (is_set(url), is_set(stream)) {
        (true, false) => (url, None),
        (false, true) => (None, stream),
        _ => (url, stream),
    };
    match (url, stream) {
        (None, None) | (Some(_), Some(_)) => {
            invalid(field, "Source registry should have either URL or ImageStream")
        }
        (Some(url), None) => match Url::parse(url) {
            Err(error) => {
                invalid(&format!("{field}.URL"), format!("Illegal registry source URL: {error}"))
            }
            Ok(url) if !["docker", "oci-archive"].contains(&url.scheme()) => {
                let message = format!(
                    "Illegal registry source URL scheme {:?}, expected docker, oci-archive",
                    url.scheme()
                );
                invalid(&format!("{field}.URL"), message)
            }
            Ok(_) => Ok(()),
        },
        (None, Some("")) => {
            invalid(&format!("{field}.importMethod"), "Source registry ImageStream is not valid")
        }
        (None, Some(_)) if registry.pull_method.as_deref() != Some("node") => {
            let message =
                "Source registry ImageStream is supported only with node pull import method";
            invalid(&format!("{field}.importMethod"), message)
        }
        (None, Some(_)) => Ok(()),
    }
}

fn is_missing(name: &Option<String>) -> bool {
    name.as_deref().unwrap_or_default().is_empty()
}

fn check_imageio(imageio: &ImageioSource, schemes: &[&str]) -> Checked {
    let field = "spec.source.Imageio";
    if is_missing(&imageio.secret_ref) || imageio.disk_id.is_empty() {
        let message =
            "spec.source.Imageio source Imageio is not valid: secretRef and diskId are required";
        return invalid(field, message);
    }
    if is_missing(&imageio.cert_config_map) && imageio.insecure_skip_verify != Some(true) {
        let message =
            "spec.source.Imageio source Imageio requires CertConfigMap or InsecureSkipVerify";
        return invalid(field, message);
    }
    address("ImageIO", &imageio.url, schemes)
}

fn check_vddk(vddk: &VddkSource, schemes: &[&str]) -> Checked {
    let required = [&vddk.uuid, &vddk.backing_file, &vddk.thumbprint];
    if is_missing(&vddk.secret_ref) || required.into_iter().any(|text| text.is_empty()) {
        let message = "spec.source.VDDK source VDDK is not valid: secretRef, uuid, backingFile and \
                       thumbprint are required";
        return invalid("spec.source.VDDK", message);
    }
    address("VDDK", &vddk.url, schemes)
}

fn named(member: &str, word: &str, source: &NamedSource) -> Checked {
    if source.name.is_empty() || source.namespace.is_empty() {
        let field = format!("spec.source.{member}");
        let message =
            format!("{field} source {word} is not valid: name and namespace are required");
        return invalid(&field, message);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, with_spec};
    use super::super::validate;

    const STORAGE: &str = "storage: {resources: {requests: {storage: 1Gi}}}";

    /// `source` is what stands between the braces of `spec.source`.
    fn check_source(source: &str) -> String {
        check(&format!("{{source: {{{source}}}, {STORAGE}}}"))
    }

    #[test]
    fn exactly_one_source_is_required() {
        for (rest, expected) in [
            (
                "x",
                "spec.source: Data volume should have either Source or SourceRef, or be externally populated",
            ),
            ("source: {}", "spec.source: Missing Data volume source"),
            (
                "source: {blank: {}}, sourceRef: {kind: DataSource, name: a}",
                "spec.source: Data volume should have either Source or SourceRef, or be externally populated",
            ),
            (
                "source: {http: {url: 'http://a/b'}, registry: {url: 'docker://a/b'}}",
                "spec.source: Multiple Data volume sources: spec.source.http, spec.source.registry",
            ),
            ("sourceRef: {kind: DataSource, name: a}", ""),
            ("sourceRef: {name: a}", "spec.sourceRef.Kind: Missing sourceRef kind"),
            ("sourceRef: {kind: DataSource}", "spec.sourceRef.Name: Missing sourceRef name"),
            (
                "sourceRef: {kind: Pod, name: a}",
                "spec.sourceRef.Kind: Unsupported sourceRef kind Pod, currently only DataSource is supported",
            ),
        ] {
            let rest = if rest == "x" { String::new() } else { format!("{rest}, ") };
            assert_eq!(check(&format!("{{{rest}{STORAGE}}}")), expected, "{rest}");
        }
    }

    #[test]
    fn urls_are_checked_and_not_quoted() {
        for (source, expected) in [
            ("http: {url: 'https://host/a'}", ""),
            ("http: {url: 'http://host/a'}", ""),
            ("http: {}", "spec.source.HTTP.url: spec.source source URL is empty"),
            ("http: {url: ''}", "spec.source.HTTP.url: spec.source source URL is empty"),
            (
                "http: {url: 'user:hush@host/a'}",
                "spec.source.HTTP.url: spec.source Invalid source URL scheme: \"user\", expected http, https, gs",
            ),
            (
                "http: {url: './hush'}",
                "spec.source.HTTP.url: spec.source Invalid source URL: relative URL without a base",
            ),
            (
                "http: {url: 'file:///etc/passwd'}",
                "spec.source.HTTP.url: spec.source Invalid source URL scheme: \"file\", expected http, https, gs",
            ),
            ("s3: {}", "spec.source.S3.url: spec.source source URL is empty"),
            ("gcs: {url: 'gs://bucket/a'}", ""),
            ("gcs: {}", "spec.source.GCS.url: spec.source source URL is empty"),
        ] {
            let refusal = check_source(source);
            assert_eq!(refusal, expected, "{source}");
            assert!(!refusal.contains("hush"));
        }
        let local = with_spec(&format!("{{source: {{http: {{url: 'file:///a'}}}}, {STORAGE}}}"));
        assert_eq!(validate(&local, &["file"]), Ok(()));
    }

    #[test]
    fn checksum_of_an_http_source_is_checked() {
        let check =
            |sum: &str| check_source(&format!("http: {{url: 'http://a/b', checksum: '{sum}'}}"));
        assert_eq!(check(" MD5: 900150983CD24FB0D6963F7D28E17F72 "), "");
        assert_eq!(
            check("md5:90"),
            "spec.source.HTTP.checksum: Invalid checksum format: invalid md5 hash length: expected 32 hex \
             characters, got 2"
        );
    }

    #[test]
    fn content_type_is_kubevirt_or_archive() {
        for (content, source, expected) in [
            ("''", "blank: {}", ""),
            ("kubevirt", "blank: {}", ""),
            ("archive", "http: {url: 'http://a/b'}", ""),
            ("tar", "blank: {}", "spec.contentType: ContentType not one of: kubevirt, archive"),
            (
                "archive",
                "blank: {}",
                "spec.contentType: SourceType cannot be blank and the contentType be archive",
            ),
            (
                "archive",
                "registry: {url: 'docker://a/b'}",
                "spec.contentType: ContentType must be kubevirt when Source is Registry",
            ),
        ] {
            let spec = format!("{{contentType: {content}, source: {{{source}}}, {STORAGE}}}");
            assert_eq!(check(&spec), expected, "{spec}");
        }
    }

    #[test]
    fn rules_of_each_source() {
        for (source, expected) in [
            ("upload: {}", ""),
            ("registry: {url: 'docker://a/b'}", ""),
            ("registry: {url: 'oci-archive:/a/b'}", ""),
            ("registry: {url: 'docker://a/b', pullMethod: node}", ""),
            ("registry: {imageStream: a, pullMethod: node}", ""),
            (
                "registry: {}",
                "spec.source.Registry: Source registry should have either URL or ImageStream",
            ),
            (
                "registry: {url: 'docker://a/b', imageStream: a}",
                "spec.source.Registry: Source registry should have either URL or ImageStream",
            ),
            (
                "registry: {url: 'http://a/b'}",
                "spec.source.Registry.URL: Illegal registry source URL scheme \"http\", expected docker, oci-archive",
            ),
            (
                "registry: {url: 'docker://a/b', pullMethod: me}",
                "spec.source.Registry.importMethod: ImportMethod me is neither pod, node or \"\"",
            ),
            (
                "registry: {imageStream: a}",
                "spec.source.Registry.importMethod: Source registry ImageStream is supported only with node pull \
                 import method",
            ),
            ("pvc: {name: a, namespace: b}", ""),
            (
                "pvc: {name: a}",
                "spec.source.PVC: spec.source.PVC source PVC is not valid: name and namespace are required",
            ),
            (
                "snapshot: {namespace: a}",
                "spec.source.Snapshot: spec.source.Snapshot source snapshot is not valid: name and namespace are required",
            ),
            (
                "imageio: {url: 'http://a/b', diskId: a, secretRef: b}",
                "spec.source.Imageio: spec.source.Imageio source Imageio requires CertConfigMap or InsecureSkipVerify",
            ),
            (
                "imageio: {url: 'http://a/b', diskId: a}",
                "spec.source.Imageio: spec.source.Imageio source Imageio is not valid: secretRef and diskId are required",
            ),
            ("imageio: {url: 'http://a/b', diskId: a, secretRef: b, insecureSkipVerify: true}", ""),
            ("imageio: {url: 'http://a/b', diskId: a, secretRef: b, certConfigMap: c}", ""),
            (
                "vddk: {url: 'http://a/b', uuid: a, backingFile: b, thumbprint: c}",
                "spec.source.VDDK: spec.source.VDDK source VDDK is not valid: secretRef, uuid, backingFile and thumbprint \
                 are required",
            ),
            ("vddk: {url: 'http://a/b', uuid: a, backingFile: b, thumbprint: c, secretRef: d}", ""),
            (
                "vddk: {uuid: a, backingFile: b, thumbprint: c, secretRef: d}",
                "spec.source.VDDK.url: spec.source source URL is empty",
            ),
        ] {
            assert_eq!(check_source(source), expected, "{source}");
        }
    }

    #[test]
    fn external_population_excludes_a_source() {
        let check = |claim: &str, source: &str| {
            check(&format!(
                "{{{source}storage: {{{claim}, resources: {{requests: {{storage: 1Gi}}}}}}}}"
            ))
        };
        let whole = "{apiGroup: a.b, kind: C, name: d}";
        for (claim, source, expected) in [
            (format!("dataSourceRef: {whole}"), "", ""),
            (format!("dataSource: {whole}"), "", ""),
            (format!("dataSource: {whole}, dataSourceRef: {whole}"), "", ""),
            ("dataSource: {kind: PersistentVolumeClaim, name: d}".into(), "", ""),
            (
                format!("dataSourceRef: {whole}"),
                "source: {blank: {}}, ",
                "spec.source: External population is incompatible with Source and SourceRef",
            ),
            (
                format!(
                    "dataSource: {whole}, dataSourceRef: {{kind: PersistentVolumeClaim, name: x}}"
                ),
                "",
                "spec.dataSourceRef: DataSourceRef and DataSource must match",
            ),
            (
                "dataSourceRef: {kind: C, name: d}".into(),
                "",
                "spec.dataSourceRef.apiGroup: Required value: DataSourceRef apiGroup when kind is not 'PersistentVolumeClaim'",
            ),
            (
                "dataSource: {kind: C}".into(),
                "",
                "spec.dataSource.name: Required value: DataSource name",
            ),
            (
                "dataSourceRef: {apiGroup: a, kind: C, name: d, namespace: e}".into(),
                "",
                "spec.dataSourceRef.namespace: Invalid value: DataSourceRef namespace not supported",
            ),
        ] {
            assert_eq!(check(&claim, source), expected, "{claim}");
        }
    }
}
