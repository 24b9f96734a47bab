//! The page against a real proxy and server: in a real browser, and its script in as much of one as it needs, with a network
//! that breaks wherever a test wants it to.

use std::path::Path;

use testkit::{MIB, Proxy, pattern, require_tool};

use crate::chromium::Browser;
use crate::world::{Server, World};

/// What the page says in the end, when the n-th body breaks after `cuts[n]` bytes.
fn upload(world: &World, token: &str, image: &[u8], cuts: &str) -> Option<String> {
    let node = require_tool("node")?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let at = |name: &str| world.folder.path().join(name).display().to_string();
    std::fs::write(at("image"), image).unwrap();
    std::fs::write(at("proxy.pem"), &world.trusted).unwrap();
    let said = node.run([
        sources.join("tests/proxy/browser.js").display().to_string(),
        sources.join("src/page/page.js").display().to_string(),
        world.address.port().to_string(),
        at("proxy.pem"),
        token.trim_start_matches("Authorization: Bearer ").trim().to_owned(),
        at("image"),
        cuts.to_owned(),
    ]);
    Some(String::from_utf8(said).unwrap().trim().to_owned())
}

fn world() -> (World, Server) {
    let world = World::with(|settings| settings.page = true);
    let server = world.ready("disk");
    (world, server)
}

#[test]
fn a_file_arrives_whatever_breaks_on_the_way() {
    let (world, server) = world();
    // More than one part, and cuts in either.
    let image = pattern(65 * MIB);
    let token = world.token("disk");
    let Some(said) = upload(&world, &token, &image, "0,1,300000,2000000") else { return };
    assert_eq!(said, "good: disk.img is complete.");
    assert!(server.disk().expect("a disk") == image);
}

#[test]
fn what_goes_wrong_for_good_is_said() {
    let (world, server) = world();
    let Some(said) = upload(&world, "abc", &pattern(MIB), "") else { return };
    assert!(said.starts_with("bad: The token has expired"), "{said}");
    let gzip = [b"\x1f\x8b\x08\x00".as_slice(), &pattern(4096)].concat();
    let said = upload(&world, &world.token("disk"), &gzip, "").unwrap();
    assert!(said.starts_with("bad: Saving stream failed"), "{said}");
    assert_eq!(server.disk(), None);
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
fn a_browser_goes_on_after_a_cut_and_after_the_page_was_loaded_anew() {
    let (world, server) = world();
    let network = Proxy::start().leading("upload.test:443", world.address).holding_after(4 * MIB);
    let Some(mut browser) = Browser::start(&network.url()) else { return };
    let image = pattern(12 * MIB);
    let path = world.folder.path().join("disk.img");
    std::fs::write(&path, &image).unwrap();
    let token = world.token("disk");
    let token = token.trim_start_matches("Authorization: Bearer ").trim();
    let said = "document.getElementById('said').textContent";
    let moving = format!("document.getElementById('bar').value > 0 && {said}.includes(' %')");
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
    browser.wait(&format!("{said} === 'disk.img is complete.'"));
    assert!(browser.evaluate("begun[0]").as_u64().is_some_and(|at| at > 0), "it began anew");
    assert!(server.disk().expect("a disk") == image);
}
