//! Who is at the other end, and what they were allowed: TLS settings, certificates and the names in them, signed tokens.
//! Keys are passed in; who may do what in a cluster is decided elsewhere.

mod certificate;
mod certificates;
mod client;
mod client_authority;
mod floor;
mod issue;
mod lifetimes;
mod live;
mod peer;
mod reload;
pub mod rotation;
pub mod token;
mod unverified;

pub use certificate::Certificate;
pub use certificates::{Error, server_config};
pub use client::{asking, calling};
pub use client_authority::ClientAuthority;
pub use floor::{Floor, is_spoken};
pub use issue::{Authority, Identity, IssueError};
pub use lifetimes::{Life, Lifetimes, Setting, parse_duration, show_duration};
pub use live::LiveTls;
pub use peer::common_name;
pub use reload::{LOOK_AGAIN, ReloadError, ReloadingIdentity};
pub use unverified::UnverifiedServer;
