//! One transfer: shares out the memory, starts the worker pool, and lets a route feed it.

use std::sync::Arc;

use contract::ByteCount;
use formats::index::Layout;
use parking_lot::Mutex;

use crate::buffer::Pool;
use crate::completion::CompletionTracker;
use crate::counting_sink::CountingSink;
use crate::error::Error;
use crate::import::Import;
use crate::jobs::{Clusters, Worker};
use crate::memory::{cores, share_memory};
use crate::plan::Route;
use crate::routes::{Outcome, TransferContext, indexed, one_pass, parts, raw, stream};
use crate::source::ByteStream;
use crate::target::Disk;
use crate::worker_pool::WorkerPool;

/// Takes `route` from the source of `import` to `disk`. `stream`: the source from its start, where it is open already.
pub fn transfer(
    import: &Import<'_>,
    available: ByteCount,
    disk: &Arc<Disk>,
    completion: Arc<CompletionTracker>,
    route: &Route,
    stream: Option<Box<dyn ByteStream>>,
) -> Result<Outcome, Error> {
    let Import { source, target, options, progress } = *import;
    let memory = share_memory(options.memory, cores(), source.facts().streams_max);
    source.limit_receive_memory(memory.receive_for(route));
    let sink = CountingSink::new(disk.clone(), &target.path, progress);
    let pool = Pool::new(memory.buffer_len, memory.buffers);
    let clusters = route.layout().and_then(compressed_clusters);
    let make_worker = || {
        let mut worker = Worker::new(sink.clone(), &pool, &source.facts().name, clusters);
        move |job| worker.work(job)
    };
    let context = TransferContext {
        source,
        stream: Mutex::new(stream),
        sink: sink.clone(),
        workers: WorkerPool::start("worker", memory.workers, memory.workers, make_worker)?,
        pool: Arc::clone(&pool),
        progress: Arc::clone(progress),
        completion,
        gzip_threads: memory.gzip_threads,
        available,
        held_back: disk.held_back(),
    };
    let hasher = options.hasher();
    let delta = options.delta.is_some();
    match route {
        Route::Ranges { layout: Some(layout) } => {
            indexed::import_ranges(&context, &**layout, delta)
        }
        Route::Ranges { layout: None } => {
            raw::import_ranges(&context, source.facts().length.unwrap_or(0), delta)
        }
        Route::Stream { compressions } if compressions.is_empty() => {
            stream::import_raw(&context, hasher)
        }
        Route::Stream { compressions } => stream::import_compressed(&context, compressions, hasher),
        Route::Parts { compression } => {
            parts::import_parts(&context, *compression, hasher, memory.parts)
        }
        Route::OnePass { layout, compressions } => {
            let layout = Arc::clone(layout);
            one_pass::import_one_pass(&context, layout, compressions, hasher, memory.parked)
        }
    }
}

fn compressed_clusters(layout: &Arc<dyn Layout>) -> Option<Clusters> {
    layout.has_compressed().then(|| Clusters {
        codec: layout.codec(),
        size: layout.cluster_size() as usize,
        virtual_size: layout.virtual_size(),
    })
}
