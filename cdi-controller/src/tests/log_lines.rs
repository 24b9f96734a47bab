//! Records what a test makes this process log, at the levels that programs log by default.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, Once, Weak};
use std::thread::{self, ThreadId};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber, span};

static RECORDERS: Mutex<Vec<Weak<Recorder>>> = Mutex::new(Vec::new());
static INSTALL: Once = Once::new();

struct Recorder {
    thread: ThreadId,
    marker: String,
    lines: Mutex<Vec<String>>,
}

/// Log lines of the thread that created this, and of other threads those that contain its marker. Threads of other tests
/// log too, and requests are sent on threads of their own.
pub struct LogLines(Arc<Recorder>);

impl LogLines {
    pub fn record(marker: &str) -> Self {
        INSTALL.call_once(|| {
            tracing::subscriber::set_global_default(ToRecorders)
                .expect("no other test installs a subscriber");
        });
        let lines = Mutex::default();
        let recorder =
            Arc::new(Recorder { thread: thread::current().id(), marker: marker.to_owned(), lines });
        RECORDERS.lock().unwrap().push(Arc::downgrade(&recorder));
        Self(recorder)
    }

    /// The lines since the last call.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lines.lock().unwrap())
    }
}

struct ToRecorders;

impl Subscriber for ToRecorders {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().target().to_owned());
        event.record(&mut line);
        RECORDERS.lock().unwrap().retain(|recorder| {
            let Some(recorder) = recorder.upgrade() else { return false };
            if recorder.thread == thread::current().id() || line.0.contains(&recorder.marker) {
                recorder.lines.lock().unwrap().push(line.0.clone());
            }
            true
        });
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a String cannot fail.
        let _ = write!(self.0, " {field}={value:?}");
    }
}
