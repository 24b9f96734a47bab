//! Request bodies, in bounded memory: every pod of the cluster can send some.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Size limit of a body. An AdmissionReview has an object of at most 1.5 MiB twice, and JSON may be longer than the stored
/// form.
pub const LENGTH_MAX: usize = 8 << 20;
/// Size limit of all bodies that are being read or processed.
const MEMORY_MAX: usize = 64 << 20;
/// Time limit of receiving a body.
const RECEIVE_MAX: Duration = Duration::from_secs(10);

/// Memory permits for bodies: of the whole pool, and of shares of it.
#[derive(Clone, Debug)]
pub struct BodyMemory(Vec<Arc<Semaphore>>);

impl Default for BodyMemory {
    fn default() -> Self {
        Self(vec![Arc::new(Semaphore::new(MEMORY_MAX))])
    }
}

/// A body, and its memory permits.
#[derive(Debug)]
pub struct ReceivedBody {
    pub bytes: Bytes,
    _memory: Vec<OwnedSemaphorePermit>,
}

impl BodyMemory {
    /// A share: at most `bytes`, and at most what is free in the whole pool.
    #[must_use]
    pub fn share(&self, bytes: usize) -> Self {
        let mut all = self.0.clone();
        all.push(Arc::new(Semaphore::new(bytes)));
        Self(all)
    }

    /// Reads a body to its end.
    ///
    /// # Errors
    /// The response status: too long, too slow, aborted, or no memory free.
    pub async fn read(&self, body: Body) -> Result<ReceivedBody, StatusCode> {
        let read = tokio::time::timeout(RECEIVE_MAX, self.collect(body));
        read.await.unwrap_or(Err(StatusCode::REQUEST_TIMEOUT))
    }

    async fn collect(&self, mut body: Body) -> Result<ReceivedBody, StatusCode> {
        let mut bytes = BytesMut::new();
        let mut body_memory: Vec<OwnedSemaphorePermit> = Vec::new();
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
                match body_memory.get_mut(at) {
                    Some(body_memory) => body_memory.merge(more),
                    None => body_memory.push(more),
                }
            }
            bytes.extend_from_slice(&data);
        }
        Ok(ReceivedBody { bytes: bytes.freeze(), _memory: body_memory })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(body_memory: &BodyMemory, length: usize) -> Result<ReceivedBody, StatusCode> {
        body_memory.read(Body::from(vec![b'x'; length])).await
    }

    #[tokio::test]
    async fn body_over_the_size_limit_is_refused() {
        let body_memory = BodyMemory::default();
        for (length, expected) in [
            (0, None),
            (1, None),
            (LENGTH_MAX, None),
            (LENGTH_MAX + 1, Some(StatusCode::PAYLOAD_TOO_LARGE)),
        ] {
            let found = read(&body_memory, length).await;
            assert_eq!(found.as_ref().err().copied(), expected, "{length}");
            if let Ok(held) = found {
                assert_eq!(held.bytes.len(), length);
            }
        }
    }

    #[tokio::test]
    async fn bodies_in_all_are_limited() {
        let body_memory = BodyMemory::default();
        let mut all = Vec::new();
        for _ in 0..MEMORY_MAX / LENGTH_MAX {
            all.push(read(&body_memory, LENGTH_MAX).await.unwrap());
        }
        assert_eq!(read(&body_memory, 1).await.unwrap_err(), StatusCode::SERVICE_UNAVAILABLE);
        all.pop();
        assert!(read(&body_memory, LENGTH_MAX).await.is_ok());
    }

    #[tokio::test]
    async fn share_leaves_the_rest_to_others() {
        let body_memory = BodyMemory::default();
        let (one, other) = (body_memory.share(2 * LENGTH_MAX), body_memory.share(2 * LENGTH_MAX));
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(read(&one, LENGTH_MAX).await.unwrap());
        }
        assert_eq!(read(&one, 1).await.unwrap_err(), StatusCode::SERVICE_UNAVAILABLE);
        held.push(read(&other, LENGTH_MAX).await.unwrap());
        drop(held);
        assert!(read(&one, LENGTH_MAX).await.is_ok());
        let _all = read(&body_memory, LENGTH_MAX).await.unwrap();
        assert_eq!(body_memory.0[0].available_permits(), MEMORY_MAX - LENGTH_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn endless_body_times_out() {
        let never =
            Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        assert_eq!(
            BodyMemory::default().read(never).await.unwrap_err(),
            StatusCode::REQUEST_TIMEOUT
        );
    }
}
