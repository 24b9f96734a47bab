//! What must never come in through a dependency.

use std::process::Command;

#[test]
fn aws_lc_is_the_only_tls_provider() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let arguments =
        ["tree", "--offline", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"];
    let tree = Command::new(cargo)
        .args(arguments)
        .args(["--package", "importer"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).unwrap();
    let has = |name: &str| tree.lines().any(|line| line.split(' ').next() == Some(name));
    assert!(has("rustls") && has("aws-lc-rs"), "{tree}");
    for unwanted in ["ring", "openssl", "native-tls"] {
        assert!(!has(unwanted), "{unwanted}:\n{tree}");
    }
}
