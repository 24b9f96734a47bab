//! A request's body on its way from the connection to the pipeline.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::Peekable;
use futures_util::{FutureExt, Stream, StreamExt};
use pipeline::{ByteStream, Source, SourceError, SourceFacts};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

/// Batches between the connection and the pipeline: enough that neither waits for a wake-up of the other.
const BATCHES_IN_FLIGHT: usize = 4;
/// Bytes of a batch, if they are there: one wake-up for each piece would cost more than the piece.
const BATCH: usize = 256 << 10;

/// After an early answer this much of the body is read and thrown away, or for this long: a client that is still sending
/// would otherwise see a broken connection and not the answer.
const DRAIN_BYTES_MAX: u64 = 4 << 30;
const DRAIN_TIME_MAX: Duration = Duration::from_secs(60);

/// What goes from the connection to the pipeline.
enum Piece {
    Bytes(Vec<Bytes>),
    /// The body was whole. Without it, an end is a broken connection.
    End,
    Broken(SourceError),
}

/// The end of the pipeline: blocks for what comes.
pub struct BodyStream {
    pieces: Receiver<Piece>,
    batch: std::vec::IntoIter<Bytes>,
    /// Whoever asks behind the end is told again that it is the end.
    ended: bool,
}

/// The end of the connection: moves what came.
pub struct Pump {
    pieces: Sender<Piece>,
    patience: Duration,
}

/// Both ends. A client that says nothing for as long as `patience` has gone.
pub fn body_stream(patience: Duration) -> (BodyStream, Pump) {
    let (sender, pieces) = channel(BATCHES_IN_FLIGHT);
    let batch = Vec::new().into_iter();
    (BodyStream { pieces, batch, ended: false }, Pump { pieces: sender, patience })
}

