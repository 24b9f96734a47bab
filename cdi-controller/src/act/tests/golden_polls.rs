//! DataImportCrons whose web server the controller asks, over a real socket.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::annotations::cron as key;
use importer::{HttpOptions, Newest, newest};
use serde_json::json;

use super::golden::{annotate, cron, make, says, settle, stands_for};
use super::world::World;
use super::{DONE, places};
use crate::act::controllers::data_import_cron::reconcile;

const PAST: &str = "2026-01-01T00:00:00Z";

/// A web server with one image, of which it tells the tag: what it is asked, and what it answers.
#[derive(Clone)]
struct Server {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
    /// Empty: it is gone.
    tag: Arc<Mutex<String>>,
}

impl Server {
    fn start(tag: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            url: format!("http://{}/a.img", listener.local_addr().unwrap()),
            asked: Arc::default(),
            tag: Arc::new(Mutex::new(tag.to_owned())),
        };
        let shared = server.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (mut text, mut piece) = (String::new(), [0; 4096]);
                while !text.contains("\r\n\r\n") {
                    match stream.read(&mut piece) {
                        Ok(count @ 1..) => text += &String::from_utf8_lossy(&piece[..count]),
                        _ => break,
                    }
                }
                let tag = shared.tag.lock().unwrap().clone();
                let text = text.to_lowercase();
                let head = if tag.is_empty() {
                    "404 Not Found\r\nContent-Length: 0".to_owned()
                } else if text.contains(&format!("if-none-match: \"{tag}\"")) {
                    format!("304 Not Modified\r\nETag: \"{tag}\"")
                } else {
                    let part = "Content-Range: bytes 0-0/9\r\nContent-Length: 1";
                    format!("206 Partial Content\r\nETag: \"{tag}\"\r\n{part}")
                };
                shared.asked.lock().unwrap().push(text);
                let body = if head.starts_with("206") { "x" } else { "" };
                // A client that goes away in the middle is nothing to report.
                let _ = write!(stream, "HTTP/1.1 {head}\r\nConnection: close\r\n\r\n{body}");
            }
        });
        server
    }

    fn set(&self, tag: &str) {
        *self.tag.lock().unwrap() = tag.to_owned();
    }

    /// What it was asked since the last time.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

