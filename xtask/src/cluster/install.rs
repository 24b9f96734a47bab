//! This project installed in the cluster: all of it, or one program again after an edit.

use std::time::Instant;

use anyhow::{Context, Result};

use super::{cargo_build, program, program_command};
use crate::image::{self, Profile};
use crate::{deps, shell};

/// How long the installed programs may take until they are ready.
const READY_WITHIN: &str = "--timeout=180s";

/// Installs as a user does: images where nodes find them, `kubectl apply -f deploy`; then waits until all programs
/// respond.
///
/// # Errors
/// When an image cannot be built or loaded, or a program does not become ready.
pub fn install(profile: Profile) -> Result<()> {
    deps::install(deps::CLUSTER)?;
    let begin = Instant::now();
    for archive in image::build(&image::installed(profile)?, profile)? {
        program(&["load", &archive.display().to_string()])?;
    }
    program(&["kubectl", "apply", "-f", "deploy/crds", "-f", "deploy"])?;
    let deployments = ["deployment", "--all", "--namespace=cdi"];
    for objects in [&deployments[..], &["apiservice", "v1beta1.upload.cdi.kubevirt.io"]] {
        let wait = ["kubectl", "wait", "--for=condition=Available", READY_WITHIN];
        program(&[&wait[..], objects].concat())?;
    }
    eprintln!("installed in {} s", begin.elapsed().as_secs());
    Ok(())
}

/// Brings an edit into the cluster: compiles the programs as the tests do, builds and loads their images, restarts the
/// Deployments that run them, and waits until only new pods are left.
///
/// # Errors
/// When there is no cluster or no such image, or a step fails.
pub fn update(names: &[&str]) -> Result<()> {
    let updates = names.iter().map(|name| image::update(name)).collect::<Result<Vec<_>>>()?;
    let begin = Instant::now();
    // Before minutes of compiling.
    shell::output(program_command().args(["kubectl", "get", "namespace", "cdi"]))
        .context("nothing is installed: `cargo xtask cluster up` and `cluster install` first")?;
    let programs: Vec<_> = updates.iter().flat_map(|update| update.programs).copied().collect();
    shell::run(&mut cargo_build(&programs))?;
    let images: Vec<_> = updates.iter().map(|update| update.image).collect();
    for archive in image::build(&images, Profile::Tests)? {
        program(&["load", &archive.display().to_string()])?;
    }
    let kubectl = ["kubectl", "--namespace=cdi", "rollout"];
    for update in &updates {
        let Some(deployment) = update.deployment else {
            eprintln!("{}: pods that start from now on run it", update.image);
            continue;
        };
        let deployment = format!("deployment/{deployment}");
        program(&[&kubectl[..], &["restart", &deployment]].concat())?;
        program(&[&kubectl[..], &["status", READY_WITHIN, &deployment]].concat())?;
    }
    eprintln!("updated in {} s", begin.elapsed().as_secs());
    Ok(())
}
