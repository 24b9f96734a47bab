//! Routing by method and path.

use clonestream::offer;
use http::Method;

use crate::resumable::is_resumable;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadRoute {
    /// Probes, also during a transfer.
    Health,
    Metrics,
    /// `HEAD` of an asynchronous path: clients probe whether it exists.
    Probe,
    /// Which position an extent stream should start at; requested by our cloner.
    Offer,
    Upload {
        body: BodyFormat,
        /// The client accepts a response before the image is processed. It gets none: the disk is written while the
        /// body arrives.
        is_async: bool,
    },
    /// All methods of the tus protocol.
    Resumable,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFormat {
    /// The bytes of an image.
    Image,
    /// An image as the part `file` of a `multipart/form-data` body.
    Form,
    /// A tar of files.
    Archive,
    /// An extent stream.
    Extents,
}

/// A known path with a wrong method is [`UploadRoute::Unknown`]: clients expect 404, not 405.
pub fn route_request(method: &Method, path: &str) -> UploadRoute {
    match path {
        "/healthz" => return UploadRoute::Health,
        "/metrics" if method == Method::GET => return UploadRoute::Metrics,
        offer::PATH if method == Method::GET => return UploadRoute::Offer,
        offer::PATH if method == Method::POST => {
            return UploadRoute::Upload { body: BodyFormat::Extents, is_async: false };
        }
        _ if is_resumable(path) => return UploadRoute::Resumable,
        _ => {}
    }
    let Some(name) = ["/v1beta1/", "/v1alpha1/"].iter().find_map(|v| path.strip_prefix(v)) else {
        return UploadRoute::Unknown;
    };
    let upload = |body, is_async| match *method {
        Method::POST => UploadRoute::Upload { body, is_async },
        Method::HEAD if is_async => UploadRoute::Probe,
        _ => UploadRoute::Unknown,
    };
    match name {
        "upload" => upload(BodyFormat::Image, false),
        "upload-async" => upload(BodyFormat::Image, true),
        "upload-form" => upload(BodyFormat::Form, false),
        "upload-form-async" => upload(BodyFormat::Form, true),
        "upload-archive" => upload(BodyFormat::Archive, false),
        _ => UploadRoute::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_documented_paths_have_a_route() {
        use BodyFormat::{Archive, Form, Image};
        let paths = [
            ("upload", Some(Image), false),
            ("upload-async", Some(Image), true),
            ("upload-form", Some(Form), false),
            ("upload-form-async", Some(Form), true),
            ("upload-archive", Some(Archive), false),
            ("upload-archive-async", None, false),
            ("upload/", None, false),
            ("uploads", None, false),
            ("", None, false),
        ];
        for version in ["v1beta1", "v1alpha1", "v1"] {
            for (name, body, is_async) in paths {
                let path = format!("/{version}/{name}");
                let is_known = version != "v1";
                let body = body.filter(|_| is_known);
                let post = body
                    .map_or(UploadRoute::Unknown, |body| UploadRoute::Upload { body, is_async });
                let head =
                    if is_async && is_known { UploadRoute::Probe } else { UploadRoute::Unknown };
                assert_eq!(route_request(&Method::POST, &path), post, "{path}");
                assert_eq!(route_request(&Method::HEAD, &path), head, "{path}");
                for method in [Method::GET, Method::PUT, Method::OPTIONS, Method::DELETE] {
                    assert_eq!(
                        route_request(&method, &path),
                        UploadRoute::Unknown,
                        "{method} {path}"
                    );
                }
            }
        }
        for method in [Method::GET, Method::HEAD, Method::POST] {
            assert_eq!(route_request(&method, "/healthz"), UploadRoute::Health);
        }
        assert_eq!(route_request(&Method::GET, "/metrics"), UploadRoute::Metrics);
        assert_eq!(route_request(&Method::POST, "/metrics"), UploadRoute::Unknown);
        let extents = UploadRoute::Upload { body: BodyFormat::Extents, is_async: false };
        assert_eq!(route_request(&Method::GET, "/v1beta1/clone"), UploadRoute::Offer);
        assert_eq!(route_request(&Method::POST, "/v1beta1/clone"), extents);
        assert_eq!(route_request(&Method::PUT, "/v1beta1/clone"), UploadRoute::Unknown);
        assert_eq!(route_request(&Method::GET, "/v1alpha1/clone"), UploadRoute::Unknown);
        assert_eq!(route_request(&Method::GET, "/"), UploadRoute::Unknown);
        for path in ["/v1beta1/upload-resumable", "/v1beta1/upload-resumable/a"] {
            assert_eq!(route_request(&Method::PATCH, path), UploadRoute::Resumable);
        }
        for path in ["/v1alpha1/upload-resumable", "/v1beta1/upload-resumables"] {
            assert_eq!(route_request(&Method::POST, path), UploadRoute::Unknown);
        }
    }
}
