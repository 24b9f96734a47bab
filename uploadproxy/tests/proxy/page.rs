//! The page's script against a real proxy and server, in as much of a browser as it needs. A real browser is not among what
//! tests install.

use std::path::Path;

use testkit::{MIB, pattern, require_tool};

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
