use std::time::Instant;

use pipeline::Source;
use testkit::ReservedPort;

use super::*;
use crate::{HttpOptions, HttpSource};

struct Served {
    directory: tempfile::TempDir,
    port: ReservedPort,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<Result<(), ServeError>>>,
}

fn config(directory: &Path, port: &ReservedPort) -> Config {
    Config {
        port: port.number(),
        image_dir: directory.join("disk"),
        ready_file: directory.join("ready"),
        done_file: directory.join("done"),
        root: directory.to_owned(),
    }
}

fn serve_disk(bytes: &[u8]) -> Served {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("disk")).unwrap();
    fs::write(directory.path().join("disk/a disk.img"), bytes).unwrap();
    let port = ReservedPort::new();
    let (config, stop) = (config(directory.path(), &port), Arc::new(AtomicBool::new(false)));
    let ready = config.ready_file.clone();
    let thread = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || serve(&config, &stop)
    });
    let deadline = Instant::now() + Duration::from_secs(60);
    while !ready.exists() {
        assert!(Instant::now() < deadline && !thread.is_finished(), "the server is not ready");
        std::thread::sleep(Duration::from_millis(5));
    }
    Served { directory, port, stop, thread: Some(thread) }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn importer_reads_the_disk_by_ranges_and_the_environment_from_the_server() {
    let bytes: Vec<u8> = (0..600_000_u32).flat_map(u32::to_le_bytes).collect();
    let served = serve_disk(&bytes);
    let name = fs::read_to_string(served.directory.path().join("ready")).unwrap();
    assert_eq!(name, "a disk.img");
    let url = format!("http://localhost:{}/a%20disk.img", served.port.number());
    let source = HttpSource::connect(&url, &HttpOptions::default()).unwrap();
    assert!(source.facts().ranges);
    assert_eq!(source.facts().length, Some(bytes.len() as u64));
    for (at, end) in [(0, None), (5, Some(2_000_000)), (2_399_999, None)] {
        let (mut stream, mut all) = (source.open(at, end), Vec::new());
        while let Some(chunk) = stream.next().unwrap() {
            all.extend_from_slice(&chunk);
        }
        let end = end.map_or(bytes.len(), |end| end as usize);
        assert!(all == bytes[at as usize..end], "{at}-{end}");
    }
    let environment = crate::served_environment(&url, &HttpOptions::default()).unwrap();
    assert!(environment.iter().any(|entry| entry.starts_with("PATH=")), "{environment:?}");
    for missing in ["", "other", "../ready", "disk/"] {
        let url = format!("http://localhost:{}/{missing}", served.port.number());
        let error = HttpSource::connect(&url, &HttpOptions::default()).unwrap_err();
        assert!(error.to_string().contains("404"), "{error}");
    }
}

#[test]
fn done_file_ends_the_server_which_removes_both_files() {
    let mut served = serve_disk(b"disk");
    let (ready, done) =
        (served.directory.path().join("ready"), served.directory.path().join("done"));
    fs::write(&done, "").unwrap();
    served.thread.take().unwrap().join().unwrap().unwrap();
    assert!(!ready.exists() && !done.exists());
}

#[test]
fn nothing_is_served_unless_there_is_exactly_one_disk() {
    type Prepare = fn(&Path);
    let table: [(&str, Prepare); 5] = [
        ("it is empty", |_| {}),
        ("it holds 2 entries", |root| {
            fs::write(root.join("disk/a"), "").unwrap();
            fs::write(root.join("disk/b"), "").unwrap();
        }),
        ("it holds another folder", |root| fs::create_dir(root.join("disk/a")).unwrap()),
        ("it holds something else", |root| {
            std::os::unix::fs::symlink("/etc/passwd", root.join("disk/a")).unwrap();
        }),
        ("bootc image detected", |root| fs::create_dir(root.join("ostree")).unwrap()),
    ];
    for (phrase, prepare) in table {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("disk")).unwrap();
        prepare(directory.path());
        let error =
            serve(&config(directory.path(), &ReservedPort::new()), &Arc::default()).unwrap_err();
        assert!(error.to_string().contains(phrase), "{error}");
        assert!(!directory.path().join("ready").exists());
    }
}

#[test]
fn arguments_are_those_of_existing_pods() {
    let parse = |text: &str| Config::parse(text.split_whitespace().map(str::to_owned));
    let pod = "-p 8100 -image-dir /disk -ready-file /shared/ready -done-file /shared/done";
    let expected = Config { image_dir: "/disk".into(), ..Config::default() };
    assert_eq!(parse(pod), Ok(Parsed::Run(expected.clone())));
    assert_eq!(parse("--p=8100 -image-dir=/disk"), Ok(Parsed::Run(expected)));
    assert_eq!(parse(""), Ok(Parsed::Run(Config::default())));
    assert_eq!(parse("-h"), Ok(Parsed::Help));
    for wrong in ["-x", "-p", "-p=abc", "stray"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}