fn annotation(world: &World, key: &str) -> String {
    cron(world)["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_web_server_is_asked_when_it_is_time_and_only_what_is_new_is_imported() {
    let server = Server::start("v1");
    let mut world = World::new("Immediate", true);
    let source = json!({ "http": { "url": server.url } });
    make(&world, json!({ "schedule": "0 0 1 1 *", "source": source, "importsToKeep": 1 }));
    settle(&mut world, DONE).await;
    assert_eq!(server.asked().len(), 1);
    assert_eq!(says(&cron(&world), "UpToDate"), "True UpToDate");
    let first = stands_for(&world);
    assert_eq!(first.1, "True Ready");
    assert!(annotation(&world, key::DESIRED_DIGEST).starts_with("etag:"));
    assert!(annotation(&world, key::NEXT_TIME) > annotation(&world, key::LAST_TIME));

    // Nothing new: a few bytes, and one write.
    annotate(&world, key::NEXT_TIME, PAST);
    world.fake.0.lock().unwrap().writes.clear();
    settle(&mut world, DONE).await;
    let asked = server.asked();
    assert!(asked.len() == 1 && asked[0].contains("if-none-match: \"v1\""), "{asked:?}");
    let writes = world.fake.0.lock().unwrap().writes.clone();
    assert_eq!(writes, ["change dataimportcrons/vms/cron"]);
    assert_eq!(stands_for(&world), first);

    // Nobody answers: what is there stays, and it says so.
    server.set("");
    annotate(&world, key::NEXT_TIME, PAST);
    settle(&mut world, DONE).await;
    assert_eq!(says(&cron(&world), "UpToDate"), "False PollFailed");
    assert_eq!(stands_for(&world), first);
    server.asked();

    server.set("v2");
    annotate(&world, key::NEXT_TIME, PAST);
    settle(&mut world, DONE).await;
    assert_eq!(server.asked().len(), 1);
    assert_eq!(says(&cron(&world), "UpToDate"), "True UpToDate");
    let second = stands_for(&world);
    assert!(second.1 == "True Ready" && second.0 != first.0, "{second:?}");
    assert_eq!(places(&world, "persistentvolumeclaims").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_question_needs_a_secret_only_where_the_source_names_one() {
    let server = Server::start("v1");
    let mut world = World::new("Immediate", true);
    let source = json!({ "http": { "url": server.url, "secretRef": "keys" } });
    make(&world, json!({ "schedule": "0 0 1 1 *", "source": source }));
    world.work().await;
    let told = cron(&world)["status"]["conditions"].to_string();
    assert!(told.contains("the Secret keys has no key accessKeyId"), "{told}");
    assert_eq!(server.asked().len(), 0);
    // `anna` and `hush`, as the API server has them.
    let data = json!({ "accessKeyId": "YW5uYQ==", "secretKey": "aHVzaA==" });
    world.fake.put(
        "secrets",
        json!({ "metadata": { "name": "keys", "namespace": "cdi" }, "data": data }),
    );
    annotate(&world, key::NEXT_TIME, PAST);
    world.work().await;
    let asked = server.asked();
    assert!(asked.len() == 1 && asked[0].contains("authorization: basic"), "{asked:?}");
}

/// Looks at all crons until none is left to look at, without asking what the watches tell. Returns requests to the API
/// server and to the web server.
async fn look_at_all(world: &World, server: &Server) -> (usize, usize) {
    let before = world.fake.0.lock().unwrap().requests;
    let queue = &world.context.queues.crons;
    while let Ok(key) = tokio::time::timeout(Duration::from_secs(2), queue.next()).await {
        let next = reconcile(Arc::clone(&world.context), key.clone()).await.unwrap();
        queue.done(key, next);
    }
    (world.fake.0.lock().unwrap().requests - before, server.asked().len())
}

#[tokio::test(start_paused = true)]
async fn two_hundred_crons_cost_one_question_and_one_write_each_time_and_no_pods() {
    const COUNT: usize = 200;
    let server = Server::start("v1");
    let Newest::Found(known) = newest(&server.url, None, &HttpOptions::default(), None).unwrap()
    else {
        panic!("nothing is known");
    };
    let part = &known.digest["etag:".len()..][..12];
    let mut world = World::new("Immediate", true);
    for number in 0..COUNT {
        let image = format!("image{number:03}");
        world.fake.put(
            "dataimportcrons",
            json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron",
                "metadata": { "name": format!("cron{number}"), "namespace": "vms" },
                "spec": {
                    "schedule": "0 0 1 1 *", "managedDataSource": image,
                    "template": { "spec": {
                        "source": { "http": { "url": server.url } },
                        "pvc": { "storageClassName": "fast", "accessModes": ["ReadWriteOnce"] },
                    } },
                },
            }),
        );
        world.fake.put(
            "persistentvolumeclaims",
            json!({
                "metadata": { "name": format!("{image}-{part}"), "namespace": "vms" },
                "spec": { "storageClassName": "fast" }, "status": { "phase": "Bound" },
            }),
        );
    }
    server.asked();
    world.tell();
    // The image that is there is found, marked, and stood for.
    let (requests, asked) = look_at_all(&world, &server).await;
    assert_eq!(asked, COUNT);
    assert!(requests <= 7 * COUNT, "{requests}");
    assert_eq!(places(&world, "datasources").len(), COUNT);
    world.tell();
    look_at_all(&world, &server).await;

    // When it is time again.
    let crons = places(&world, "dataimportcrons");
    for place in &crons {
        world.fake.change(place, |cron| {
            cron["metadata"]["annotations"][key::NEXT_TIME] = PAST.into();
        });
    }
    world.tell();
    assert_eq!(look_at_all(&world, &server).await, (COUNT, COUNT));
    // And when it is not.
    world.tell();
    assert_eq!(look_at_all(&world, &server).await, (0, 0));
    for plural in ["pods", "cronjobs", "jobs", "datavolumes"] {
        assert_eq!(places(&world, plural), [""; 0], "{plural}");
    }
    let settled = world.fake.get("dataimportcrons", "vms", "cron0").unwrap();
    assert_eq!(says(&settled, "UpToDate"), "True UpToDate");
}
