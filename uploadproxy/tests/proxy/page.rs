//! The page against a real proxy and server: in a real browser, and its script in as much of one as it needs, with a network
//! that breaks wherever a test wants it to.

use std::path::Path;
use std::time::Duration;

use testkit::{MIB, Proxy, pattern, require_tool};
use uploadserver::ServerExit;

use crate::chromium::Browser;
use crate::world::{Server, TestCluster};

/// The final message of the page, when the n-th body breaks after `cuts[n]` bytes.
fn upload(cluster: &TestCluster, token: &str, image: &[u8], cuts: &str) -> Option<String> {
    let node = require_tool("node")?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let at = |name: &str| cluster.folder.path().join(name).display().to_string();
    std::fs::write(at("image"), image).unwrap();
    std::fs::write(at("proxy.pem"), &cluster.trusted).unwrap();
    let message = node.run([
        sources.join("tests/proxy/browser.js").display().to_string(),
        sources.join("src/page/page.js").display().to_string(),
        cluster.address.port().to_string(),
        at("proxy.pem"),
        token.trim_start_matches("Authorization: Bearer ").trim().to_owned(),
        at("image"),
        cuts.to_owned(),
    ]);
    Some(String::from_utf8(message).unwrap().trim().to_owned())
}

fn cluster() -> (TestCluster, Server) {
    let cluster = TestCluster::with(|settings| settings.page = true);
    let server = cluster.ready("disk");
    (cluster, server)
}

#[test]
fn page_resumes_after_broken_connections() {
    let (cluster, server) = cluster();
    // More than one part, and cuts in either.
    let image = pattern(65 * MIB);
    let token = cluster.token("disk");
    let Some(message) = upload(&cluster, &token, &image, "0,1,300000,2000000") else { return };
    assert_eq!(message, "good: disk.img is complete.");
    assert!(server.disk().expect("a disk") == image);
}

#[test]
fn page_shows_permanent_failures() {
    let (cluster, server) = cluster();
    let Some(message) = upload(&cluster, "abc", &pattern(MIB), "") else { return };
    assert!(message.starts_with("bad: The token has expired"), "{message}");
    let gzip = [b"\x1f\x8b\x08\x00".as_slice(), &pattern(4096)].concat();
    let message = upload(&cluster, &cluster.token("disk"), &gzip, "").unwrap();
    assert!(message.starts_with("bad: Saving stream failed"), "{message}");
    assert_eq!(server.disk(), None);
}

#[test]
fn page_uploads_again_if_the_server_is_lost_at_its_end() {
    let cluster = TestCluster::with(|settings| {
        settings.page = true;
        settings.record_patience = Duration::from_millis(200);
    });
    cluster.set_controller(false);
    let lost = cluster.ready("disk");
    let (token, image) = (cluster.token("disk"), pattern(MIB));
    std::thread::scope(|scope| {
        let page = scope.spawn(|| upload(&cluster, &token, &image, ""));
        if require_tool("node").is_none() {
            return;
        }
        assert!(matches!(cluster.end(lost), ServerExit::Complete(_)));
        cluster.set_controller(true);
        let server = cluster.ready("disk");
        let message = page.join().unwrap();
        assert_eq!(message.as_deref(), Some("good: disk.img is complete."));
        assert!(server.disk().expect("a disk") == image);
        let message = upload(&cluster, &token, &image, "").unwrap();
        assert!(message.starts_with("bad: ") && message.contains("already finished"), "{message}");
    });
}

/// Keeps where each part of an upload began.
const LISTEN: &str = r#"
var begun = [];
const setHeader = XMLHttpRequest.prototype.setRequestHeader;
XMLHttpRequest.prototype.setRequestHeader = function (name, value) {
  if (name === "Upload-Offset") begun.push(Number(value));
  return setHeader.call(this, name, value);
};
true"#;

#[test]
fn browser_resumes_after_a_cut_and_a_page_reload() {
    let (cluster, server) = cluster();
    let network = Proxy::start().leading("upload.test:443", cluster.address).holding_after(4 * MIB);
    let Some(mut browser) = Browser::start(&network.url()) else { return };
    let image = pattern(12 * MIB);
    let path = cluster.folder.path().join("disk.img");
    std::fs::write(&path, &image).unwrap();
    let token = cluster.token("disk");
    let token = token.trim_start_matches("Authorization: Bearer ").trim();
    let message = "document.getElementById('status-line').textContent";
    let moving = format!("document.getElementById('bar').value > 0 && {message}.includes(' %')");
    let is_loaded = "location.pathname === '/upload' && typeof running === 'object'";

    let page = serde_json::json!({ "url": "https://upload.test/upload" });
    browser.ask("Page.navigate", page.clone());
    browser.wait(is_loaded);
    browser.evaluate(LISTEN);
    browser.evaluate(&format!("document.getElementById('token').value = '{token}'"));
    browser.choose("#file", &path);
    browser.wait(&moving);
    network.sever();
    // By itself, from where it was, until the next connection stands still.
    browser.wait("begun.length > 1 && begun.at(-1) > 0");
    browser.wait(&moving);
    assert_eq!(server.disk(), None);

    browser.ask("Page.navigate", serde_json::json!({ "url": "about:blank" }));
    browser.wait("location.href === 'about:blank'");
    network.release();
    browser.ask("Page.navigate", page);
    browser.wait(is_loaded);
    browser.evaluate(LISTEN);
    // The token is kept for as long as its tab is there.
    browser.choose("#file", &path);
    browser.wait(&format!("{message} === 'disk.img is complete.'"));
    assert!(browser.evaluate("begun[0]").as_u64().is_some_and(|at| at > 0), "it started again");
    assert!(server.disk().expect("a disk") == image);
}
