//! The permissions of the installed programs, and their requests, in all tests that ran on this cluster: by the API
//! server's audit log. Runs after the tests of the installed system, which use everything that is permitted.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use cluster::State;
use e2e::NAMESPACE;
use e2e::permissions::{Comparison, EXCEPTIONS, parse, read};

/// The manifests that grant something, in `deploy/`.
const MANIFESTS: [&str; 2] = ["10-rights.yaml", "options/polling-jobs.yaml"];
/// Each of them works in every run. A log without one of them is not of such a run.
const PROGRAMS: [&str; 4] = ["cdi-apiserver", "cdi-operator", "cdi-sa", "cdi-uploadproxy"];

/// The log, and its rotated files.
fn logs(state: &State) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(state.path("logs"))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("audit") && name.ends_with(".log") {
            all.push(path);
        }
    }
    ensure!(!all.is_empty(), "the API server writes no audit log: create the cluster again");
    Ok(all)
}

#[test]
fn program_permissions_match_their_requests() -> Result<()> {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let text = |name: &str| {
        fs::read_to_string(deploy.join(name)).with_context(|| format!("cannot read {name}"))
    };
    let manifests = MANIFESTS.iter().map(|name| text(name)).collect::<Result<Vec<_>>>()?;
    let mut comparison = Comparison::new(NAMESPACE, read(&manifests)?);
    for path in logs(&State::from_environment()?)? {
        let file =
            fs::File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut lines = BufReader::new(file).lines().peekable();
        while let Some(line) = lines.next() {
            match parse(&line?, NAMESPACE) {
                Ok(Some(request)) => comparison.add(&request),
                Ok(None) => {}
                // The API server is writing it.
                Err(_) if lines.peek().is_none() => {}
                Err(error) => Err(error).with_context(|| format!("{}", path.display()))?,
            }
        }
    }
    for program in PROGRAMS {
        ensure!(comparison.accounts().contains(program), "the log has no request of {program}");
    }
    let findings = comparison.findings(EXCEPTIONS);
    let lines: Vec<_> = findings.iter().map(|finding| format!("  {finding}\n")).collect();
    ensure!(
        findings.is_empty(),
        "permissions and requests differ; each finding is a change in operator/src/manifests/rights or, with its reason, in \
         tests/e2e/src/permissions/exceptions.rs:\n{}",
        lines.concat()
    );
    Ok(())
}
