//! Images on web servers.
//!
//! The first request determines length, validators and support of ranges ([`probe`]). After that a [`transfer`], a task,
//! requests, retries and resumes, and passes bytes to a thread of the pipeline through a [`queue`] limited in bytes.

mod agent;
mod answer;
pub(crate) mod call;
mod call_limit;
mod client;
mod dial_policy;
mod fetch;
mod options;
mod peek;
mod probe;
mod proxy;
mod queue;
mod redirect;
pub(crate) mod retry;
mod signed;
mod stream;
pub(crate) mod tls;
mod tokens;
mod transfer;
mod transport;

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Once, mpsc};
use std::time::Duration;

pub(crate) use agent::Agent;
pub use call_limit::{CallLimit, CancelOnDrop};
pub use dial_policy::{BadCidr, Cidr, DeniedAddress, DialExceptions, DialPolicy};
pub use options::{BasicAuth, ExtraHeader, HttpOptions, Warned};
use parking_lot::Mutex;
pub use peek::HttpValidators;
pub(crate) use peek::{http_validators, object_validators};
use pipeline::{ByteStream, Pool, Source, SourceFacts};
pub use proxy::ProxySettings;
pub use retry::RetryPolicy;
pub(crate) use signed::{Refusal, RefusalAction, Signed, Signing, Store};
use stream::HttpStream;
pub(crate) use tls::is_listed;
pub(crate) use tokens::Tokens;
use tokio::runtime::Runtime;
use transfer::TransferSettings;
pub use transport::HttpConnector;

use crate::error::Error;
use crate::objects::{ObjectChecksum, Verified};

/// Threads that move bytes off sockets. More would only wait: what costs is decoding, elsewhere.
const WORKERS_MAX: usize = 4;
/// Long enough to see what a connection brings, short enough to matter to an import of a minute.
const PACE_INTERVAL: Duration = Duration::from_millis(500);
/// Unused buffers kept: what all streams of a source may hold.
const BUFFERS_KEPT: usize = 40;

/// An image behind an `http://` or `https://` address.
pub struct HttpSource {
    facts: SourceFacts,
    shared: Arc<Shared>,
}

/// What the streams of a source have in common.
struct Shared {
    settings: Arc<TransferSettings>,
    facts: SourceFacts,
    /// The response to the first request, if it is the whole image: for the first reader.
    whole: Mutex<Option<(transport::Body, redirect::RedirectTarget)>>,
    runtime: Arc<Network>,
    /// The checksum of the whole image, if an object store reports one.
    checksum: Option<ObjectChecksum>,
    /// The message that the checksum is not verified was logged.
    unchecked: Once,
}

/// Why separately requested ranges belong to the same image.
#[derive(Clone, Copy)]
enum RangeTrust {
    /// By a strong validator of the server.
    ByValidator,
    /// The image cannot change while it is read.
    Unchanging,
    /// The image is named by its digest and has this length. The reader verifies the digest.
    Hashed(u64),
}

/// The runtime, and when calls end at the latest. The last user drops it, on any thread.
pub(crate) struct Network {
    runtime: Option<Runtime>,
    limit: CallLimit,
}

impl HttpSource {
    /// Requests the image's first bytes, which show its kind and how it can be read. Blocks; retries by
    /// `options.retry`. A user and password in the address are used and taken out of it.
    ///
    /// # Errors
    /// When address or options cannot be used, or the server cannot be reached or refuses. See [`Error::next`].
    pub fn connect(address: &str, options: &HttpOptions) -> Result<Self, Error> {
        Self::connect_as(address, options, PACE_INTERVAL, RangeTrust::ByValidator)
    }

    /// The same for an image that cannot change while it is read, so that ranges are requested even without a
    /// validator.
    pub(crate) fn connect_unchanging(address: &str, options: &HttpOptions) -> Result<Self, Error> {
        Self::connect_as(address, options, PACE_INTERVAL, RangeTrust::Unchanging)
    }

    #[cfg(test)]
    fn connect_paced(
        address: &str,
        options: &HttpOptions,
        pace_interval: Duration,
    ) -> Result<Self, Error> {
        Self::connect_as(address, options, pace_interval, RangeTrust::ByValidator)
    }

    /// The same for an object in a store. Credentials and headers of `options` are not for it.
    pub(crate) fn connect_object(
        store: Arc<dyn Store>,
        options: &HttpOptions,
    ) -> Result<Self, Error> {
        let client = Arc::new(client::Client::of_object(store, options)?);
        let network = Arc::new(Network::within(&options.limit)?);
        Self::open(network, client, options, RangeTrust::ByValidator, PACE_INTERVAL)
    }

