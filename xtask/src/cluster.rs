//! `cargo xtask cluster`: the program of `tests/cluster`, after what it needs is installed; this project installed on it; and
//! the tests that need it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::image::{self, Profile};
use crate::{deps, shell};

/// A second round shows that the first left nothing that a cluster trips over.
const ROUNDS: u32 = 2;

/// With the whole workspace, so that what the other tests compiled is not compiled again with other features.
pub const TESTS: &[&str] = &["test", "--workspace", "--features", "e2e/cluster", "--locked"];
/// The same things, and the programs that the images are made of.
pub const BUILD: &[&str] =
    &["build", "--workspace", "--features", "e2e/cluster", "--locked", "--bins", "--tests"];

/// How long the installed programs may take until they are ready.
const PATIENCE: &str = "--timeout=180s";

/// Runs a cluster command. `install` and `test` are carried out here; all others by the program of `tests/cluster`, which
/// takes a compiler, and for `up` what a cluster takes from the distribution. Each command installs that first.
///
/// # Errors
/// When the program fails.
pub fn run(words: &[&str]) -> Result<()> {
    match words.first() {
        Some(&"test") => return test(),
        Some(&"install") => return install(profile(&words[1..])?),
        Some(&"up") => deps::install(deps::CLUSTER)?,
        _ => deps::install(deps::BUILD)?,
    }
    program(words)
}

fn profile(words: &[&str]) -> Result<Profile> {
    Ok(match words {
        [] => Profile::Release,
        ["--dev"] => Profile::Dev,
        ["--tests"] => Profile::Tests,
        _ => bail!("`cluster install` takes --dev or --tests, not {}", words.join(" ")),
    })
}

/// As a person does it: images where nodes find them, `kubectl apply -f deploy`, and until all programs answer.
fn install(profile: Profile) -> Result<()> {
    deps::install(deps::CLUSTER)?;
    let begin = Instant::now();
    for name in image::installed(profile)? {
        let archive = image::build(name, profile)?;
        program(&["load", &archive.display().to_string()])?;
    }
    program(&["kubectl", "apply", "-f", "deploy/crds", "-f", "deploy"])?;
    let deployments = ["deployment", "--all", "--namespace=cdi"];
    for what in [&deployments[..], &["apiservice", "v1beta1.upload.cdi.kubevirt.io"]] {
        let wait = ["kubectl", "wait", "--for=condition=Available", PATIENCE];
        program(&[&wait[..], what].concat())?;
    }
    eprintln!("installed in {} s", begin.elapsed().as_secs());
    Ok(())
}

fn program(words: &[&str]) -> Result<()> {
    let mut command = shell::cargo(&["run", "--quiet", "--locked", "--package", "cluster", "--"]);
    shell::run(command.args(words))
}

/// The reference's importer, whose other programs lie beside it; built, if it has to be.
///
/// # Errors
/// When it cannot be built.
pub fn reference() -> Result<String> {
    let mut tools = shell::cargo(&["run", "--quiet", "--locked", "--package", "cluster", "--"]);
    let path = shell::output(tools.args(["tools", "reference"]).stderr(Stdio::inherit()))?;
    Ok(path.trim().to_owned())
}

/// Brings a cluster up, runs the tests that need one and takes it down, twice, and looks for what was left. The first
/// time this project is installed on it, and its tests run too.
///
/// # Errors
/// When a test fails or something is left. Elsewhere than in CI a machine that cannot have a cluster only says so.
pub fn test() -> Result<()> {
    if !shell::in_ci() && !deps::is_root()? {
        eprintln!("xtask: not root, so no cluster: the tests that need one are skipped");
        return Ok(());
    }
    deps::install_or_warn(deps::CLUSTER)?;
    shell::headline("the programs of the cluster, and the tests that need one");
    let begin = Instant::now();
    program(&["tools"])?;
    program(&["tools", "virtctl"])?;
    shell::run(&mut shell::cargo(BUILD))?;
    eprintln!("built in {} s", begin.elapsed().as_secs());
    for round in 1..=ROUNDS {
        shell::headline(&format!("cluster, round {round} of {ROUNDS}"));
        let begin = Instant::now();
        let before = Traces::read()?;
        program(&["up"])?;
        let outcome = run_tests(round == 1);
        program(&["down"])?;
        outcome?;
        before.compare(&Traces::read()?)?;
        eprintln!("round {round} took {} s and left nothing", begin.elapsed().as_secs());
    }
    Ok(())
}

