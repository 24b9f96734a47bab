//! The paths of the proxy.

/// Creates resumable uploads; each upload is a path below.
const RESUMABLE: &str = "/v1beta1/upload-resumable";
const ID_LEN_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The liveness path.
    Health,
    /// An upload, or a HEAD request about one.
    Upload,
    /// A resumable upload.
    Resumable {
        /// The path names an upload that has begun.
        begun: bool,
    },
    Unknown,
}

/// The route of a path, for every method.
pub fn route(path: &str) -> Route {
    if path == "/healthz" {
        return Route::Health;
    }
    if let Some(rest) = path.strip_prefix(RESUMABLE) {
        match rest.strip_prefix('/') {
            None if rest.is_empty() => return Route::Resumable { begun: false },
            Some(id) if is_id(id) => return Route::Resumable { begun: true },
            _ => return Route::Unknown,
        }
    }
    let name = ["/v1beta1/", "/v1alpha1/"].iter().find_map(|version| path.strip_prefix(version));
    match name {
        Some("upload" | "upload-async" | "upload-form" | "upload-form-async") => Route::Upload,
        _ => Route::Unknown,
    }
}

/// An ID as upload servers generate it: letters and digits.
fn is_id(text: &str) -> bool {
    (1..=ID_LEN_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// A path for logs, without the ID of an upload, which is a secret.
pub fn redact_path(path: &str) -> &str {
    if path.starts_with(RESUMABLE) { RESUMABLE } else { path }
}

/// The upload server's path for an archive.
pub fn archive_path(path: &str) -> &'static str {
    if path.contains("alpha") { "/v1alpha1/upload-archive" } else { "/v1beta1/upload-archive" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_documented_paths_are_forwarded() {
        for version in ["v1beta1", "v1alpha1"] {
            for name in ["upload", "upload-async", "upload-form", "upload-form-async"] {
                assert_eq!(route(&format!("/{version}/{name}")), Route::Upload);
            }
        }
        for path in [
            "/v1beta1/upload-archive",
            "/v1beta1/upload/",
            "/v1beta1/",
            "/v1/upload",
            "/v1beta1//upload",
            "/v1beta1/../v1beta1/upload",
            "/v1alpha1/upload-resumable",
            "/v1beta1/upload-resumable/",
            "/v1beta1/upload-resumable/a/b",
            "/v1beta1/upload-resumable/a%2f",
            "/v1beta1/upload-resumables",
            "/metrics",
            "/",
            "",
        ] {
            assert_eq!(route(path), Route::Unknown, "{path}");
        }
        assert_eq!(route(RESUMABLE), Route::Resumable { begun: false });
        let upload = format!("{RESUMABLE}/0123456789abcdef");
        assert_eq!(route(&upload), Route::Resumable { begun: true });
        assert_eq!(redact_path(&upload), RESUMABLE);
        assert_eq!(redact_path("/v1beta1/upload"), "/v1beta1/upload");
        let long = format!("{RESUMABLE}/{}", "a".repeat(ID_LEN_MAX + 1));
        assert_eq!(route(&long), Route::Unknown);
        assert_eq!(route("/healthz"), Route::Health);
        assert_eq!(archive_path("/v1beta1/upload-async"), "/v1beta1/upload-archive");
        assert_eq!(archive_path("/v1alpha1/upload"), "/v1alpha1/upload-archive");
    }
}
