//! Hostile servers and names: a client that polls on behalf of tenants connects to no denied address and keeps its deadline.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use importer::{
    CallLimit, Cidr, DialExceptions, DialPolicy, Error, FailureKind, HttpOptions, ProxySettings,
    RetryPolicy, S3Credentials, S3Options, newest,
};
use parking_lot::Mutex;
use testkit::{Proxy, Stub, StubRequest, StubResponse};

/// The machine that the tests' servers are on, and nothing else of what is denied.
const ALLOWED: &str = "127.0.0.1";
/// Enough for a connection on this machine, and soon over.
const SOON: Duration = Duration::from_millis(300);
/// How slowly a server writes that never ends.
const DRIP: Duration = Duration::from_millis(10);

fn guarded(allow: &str) -> HttpOptions {
    let exceptions = DialExceptions {
        allow: Cidr::parse_list(allow).expect("networks"),
        ..DialExceptions::default()
    };
    HttpOptions {
        dial_policy: DialPolicy::Guarded(exceptions),
        retry: RetryPolicy { attempts_max: 1, ..RetryPolicy::default() },
        ..HttpOptions::default()
    }
}

fn kind(location: &str, checksums: Option<&str>, options: &HttpOptions) -> FailureKind {
    newest(location, checksums, options, None).expect_err(location).kind()
}

/// A server, and its requests.
fn recording(
    answer: impl Fn(&StubRequest) -> StubResponse + Send + Sync + 'static,
) -> (Stub, Arc<Mutex<Vec<StubRequest>>>) {
    let requests = Arc::<Mutex<Vec<StubRequest>>>::default();
    let noted = Arc::clone(&requests);
    let stub = Stub::start(move |request| {
        noted.lock().push(request.clone());
        answer(request)
    });
    (stub, requests)
}

/// A listener on another address of this machine. No client may connect to it.
fn bystander() -> TcpListener {
    let listener = TcpListener::bind(("127.0.0.2", 0)).expect("cannot listen");
    listener.set_nonblocking(true).expect("a listener can do that");
    listener
}

fn assert_no_connection(listener: &TcpListener) {
    let error = listener.accept().expect_err("a connection");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_guarded_client_does_not_connect_to_its_own_machine() {
    let (stub, requests) = recording(|_| StubResponse::new(200, "").with("ETag", "\"v1\""));
    let host = stub.url("").trim_start_matches("http://").to_owned();
    let port = host.rsplit_once(':').unwrap().1;
    let mut options = guarded("");
    options.insecure_hosts = vec![host.clone()];
    for location in [
        stub.url("/disk.img"),
        format!("http://localhost:{port}/disk.img"),
        format!("http://2130706433:{port}/disk.img"),
        format!("http://0x7f.1:{port}/disk.img"),
        format!("http://[::ffff:127.0.0.1]:{port}/disk.img"),
        format!("http://0.0.0.0:{port}/disk.img"),
        format!("docker://{host}/image:latest"),
    ] {
        assert_eq!(kind(&location, None, &options), FailureKind::Denied, "{location}");
    }
    let sums = stub.url("/SHA256SUMS");
    assert_eq!(kind("https://a.test/a.img", Some(&sums), &options), FailureKind::Denied);
    let credentials = S3Credentials::Anonymous;
    options.s3 = S3Options { endpoint: Some(stub.url("")), credentials, ..S3Options::default() };
    assert_eq!(kind("s3://bucket/key", None, &options), FailureKind::Denied);
    assert!(requests.lock().is_empty());
    assert!(newest(&stub.url("/disk.img"), None, &guarded(ALLOWED), None).is_ok());
}

#[test]
fn a_redirect_to_a_denied_address_is_not_followed() {
    let listener = bystander();
    let port = listener.local_addr().unwrap().port();
    for target in [
        format!("http://127.0.0.2:{port}/a"),
        format!("http://[::ffff:127.0.0.2]:{port}/a"),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "http://[fd00:ec2::254]/latest/meta-data".to_owned(),
        "http://[fe80::1]/".to_owned(),
    ] {
        let location = target.clone();
        let (stub, requests) =
            recording(move |_| StubResponse::new(302, "").with("Location", location.clone()));
        let found = kind(&stub.url("/disk.img"), None, &guarded(ALLOWED));
        assert_eq!(found, FailureKind::Denied, "{target}");
        assert_eq!(requests.lock().len(), 1);
    }
    assert_no_connection(&listener);
}

#[test]
fn a_registry_cannot_name_a_token_service_on_a_denied_address() {
    let listener = bystander();
    let realm = format!("Bearer realm=\"http://{}/token\"", listener.local_addr().unwrap());
    let (stub, _) =
        recording(move |_| StubResponse::new(401, "").with("WWW-Authenticate", realm.clone()));
    let host = stub.url("").trim_start_matches("http://").to_owned();
    let options = HttpOptions { insecure_hosts: vec![host.clone()], ..guarded(ALLOWED) };
    let found = kind(&format!("docker://{host}/image:latest"), None, &options);
    assert_eq!(found, FailureKind::Denied);
    assert_no_connection(&listener);
}

#[test]
fn a_proxy_gets_names_and_no_denied_addresses() {
    let proxy = Proxy::start();
    let (stub, requests) = recording(|_| StubResponse::new(200, "").with("ETag", "\"v1\""));
    let options = HttpOptions { proxy: ProxySettings::all(proxy.url()), ..guarded("") };
    for denied in ["http://169.254.169.254/a", "http://127.0.0.1:9/a", "http://localhost/a"] {
        assert_eq!(kind(denied, None, &options), FailureKind::Denied, "{denied}");
    }
    assert!(proxy.requests().is_empty());
    // The proxy's own address is the administrator's choice, and what a name means is the proxy's.
    let port = stub.url("").rsplit_once(':').unwrap().1.to_owned();
    assert!(newest(&format!("http://images.test:{port}/a"), None, &options, None).is_ok());
    assert_eq!((proxy.requests().len(), requests.lock().len()), (1, 1));
}

/// A server that writes `start` and then `drip` again and again, each time too soon to count as stalled. The channel gets
/// one message per connection.
fn dripping(start: &'static str, drip: &'static str) -> (String, mpsc::Receiver<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("cannot listen");
    let host = listener.local_addr().expect("a listener has an address").to_string();
    let (connected, connections) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = connected.send(());
            std::thread::spawn(move || pour(stream, start, drip));
        }
    });
    (host, connections)
}

