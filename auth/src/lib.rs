//! Authentication: TLS settings, certificates and their rotation, signed tokens.
//! Keys are arguments. Authorization in the cluster is decided elsewhere.

mod certificate;
mod client_ca;
mod client_config;
mod fips;
mod issue;
mod lifetimes;
mod peer;
mod reload;
mod reloadable_tls;
pub mod rotation;
mod server_config;
mod tls_minimum;
pub mod token;
mod unverified;

pub use certificate::Certificate;
pub use client_ca::ClientCa;
pub use client_config::{anonymous_client_config, client_config};
pub use fips::requires_extended_master_secret;
pub use issue::{CertificateAuthority, Identity, IssueError};
pub use lifetimes::{
    CertificateLifetime, CertificateLifetimes, LifetimeSetting, format_duration, parse_duration,
};
pub use peer::common_name;
pub use reload::{CERTIFICATE_RELOAD_INTERVAL, ReloadError, ReloadingIdentity};
pub use reloadable_tls::ReloadableTls;
pub use server_config::{Error, finish_server_config, server_config, server_config_builder};
pub use tls_minimum::{TlsMinimum, is_supported_tls12_suite};
pub use unverified::UnverifiedServer;
