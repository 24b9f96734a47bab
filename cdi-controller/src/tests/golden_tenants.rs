//! Tenants that have the controller poll servers they cannot reach, send Secrets that are not theirs, or use up all polls.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use api::annotations::cron as key;
use api::v1beta1::DataImportCron;
use serde_json::{Value, json};
use testkit::{Stub, StubRequest, StubResponse};

use super::golden::{condition_summary, create_cron, cron};
use super::golden_polls::{Server, put_secret};
use super::world::TestCluster;
use crate::controllers::data_import_cron::reconcile;
use crate::engine::queue::Key;
use controller_core::plan::Requeue;

/// Longer than any response on this machine takes, and shorter than the deadline of a poll.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server on its own address that accepts connections and never responds. It listens until the test process ends.
struct SlowServer {
    url: String,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl SlowServer {
    fn start(number: u8) -> Self {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 1, number], 0))).unwrap();
        let url = format!("http://{}/a", listener.local_addr().unwrap());
        let connections = Arc::<Mutex<Vec<TcpStream>>>::default();
        let held = Arc::clone(&connections);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                held.lock().unwrap().push(stream);
            }
        });
        Self { url, connections }
    }

    fn connections(&self) -> usize {
        self.connections.lock().unwrap().len()
    }
}

/// Creates a cron, without the simulated rest of the cluster.
fn put(world: &mut TestCluster, namespace: &str, name: &str, url: &str) -> Key {
    world.fake.put(
        "dataimportcrons",
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron",
            "metadata": { "name": name, "namespace": namespace },
            "spec": {
                "schedule": "0 0 1 1 *", "managedDataSource": name,
                "template": { "spec": {
                    "source": { "http": { "url": url } },
                    "pvc": { "storageClassName": "fast", "accessModes": ["ReadWriteOnce"] },
                } },
            },
        }),
    );
    world.deliver_watch_events();
    Key::new(namespace, name)
}

async fn reconcile_cron(world: &mut TestCluster, key: &Key) -> Requeue {
    world.deliver_watch_events();
    reconcile(Arc::clone(&world.engine), key.clone()).await.unwrap()
}

fn stored(world: &TestCluster, key: &Key) -> Arc<DataImportCron> {
    world.engine.api.caches.crons.get(&key.namespace, &key.name).unwrap()
}

/// Waits on the real clock, as the servers do.
async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn is_answered(world: &TestCluster, key: &Key) {
    let cron = stored(world, key);
    wait_until("an answer", || world.engine.polls.result(&cron).is_some()).await;
}

#[tokio::test]
async fn slow_servers_of_one_namespace_do_not_block_polls_of_another() {
    let (slow, good) = ([1, 2, 3, 4, 5, 6, 7, 8].map(SlowServer::start), Server::start("v1"));
    let mut world = TestCluster::new("Immediate", true);
    for (number, server) in slow.iter().enumerate() {
        let key = put(&mut world, "hostile", &format!("cron{number}"), &server.url);
        reconcile_cron(&mut world, &key).await;
    }
    let connections = || slow.iter().map(SlowServer::connections).sum::<usize>();
    wait_until("two slow polls", || connections() == 2).await;
    let other = put(&mut world, "vms", "cron", &good.url());
    reconcile_cron(&mut world, &other).await;
    is_answered(&world, &other).await;
    assert_eq!(connections(), 2, "of one namespace");
}

#[tokio::test]
async fn poll_is_cancelled_if_its_cron_is_deleted_or_changed() {
    let (slow, good) = ([9, 10].map(SlowServer::start), Server::start("v1"));
    let sums = Stub::start(|_| StubResponse::new(200, format!("{:064x}  a\n", 1)));
    let mut world = TestCluster::new("Immediate", true);
    let mut crons = Vec::new();
    for (number, server) in slow.iter().enumerate() {
        let key = put(&mut world, "vms", &format!("cron{number}"), &server.url);
        reconcile_cron(&mut world, &key).await;
        crons.push(key);
    }
    wait_until("both polls", || slow.iter().all(|server| server.connections() == 1)).await;
    let third = put(&mut world, "vms", "third", &good.url());
    reconcile_cron(&mut world, &third).await;
    let deleted = stored(&world, &crons[0]);
    assert!(world.engine.polls.is_polling(&deleted));
    world.fake.delete("dataimportcrons/vms/cron0");
    world.deliver_watch_events();
    assert!(!world.engine.polls.is_polling(&deleted));
    // The first server has not answered, and its poll has released its permit.
    is_answered(&world, &third).await;

    world.fake.change("dataimportcrons/vms/cron1", |cron| {
        cron["metadata"]["annotations"][key::CHECKSUMS_URL] = sums.url("/SHA256SUMS").into();
    });
    world.deliver_watch_events();
    reconcile_cron(&mut world, &crons[1]).await;
    is_answered(&world, &crons[1]).await;
    assert_eq!(world.engine.polls.result(&deleted), None, "nothing is kept of what is gone");
}

