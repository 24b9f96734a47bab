//! A request's body on its way from the connection to the pipeline.

use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use pipeline::{ByteStream, Source, SourceError, SourceFacts};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

/// Pieces between the connection and the pipeline: enough that neither waits for a wake-up of the other.
const PIECES_IN_FLIGHT: usize = 16;

/// After an early answer this much of the body is read and thrown away, or for this long: a client that is still sending
/// would otherwise see a broken connection and not the answer.
const DRAIN_BYTES_MAX: u64 = 4 << 30;
const DRAIN_TIME_MAX: Duration = Duration::from_secs(60);

/// What goes from the connection to the pipeline.
enum Piece {
    Bytes(Bytes),
    /// The body was whole. Without it, an end is a broken connection.
    End,
    Broken(SourceError),
}

/// The end of the pipeline: blocks for what comes.
pub struct BodyStream {
    pieces: Receiver<Piece>,
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
    let (sender, pieces) = channel(PIECES_IN_FLIGHT);
    (BodyStream { pieces, ended: false }, Pump { pieces: sender, patience })
}

impl Pump {
    /// Moves all of `body`. Returns when it has ended; a body that nobody takes any more is thrown away for a while.
    pub async fn run<E>(self, body: impl Stream<Item = Result<Bytes, E>>)
    where
        E: Into<SourceError>,
    {
        let mut body = pin!(body);
        loop {
            let piece = match timeout(self.patience, body.next()).await {
                Ok(Some(Ok(bytes))) if bytes.is_empty() => continue,
                Ok(Some(Ok(bytes))) => Piece::Bytes(bytes),
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

impl ByteStream for BodyStream {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        if self.ended {
            return Ok(None);
        }
        match self.pieces.blocking_recv() {
            Some(Piece::Bytes(bytes)) => Ok(Some(bytes)),
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
