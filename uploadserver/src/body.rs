//! Moves a request's body from the connection (async) to the pipeline (a thread).

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::Peekable;
use futures_util::{FutureExt, Stream, StreamExt};
use parking_lot::Mutex;
use pipeline::{ByteStream, Source, SourceError, SourceFacts};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

/// Enough that neither end waits for the other to wake up.
const BATCHES_IN_FLIGHT: usize = 4;
/// One wake-up per chunk would cost more than the chunk.
const BATCH_LEN: usize = 256 << 10;

/// After an early response, this much of the body is drained, or for this long: a client that is still sending would
/// otherwise see a broken connection instead of the response.
const DRAIN_BYTES_MAX: u64 = 4 << 30;
const DRAIN_TIME_MAX: Duration = Duration::from_secs(60);

enum BodyChunk {
    Bytes(Vec<Bytes>),
    /// The body was complete. A channel that closes without it is a broken connection.
    End,
    Broken(SourceError),
}

/// The pipeline's end: blocks until bytes arrive.
pub struct BodyStream {
    chunks: Receiver<BodyChunk>,
    batch: std::vec::IntoIter<Bytes>,
    /// Calls after the end return the end again.
    ended: bool,
}

/// The connection's end.
pub struct BodyPump {
    chunks: Sender<BodyChunk>,
    silence_max: Duration,
}

/// A client that sends nothing for `silence_max` is disconnected.
pub fn body_stream(silence_max: Duration) -> (BodyStream, BodyPump) {
    let (sender, chunks) = channel(BATCHES_IN_FLIGHT);
    let batch = Vec::new().into_iter();
    (BodyStream { chunks, batch, ended: false }, BodyPump { chunks: sender, silence_max })
}

impl BodyPump {
    /// Returns when `body` has ended. If the pipeline has ended before, the rest is drained within limits.
    pub async fn pump_body<E>(self, body: impl Stream<Item = Result<Bytes, E>>)
    where
        E: Into<SourceError>,
    {
        let mut body = pin!(body.peekable());
        loop {
            let chunk = match timeout(self.silence_max, body.next()).await {
                Ok(Some(Ok(bytes))) if bytes.is_empty() => continue,
                Ok(Some(Ok(bytes))) => BodyChunk::Bytes(gather(bytes, &mut body).await),
                Ok(Some(Err(error))) => BodyChunk::Broken(error.into()),
                Ok(None) => BodyChunk::End,
                Err(_) => {
                    let seconds = self.silence_max.as_secs();
                    BodyChunk::Broken(format!("the client sent nothing for {seconds} s").into())
                }
            };
            let is_last = !matches!(chunk, BodyChunk::Bytes(_));
            let is_taken = self.chunks.send(chunk).await.is_ok();
            if is_last {
                return;
            }
            if !is_taken {
                break;
            }
        }
        let drained = async {
            let mut left = DRAIN_BYTES_MAX;
            while let Some(Ok(bytes)) = body.next().await {
                left = left.saturating_sub(bytes.len() as u64);
                if left == 0 {
                    return;
                }
            }
        };
        let _ = timeout(DRAIN_TIME_MAX, drained).await; // best effort: the response is sent in any case
    }
}

/// Gathers the chunks that are ready, yielding once to the task that reads the connection.
async fn gather<E>(
    first: Bytes,
    body: &mut Pin<&mut Peekable<impl Stream<Item = Result<Bytes, E>>>>,
) -> Vec<Bytes> {
    let (mut size, mut batch, mut has_waited) = (first.len(), vec![first], false);
    while size < BATCH_LEN {
        match body.as_mut().next_if(Result::is_ok).now_or_never() {
            Some(Some(Ok(bytes))) => {
                has_waited = false;
                size += bytes.len();
                batch.extend(Some(bytes).filter(|bytes| !bytes.is_empty()));
            }
            // Reported by the next call.
            Some(None | Some(Err(_))) => break,
            None if has_waited => break,
            None => {
                has_waited = true;
                let mut once = false;
                poll_fn(|context| {
                    if std::mem::replace(&mut once, true) {
                        Poll::Ready(())
                    } else {
                        context.waker().wake_by_ref();
                        Poll::Pending
                    }
                })
                .await;
            }
        }
    }
    batch
}

impl ByteStream for BodyStream {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        if self.ended {
            return Ok(None);
        }
        if let Some(bytes) = self.batch.next() {
            return Ok(Some(bytes));
        }
        match self.chunks.blocking_recv() {
            Some(BodyChunk::Bytes(batch)) => {
                self.batch = batch.into_iter();
                Ok(self.batch.next())
            }
            Some(BodyChunk::End) => {
                self.ended = true;
                Ok(None)
            }
            Some(BodyChunk::Broken(error)) => Err(error),
            None => Err("the connection was closed before the end of the body".into()),
        }
    }
}

/// A source that can be read only once: a body, or the content of one.
pub struct SinglePassSource {
    facts: SourceFacts,
    is_disk: bool,
    stream: Mutex<Option<Box<dyn ByteStream>>>,
}

