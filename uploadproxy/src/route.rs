//! Which paths are handed on.

/// What a path asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Am I alive?
    Health,
    /// An upload, or a question about one.
    Upload,
    /// Nothing that is here.
    Unknown,
}

/// The route of a path, whatever the method.
pub fn route(path: &str) -> Route {
    if path == "/healthz" {
        return Route::Health;
    }
    let name = ["/v1beta1/", "/v1alpha1/"].iter().find_map(|version| path.strip_prefix(version));
    match name {
        Some("upload" | "upload-async" | "upload-form" | "upload-form-async") => Route::Upload,
        _ => Route::Unknown,
    }
}

/// Where an upload of files is handed on to, whichever path it came by.
pub fn archive(path: &str) -> &'static str {
    if path.contains("alpha") { "/v1alpha1/upload-archive" } else { "/v1beta1/upload-archive" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_paths_and_no_others_are_handed_on() {
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
            "/metrics",
            "/",
            "",
        ] {
            assert_eq!(route(path), Route::Unknown, "{path}");
        }
        assert_eq!(route("/healthz"), Route::Health);
        assert_eq!(archive("/v1beta1/upload-async"), "/v1beta1/upload-archive");
        assert_eq!(archive("/v1alpha1/upload"), "/v1alpha1/upload-archive");
    }
}