impl Pump {
    /// Moves all of `body`. Returns when it has ended; a body that nobody takes any more is thrown away for a while.
    pub async fn run<E>(self, body: impl Stream<Item = Result<Bytes, E>>)
    where
        E: Into<SourceError>,
    {
        let mut body = pin!(body.peekable());
        loop {
            let piece = match timeout(self.patience, body.next()).await {
                Ok(Some(Ok(bytes))) if bytes.is_empty() => continue,
                Ok(Some(Ok(bytes))) => Piece::Bytes(gather(bytes, &mut body).await),
                Ok(Some(Err(error))) => Piece::Broken(error.into()),
                Ok(None) => Piece::End,
                Err(_) => {
                    let seconds = self.patience.as_secs();
                    Piece::Broken(format!("the client said nothing for {seconds} s").into())
                }
            };
            let is_last = !matches!(piece, Piece::Bytes(_));
            let is_taken = self.pieces.send(piece).await.is_ok();
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
        let _ = timeout(DRAIN_TIME_MAX, drained).await; // the answer is on its way all the same
    }
}

/// What has come with a piece, or comes as soon as whoever reads the connection is let go on.
async fn gather<E>(
    first: Bytes,
    body: &mut Pin<&mut Peekable<impl Stream<Item = Result<Bytes, E>>>>,
) -> Vec<Bytes> {
    let (mut size, mut batch, mut has_waited) = (first.len(), vec![first], false);
    while size < BATCH {
        match body.as_mut().next_if(Result::is_ok).now_or_never() {
            Some(Some(Ok(bytes))) => {
                has_waited = false;
                size += bytes.len();
                batch.extend(Some(bytes).filter(|bytes| !bytes.is_empty()));
            }
            // It is told after this.
            Some(None | Some(Err(_))) => break,
            None if has_waited => break,
            None => {
                has_waited = true;
                let mut once = false;
                poll_fn(|context| match std::mem::replace(&mut once, true) {
                    true => Poll::Ready(()),
                    false => {
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
        match self.pieces.blocking_recv() {
            Some(Piece::Bytes(batch)) => {
                self.batch = batch.into_iter();
                Ok(self.batch.next())
            }
            Some(Piece::End) => {
                self.ended = true;
                Ok(None)
            }
            Some(Piece::Broken(error)) => Err(error),
            None => Err("the connection was closed before the end of the body".into()),
        }
    }
}

/// What is read once, from its beginning: a body, or what was in it.
pub struct Once {
    facts: SourceFacts,
    is_disk: bool,
    stream: Mutex<Option<Box<dyn ByteStream>>>,
}

impl Once {
    /// An image or archive of whatever kind, as its first bytes tell.
    pub fn image(stream: impl ByteStream + 'static, length: Option<u64>) -> Self {
        let facts = SourceFacts {
            name: "the upload".to_owned(),
            length,
            streams_max: 1,
            ..SourceFacts::default()
        };
        Self { facts, is_disk: false, stream: Mutex::new(Some(Box::new(stream))) }
    }

    /// The bytes of a guest's disk, whatever they look like.
    pub fn disk(stream: impl ByteStream + 'static, length: Option<u64>) -> Self {
        Self { is_disk: true, ..Self::image(stream, length) }
    }
}

impl Source for Once {
    fn facts(&self) -> &SourceFacts {
        &self.facts
    }

    fn open(&self, _at: u64, _end: Option<u64>) -> Box<dyn ByteStream> {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        stream.unwrap_or_else(|| Box::new(Gone))
    }

    fn is_disk(&self) -> bool {
        self.is_disk
    }

    fn can_reopen(&self) -> bool {
        false
    }
}

/// What was read already.
struct Gone;

impl ByteStream for Gone {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        Err("a body can be read only once".into())
    }
}

#[cfg(test)]
pub mod testing {
    use std::collections::VecDeque;

    use super::*;

    /// A body that has come already, and may break off.
    pub struct Pieces(VecDeque<Result<Bytes, &'static str>>);

    impl Pieces {
        /// In pieces of `length` bytes each.
        pub fn of(bytes: &[u8], length: usize) -> Self {
            Self(
                bytes
                    .chunks(length.max(1))
                    .map(|piece| Ok(Bytes::copy_from_slice(piece)))
                    .collect(),
            )
        }

        /// What came, and no end.
        pub fn cut(mut self) -> Self {
            self.0.push_back(Err("cut"));
            self
        }
    }

    impl ByteStream for Pieces {
        fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
            self.0.pop_front().transpose().map_err(Into::into)
        }
    }

    /// All of a stream.
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

    async fn through(pieces: Vec<Result<Bytes, &'static str>>) -> Result<Vec<u8>, String> {
        let (mut stream, pump) = body_stream(LONG);
        let reader = tokio::task::spawn_blocking(move || collect(&mut stream));
        pump.run(futures_util::stream::iter(pieces)).await;
        reader.await.unwrap()
    }

    #[tokio::test]
    async fn a_body_arrives_whole_or_not_at_all() {
        let piece = |text: &'static str| Ok(Bytes::from_static(text.as_bytes()));
        let whole = through(vec![piece("ab"), piece(""), piece("c")]).await;
        assert_eq!(whole.unwrap(), b"abc");
        assert_eq!(through(vec![]).await.unwrap(), b"");
        let broken = through(vec![piece("ab"), Err("cut")]).await;
        assert_eq!(broken.unwrap_err(), "cut");
    }

    #[tokio::test]
    async fn pieces_that_come_together_are_handed_on_together_and_before_the_end() {
        let (mut stream, pump) = body_stream(LONG);
        let pieces = ["a", "", "b", "c"].map(|text| Ok(Bytes::from_static(text.as_bytes())));
        let all = pieces.into_iter().chain([Err("cut")]);
        pump.run(futures_util::stream::iter(all)).await;
        let Ok(Piece::Bytes(batch)) = stream.pieces.try_recv() else { panic!("no batch") };
        assert_eq!(batch, ["a", "b", "c"]);
        assert!(matches!(stream.pieces.try_recv(), Ok(Piece::Broken(_))));
    }

    #[tokio::test]
    async fn a_pump_that_is_gone_is_no_end() {
        let (mut stream, pump) = body_stream(LONG);
        drop(pump);
        let read = tokio::task::spawn_blocking(move || collect(&mut stream)).await.unwrap();
        assert!(read.unwrap_err().contains("before the end"));
    }

    #[tokio::test]
    async fn a_client_that_says_nothing_has_gone() {
        let (mut stream, pump) = body_stream(Duration::from_millis(10));
        let silence = futures_util::stream::pending::<Result<Bytes, &str>>();
        pump.run(silence).await;
        let read = tokio::task::spawn_blocking(move || collect(&mut stream)).await.unwrap();
        assert!(read.unwrap_err().contains("said nothing"));
    }

    #[tokio::test]
    async fn what_nobody_takes_is_thrown_away() {
        let (stream, pump) = body_stream(LONG);
        drop(stream);
        let pieces = (0..1000).map(|_| Ok::<_, &str>(Bytes::from_static(b"abc")));
        pump.run(futures_util::stream::iter(pieces)).await;
    }

    #[test]
    fn nothing_is_read_twice() {
        let source = Once::image(testing::Pieces::of(b"abc", 1), None);
        assert_eq!(collect(&mut *source.open(0, None)).unwrap(), b"abc");
        assert!(collect(&mut *source.open(0, None)).unwrap_err().contains("once"));
    }
}
