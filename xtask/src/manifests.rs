//! `cargo xtask manifests`: what is installed in a cluster, from the types it is made of.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use crate::{deps, shell};

/// What the manifests of a release name. Without it: images as `cargo xtask image` builds them, written to `deploy/`.
#[derive(Debug, PartialEq, Eq)]
struct Release {
    registry: String,
    tag: String,
    /// Of the operator: a semantic version without `v`.
    version: String,
    output: PathBuf,
}

/// Writes `deploy/`, or with `--registry`, `--tag` and `--output` the manifests of a release to another directory. Tests of
/// `api` and `operator` fail while `deploy/` is out of date.
///
/// # Errors
/// When an argument is invalid or the types do not build.
pub fn write(arguments: &[&str]) -> Result<()> {
    let release = Release::parse(arguments)?;
    deps::install(deps::BUILD)?;
    let deploy = shell::root().join("deploy");
    let folder = release.as_ref().map_or(deploy, |release| shell::root().join(&release.output));
    let folder = folder.to_str().context("the path of the directory is not UTF-8")?;
    let crds = format!("{folder}/crds");
    example(&["--package", "api", "--features", "cluster", "--example", "manifests", "--", &crds])?;
    let mut installation = vec!["--package", "operator", "--example", "installation", "--", folder];
    if let Some(Release { registry, tag, version, .. }) = &release {
        installation.extend([registry.as_str(), tag, version]);
    }
    example(&installation)
}

fn example(arguments: &[&str]) -> Result<()> {
    let mut run = shell::cargo(&["run", "--locked", "--quiet"]);
    shell::run(run.args(arguments))
}

impl Release {
    fn parse(arguments: &[&str]) -> Result<Option<Self>> {
        let (mut registry, mut tag, mut output) = (None, None, None);
        for pair in arguments.chunks(2) {
            let [name, value] = pair else { bail!("{} needs a value", pair.concat()) };
            let option = match *name {
                "--registry" => &mut registry,
                "--tag" => &mut tag,
                "--output" => &mut output,
                other => bail!("unknown option {other}: expected --registry, --tag or --output"),
            };
            ensure!(option.replace(*value).is_none(), "{name} is given twice");
        }
        match (registry, tag, output) {
            (None, None, None) => Ok(None),
            (Some(registry), Some(tag), Some(output)) => Ok(Some(Self {
                registry: registry.trim_end_matches('/').to_owned(),
                tag: tag.to_owned(),
                version: version(tag)?,
                output: output.into(),
            })),
            // Tests compare deploy/ with the defaults.
            _ => bail!("a release needs all of --registry, --tag and --output"),
        }
    }
}

/// `1.2.3` for the tag `v1.2.3`: the operator compares it with the installed version.
fn version(tag: &str) -> Result<String> {
    let version = tag.strip_prefix('v').unwrap_or(tag);
    let core = version.split_once('-').map_or(version, |(core, _)| core);
    let numbers: Vec<&str> = core.split('.').collect();
    let is_number =
        |text: &&str| text.parse::<u32>().is_ok_and(|number| number.to_string() == **text);
    ensure!(
        numbers.len() == 3 && numbers.iter().all(is_number),
        "the tag {tag} is not a version such as v1.2.3"
    );
    Ok(version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_names_registry_tag_and_directory() {
        let all = ["--registry", "r.example/cdi/", "--tag", "v1.2.3", "--output", "out"];
        let release = Release::parse(&all).unwrap().unwrap();
        assert_eq!(release.registry, "r.example/cdi");
        assert_eq!((release.tag.as_str(), release.version.as_str()), ("v1.2.3", "1.2.3"));
        assert_eq!(Release::parse(&[]).unwrap(), None);
        for bad in [
            &all[..4],
            &all[2..],
            &["--registry"],
            &["--output", "out"],
            &["--tag", "v1.2.3", "--tag", "v1.2.3"],
            &["--version", "1"],
        ] {
            assert!(Release::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn version_is_that_of_the_tag() {
        for (tag, expected) in [
            ("v1.2.3", Some("1.2.3")),
            ("1.66.0", Some("1.66.0")),
            ("v1.2.3-rc.1", Some("1.2.3-rc.1")),
            ("dev", None),
            ("v1.2", None),
            ("v01.2.3", None),
            ("v1.2.3.4", None),
            ("v1.2.+3", None),
        ] {
            assert_eq!(version(tag).ok().as_deref(), expected, "{tag}");
        }
    }
}
