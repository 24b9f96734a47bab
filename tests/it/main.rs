//! Whole programs over loopback.
#![allow(clippy::unwrap_used)] // everything here is a test, helpers included

mod archive;
mod clones;
mod faults;
mod file_systems;
mod fips;
mod formats;
mod hostile;
mod matrix;
mod memory;
mod nbd;
mod network;
mod newest;
mod pod;
mod pod_life;
mod pod_machines;
mod pod_node;
mod pod_refusals;
mod pod_sources;
mod pod_stores;
mod pod_variables;
mod populators;
mod qcow2;
mod real;
mod registry;
mod resume;
mod s3_server;
mod sources;
mod storage;
mod stores;
mod targets;
mod together;
mod trust;

/// Calls `check` on every item, a few at a time: most of them wait for each other's processes and back-offs.
fn each<T: Sync>(items: &[T], check: impl Fn(&T) + Sync) {
    const AT_A_TIME: usize = 6;
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(item) =
                    items.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    check(item);
                }
            });
        }
    });
}

/// Compares a document in `docs` with the text that a test has made of its results. With `CDI_BLESS` it is written.
fn compare_document(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    if std::env::var_os("CDI_BLESS").is_some() {
        std::fs::write(&path, text).expect("cannot write the document");
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "docs/{name} differs from the results; CDI_BLESS=1 writes:\n{text}");
}