fn pour(mut stream: TcpStream, start: &str, drip: &str) -> std::io::Result<()> {
    let _ = stream.read(&mut [0; 4096])?;
    stream.write_all(start.as_bytes())?;
    loop {
        stream.write_all(drip.as_bytes())?;
        std::thread::sleep(DRIP);
    }
}

#[test]
fn endless_response_ends_at_the_deadline() {
    let endless_body = "HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n";
    for (start, drip, checksums) in [
        ("", "H", false),
        ("HTTP/1.1 200 OK\r\n", "X-A: b\r\n", false),
        ("", "HTTP/1.1 100 Continue\r\n\r\n", false),
        (endless_body, "#", true),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\n#\r\n", true),
        ("HTTP/1.1 200 OK\r\n\r\n", "#", true),
    ] {
        let (host, _connections) = dripping(start, drip);
        let mut options = guarded(ALLOWED);
        options.limit = CallLimit::until(Instant::now() + SOON);
        let sums = format!("http://{host}/SHA256SUMS");
        let checksums = checksums.then_some(sums.as_str());
        let error = newest(&format!("http://{host}/disk.img"), checksums, &options, None);
        let error = error.expect_err("it never ends");
        // Heads have their own limits of length, which may come first.
        let is_over = matches!(error.kind(), FailureKind::TimedOut | FailureKind::Unreachable);
        assert!(is_over, "{start:?} {drip:?}: {error:?}");
    }
}

#[test]
fn deadline_includes_tokens_delays_and_attempts() {
    let (slow, _connections) = dripping("HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n", " ");
    let realm = format!("Bearer realm=\"http://{slow}/token\"");
    let (registry, _) =
        recording(move |_| StubResponse::new(401, "").with("WWW-Authenticate", realm.clone()));
    let host = registry.url("").trim_start_matches("http://").to_owned();
    let location = format!("docker://{host}/image:latest");
    let retry = RetryPolicy { attempts_max: 1000, ..RetryPolicy::default() };
    let options = HttpOptions { insecure_hosts: vec![host], retry, ..guarded(ALLOWED) };
    let limited =
        || HttpOptions { limit: CallLimit::until(Instant::now() + SOON), ..options.clone() };
    assert_eq!(kind(&location, None, &limited()), FailureKind::TimedOut);

    let (busy, _) = recording(|_| StubResponse::new(503, "").with("Retry-After", "3600"));
    assert_eq!(kind(&busy.url("/disk.img"), None, &limited()), FailureKind::TimedOut);
    // What begins after the deadline sends nothing.
    let (stub, requests) = recording(|_| StubResponse::new(200, "").with("ETag", "\"v1\""));
    let late = HttpOptions { limit: CallLimit::until(Instant::now()), ..options.clone() };
    assert_eq!(kind(&stub.url("/disk.img"), None, &late), FailureKind::TimedOut);
    assert!(requests.lock().is_empty());
}

#[test]
fn a_cancelled_call_ends() {
    let (host, connections) = dripping("HTTP/1.1 200 OK\r\n", "X-A: b\r\n");
    let (limit, cancel) = CallLimit::cancellable();
    let options = HttpOptions { limit, ..guarded(ALLOWED) };
    let call = std::thread::spawn(move || {
        newest(&format!("http://{host}/disk.img"), None, &options, None)
    });
    connections.recv().unwrap();
    drop(cancel);
    let error = call.join().unwrap().expect_err("it was cancelled");
    assert!(matches!(error, Error::Cancelled { .. }), "{error:?}");
}
