//! Concurrency limits of webhook calls, per caller. Every pod of the cluster can call, so calls of unverified clients
//! must not use up the capacity for the API server's calls.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::body_memory::{BodyMemory, LENGTH_MAX};

/// Calls that are in progress, most of which wait. The head of each may have 64 KiB, and one connection brings a hundred.
const PENDING_MAX: usize = 1024;
/// Of these, calls from one IPv4 address or IPv6 /64.
const PENDING_PER_ADDRESS_MAX: usize = PENDING_MAX / 8;
/// Calls that are processed at once. Each waits for a few requests to the API server at most.
const CALLS_MAX: usize = 32;
/// Of these, calls from one IPv4 address or IPv6 /64, so that other addresses find some left.
const CALLS_PER_ADDRESS_MAX: usize = CALLS_MAX / 2;
/// Bytes of bodies from one address, a quarter of all.
const BODIES_PER_ADDRESS_MAX: usize = 2 * LENGTH_MAX;
/// JSON values in one body. An object of the 1.5 MiB that a cluster stores has far fewer.
const VALUES_MAX: u32 = 50_000;
/// JSON values in all bodies that are processed at once. A value of eight bytes may take 700 bytes once it is parsed, so this
/// bounds the memory of all calls to 140 MiB, and half that for most.
const ALL_VALUES_MAX: usize = 200_000;
/// Above this number, addresses without a call are removed.
const ADDRESSES_MAX: usize = 1024;

/// The client of a call, as far as TLS has verified it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A client with a certificate of the API server.
    ApiServer,
    /// Any other client. In most clusters that is how the API server calls webhooks.
    Unverified(IpAddr),
}

/// A body that is not parsed, because it would take too much memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot review a request of more than {VALUES_MAX} JSON values")]
pub struct TooManyValues;

/// The limits. The API server's calls and those of unverified clients have separate pools.
#[derive(Debug, Default)]
pub struct CallLimits {
    api_server: Pool,
    unverified: Pool,
    by_address: Mutex<HashMap<IpAddr, Arc<AddressLimits>>>,
}

#[derive(Debug)]
struct Pool {
    pending: Arc<Semaphore>,
    body_memory: BodyMemory,
    calls: Arc<Semaphore>,
    values: Arc<Semaphore>,
}

/// The limits of one address within the pool of unverified clients.
#[derive(Debug)]
struct AddressLimits {
    pending: Arc<Semaphore>,
    body_memory: BodyMemory,
    calls: Arc<Semaphore>,
}

/// The limits of one caller, for as long as a call runs.
#[derive(Debug)]
pub struct CallerLimits<'a> {
    pool: &'a Pool,
    address: Option<Arc<AddressLimits>>,
}

/// The permit of a call in progress.
#[derive(Debug)]
pub struct PendingCall {
    _all: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
}

/// The permit to parse and process one call.
#[derive(Debug)]
pub struct CallPermit {
    _all: [Option<OwnedSemaphorePermit>; 3],
}

impl Default for Pool {
    fn default() -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self {
            pending: semaphore(PENDING_MAX),
            body_memory: BodyMemory::default(),
            calls: semaphore(CALLS_MAX),
            values: semaphore(ALL_VALUES_MAX),
        }
    }
}

impl CallLimits {
    pub fn for_caller(&self, caller: Caller) -> CallerLimits<'_> {
        match caller {
            Caller::ApiServer => CallerLimits { pool: &self.api_server, address: None },
            Caller::Unverified(address) => {
                CallerLimits { pool: &self.unverified, address: Some(self.for_address(address)) }
            }
        }
    }

    fn for_address(&self, address: IpAddr) -> Arc<AddressLimits> {
        let mut all = self.by_address.lock();
        if all.len() >= ADDRESSES_MAX {
            // Each call that runs has its limits as well.
            all.retain(|_, limits| Arc::strong_count(limits) > 1);
        }
        let new = || {
            let body_memory = self.unverified.body_memory.share(BODIES_PER_ADDRESS_MAX);
            let pending = Arc::new(Semaphore::new(PENDING_PER_ADDRESS_MAX));
            let calls = Arc::new(Semaphore::new(CALLS_PER_ADDRESS_MAX));
            Arc::new(AddressLimits { pending, body_memory, calls })
        };
        Arc::clone(all.entry(network(address)).or_insert_with(new))
    }
}

impl CallerLimits<'_> {
    /// Counts a call. `None` if there are too many.
    pub fn start_call(&self) -> Option<PendingCall> {
        let of_address = match &self.address {
            Some(address) => Some(Arc::clone(&address.pending).try_acquire_owned().ok()?),
            None => None,
        };
        let one = Arc::clone(&self.pool.pending).try_acquire_owned().ok()?;
        Some(PendingCall { _all: (one, of_address) })
    }

    /// The memory permits for the body.
    pub fn body_memory(&self) -> &BodyMemory {
        self.address.as_ref().map_or(&self.pool.body_memory, |address| &address.body_memory)
    }

    /// Waits until `body` may be parsed and processed, in order of arrival within a pool.
    ///
    /// # Errors
    /// When the body has more than [`VALUES_MAX`] JSON values.
    pub async fn admit(&self, body: &[u8]) -> Result<CallPermit, TooManyValues> {
        let values = values(body);
        if values > VALUES_MAX {
            return Err(TooManyValues);
        }
        // None of these semaphores is ever closed.
        let of_address = match &self.address {
            Some(address) => Arc::clone(&address.calls).acquire_owned().await.ok(),
            None => None,
        };
        let values = Arc::clone(&self.pool.values).acquire_many_owned(values).await.ok();
        let call = Arc::clone(&self.pool.calls).acquire_owned().await.ok();
        Ok(CallPermit { _all: [of_address, values, call] })
    }
}

