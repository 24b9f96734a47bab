//! Why a request is not forwarded, and the response to the client.

use http::StatusCode;

use crate::cluster_api::ClusterError;

/// Why there is no upload server for a PVC.
#[derive(Debug, thiserror::Error)]
pub enum UploadRefusal {
    #[error("the PVC does not exist")]
    Missing,
    #[error("it is not an upload target")]
    NoTarget,
    #[error("the upload is complete already")]
    Finished,
    #[error("its prime PVC does not exist yet")]
    NoPrime,
    #[error("its upload server did not become ready in time")]
    NotReady,
    #[error("its content type {0:?} is unknown")]
    ContentType(String),
    #[error("cannot read its state")]
    ClusterApi(#[from] ClusterError),
}

/// Why a request is not forwarded.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("unknown path")]
    Unknown,
    #[error("missing bearer token")]
    NoToken,
    #[error("invalid token")]
    Token(#[source] auth::token::TokenError),
    #[error("the token is not for an upload")]
    OtherToken,
    /// Archives cannot be uploaded resumably.
    #[error("PVC {claim} expects an archive, which cannot be resumed")]
    Archive { claim: String },
    #[error("cannot upload to PVC {claim}")]
    Refused { claim: String, source: UploadRefusal },
    /// The client certificate or the CAs of upload servers cannot be used.
    #[error("cannot load the TLS settings for upload servers")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The image has arrived, but its upload server may have been lost since.
    #[error("the end of the upload to PVC {claim} is not recorded")]
    NotRecorded { claim: String },
    #[error("cannot reach the upload server")]
    Upstream(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl ProxyError {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Unknown => StatusCode::NOT_FOUND,
            Self::NoToken | Self::OtherToken | Self::Archive { .. } => StatusCode::BAD_REQUEST,
            Self::Token(_) => StatusCode::UNAUTHORIZED,
            Self::Refused { .. } | Self::NotRecorded { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Client(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Upstream(_) => StatusCode::BAD_GATEWAY,
        }
    }

    /// The response body. The texts are upstream CDI's, which `virtctl` shows and clients match; names in them are HTML-escaped,
    /// as a page may show them.
    pub fn body(&self) -> String {
        match self {
            Self::Unknown | Self::NoToken | Self::Token(_) | Self::OtherToken | Self::Client(_) => {
                String::new()
            }
            Self::Archive { claim } => escape(&format!(
                "PVC {claim} takes an archive, which cannot be resumed: send it to /v1beta1/upload"
            )),
            Self::Refused { claim, source } => escape(&refusal_text(claim, source)),
            Self::NotRecorded { claim } => escape(&format!(
                "the image was received, but the end of its upload server is not recorded in PVC {claim}: the server may have been \
                 lost. Upload the image again if the PVC expects an upload"
            )),
            Self::Upstream(cause) => {
                let cause = runtime::chain(&**cause);
                escape(&format!("error in upload-proxy: http: proxy error: {cause}"))
            }
        }
    }
}

fn refusal_text(claim: &str, refusal: &UploadRefusal) -> String {
    match refusal {
        UploadRefusal::Missing => {
            format!("rejecting Upload Request for PVC {claim} that doesn't exist")
        }
        UploadRefusal::NoTarget => format!("PVC {claim} is not an upload target"),
        UploadRefusal::Finished => {
            format!("rejecting Upload Request for PVC {claim} that already finished uploading")
        }
        UploadRefusal::NoPrime => {
            format!("rejecting Upload Request for PVC {claim}, PVC' wasn't created yet")
        }
        UploadRefusal::NotReady => "context deadline exceeded".to_owned(),
        UploadRefusal::ContentType(content) => format!(
            "rejecting upload request for PVC {claim} - upload content-type {content} is invalid"
        ),
        UploadRefusal::ClusterApi(error) => error.to_string(), // the cause is only logged
    }
}

/// Escapes HTML markup.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '\'' => escaped.push_str("&#39;"),
            '"' => escaped.push_str("&#34;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_upstream_cdis_texts() {
        for (refusal, expected) in [
            (UploadRefusal::Missing, "rejecting Upload Request for PVC d that doesn&#39;t exist"),
            (UploadRefusal::NoTarget, "PVC d is not an upload target"),
            (
                UploadRefusal::Finished,
                "rejecting Upload Request for PVC d that already finished uploading",
            ),
            (
                UploadRefusal::NoPrime,
                "rejecting Upload Request for PVC d, PVC&#39; wasn&#39;t created yet",
            ),
            (UploadRefusal::NotReady, "context deadline exceeded"),
            (
                UploadRefusal::ContentType("<b>".into()),
                "rejecting upload request for PVC d - upload content-type &lt;b&gt; is invalid",
            ),
        ] {
            let error = ProxyError::Refused { claim: "d".into(), source: refusal };
            assert_eq!(error.body(), expected);
        }
        assert_eq!(escape("a<script>&\"'"), "a&lt;script&gt;&amp;&#34;&#39;");
    }
}
