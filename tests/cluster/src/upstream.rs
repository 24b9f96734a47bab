//! Upstream CDI in the cluster: its programs, built from the pinned Go module, in images like those of its releases, and the
//! manifests that its own generator prints. Tests take an installation of it over.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use ociimage::{Entry, Image};

use crate::image::load_image;
use crate::shell;
use crate::state::State;
use crate::tools::{REFERENCE, Tools};

/// The version of the pinned module.
pub const VERSION: &str = "1.65.0";

/// As in upstream's images, which every worker pod may override.
const USER: u32 = 1001;
/// What probes and the cloner, a shell script, run.
const SHELL: &[&str] = &["bash", "blockdev", "cat", "cut", "du", "ln", "sh"];
/// What the importer and the upload server run.
const CONVERTERS: &[&str] = &["nbdkit", "qemu-img"];
const NBDKIT_FILTERS: &[&str] = &["cacheextents", "gzip", "readahead", "retry", "xz"];

/// An image of upstream's.
struct UpstreamImage {
    name: &'static str,
    entrypoint: &'static [&'static str],
    /// Programs of this machine.
    needs: &'static [&'static [&'static str]],
}

const IMAGES: &[UpstreamImage] = &[
    UpstreamImage { name: "operator", entrypoint: &["/usr/bin/cdi-operator"], needs: &[SHELL] },
    UpstreamImage {
        name: "controller",
        entrypoint: &["/usr/bin/cdi-controller", "-alsologtostderr"],
        needs: &[SHELL],
    },
    UpstreamImage {
        name: "apiserver",
        entrypoint: &["/usr/bin/cdi-apiserver", "-alsologtostderr"],
        needs: &[SHELL],
    },
    UpstreamImage {
        name: "uploadproxy",
        entrypoint: &["/usr/bin/cdi-uploadproxy", "-alsologtostderr"],
        needs: &[SHELL],
    },
    UpstreamImage {
        name: "importer",
        entrypoint: &["/usr/bin/cdi-importer", "-alsologtostderr"],
        needs: &[SHELL, CONVERTERS],
    },
    UpstreamImage {
        name: "uploadserver",
        entrypoint: &["/usr/bin/cdi-uploadserver", "-alsologtostderr"],
        needs: &[SHELL, CONVERTERS],
    },
    UpstreamImage { name: "cloner", entrypoint: &[CLONER_SCRIPT], needs: &[SHELL] },
];

const CLONER_SCRIPT: &str = "/usr/bin/cloner_startup.sh";

/// The name of one of its images: `localhost/upstream-cdi-NAME:VERSION`.
pub fn upstream_image(name: &str) -> String {
    format!("localhost/upstream-cdi-{name}:{VERSION}")
}

/// Builds the images of upstream CDI and puts them where kubelet finds them.
///
/// # Errors
/// When a program cannot be built or found, or the cluster is not up.
pub fn load_upstream_images(state: &State) -> Result<()> {
    let tools = Tools::ready(&[REFERENCE])?;
    for image in IMAGES {
        load_image(state, &image.build(&tools)?)?;
    }
    Ok(())
}

/// The manifest of upstream's operator (`cdi-operator.yaml` of its release, without the namespace), as YAML documents.
///
/// # Errors
/// When its generator cannot be built or fails.
pub fn upstream_operator_manifest(namespace: &str) -> Result<String> {
    let tools = Tools::ready(&[REFERENCE])?;
    let mut command = Command::new(tools.path("manifest-generator")?);
    command.args(["-resource-type=operator", "-resource-group=everything"]);
    command.args(["-pull-policy=IfNotPresent", "-verbosity=1", "-deploy-cluster-resources=true"]);
    command.arg(format!("-operator-version={VERSION}"));
    command.arg(format!("-namespace={namespace}"));
    for image in IMAGES {
        command.arg(format!("-{}-image={}", image.name, upstream_image(image.name)));
    }
    command.arg(format!("-ovirt-populator-image={}", upstream_image("importer")));
    shell::output(&mut command)
}

impl UpstreamImage {
    fn build(&self, tools: &Tools) -> Result<Image> {
        let mut files =
            vec![Entry::directory("tmp", 0o1777), Entry::file("etc/passwd", 0o644, PASSWD.into())];
        let mut add = |target: &str, source: &Path| -> Result<()> {
            let bytes =
                fs::read(source).with_context(|| format!("cannot read {}", source.display()))?;
            files.push(Entry::file(target.trim_start_matches('/'), 0o755, bytes));
            Ok(())
        };
        let program = format!("cdi-{}", self.name);
        add(&format!("/usr/bin/{program}"), Path::new(&tools.path(&program)?))?;
        if self.entrypoint[0] == CLONER_SCRIPT {
            let scripts = PathBuf::from(tools.path("cloner-scripts")?);
            add(CLONER_SCRIPT, &scripts.join("cloner_startup.sh"))?;
        }
        for (target, source) in machine_files(self.needs)? {
            add(&target, &source)?;
        }
        Ok(Image {
            reference: upstream_image(self.name),
            entrypoint: self.entrypoint.iter().map(|&word| word.to_owned()).collect(),
            user: Some(USER),
            files,
        })
    }
}

const PASSWD: &str = "root:x:0:0:root:/:/bin/bash\nqemu:x:107:107:qemu:/:/sbin/nologin\n";

/// Programs of this machine with the libraries that they are linked with: path in the image, path here.
fn machine_files(needs: &[&[&str]]) -> Result<Vec<(String, PathBuf)>> {
    let mut sources = BTreeSet::new();
    let mut files = Vec::new();
    for name in needs.iter().copied().flatten() {
        let path = shell::output(Command::new("sh").args(["-c", &format!("command -v {name}")]))
            .with_context(|| format!("{name} is not installed"))?;
        let path = PathBuf::from(path.trim());
        // As in upstream's images, where /bin and /sbin are links; some callers name the directory.
        let directories: &[&str] = match *name {
            "bash" | "sh" => &["/bin", "/usr/bin"],
            "blockdev" => &["/usr/sbin", "/usr/bin"],
            _ => &["/usr/bin"],
        };
        files.extend(
            directories.iter().map(|directory| (format!("{directory}/{name}"), path.clone())),
        );
        if *name == "nbdkit" {
            let modules = nbdkit_modules()?;
            files.extend(modules.iter().map(|path| (path.display().to_string(), path.clone())));
            sources.extend(modules);
        }
        sources.insert(path);
    }
    let mut libraries = BTreeSet::new();
    for source in &sources {
        libraries.extend(ociimage::libraries(source).context("cannot run ldd")?);
    }
    files.extend(libraries.into_iter().map(|path| (path.display().to_string(), path)));
    Ok(files)
}

fn nbdkit_modules() -> Result<Vec<PathBuf>> {
    let config = shell::output(Command::new("nbdkit").arg("--dump-config"))?;
    let directory = |name: &str| {
        let line = config.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.map(PathBuf::from).with_context(|| format!("`nbdkit --dump-config` has no {name}"))
    };
    let (plugins, filters) = (directory("plugindir")?, directory("filterdir")?);
    let mut modules = vec![plugins.join("nbdkit-curl-plugin.so")];
    let filter = |name: &&str| filters.join(format!("nbdkit-{name}-filter.so"));
    modules.extend(NBDKIT_FILTERS.iter().map(filter));
    Ok(modules)
}