    fn connect_as(
        address: &str,
        options: &HttpOptions,
        pace_interval: Duration,
        range_trust: RangeTrust,
    ) -> Result<Self, Error> {
        let network = Arc::new(Network::within(&options.limit)?);
        let client = Arc::new(client::Client::new(address, options)?);
        Self::open(network, client, options, range_trust, pace_interval)
    }

    fn open(
        network: Arc<Network>,
        client: Arc<client::Client>,
        options: &HttpOptions,
        range_trust: RangeTrust,
        pace_interval: Duration,
    ) -> Result<Self, Error> {
        let (policy, stall_timeout) = (options.retry.clone(), options.stall_timeout);
        let name = client.name().to_string();
        let (mut found, checksum) = network.wait_for(name.clone(), {
            let (client, policy) = (Arc::clone(&client), policy.clone());
            async move {
                let found = probe::probe(&client, &policy, stall_timeout).await?;
                Ok::<_, Error>((found, client.checksum(stall_timeout).await))
            }
        })??;
        match range_trust {
            RangeTrust::ByValidator => {}
            RangeTrust::Unchanging => {
                found.ranges |= found.length.is_some() && found.whole.is_none();
            }
            RangeTrust::Hashed(size) => {
                let long = |length: u64| format!("{length} bytes long");
                if let Some(length) = found.length.filter(|length| *length != size) {
                    return Err(Error::Changed { name, before: long(size), after: long(length) });
                }
                found.ranges = found.whole.is_none() && found.length.is_some();
                (found.validator, found.mark) = (None, None);
            }
        }
        let facts = SourceFacts {
            name,
            length: found.length,
            ranges: found.ranges,
            validator: found.validator.clone(),
            streams_max: if found.ranges { options.streams_max.max(1) } else { 1 },
        };
        let settings = TransferSettings {
            client,
            policy,
            stall_timeout,
            length: found.length,
            validator: found.validator,
            mark: found.mark,
            head: found.head,
            pool: Pool::unlimited(transfer::PIECE_LEN, BUFFERS_KEPT),
            receive_limit: options.receive_limit.clone(),
            streams_max: facts.streams_max,
            pace_interval,
            received: AtomicU64::new(0),
        };
        let shared = Shared {
            settings: Arc::new(settings),
            facts: facts.clone(),
            whole: Mutex::new(found.whole),
            runtime: network,
            checksum,
            unchecked: Once::new(),
        };
        Ok(Self { facts, shared: Arc::new(shared) })
    }
}

impl Source for HttpSource {
    fn facts(&self) -> &SourceFacts {
        &self.facts
    }

    fn open(&self, at: u64, end: Option<u64>) -> Box<dyn ByteStream> {
        let stream: Box<dyn ByteStream> =
            Box::new(HttpStream::new(Arc::clone(&self.shared), at, end));
        match &self.shared.checksum {
            Some(expected) if (at, end) == (0, None) => {
                Box::new(Verified::new(stream, expected.clone(), self.facts.name.clone()))
            }
            Some(expected) if at > 0 => {
                self.shared.unchecked.call_once(|| {
                    tracing::info!(
                        "{} is fetched in range_trust, so its {} is not checked as a whole",
                        self.facts.name,
                        expected.algorithm()
                    );
                });
                stream
            }
            _ => stream,
        }
    }

    fn limit_receive_memory(&self, bytes: usize) {
        self.shared.settings.receive_limit.set(bytes);
    }
}

impl fmt::Debug for HttpSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.facts.fmt(formatter)
    }
}

impl Network {
    pub(crate) fn new() -> Result<Self, Error> {
        Self::within(&CallLimit::default())
    }

    /// One that waits until `limit` at the latest.
    pub(crate) fn within(limit: &CallLimit) -> Result<Self, Error> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(cores.min(WORKERS_MAX))
            .thread_name("network")
            .enable_io()
            .enable_time()
            .build()
            .map_err(|error| Error::Option {
                what: format!("cannot start network threads: {error}"),
            })?;
        Ok(Self { runtime: Some(runtime), limit: limit.clone() })
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("only drop takes it")
    }

    /// Blocks until `work` is done, also on a thread of another runtime. At the limit the work is dropped, and with it its
    /// connections.
    pub(crate) fn wait_for<T: Send + 'static>(
        &self,
        name: String,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        let (done, result) = mpsc::sync_channel(1);
        let (limit, shown) = (self.limit.clone(), name.clone());
        self.runtime().spawn(async move {
            let outcome = tokio::select! {
                biased; // what comes too late is not begun
                end = limit.reached() => Err(end.error(shown)),
                found = work => Ok(found),
            };
            let _ = done.send(outcome); // the receiver is gone only after a panic
        });
        result.recv().map_err(|_| Error::Vanished { name })?
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background(); // waiting is not allowed everywhere, and there is no reader left
        }
    }
}

#[cfg(test)]
mod tests;
