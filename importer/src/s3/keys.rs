//! Whose keys sign addresses.

use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::ProfileFileRegionProvider;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::{
    Builder, Credentials, ProvideCredentials, Region, ResponseChecksumValidation,
    SharedCredentialsProvider,
};
use tokio::sync::OnceCell;

use super::SCHEME;
use super::endpoint::{REGION_DEFAULT, S3Endpoint};
use runtime::chain;

use crate::error::Error;
use crate::secret::Secret;

/// Finding keys queries services of the machine or the cloud, which may not exist.
const SEARCH_MAX: Duration = Duration::from_secs(60);

/// Whose keys to sign with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum S3Credentials {
    /// The identity of this process: `AWS_…` variables, a profile, a web identity (a service account with a role), the
    /// container's or the machine's.
    #[default]
    Environment,
    Keys {
        access_key_id: String,
        secret_key: Secret,
        /// For keys that are good for a while.
        session_token: Option<Secret>,
    },
    /// None: only public objects can be read.
    Anonymous,
}

/// Keys, as far as they have been found.
pub(super) struct Keys {
    credentials: S3Credentials,
    /// The environment may choose the endpoint too.
    any_endpoint: bool,
    found: OnceCell<ResolvedConfig>,
}

struct ResolvedConfig {
    settings: Builder,
    provider: SharedCredentialsProvider,
    region: Option<String>,
    endpoint: bool,
}

impl Keys {
    pub(super) fn new(credentials: &S3Credentials, any_endpoint: bool) -> Self {
        Self { credentials: credentials.clone(), any_endpoint, found: OnceCell::new() }
    }

    pub(super) fn are_none(&self) -> bool {
        self.credentials == S3Credentials::Anonymous
    }

    /// A client that signs for `place`; `None` where nothing is signed.
    pub(super) async fn client(&self, endpoint: &S3Endpoint) -> Result<Option<Client>, Error> {
        if self.are_none() {
            return Ok(None);
        }
        let found = self.found.get_or_init(|| self.find()).await;
        let keys = found.keys(endpoint).await?;
        let region = endpoint.region_or(found.region.as_deref()).to_owned();
        let mut settings = found
            .settings
            .clone()
            .credentials_provider(keys)
            .region(Region::new(region))
            // It would have to be signed, and does not describe a range.
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
            .force_path_style(endpoint.is_path_style(found.endpoint));
        if let Some(endpoint) = endpoint.endpoint() {
            settings = settings.endpoint_url(endpoint);
        }
        Ok(Some(Client::from_conf(settings.build())))
    }

    async fn find(&self) -> ResolvedConfig {
        match &self.credentials {
            S3Credentials::Keys { access_key_id, secret_key, session_token } => {
                let token = session_token.as_ref().map(|token| token.reveal().to_owned());
                let keys = given(access_key_id, secret_key.reveal(), token);
                let provider = SharedCredentialsProvider::new(keys);
                let settings = Builder::new().behavior_version(BehaviorVersion::latest());
                ResolvedConfig { settings, provider, region: None, endpoint: false }
            }
            S3Credentials::Environment | S3Credentials::Anonymous => {
                // Not from the machine's cloud: where there is none, it takes seconds to learn that.
                let region =
                    RegionProviderChain::first_try(EnvironmentVariableRegionProvider::new())
                        .or_else(ProfileFileRegionProvider::new())
                        .or_else(Region::new(REGION_DEFAULT));
                let settings = aws_config::defaults(BehaviorVersion::latest()).region(region);
                let shared = settings.load().await;
                let provider = shared
                    .credentials_provider()
                    .unwrap_or_else(|| SharedCredentialsProvider::new(given("", "", None)));
                ResolvedConfig {
                    settings: Builder::from(&shared),
                    provider,
                    region: shared.region().map(|region| region.as_ref().to_owned()),
                    endpoint: self.any_endpoint && shared.endpoint_url().is_some(),
                }
            }
        }
    }
}

impl ResolvedConfig {
    /// The keys of the moment: some are replaced every hour. The error names what to do if there are none.
    async fn keys(&self, endpoint: &S3Endpoint) -> Result<Credentials, Error> {
        let failed =
            |because: String| Error::Store { store: SCHEME, host: endpoint.host(), because };
        match tokio::time::timeout(SEARCH_MAX, self.provider.provide_credentials()).await {
            Ok(Ok(keys)) if keys.access_key_id().is_empty() => {
                Err(failed("the access key id is empty".into()))
            }
            Ok(Ok(keys)) => Ok(keys),
            Ok(Err(error)) => Err(failed(format!(
                "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or choose a profile, or ask \
                 for a public object without any (--anonymous); {}",
                chain(&error)
            ))),
            Err(_) => Err(failed(format!(
                "no credentials were found within {} seconds",
                SEARCH_MAX.as_secs()
            ))),
        }
    }
}

/// Keys that do not change, as far as this process knows.
fn given(id: &str, key: &str, token: Option<String>) -> Credentials {
    Credentials::new(id, key, token, None, "given")
}
