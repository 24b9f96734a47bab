//! Which paths are handed on.

/// Where uploads are begun that can go on after they broke off, and below which they are.
const RESUMABLE: &str = "/v1beta1/upload-resumable";
const ID_LEN_MAX: usize = 64;

/// What a path asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Am I alive?
    Health,
    /// An upload, or a question about one.
    Upload,
    /// An upload that can go on after it broke off.
    Resumable {
        /// It has begun, and is named by what follows the path.
        begun: bool,
    },
    /// Nothing that is here.
    Unknown,
}

/// The route of a path, whatever the method.
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

/// Letters and digits, as upload servers make them up.
fn is_id(text: &str) -> bool {
    (1..=ID_LEN_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// A path as it may be logged: the name of an upload is a secret.
pub fn shown(path: &str) -> &str {
    if path.starts_with(RESUMABLE) { RESUMABLE } else { path }
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
        assert_eq!(shown(&upload), RESUMABLE);
        assert_eq!(shown("/v1beta1/upload"), "/v1beta1/upload");
        let long = format!("{RESUMABLE}/{}", "a".repeat(ID_LEN_MAX + 1));
        assert_eq!(route(&long), Route::Unknown);
        assert_eq!(route("/healthz"), Route::Health);
        assert_eq!(archive("/v1beta1/upload-async"), "/v1beta1/upload-archive");
        assert_eq!(archive("/v1alpha1/upload"), "/v1alpha1/upload-archive");
    }
}
