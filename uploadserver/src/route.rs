//! What a request asks for, by its method and path alone.

use clonestream::offer;
use http::Method;

use crate::resumable::is_resumable;

/// What is to be done with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Am I alive? Asked by probes, during a transfer too.
    Health,
    /// How far is it?
    Metrics,
    /// Is there an asynchronous path? Asked by clients before they begin.
    Probe,
    /// Is there a better stream for clones, and how much of mine is there? Asked by our own sources.
    Offer,
    /// Here comes what is to be put on the volume.
    Upload {
        /// How it is wrapped up in the body.
        body: Wrapping,
        /// The client would be content with an earlier answer. There is none: the disk is written as it comes.
        is_async: bool,
    },
    /// Something about an upload that can go on after it broke off. The method says what.
    Resumable,
    /// Nothing that is here.
    Unknown,
}

/// How the content is wrapped up in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrapping {
    /// An image, not at all.
    Image,
    /// An image, as the part `file` of a `multipart/form-data` body.
    Form,
    /// Files, in a tar.
    Archive,
    /// A clone, as the stream that was offered.
    Extents,
}

/// The route of a request. A known path with a wrong method is as unknown as any other, which clients rely on.
pub fn route(method: &Method, path: &str) -> Route {
    match path {
        "/healthz" => return Route::Health,
        "/metrics" if method == Method::GET => return Route::Metrics,
        offer::PATH if method == Method::GET => return Route::Offer,
        offer::PATH if method == Method::POST => {
            return Route::Upload { body: Wrapping::Extents, is_async: false };
        }
        _ if is_resumable(path) => return Route::Resumable,
        _ => {}
    }
    let Some(name) = ["/v1beta1/", "/v1alpha1/"].iter().find_map(|v| path.strip_prefix(v)) else {
        return Route::Unknown;
    };
    let upload = |body, is_async| match *method {
        Method::POST => Route::Upload { body, is_async },
        Method::HEAD if is_async => Route::Probe,
        _ => Route::Unknown,
    };
    match name {
        "upload" => upload(Wrapping::Image, false),
        "upload-async" => upload(Wrapping::Image, true),
        "upload-form" => upload(Wrapping::Form, false),
        "upload-form-async" => upload(Wrapping::Form, true),
        "upload-archive" => upload(Wrapping::Archive, false),
        _ => Route::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_path_has_its_route_and_no_other_has_one() {
        use Wrapping::{Archive, Form, Image};
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
                let post = body.map_or(Route::Unknown, |body| Route::Upload { body, is_async });
                let head = if is_async && is_known { Route::Probe } else { Route::Unknown };
                assert_eq!(route(&Method::POST, &path), post, "{path}");
                assert_eq!(route(&Method::HEAD, &path), head, "{path}");
                for method in [Method::GET, Method::PUT, Method::OPTIONS, Method::DELETE] {
                    assert_eq!(route(&method, &path), Route::Unknown, "{method} {path}");
                }
            }
        }
        for method in [Method::GET, Method::HEAD, Method::POST] {
            assert_eq!(route(&method, "/healthz"), Route::Health);
        }
        assert_eq!(route(&Method::GET, "/metrics"), Route::Metrics);
        assert_eq!(route(&Method::POST, "/metrics"), Route::Unknown);
        let extents = Route::Upload { body: Wrapping::Extents, is_async: false };
        assert_eq!(route(&Method::GET, "/v1beta1/clone"), Route::Offer);
        assert_eq!(route(&Method::POST, "/v1beta1/clone"), extents);
        assert_eq!(route(&Method::PUT, "/v1beta1/clone"), Route::Unknown);
        assert_eq!(route(&Method::GET, "/v1alpha1/clone"), Route::Unknown);
        assert_eq!(route(&Method::GET, "/"), Route::Unknown);
        for path in ["/v1beta1/upload-resumable", "/v1beta1/upload-resumable/a"] {
            assert_eq!(route(&Method::PATCH, path), Route::Resumable);
        }
        for path in ["/v1alpha1/upload-resumable", "/v1beta1/upload-resumables"] {
            assert_eq!(route(&Method::POST, path), Route::Unknown);
        }
    }
}