#[tokio::test]
async fn poll_rate_limit_holds_if_annotations_are_removed() {
    const TRIES: usize = 30;
    let server = Server::start("v1");
    let mut world = TestCluster::new("Immediate", true);
    let key = put(&mut world, "vms", "cron", &server.url());
    let start = Instant::now();
    let mut waits = 0;
    for _ in 0..TRIES {
        let next = reconcile_cron(&mut world, &key).await;
        let cron = stored(&world, &key);
        wait_until("the poll is over", || !world.engine.polls.is_polling(&cron)).await;
        if world.engine.polls.result(&cron).is_some() {
            reconcile_cron(&mut world, &key).await; // records the result
        } else {
            waits += 1;
            assert!(matches!(next, Requeue::After(delay) if !delay.is_zero()), "{next:?}");
        }
        world.fake.change("dataimportcrons/vms/cron", |cron| {
            let annotations = cron["metadata"]["annotations"].as_object_mut();
            annotations.and_then(|all| all.remove(key::NEXT_TIME));
        });
        world.deliver_watch_events();
    }
    let polls = server.asked().len();
    // Five at once, and one each ten seconds.
    let allowed = 5 + usize::try_from(start.elapsed().as_secs() / 10).unwrap() + 1;
    assert!((1..=allowed).contains(&polls), "{polls} in {:?}", start.elapsed());
    assert_eq!(polls + waits, TRIES);
}

/// The conditions of the cron, whose poll has failed.
fn failed_poll_conditions(world: &TestCluster) -> String {
    assert_eq!(condition_summary(&cron(world), "UpToDate"), "False PollFailed");
    cron(world)["status"]["conditions"].to_string()
}

#[tokio::test(start_paused = true)]
async fn loopback_addresses_are_not_polled() {
    let server = Server::start("v1");
    let port = server.stub.url("").rsplit_once(':').unwrap().1.to_owned();
    let host = format!("127.0.0.1:{port}");
    for source in [
        json!({ "http": { "url": server.url() } }),
        json!({ "http": { "url": format!("http://[::ffff:127.0.0.1]:{port}/a.img") } }),
        json!({ "registry": { "url": format!("docker://{host}/a:latest") } }),
        json!({ "s3": { "url": server.stub.url("/images/a.img") } }),
    ] {
        let world = TestCluster::new("Immediate", true);
        world.fake.change("cdiconfigs//config", |config| {
            config["spec"]["insecureRegistries"] = json!([host]);
        });
        // As it is installed: without an exception for tests.
        let mut world = TestCluster::with_flags(world.fake, &["-poll-allow-cidrs="]);
        create_cron(&world, json!({ "schedule": "0 0 1 1 *", "source": source }));
        world.work().await;
        let conditions = failed_poll_conditions(&world);
        assert!(conditions.contains("the controller polls no loopback"), "{source}: {conditions}");
        assert_eq!(server.asked().len(), 0, "{source}");
    }
}

