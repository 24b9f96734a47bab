//! DataImportCrons whose web server the controller asks, over a real socket.

use std::sync::{Arc, Mutex};

use api::annotations::cron as key;
use serde_json::{Value, json};
use testkit::{Stub, StubRequest, StubResponse};

use super::golden::{annotate, cron, make, says, settle, stands_for};
use super::world::World;
use super::{DONE, places};

const PAST: &str = "2026-01-01T00:00:00Z";

/// A web server with one image, of which it tells the tag: what it is asked, and what it answers.
pub struct Server {
    pub stub: Stub,
    asked: Arc<Mutex<Vec<StubRequest>>>,
    /// Empty: it is gone.
    tag: Arc<Mutex<String>>,
}

impl Server {
    pub fn start(tag: &str) -> Self {
        let asked = Arc::<Mutex<Vec<StubRequest>>>::default();
        let tag = Arc::new(Mutex::new(tag.to_owned()));
        let (noted, told) = (Arc::clone(&asked), Arc::clone(&tag));
        let stub = Stub::start(move |request| {
            noted.lock().unwrap().push(request.clone());
            let tag = told.lock().unwrap().clone();
            let quoted = format!("\"{tag}\"");
            if tag.is_empty() {
                StubResponse::new(404, "")
            } else if request.header("if-none-match") == Some(&quoted) {
                StubResponse::new(304, "").with("ETag", quoted)
            } else {
                StubResponse::new(206, "x")
                    .with("ETag", quoted)
                    .with("Content-Range", "bytes 0-0/9")
            }
        });
        Self { stub, asked, tag }
    }

    pub fn url(&self) -> String {
        self.stub.url("/a.img")
    }

    fn set(&self, tag: &str) {
        *self.tag.lock().unwrap() = tag.to_owned();
    }

    /// What it was asked since the last time.
    pub fn asked(&self) -> Vec<StubRequest> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    /// The tag that it was shown, as the only question since the last time.
    fn was_shown(&self) -> Option<String> {
        let asked = self.asked();
        let [one] = asked.as_slice() else { panic!("{asked:?}") };
        one.header("if-none-match").map(str::to_owned)
    }
}

fn annotation(world: &World, key: &str) -> String {
    cron(world)["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_web_server_is_asked_when_it_is_time_and_only_what_is_new_is_imported() {
    let server = Server::start("v1");
    let mut world = World::new("Immediate", true);
    let source = json!({ "http": { "url": server.url() } });
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
    assert_eq!(server.was_shown().as_deref(), Some("\"v1\""));
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
async fn a_controller_that_begins_anew_asks_when_it_is_time_and_imports_nothing_again() {
    let server = Server::start("v1");
    let mut world = World::new("Immediate", true);
    let source = json!({ "http": { "url": server.url() } });
    make(&world, json!({ "schedule": "0 0 1 1 *", "source": source }));
    settle(&mut world, DONE).await;
    let first = stands_for(&world);
    assert_eq!(server.asked().len(), 1);
    // Nobody remembers the tag any more, and nobody asks before it is time.
    let mut world = World::over(world.fake);
    settle(&mut world, DONE).await;
    assert_eq!(server.asked().len(), 0);
    // Then without a condition, once; the digest on the cron tells that the image is the same.
    for shown in [None, Some("\"v1\"")] {
        annotate(&world, key::NEXT_TIME, PAST);
        world.fake.0.lock().unwrap().writes.clear();
        settle(&mut world, DONE).await;
        assert_eq!(server.was_shown().as_deref(), shown);
        let writes = world.fake.0.lock().unwrap().writes.clone();
        assert_eq!(writes, ["change dataimportcrons/vms/cron"]);
        assert_eq!(stands_for(&world), first);
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_needs_a_secret_only_where_the_source_names_one() {
    let server = Server::start("v1");
    let mut world = World::new("Immediate", true);
    let source = json!({ "http": { "url": server.url(), "secretRef": "keys" } });
    make(&world, json!({ "schedule": "0 0 1 1 *", "source": source }));
    world.work().await;
    let told = cron(&world)["status"]["conditions"].to_string();
    assert!(told.contains("the Secret keys is not in the namespace of the installation"), "{told}");
    assert_eq!(server.asked().len(), 0);
    // `anna` and `hush`, as the API server has them.
    let data = json!({ "accessKeyId": "YW5uYQ==", "secretKey": "aHVzaA==" });
    put_secret(&world, "keys", &data, Some("other, vms"));
    annotate(&world, key::NEXT_TIME, PAST);
    world.work().await;
    let asked = server.asked();
    let [one] = asked.as_slice() else { panic!("{asked:?}") };
    assert!(one.header("authorization").is_some_and(|text| text.starts_with("Basic ")), "{one:?}");
}

/// A Secret of the installation, and whose crons may have it sent somewhere.
pub fn put_secret(world: &World, name: &str, data: &Value, poll_from: Option<&str>) {
    let annotations = poll_from.map(|said| json!({ "cdi.kubevirt.io/pollFrom": said }));
    let metadata = json!({ "name": name, "namespace": "cdi", "annotations": annotations });
    world.fake.put("secrets", json!({ "metadata": metadata, "data": data }));
}

#[tokio::test(start_paused = true)]
async fn a_secret_of_the_installation_goes_to_no_server_that_anybody_names() {
    // `anna`, `hush` and `X-Token: hush`.
    let data = json!({
        "accessKeyId": "YW5uYQ==", "secretKey": "aHVzaA==", "a": "WC1Ub2tlbjogaHVzaA==",
    });
    for (poll_from, is_sent) in [
        (None, false),
        (Some(""), false),
        (Some("other"), false),
        (Some("vms-2,2-vms"), false),
        (Some("vms"), true),
        (Some("other, vms "), true),
        (Some("*"), true),
    ] {
        for form in ["http", "headers", "s3"] {
            let server = Server::start("v1");
            let mut world = World::new("Immediate", true);
            put_secret(&world, "keys", &data, poll_from);
            let url = server.url();
            let source = match form {
                "http" => json!({ "http": { "url": url, "secretRef": "keys" } }),
                "s3" => {
                    json!({ "s3": { "url": server.stub.url("/images/a.img"), "secretRef": "keys" } })
                }
                _ => json!({ "http": { "url": url, "secretExtraHeaders": ["keys"] } }),
            };
            make(&world, json!({ "schedule": "0 0 1 1 *", "source": source }));
            world.work().await;
            let told = cron(&world)["status"]["conditions"].to_string();
            let (case, asked) = (format!("{form} {poll_from:?}"), server.asked());
            assert_eq!(asked.is_empty(), !is_sent, "{case}: {asked:?}");
            assert_eq!(told.contains("cdi.kubevirt.io/pollFrom"), !is_sent, "{case}: {told}");
            if form == "headers" && is_sent {
                assert_eq!(asked[0].header("x-token"), Some("hush"), "{case}");
            }
        }
    }
}
