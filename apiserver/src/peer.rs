//! The client of a connection, as far as TLS has verified it.

use std::sync::Arc;
use std::time::SystemTime;

use auth::{ClientCa, common_name};
use runtime::https;

use crate::app::Settings;
use crate::call_limits::Caller;

#[derive(Clone, Debug)]
pub struct Peer {
    /// Common name of a certificate signed by the CA of front proxies.
    pub front_proxy: Option<Arc<str>>,
    pub caller: Caller,
    pub may_call_webhooks: bool,
}

impl Peer {
    /// The handshake accepts certificates of two CAs. A certificate of one must not count as one of the other: a client that may
    /// call webhooks must not name users.
    pub fn new(peer: &https::Peer, settings: &Settings) -> Self {
        let front_proxy = front_proxy(peer, settings);
        let is_front_proxy =
            front_proxy.as_deref().is_some_and(|name| settings.front_proxy.allows(name));
        let is_webhook_client =
            settings.webhook_clients.as_ref().is_some_and(|clients| clients.contain(peer));
        Self {
            front_proxy,
            caller: if is_front_proxy || is_webhook_client {
                Caller::ApiServer
            } else {
                Caller::Unverified(peer.address.ip())
            },
            may_call_webhooks: settings.webhook_clients.is_none() || is_webhook_client,
        }
    }
}

fn front_proxy(peer: &https::Peer, settings: &Settings) -> Option<Arc<str>> {
    let name = peer.certificates.first().and_then(common_name)?;
    let ca = ClientCa::from_pem(&settings.front_proxy.ca).ok()?;
    ca.has_signed(&peer.certificates, SystemTime::now()).then(|| name.into())
}