#[tokio::test(start_paused = true)]
async fn denied_network_is_not_polled() {
    let server = Server::start("v1");
    let world = TestCluster::new("Immediate", true);
    let flags = ["-poll-allow-cidrs=127.0.0.9", "-poll-deny-cidrs=10.96.0.0/12"];
    let mut world = TestCluster::with_flags(world.fake, &flags);
    create_cron(
        &world,
        json!({ "schedule": "0 0 1 1 *", "source": { "http": { "url": "http://10.96.0.1/a" } } }),
    );
    world.work().await;
    assert!(
        failed_poll_conditions(&world)
            .contains("the controller polls no loopback, link-local or denied")
    );
    assert_eq!(server.asked().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn secret_is_not_sent_to_a_registry_without_poll_from() {
    // `anna` and `hush`, as the API server has them.
    let data = json!({ "accessKeyId": "YW5uYQ==", "secretKey": "aHVzaA==" });
    for (poll_from, setting, is_sent) in [
        (None, "", false),
        (Some("other"), "", false),
        (Some("vms"), "", true),
        (None, "-poll-secrets=registries", true),
        (Some("other"), "-poll-secrets=registries", false),
    ] {
        let asked = Arc::<Mutex<Vec<StubRequest>>>::default();
        let noted = Arc::clone(&asked);
        let stub = Stub::start(move |request| {
            noted.lock().unwrap().push(request.clone());
            match request.header("authorization") {
                None => StubResponse::new(401, "").with("WWW-Authenticate", "Basic realm=\"evil\""),
                Some(_) => StubResponse::new(200, "")
                    .with("Docker-Content-Digest", super::golden::digest(1)),
            }
        });
        let host = stub.url("").trim_start_matches("http://").to_owned();
        let world = TestCluster::new("Immediate", true);
        world.fake.change("cdiconfigs//config", |config| {
            config["spec"]["insecureRegistries"] = json!([host]);
        });
        put_secret(&world, "keys", &data, poll_from);
        let mut world = TestCluster::with_flags(world.fake, &[setting]);
        let url = format!("docker://{host}/a:latest");
        let source = json!({ "registry": { "url": url, "secretRef": "keys" } });
        create_cron(&world, json!({ "schedule": "0 0 1 1 *", "source": source }));
        world.work().await;
        let (case, asked) = (format!("{poll_from:?} {setting}"), asked.lock().unwrap());
        let with = asked.iter().filter(|one| one.header("authorization").is_some()).count();
        assert_eq!(with > 0, is_sent, "{case}: {asked:?}");
        if !is_sent {
            assert!(asked.is_empty(), "{case}: {asked:?}");
            assert!(failed_poll_conditions(&world).contains("cdi.kubevirt.io/pollFrom"), "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn poll_sends_no_extra_headers_and_explains_a_refusal() {
    let asked = Arc::<Mutex<Vec<StubRequest>>>::default();
    let noted = Arc::clone(&asked);
    let stub = Stub::start(move |request| {
        noted.lock().unwrap().push(request.clone());
        StubResponse::new(403, "payload")
    });
    let mut world = TestCluster::new("Immediate", true);
    let headers = ["Metadata-Flavor: Google", "X-Auth: a"];
    let source = json!({ "http": { "url": stub.url("/a.img"), "extraHeaders": headers } });
    create_cron(&world, json!({ "schedule": "0 0 1 1 *", "source": source }));
    world.work().await;
    let asked = asked.lock().unwrap();
    assert!(!asked.is_empty());
    for request in asked.iter() {
        let names = ["metadata-flavor", "x-auth"].map(|name| request.header(name));
        assert_eq!(names, [None, None], "{request:?}");
    }
    let conditions = failed_poll_conditions(&world);
    assert!(conditions.contains("403 Forbidden: a poll sends no extraHeaders"), "{conditions}");
    assert!(conditions.contains("secretExtraHeaders"), "{conditions}");
}

#[tokio::test(start_paused = true)]
async fn condition_contains_no_text_of_the_server() {
    let answers: [(&str, fn(&StubRequest) -> StubResponse, &str); 6] = [
        ("http", |_| StubResponse::new(418, "payload"), "the server refused the request"),
        ("http", |_| StubResponse::new(503, "payload"), "the server failed: 5xx"),
        ("http", |_| StubResponse::new(302, "").with("Location", "payload://x"), "redirects"),
        ("http", |_| StubResponse::new(200, "payload"), "is not an image"),
        (
            "s3",
            |_| {
                StubResponse::new(
                    403,
                    "<Error><Code>payload</Code><Message>payload</Message></Error>",
                )
            },
            "403 Forbidden",
        ),
        ("sums", |_| StubResponse::new(200, "payload  payload.img\n"), "is not an image"),
    ];
    for (form, answer, expected) in answers {
        let stub = Stub::start(answer);
        let mut world = TestCluster::new("Immediate", true);
        let source = match form {
            "s3" => json!({ "s3": { "url": stub.url("/images/a.img") } }),
            _ => json!({ "http": { "url": stub.url("/a.img") } }),
        };
        create_cron(&world, json!({ "schedule": "0 0 1 1 *", "source": source }));
        if form == "sums" {
            let url: Value = stub.url("/SHA256SUMS").into();
            super::golden::annotate(&world, key::CHECKSUMS_URL, url.as_str().unwrap());
        }
        world.work().await;
        let conditions = failed_poll_conditions(&world);
        assert!(
            conditions.contains(expected) && !conditions.contains("payload"),
            "{form}: {conditions}"
        );
    }
}
