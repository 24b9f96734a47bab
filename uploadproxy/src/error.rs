//! Why an upload is not handed on, and what the client is told.

use http::StatusCode;

use crate::cluster::ClusterError;

/// Why there is no server for a claim.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// There is no such claim.
    #[error("there is no such claim")]
    Missing,
    /// It is filled by other means.
    #[error("it is not an upload target")]
    NoTarget,
    /// It is complete.
    #[error("it is complete")]
    Finished,
    /// The claim that would be filled in its stead is not there.
    #[error("the claim that is filled in its stead is not there")]
    NoPrime,
    /// Its server takes too long to get ready.
    #[error("its server is not ready")]
    NotReady,
    /// It is neither a disk nor an archive.
    #[error("its content type {0:?} is not known")]
    ContentType(String),
    /// Nobody knows.
    #[error("the cluster does not tell")]
    Cluster(#[from] ClusterError),
}

/// Why a request is not handed on.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// No such path.
    #[error("there is nothing here")]
    Unknown,
    /// No token, or what looks like none.
    #[error("there is no token")]
    NoToken,
    /// A token that is not believed.
    #[error("the token is not believed")]
    Token(#[source] auth::token::TokenError),
    /// A token for something else.
    #[error("the token is not for an upload")]
    OtherToken,
    /// What takes files can only be uploaded to in one go.
    #[error("the claim {claim} takes an archive")]
    Archive {
        /// As the token names it.
        claim: String,
    },
    /// There is no server.
    #[error("the claim {claim} cannot be uploaded to")]
    Refused {
        /// As the token names it.
        claim: String,
        /// Why.
        source: Refusal,
    },
    /// This process has nothing to prove itself with, or does not know whom to trust.
    #[error("this proxy cannot speak to upload servers")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server cannot be talked to.
    #[error("the upload server cannot be talked to")]
    Upstream(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl ProxyError {
    /// What the client is answered.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Unknown => StatusCode::NOT_FOUND,
            Self::NoToken | Self::OtherToken | Self::Archive { .. } => StatusCode::BAD_REQUEST,
            Self::Token(_) => StatusCode::UNAUTHORIZED,
            Self::Refused { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Client(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Upstream(_) => StatusCode::BAD_GATEWAY,
        }
    }

    /// What the client reads. Clients know these words, and a page may show them: names are made harmless.
    pub fn body(&self) -> String {
        match self {
            Self::Unknown | Self::NoToken | Self::Token(_) | Self::OtherToken | Self::Client(_) => {
                String::new()
            }
            Self::Archive { claim } => escape(&format!(
                "PVC {claim} takes an archive, which cannot be resumed: send it to /v1beta1/upload"
            )),
            Self::Refused { claim, source } => escape(&words(claim, source)),
            Self::Upstream(cause) => {
                let cause = runtime::chain(&**cause);
                escape(&format!("error in upload-proxy: http: proxy error: {cause}"))
            }
        }
    }
}

fn words(claim: &str, refusal: &Refusal) -> String {
    match refusal {
        Refusal::Missing => {
            format!("rejecting Upload Request for PVC {claim} that doesn't exist")
        }
        Refusal::NoTarget => format!("PVC {claim} is not an upload target"),
        Refusal::Finished => {
            format!("rejecting Upload Request for PVC {claim} that already finished uploading")
        }
        Refusal::NoPrime => {
            format!("rejecting Upload Request for PVC {claim}, PVC' wasn't created yet")
        }
        Refusal::NotReady => "context deadline exceeded".to_owned(),
        Refusal::ContentType(content) => format!(
            "rejecting upload request for PVC {claim} - upload content-type {content} is invalid"
        ),
        Refusal::Cluster(error) => error.to_string(), // why is for the log
    }
}

/// Nothing in it is markup any more.
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
    fn refusals_are_told_in_the_documented_words() {
        for (refusal, expected) in [
            (Refusal::Missing, "rejecting Upload Request for PVC d that doesn&#39;t exist"),
            (Refusal::NoTarget, "PVC d is not an upload target"),
            (
                Refusal::Finished,
                "rejecting Upload Request for PVC d that already finished uploading",
            ),
            (
                Refusal::NoPrime,
                "rejecting Upload Request for PVC d, PVC&#39; wasn&#39;t created yet",
            ),
            (Refusal::NotReady, "context deadline exceeded"),
            (
                Refusal::ContentType("<b>".into()),
                "rejecting upload request for PVC d - upload content-type &lt;b&gt; is invalid",
            ),
        ] {
            let error = ProxyError::Refused { claim: "d".into(), source: refusal };
            assert_eq!(error.body(), expected);
        }
        assert_eq!(escape("a<script>&\"'"), "a&lt;script&gt;&amp;&#34;&#39;");
    }
}