fn run_tests(with_installation: bool) -> Result<()> {
    let mut tests = shell::cargo(TESTS);
    tests.args(["--test", "rig"]);
    if with_installation {
        install(Profile::Tests)?;
        tests.args(["--test", "control", "--test", "golden", "--test", "clones"]);
    }
    // Threads wait for the cluster, not for a core.
    shell::run(tests.env("RUST_TEST_THREADS", "6"))?;
    if with_installation {
        // By what the tests have had the programs ask for, so after all of them.
        shell::run(shell::cargo(TESTS).args(["--test", "rights"]))?;
    }
    Ok(())
}

/// What a cluster could leave on the machine.
#[derive(PartialEq, Eq)]
struct Traces(Vec<(&'static str, BTreeSet<String>)>);

impl Traces {
    fn read() -> Result<Self> {
        let lines = |command: &mut std::process::Command| -> Result<BTreeSet<String>> {
            Ok(shell::output(command)?.lines().map(str::to_owned).collect())
        };
        let mounts = fs::read_to_string("/proc/self/mounts")?.lines().map(str::to_owned).collect();
        let mut settings = BTreeSet::new();
        for name in ["net/ipv4/ip_forward", "vm/overcommit_memory", "kernel/panic"] {
            let value = fs::read_to_string(Path::new("/proc/sys").join(name))?;
            settings.insert(format!("{name}={}", value.trim()));
        }
        Ok(Self(vec![
            ("processes", processes()?),
            ("mounts", mounts),
            ("loop devices", lines(&mut shell::program("losetup", &["--list", "--noheadings"]))?),
            ("network devices", lines(&mut shell::program("ip", &["-brief", "link"]))?),
            ("routes", lines(&mut shell::program("ip", &["route"]))?),
            (
                "network namespaces",
                lines(&mut shell::program("lsns", &["-t", "net", "-n", "-o", "NS"]))?,
            ),
            ("packet rules", lines(&mut shell::program("iptables-save", &[]))?),
            ("kernel settings", settings),
            (
                "changes in the repository",
                lines(&mut shell::program("git", &["status", "--short"]))?,
            ),
        ]))
    }

    fn compare(&self, after: &Self) -> Result<()> {
        let mut left = Vec::new();
        for ((what, before), (_, after)) in self.0.iter().zip(&after.0) {
            left.extend(after.difference(before).map(|line| format!("{what}: {line}")));
        }
        if left.is_empty() {
            return Ok(());
        }
        bail!("the cluster left on this machine:\n  {}", left.join("\n  "))
    }
}

/// Programs that only a cluster has.
fn processes() -> Result<BTreeSet<String>> {
    const NAMES: &[&str] = &[
        "cdi-",
        "containerd",
        "containerd-shim",
        "csi-",
        "etcd",
        "kube",
        "loopcsi",
        "resolver",
        "testpod",
    ];
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        // `pid (name) state …`; a process may end while we look.
        let Ok(stat) = fs::read_to_string(path.join("stat")) else { continue };
        let Some((name, rest)) = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(") "))
        else {
            continue;
        };
        // One that only waits to be buried is gone.
        if NAMES.iter().any(|prefix| name.starts_with(prefix)) && !rest.starts_with('Z') {
            found.insert(format!("{} {name}", path.display()));
        }
    }
    Ok(found)
}
