//! DataImportCrons whose web server the controller polls, over a real socket.

use std::sync::{Arc, Mutex};

use api::annotations::cron as key;
use serde_json::{Value, json};
use testkit::{Stub, StubRequest, StubResponse};

use super::golden::{
    annotate, condition_summary, create_cron, cron, data_source_target, run_until_stable,
};
use super::world::TestCluster;
use super::{DONE, places};

const PAST: &str = "2026-01-01T00:00:00Z";

/// A web server with one image and its ETag. Records its requests.
pub struct Server {
    pub stub: Stub,
    asked: Arc<Mutex<Vec<StubRequest>>>,
    /// Empty: the server responds with 404.
    tag: Arc<Mutex<String>>,
}

impl Server {
    pub fn start(tag: &str) -> Self {
        let asked = Arc::<Mutex<Vec<StubRequest>>>::default();
        let tag = Arc::new(Mutex::new(tag.to_owned()));
        let (noted, current) = (Arc::clone(&asked), Arc::clone(&tag));
        let stub = Stub::start(move |request| {
            noted.lock().unwrap().push(request.clone());
            let tag = current.lock().unwrap().clone();
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

    pub fn set(&self, tag: &str) {
        *self.tag.lock().unwrap() = tag.to_owned();
    }

    /// The requests since the last call.
    pub fn asked(&self) -> Vec<StubRequest> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    /// The `If-None-Match` header of the only request since the last call.
    fn was_shown(&self) -> Option<String> {
        let asked = self.asked();
        let [one] = asked.as_slice() else { panic!("{asked:?}") };
        one.header("if-none-match").map(str::to_owned)
    }
}

fn annotation(world: &TestCluster, key: &str) -> String {
    cron(world)["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn web_server_is_polled_on_schedule_and_only_new_images_are_imported() {
    let server = Server::start("v1");
    let mut world = TestCluster::new("Immediate", true);
    let source = json!({ "http": { "url": server.url() } });
    create_cron(&world, json!({ "schedule": "0 0 1 1 *", "source": source, "importsToKeep": 1 }));
    run_until_stable(&mut world, DONE).await;
    assert_eq!(server.asked().len(), 1);
    assert_eq!(condition_summary(&cron(&world), "UpToDate"), "True UpToDate");
    let first = data_source_target(&world);
    assert_eq!(first.1, "True Ready");
    assert!(annotation(&world, key::DESIRED_DIGEST).starts_with("etag:"));
    assert!(annotation(&world, key::NEXT_TIME) > annotation(&world, key::LAST_TIME));

    // Nothing new: a few bytes, and one write.
    annotate(&world, key::NEXT_TIME, PAST);
    world.fake.0.lock().unwrap().writes.clear();
    run_until_stable(&mut world, DONE).await;
    assert_eq!(server.was_shown().as_deref(), Some("\"v1\""));
    let writes = world.fake.0.lock().unwrap().writes.clone();
    assert_eq!(writes, ["change dataimportcrons/vms/cron"]);
    assert_eq!(data_source_target(&world), first);

    // The poll fails: the image is kept, and the condition reports it.
    server.set("");
    annotate(&world, key::NEXT_TIME, PAST);
    run_until_stable(&mut world, DONE).await;
    assert_eq!(condition_summary(&cron(&world), "UpToDate"), "False PollFailed");
    assert_eq!(data_source_target(&world), first);
    server.asked();

    server.set("v2");
    annotate(&world, key::NEXT_TIME, PAST);
    run_until_stable(&mut world, DONE).await;
    assert_eq!(server.asked().len(), 1);
    assert_eq!(condition_summary(&cron(&world), "UpToDate"), "True UpToDate");
    let second = data_source_target(&world);
    assert!(second.1 == "True Ready" && second.0 != first.0, "{second:?}");
    assert_eq!(places(&world, "persistentvolumeclaims").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn restarted_controller_polls_on_schedule_and_imports_nothing_again() {
    let server = Server::start("v1");
    let mut world = TestCluster::new("Immediate", true);
    let source = json!({ "http": { "url": server.url() } });
    create_cron(&world, json!({ "schedule": "0 0 1 1 *", "source": source }));
    run_until_stable(&mut world, DONE).await;
    let first = data_source_target(&world);
    assert_eq!(server.asked().len(), 1);
    // The tag is no longer in memory, and no poll starts before its time.
    let mut world = TestCluster::started_on(world.fake);
    run_until_stable(&mut world, DONE).await;
    assert_eq!(server.asked().len(), 0);
    // The first poll sends no If-None-Match. The digest on the cron shows that the image is the same.
    for shown in [None, Some("\"v1\"")] {
        annotate(&world, key::NEXT_TIME, PAST);
        world.fake.0.lock().unwrap().writes.clear();
        run_until_stable(&mut world, DONE).await;
        assert_eq!(server.was_shown().as_deref(), shown);
        let writes = world.fake.0.lock().unwrap().writes.clone();
        assert_eq!(writes, ["change dataimportcrons/vms/cron"]);
        assert_eq!(data_source_target(&world), first);
    }
}

#[tokio::test(start_paused = true)]
async fn poll_waits_for_the_secret_that_the_source_names() {
    let server = Server::start("v1");
    let mut world = TestCluster::new("Immediate", true);
    let source = json!({ "http": { "url": server.url(), "secretRef": "keys" } });
    create_cron(&world, json!({ "schedule": "0 0 1 1 *", "source": source }));
    world.work().await;
    let conditions = cron(&world)["status"]["conditions"].to_string();
    assert!(
        conditions.contains("the Secret keys is not in the namespace of the installation"),
        "{conditions}"
    );
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

/// A Secret of the installation, and the namespaces whose crons may use it in polls.
pub fn put_secret(world: &TestCluster, name: &str, data: &Value, poll_from: Option<&str>) {
    let annotations = poll_from.map(|namespaces| json!({ "cdi.kubevirt.io/pollFrom": namespaces }));
    let metadata = json!({ "name": name, "namespace": "cdi", "annotations": annotations });
    world.fake.put("secrets", json!({ "metadata": metadata, "data": data }));
}

#[tokio::test(start_paused = true)]
async fn secret_is_sent_only_for_crons_that_its_poll_from_allows() {
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
            let mut world = TestCluster::new("Immediate", true);
            put_secret(&world, "keys", &data, poll_from);
            let url = server.url();
            let source = match form {
                "http" => json!({ "http": { "url": url, "secretRef": "keys" } }),
                "s3" => {
                    json!({ "s3": { "url": server.stub.url("/images/a.img"), "secretRef": "keys" } })
                }
                _ => json!({ "http": { "url": url, "secretExtraHeaders": ["keys"] } }),
            };
            create_cron(&world, json!({ "schedule": "0 0 1 1 *", "source": source }));
            world.work().await;
            let conditions = cron(&world)["status"]["conditions"].to_string();
            let (case, asked) = (format!("{form} {poll_from:?}"), server.asked());
            assert_eq!(asked.is_empty(), !is_sent, "{case}: {asked:?}");
            assert_eq!(
                conditions.contains("cdi.kubevirt.io/pollFrom"),
                !is_sent,
                "{case}: {conditions}"
            );
            if form == "headers" && is_sent {
                assert_eq!(asked[0].header("x-token"), Some("hush"), "{case}");
            }
        }
    }
}
