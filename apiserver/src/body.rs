//! Bodies of requests, in bounded memory. Anybody in the cluster may send some.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// No review is longer: an object has at most 1.5 MiB, it comes twice, and JSON may be longer than what is stored.
pub const LENGTH_MAX: usize = 8 << 20;
/// All bodies together that are being read or judged.
const ROOM: usize = 64 << 20;
/// How long a body may take to come.
const PATIENCE: Duration = Duration::from_secs(10);

/// The memory for bodies: that of all, and shares of it.
#[derive(Clone, Debug)]
pub struct Room(Vec<Arc<Semaphore>>);

impl Default for Room {
    fn default() -> Self {
        Self(vec![Arc::new(Semaphore::new(ROOM))])
    }
}

/// A body, and the room it takes until it is dropped.
#[derive(Debug)]
pub struct Held {
    /// What it says.
    pub bytes: Bytes,
    _room: Vec<OwnedSemaphorePermit>,
}

impl Room {
    /// A share of it: no more than `bytes`, and no more than is left of the whole.
    #[must_use]
    pub fn share(&self, bytes: usize) -> Self {
        let mut all = self.0.clone();
        all.push(Arc::new(Semaphore::new(bytes)));
        Self(all)
    }

    /// Reads a body to its end.
    ///
    /// # Errors
    /// With the status to answer: too long, too slow, broken off, or no room for it now.
    pub async fn read(&self, body: Body) -> Result<Held, StatusCode> {
        let read = tokio::time::timeout(PATIENCE, self.collect(body));
        read.await.unwrap_or(Err(StatusCode::REQUEST_TIMEOUT))
    }

    async fn collect(&self, mut body: Body) -> Result<Held, StatusCode> {
        let mut bytes = BytesMut::new();
        let mut room: Vec<OwnedSemaphorePermit> = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| StatusCode::BAD_REQUEST)?;
            let Ok(data) = frame.into_data() else { continue };
            if data.is_empty() {
                continue;
            }
            if data.len() > LENGTH_MAX.saturating_sub(bytes.len()) {
                return Err(StatusCode::PAYLOAD_TOO_LARGE);
            }
            let more = u32::try_from(data.len()).map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
            for (at, semaphore) in self.0.iter().enumerate() {
                let more = Arc::clone(semaphore).try_acquire_many_owned(more);
                let more = more.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
                match room.get_mut(at) {
                    Some(room) => room.merge(more),
                    None => room.push(more),
                }
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Held { bytes: bytes.freeze(), _room: room })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(room: &Room, length: usize) -> Result<Held, StatusCode> {
        room.read(Body::from(vec![b'x'; length])).await
    }

    #[tokio::test]
    async fn a_body_has_a_longest_length() {
        let room = Room::default();
        for (length, expected) in [
            (0, None),
            (1, None),
            (LENGTH_MAX, None),
            (LENGTH_MAX + 1, Some(StatusCode::PAYLOAD_TOO_LARGE)),
        ] {
            let found = read(&room, length).await;
            assert_eq!(found.as_ref().err().copied(), expected, "{length}");
            if let Ok(held) = found {
                assert_eq!(held.bytes.len(), length);
            }
        }
    }

    #[tokio::test]
    async fn all_bodies_together_have_a_longest_length() {
        let room = Room::default();
        let mut all = Vec::new();
        for _ in 0..ROOM / LENGTH_MAX {
            all.push(read(&room, LENGTH_MAX).await.unwrap());
        }
        assert_eq!(read(&room, 1).await.unwrap_err(), StatusCode::SERVICE_UNAVAILABLE);
        all.pop();
        assert!(read(&room, LENGTH_MAX).await.is_ok());
    }

    #[tokio::test]
    async fn a_share_leaves_the_rest_to_others() {
        let room = Room::default();
        let (one, other) = (room.share(2 * LENGTH_MAX), room.share(2 * LENGTH_MAX));
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(read(&one, LENGTH_MAX).await.unwrap());
        }
        assert_eq!(read(&one, 1).await.unwrap_err(), StatusCode::SERVICE_UNAVAILABLE);
        held.push(read(&other, LENGTH_MAX).await.unwrap());
        drop(held);
        assert!(read(&one, LENGTH_MAX).await.is_ok());
        let _all = read(&room, LENGTH_MAX).await.unwrap();
        assert_eq!(room.0[0].available_permits(), ROOM - LENGTH_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let never =
            Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        assert_eq!(Room::default().read(never).await.unwrap_err(), StatusCode::REQUEST_TIMEOUT);
    }
}