impl SinglePassSource {
    /// Format and compression are probed.
    pub fn image(stream: impl ByteStream + 'static, length: Option<u64>) -> Self {
        let facts = SourceFacts {
            name: "the upload".to_owned(),
            length,
            streams_max: 1,
            ..SourceFacts::default()
        };
        Self { facts, is_disk: false, stream: Mutex::new(Some(Box::new(stream))) }
    }

    /// A raw disk: nothing is probed.
    pub fn disk(stream: impl ByteStream + 'static, length: Option<u64>) -> Self {
        Self { is_disk: true, ..Self::image(stream, length) }
    }
}

impl Source for SinglePassSource {
    fn facts(&self) -> &SourceFacts {
        &self.facts
    }

    fn open(&self, _at: u64, _end: Option<u64>) -> Box<dyn ByteStream> {
        let stream = self.stream.lock().take();
        stream.unwrap_or_else(|| Box::new(ConsumedStream))
    }

    fn is_disk(&self) -> bool {
        self.is_disk
    }

    fn can_reopen(&self) -> bool {
        false
    }
}

/// A stream that was read before.
struct ConsumedStream;

impl ByteStream for ConsumedStream {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        Err("a body can be read only once".into())
    }
}

#[cfg(test)]
pub mod testing {
    use std::collections::VecDeque;

    use super::*;

    /// A body from memory, possibly truncated.
    pub struct FakeBody(VecDeque<Result<Bytes, &'static str>>);

    impl FakeBody {
        /// Of `length` bytes per chunk.
        pub fn new(bytes: &[u8], length: usize) -> Self {
            Self(
                bytes
                    .chunks(length.max(1))
                    .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
                    .collect(),
            )
        }

        /// Ends with an error instead of the end.
        pub fn cut(mut self) -> Self {
            self.0.push_back(Err("cut"));
            self
        }
    }

    impl ByteStream for FakeBody {
        fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
            self.0.pop_front().transpose().map_err(Into::into)
        }
    }

    /// Reads a stream to its end.
    pub fn collect(stream: &mut dyn ByteStream) -> Result<Vec<u8>, String> {
        let mut all = Vec::new();
        while let Some(bytes) = stream.next().map_err(|error| error.to_string())? {
            assert!(!bytes.is_empty());
            all.extend_from_slice(&bytes);
        }
        assert!(matches!(stream.next(), Ok(None)), "an end stays one");
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::testing::collect;
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    async fn through(chunks: Vec<Result<Bytes, &'static str>>) -> Result<Vec<u8>, String> {
        let (mut stream, pump) = body_stream(LONG);
        let reader = tokio::task::spawn_blocking(move || collect(&mut stream));
        pump.pump_body(futures_util::stream::iter(chunks)).await;
        reader.await.unwrap()
    }

    #[tokio::test]
    async fn body_arrives_completely_or_fails() {
        let chunk = |text: &'static str| Ok(Bytes::from_static(text.as_bytes()));
        let whole = through(vec![chunk("ab"), chunk(""), chunk("c")]).await;
        assert_eq!(whole.unwrap(), b"abc");
        assert_eq!(through(vec![]).await.unwrap(), b"");
        let broken = through(vec![chunk("ab"), Err("cut")]).await;
        assert_eq!(broken.unwrap_err(), "cut");
    }

    #[tokio::test]
    async fn chunks_that_arrive_together_are_forwarded_as_one_batch() {
        let (mut stream, pump) = body_stream(LONG);
        let chunks = ["a", "", "b", "c"].map(|text| Ok(Bytes::from_static(text.as_bytes())));
        let all = chunks.into_iter().chain([Err("cut")]);
        pump.pump_body(futures_util::stream::iter(all)).await;
        let Ok(BodyChunk::Bytes(batch)) = stream.chunks.try_recv() else { panic!("no batch") };
        assert_eq!(batch, ["a", "b", "c"]);
        assert!(matches!(stream.chunks.try_recv(), Ok(BodyChunk::Broken(_))));
    }

    #[tokio::test]
    async fn dropped_pump_is_an_error() {
        let (mut stream, pump) = body_stream(LONG);
        drop(pump);
        let read = tokio::task::spawn_blocking(move || collect(&mut stream)).await.unwrap();
        assert!(read.unwrap_err().contains("before the end"));
    }

    #[tokio::test]
    async fn silent_client_is_an_error() {
        let (mut stream, pump) = body_stream(Duration::from_millis(10));
        let silence = futures_util::stream::pending::<Result<Bytes, &str>>();
        pump.pump_body(silence).await;
        let read = tokio::task::spawn_blocking(move || collect(&mut stream)).await.unwrap();
        assert!(read.unwrap_err().contains("sent nothing"));
    }

    #[tokio::test]
    async fn body_without_a_reader_is_drained() {
        let (stream, pump) = body_stream(LONG);
        drop(stream);
        let chunks = (0..1000).map(|_| Ok::<_, &str>(Bytes::from_static(b"abc")));
        pump.pump_body(futures_util::stream::iter(chunks)).await;
    }

    #[test]
    fn body_is_read_only_once() {
        let source = SinglePassSource::image(testing::FakeBody::new(b"abc", 1), None);
        assert_eq!(collect(&mut *source.open(0, None)).unwrap(), b"abc");
        assert!(collect(&mut *source.open(0, None)).unwrap_err().contains("once"));
    }
}
