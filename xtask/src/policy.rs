//! What may be in the dependency tree: licences, one version of some crates, and no dependency on a higher layer.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::shell;

/// A crate is welcome when one alternative of its licence is made of these only.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0", // the Mozilla root certificates, as data
    "ISC",
    "MIT",
    "MIT-0",
    "bzip2-1.0.6", // as BSD-3-Clause, of libbz2-rs-sys
    "OpenSSL",     // parts of AWS-LC
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// aws-lc-rs is the one cryptographic provider: with two, rustls refuses to pick a default at run time.
const NEVER: &[&str] = &["ring", "openssl", "openssl-sys", "native-tls", "serde_yaml", "xz2"];

/// Two versions of these in one program are two worlds that do not fit together.
const ONE_VERSION: &[&str] = &["aws-lc-rs", "bytes", "http", "hyper", "reqwest", "rustls", "tokio"];

/// Crates that never have these dependencies, directly or not. `kube` itself comes with the derive macro of `api`, without a
/// client.
const FORBIDDEN: &[(&[&str], &[&str])] = &[
    (
        &["formats", "contract", "clonestream", "pipeline"],
        &["axum", "hyper", "reqwest", "rustls", "tokio"],
    ),
    (
        &["controller-core"],
        &["kube-client", "kube-runtime", "hyper", "importer", "pipeline", "reqwest", "tokio"],
    ),
    (&["apiserver"], &["cdi-controller", "formats", "importer", "pipeline"]),
];

/// The crates in dependency order: each may use only those before it. `testkit` is for tests alone.
const LAYERS: &[&str] = &[
    "formats",
    "contract",
    "api",
    "clonestream",
    "pipeline",
    "auth",
    "runtime",
    "importer",
    "uploadserver",
    "uploadproxy",
    "cloner",
    "controller-core",
    "cdi-controller",
    "apiserver",
    "operator",
    "cli",
];

/// Crates that are programs, and the only dependencies between two of them.
const PROGRAMS: &[&str] = &[
    "importer",
    "uploadserver",
    "uploadproxy",
    "cloner",
    "cdi-controller",
    "apiserver",
    "operator",
    "cli",
];
const PROGRAM_EDGES: &[(&str, &str)] = &[("cli", "importer"), ("cdi-controller", "importer")];

/// Checks all of the above against `cargo tree`.
///
/// # Errors
/// Lists every breach.
pub fn check() -> Result<()> {
    let mut breaches = Vec::new();
    let all = tree(&["--workspace", "--target", "all"])?;
    for package in &all {
        if !package.ours && !licence_is_permissive(&package.licence) {
            breaches.push(format!("{} has the licence {:?}", package.name, package.licence));
        }
        if NEVER.contains(&package.name.as_str()) {
            breaches.push(format!("{} is in the tree", package.name));
        }
    }
    for name in ONE_VERSION {
        let versions: BTreeSet<_> = all
            .iter()
            .filter(|package| package.name == *name)
            .map(|p| p.version.as_str())
            .collect();
        if versions.len() > 1 {
            breaches.push(format!("{name} is in the tree in several versions: {versions:?}"));
        }
    }
    for (crates, forbidden) in FORBIDDEN {
        for name in *crates {
            for package in tree(&["--package", name, "--edges", "normal"])? {
                if forbidden.contains(&package.name.as_str()) {
                    breaches.push(format!("{name} depends on {}", package.name));
                }
            }
        }
    }
    for (layer, name) in LAYERS.iter().enumerate() {
        for package in tree(&["--package", name, "--edges", "normal", "--depth", "1"])? {
            let used = package.name.as_str();
            if package.ours && !LAYERS[..=layer].contains(&used) {
                breaches.push(format!("{name} depends on {used}, a crate of a higher layer"));
            }
            let is_program = PROGRAMS.contains(name) && PROGRAMS.contains(&used) && *name != used;
            if is_program && !PROGRAM_EDGES.contains(&(*name, used)) {
                breaches.push(format!("the program {name} depends on the program {used}"));
            }
        }
    }
    if breaches.is_empty() {
        return Ok(());
    }
    bail!("the dependency policy (xtask/src/policy.rs) is broken:\n  {}", breaches.join("\n  "))
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
    licence: String,
    /// A member of this workspace.
    ours: bool,
}

fn tree(args: &[&str]) -> Result<BTreeSet<Package>> {
    let mut command =
        shell::cargo(&["tree", "--locked", "--prefix", "none", "--format", "{p}\t{l}"]);
    let text = shell::output(command.args(args))?;
    Ok(text.lines().filter_map(parse).collect())
}

/// `name v1.2.3 (source or path) …<tab>licence`
fn parse(line: &str) -> Option<Package> {
    let (package, licence) = line.split_once('\t')?;
    let mut words = package.split(' ');
    let (name, version) = (words.next()?, words.next()?);
    Some(Package {
        name: name.to_owned(),
        version: version.to_owned(),
        licence: licence.trim_end_matches(" (*)").to_owned(),
        ours: package.contains("(/"),
    })
}

/// Good enough for what crates write: `A OR B`, `A/B`, `(A OR B) AND C`, `A WITH exception`.
fn licence_is_permissive(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    let clause_is_permissive = |clause: &str| {
        clause.split(" OR ").any(|name| LICENCES.contains(&name.trim_matches([' ', '(', ')'])))
    };
    if expression.contains('(') || !expression.contains(" OR ") {
        return expression.split(" AND ").all(clause_is_permissive);
    }
    // Without parentheses AND binds tighter than OR.
    expression.split(" OR ").any(|alternative| alternative.split(" AND ").all(clause_is_permissive))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_with_an_allowed_alternative_is_allowed() {
        let check = |text, expected| assert_eq!(licence_is_permissive(text), expected, "{text}");
        check("MIT OR Apache-2.0", true);
        check("MIT/Apache-2.0", true);
        check("Apache-2.0 WITH LLVM-exception", true);
        check("ISC AND (Apache-2.0 OR ISC)", true);
        check("ISC AND (Apache-2.0 OR ISC) AND Apache-2.0 AND MIT", true);
        check("(MIT OR Apache-2.0) AND Unicode-3.0", true);
        check("GPL-3.0 OR MIT", true);
        check("GPL-3.0", false);
        check("MIT AND GPL-3.0", false);
        check("(MIT OR Apache-2.0) AND GPL-3.0", false);
        check("", false);
    }

    #[test]
    fn cargo_tree_line_parses_to_name_version_licence_and_owner() {
        let package = parse("bench v0.1.0 (/somewhere/bench)\tApache-2.0 (*)").unwrap();
        assert_eq!((package.name.as_str(), package.version.as_str()), ("bench", "v0.1.0"));
        assert_eq!(package.licence, "Apache-2.0");
        assert!(package.ours);
        assert!(!parse("serde_derive v1.0.2 (proc-macro)\tMIT").unwrap().ours);
    }
}
