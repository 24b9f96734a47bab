//! When a blocking call ends at the latest, whatever the server does.

use std::time::Instant;

use tokio::sync::watch;

use crate::error::Error;

/// When a call for a small response ends at the latest: name resolution, connections, headers, bodies, tokens and pauses
/// between attempts together. Does not limit how long reading an image takes.
#[derive(Clone, Debug, Default)]
pub struct CallLimit {
    deadline: Option<Instant>,
    cancelled: Option<watch::Receiver<()>>,
}

/// Ends the calls of its [`CallLimit`] when it is dropped.
#[derive(Debug)]
pub struct CancelOnDrop(
    #[allow(dead_code, reason = "receivers notice that it is dropped")] watch::Sender<()>,
);

/// Why a call ended before its response.
pub(crate) enum CallEnd {
    Deadline,
    Cancelled,
}

impl CallLimit {
    /// Calls end at `deadline`.
    pub fn until(deadline: Instant) -> Self {
        Self { deadline: Some(deadline), cancelled: None }
    }

    /// A limit that has no end, unless what is returned with it is dropped.
    pub fn cancellable() -> (Self, CancelOnDrop) {
        let (sender, receiver) = watch::channel(());
        (Self { deadline: None, cancelled: Some(receiver) }, CancelOnDrop(sender))
    }

    /// The same, and an end at `deadline`.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(self.deadline.map_or(deadline, |before| before.min(deadline)));
        self
    }

    /// Waits until the calls are cancelled, whatever the deadline.
    pub async fn cancelled(&self) {
        match self.cancelled.clone() {
            // Nothing is ever sent: this ends with the sender.
            Some(mut receiver) => drop(receiver.wait_for(|()| false).await),
            None => std::future::pending().await,
        }
    }

    /// Waits until the calls have to end.
    pub(crate) async fn reached(&self) -> CallEnd {
        let late = async {
            match self.deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.cancelled() => CallEnd::Cancelled,
            () = late => CallEnd::Deadline,
        }
    }
}

impl CallEnd {
    pub(crate) fn error(self, name: String) -> Error {
        match self {
            Self::Deadline => Error::TimedOut { name },
            Self::Cancelled => Error::Cancelled { name },
        }
    }
}
