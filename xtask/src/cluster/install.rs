//! This project installed in the cluster, by its operator or by plain manifests; and one program again after an edit.

use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::{cargo_build, program, program_command};
use crate::image::{self, Profile};
use crate::{deps, shell};

/// How long the installed programs may take until they are ready.
const READY_WITHIN: &str = "--timeout=180s";

/// Who keeps the installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `deploy/operator`, as users install it.
    Operator,
    /// `deploy/crds` and `deploy`: no operator repairs what a test stops or changes.
    Manifests,
}

/// Runs `cluster install` with its options.
///
/// # Errors
/// When an option is unknown, or the installation fails.
pub fn run(options: &[&str]) -> Result<()> {
    let Options { profile, method, with_kubevirt } = Options::parse(options)?;
    install(profile, method)?;
    if with_kubevirt {
        install_kubevirt()?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Options {
    profile: Profile,
    method: Method,
    with_kubevirt: bool,
}

impl Options {
    fn parse(options: &[&str]) -> Result<Self> {
        let mut parsed =
            Self { profile: Profile::Release, method: Method::Operator, with_kubevirt: false };
        for option in options {
            match *option {
                "--dev" => parsed.profile = Profile::Dev,
                "--tests" => parsed.profile = Profile::Tests,
                "--manifests" => parsed.method = Method::Manifests,
                "--kubevirt" => parsed.with_kubevirt = true,
                other => bail!(
                    "`cluster install` takes --dev, --tests, --manifests and --kubevirt, not {other}"
                ),
            }
        }
        Ok(parsed)
    }
}

/// Installs as a user does: images where nodes find them, `kubectl apply`; then waits until all programs are ready.
///
/// # Errors
/// When an image cannot be built or loaded, or a program does not become ready.
pub fn install(profile: Profile, method: Method) -> Result<()> {
    deps::install(deps::CLUSTER)?;
    let begin = Instant::now();
    load_images(profile)?;
    let wait = ["kubectl", "wait", "--for=condition=Available", READY_WITHIN];
    match method {
        Method::Operator => {
            program(&["kubectl", "apply", "-f", "deploy/operator/cdi-operator.yaml"])?;
            program(&["kubectl", "apply", "-f", "deploy/operator/cdi-cr.yaml"])?;
            program(&[&wait[..], &["cdi/cdi"]].concat())?;
        }
        Method::Manifests => {
            program(&["kubectl", "apply", "-f", "deploy/crds", "-f", "deploy"])?;
            let deployments = ["deployment", "--all", "--namespace=cdi"];
            for objects in [&deployments[..], &["apiservice", "v1beta1.upload.cdi.kubevirt.io"]] {
                program(&[&wait[..], objects].concat())?;
            }
        }
    }
    eprintln!("installed in {} s", begin.elapsed().as_secs());
    Ok(())
}

/// Installs KubeVirt, which waits for nothing of this project: it finds it by its CRDs.
///
/// # Errors
/// When it cannot be built, or does not become available.
pub fn install_kubevirt() -> Result<()> {
    program(&["kubevirt"])
}

/// Builds the images of an installation and puts them where nodes find them.
///
/// # Errors
/// When an image cannot be built or loaded.
pub fn load_images(profile: Profile) -> Result<()> {
    for archive in image::build(&image::installed(profile)?, profile)? {
        program(&["load", &archive.display().to_string()])?;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_install_are_parsed_in_any_order() {
        let parsed = |words: &[&str]| {
            let Options { profile, method, with_kubevirt } = Options::parse(words).ok()?;
            Some((profile, method, with_kubevirt))
        };
        assert_eq!(parsed(&[]), Some((Profile::Release, Method::Operator, false)));
        let dev = Some((Profile::Dev, Method::Manifests, false));
        assert_eq!(parsed(&["--manifests", "--dev"]), dev);
        let tests = Some((Profile::Tests, Method::Operator, true));
        assert_eq!(parsed(&["--kubevirt", "--tests"]), tests);
        assert_eq!(parsed(&["--operator"]), None);
    }
}