/// One IPv4 address, or one IPv6 /64, which is what a single machine is given.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

/// At least as many values as the JSON text has.
fn values(body: &[u8]) -> u32 {
    let mut values = 1u32;
    let (mut is_text, mut is_escaped) = (false, false);
    for byte in body {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b',' | b'[' | b'{' if !is_text => values = values.saturating_add(1),
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures_util::FutureExt;

    use super::*;

    fn from(last: u8) -> Caller {
        Caller::Unverified(Ipv4Addr::new(10, 0, 0, last).into())
    }

    fn admit(limits: &CallLimits, caller: Caller, body: &str) -> Option<CallPermit> {
        limits.for_caller(caller).admit(body.as_bytes()).now_or_never()?.ok()
    }

    #[test]
    fn values_are_counted_outside_of_strings() {
        for (text, expected) in [
            ("", 1),
            ("7", 1),
            ("{}", 2),
            (r#"{"a":1,"b":[1,2]}"#, 5),
            (r#"{"a":"{[,,,","b\"{":"\\"}"#, 3),
            (r#"["{","{"]"#, 3),
        ] {
            assert_eq!(values(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn limits_leave_capacity_for_other_addresses_and_the_api_server() {
        let limits = CallLimits::default();
        let mut flood = Vec::new();
        while let Some(permit) = admit(&limits, from(1), "{}") {
            flood.push(permit);
        }
        assert_eq!(flood.len(), CALLS_PER_ADDRESS_MAX);
        let mapped = Caller::Unverified("::ffff:10.0.0.1".parse().unwrap());
        assert!(admit(&limits, mapped, "{}").is_none(), "the same address");
        assert!(admit(&limits, from(2), "{}").is_some());
        for address in 2..100 {
            flood.extend(admit(&limits, from(address), "{}"));
        }
        assert_eq!(flood.len(), CALLS_MAX);
        assert!(admit(&limits, Caller::ApiServer, "{}").is_some());
        // Each call that ends admits one that waits.
        flood.truncate(CALLS_PER_ADDRESS_MAX);
        assert!(admit(&limits, from(1), "{}").is_none());
        assert!(admit(&limits, from(2), "{}").is_some());
    }

    #[test]
    fn pending_calls_are_limited() {
        let limits = CallLimits::default();
        let mut pending = Vec::new();
        for address in 0..100 {
            let before = pending.len();
            while let Some(call) = limits.for_caller(from(address)).start_call() {
                pending.push(call);
            }
            let of_address = pending.len() - before;
            assert!(of_address <= PENDING_PER_ADDRESS_MAX, "{of_address}");
        }
        assert_eq!(pending.len(), PENDING_MAX);
        assert!(limits.for_caller(Caller::ApiServer).start_call().is_some());
        pending.truncate(PENDING_MAX - 1);
        assert!(limits.for_caller(from(200)).start_call().is_some());
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_their_limits() {
        let limits = CallLimits::default();
        let call = |network: u128, host: usize| {
            let address = Ipv6Addr::from_bits((network << 64) + host as u128);
            admit(&limits, Caller::Unverified(address.into()), "{}")
        };
        let neighbours: Vec<_> = (0..CALLS_MAX).filter_map(|host| call(0xfd00, host)).collect();
        assert_eq!(neighbours.len(), CALLS_PER_ADDRESS_MAX);
        assert!(call(0xfd01, 0).is_some());
    }

    #[test]
    fn json_values_parsed_at_once_are_limited() {
        let limits = CallLimits::default();
        let body = |values: u32| format!("[{}]", "1,".repeat(values as usize - 2));
        assert_eq!(values(body(VALUES_MAX).as_bytes()), VALUES_MAX);
        let refused =
            limits.for_caller(from(1)).admit(body(VALUES_MAX + 1).as_bytes()).now_or_never();
        assert_eq!(refused.unwrap().unwrap_err(), TooManyValues);
        let large: Vec<_> = (0..10)
            .filter_map(|address| admit(&limits, from(address), &body(VALUES_MAX)))
            .collect();
        assert_eq!(large.len(), ALL_VALUES_MAX / VALUES_MAX as usize);
        assert!(admit(&limits, from(11), "{}").is_none());
        assert!(admit(&limits, Caller::ApiServer, &body(VALUES_MAX)).is_some());
        drop(large);
        assert!(admit(&limits, from(11), "{}").is_some());
    }

    #[test]
    fn addresses_without_calls_are_removed() {
        let limits = CallLimits::default();
        let held = limits.for_caller(from(1));
        for address in 0..10_000u32 {
            let address = Ipv4Addr::from(0x0b00_0000 + address).into();
            drop(admit(&limits, Caller::Unverified(address), "{}"));
        }
        let known = limits.by_address.lock();
        assert!(known.len() <= ADDRESSES_MAX && known.contains_key(&[10, 0, 0, 1].into()));
        drop(held);
    }
}
