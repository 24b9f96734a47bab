//! The programs that no Debian package brings: built with Go from pinned modules, once for each version.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::shell;

/// Stripped, and without paths of this machine. Debug information would be thrown away, after a seventh of the compiler's time.
/// Without cgo, but for a group with [`Group::cgo_tags`]: one cache for all, and nothing to link with.
const FLAGS: &[&str] = &["-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags"];

/// The compiler, which runs for seconds, collects garbage only if it takes much memory. Without that it needs a fifth less time.
const COMPILER_MEMORY: [(&str, &str); 2] = [("GOGC", "off"), ("GOMEMLIMIT", "1GiB")];

/// Programs of a Go module below `tests/tools`, which are built together.
pub struct Group {
    pub name: &'static str,
    /// The directory of the module.
    module: &'static str,
    /// Programs and their packages.
    programs: &'static [(&'static str, &'static str)],
    /// The build tags of programs that take a C compiler.
    cgo_tags: Option<&'static str>,
    /// Directories of a pinned module that are kept next to the programs: name, module, directory in it.
    data: &'static [(&'static str, &'static str, &'static str)],
}

/// The control plane and the node's agents.
pub const KUBERNETES: Group = Group {
    name: "kubernetes",
    module: "kubernetes",
    programs: &[
        ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
        ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
        ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
        ("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
        ("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
        ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
        ("etcd", "go.etcd.io/etcd/server/v3"),
    ],
    cgo_tags: None,
    data: &[],
};

/// What creates volumes and snapshots, the DNS resolver, the program in the pods of the cluster's own tests, and the simulated
/// node.
pub const NODE: Group = Group {
    name: "node",
    module: "node",
    programs: &[
        ("csi-attacher", "github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher"),
        (
            "csi-provisioner",
            "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner",
        ),
        ("csi-resizer", "github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer"),
        (
            "csi-snapshotter",
            "github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter",
        ),
        (
            "snapshot-controller",
            "github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller",
        ),
        ("loopcsi", "./loopcsi"),
        ("resolver", "./resolver"),
        ("simulator", "./simulator"),
        ("testpod", "./testpod"),
    ],
    cgo_tags: None,
    data: &[(
        "snapshot-crds",
        "github.com/kubernetes-csi/external-snapshotter/client/v8",
        "config/crd",
    )],
};

/// What users upload disks with. Built as the other programs of its module are, with which it shares most packages.
pub const VIRTCTL: Group = Group {
    name: "virtctl",
    module: "kubevirt",
    programs: &[("virtctl", "kubevirt.io/kubevirt/cmd/virtctl")],
    cgo_tags: Some("libvirt_dlopen"),
    data: &[],
};

/// What runs a virtual machine in its pod. libvirt, which it talks to, is opened at run time.
pub const KUBEVIRT: Group = Group {
    name: "kubevirt",
    module: "kubevirt",
    programs: &[
        ("virt-launcher", "kubevirt.io/kubevirt/cmd/virt-launcher"),
        ("virt-launcher-monitor", "kubevirt.io/kubevirt/cmd/virt-launcher-monitor"),
    ],
    cgo_tags: Some("libvirt_dlopen"),
    data: &[],
};

/// The rest of KubeVirt, and a program that prints the objects of its installation.
pub const KUBEVIRT_ALL: Group = Group {
    name: "kubevirt-all",
    module: "kubevirt",
    programs: &[
        // Those with the most packages first: they report the time of what all share.
        ("virt-controller", "kubevirt.io/kubevirt/cmd/virt-controller"),
        ("virt-handler", "kubevirt.io/kubevirt/cmd/virt-handler"),
        ("virt-api", "kubevirt.io/kubevirt/cmd/virt-api"),
        ("virt-operator", "kubevirt.io/kubevirt/cmd/virt-operator"),
        ("virt-exportproxy", "kubevirt.io/kubevirt/cmd/virt-exportproxy"),
        ("virt-exportserver", "kubevirt.io/kubevirt/cmd/virt-exportserver"),
        ("virt-chroot", "kubevirt.io/kubevirt/cmd/virt-chroot"),
        ("virt-freezer", "kubevirt.io/kubevirt/cmd/virt-freezer"),
        ("virt-probe", "kubevirt.io/kubevirt/cmd/virt-probe"),
        ("virt-tail", "kubevirt.io/kubevirt/cmd/virt-tail"),
        ("container-disk", "./containerdisk"),
        ("kubevirt-objects", "./objects"),
    ],
    cgo_tags: Some("libvirt_dlopen"),
    data: &[],
};

/// Upstream CDI: what benchmarks compare with, tests interoperate with, and an installation is taken over from. VMware is not
/// among its sources, since its libnbd is in no registry.
pub const REFERENCE: Group = Group {
    name: "reference",
    module: "reference",
    programs: &[
        ("cdi-importer", "kubevirt.io/containerized-data-importer/cmd/cdi-importer"),
        ("cdi-cloner", "kubevirt.io/containerized-data-importer/cmd/cdi-cloner"),
        ("cdi-controller", "kubevirt.io/containerized-data-importer/cmd/cdi-controller"),
        ("cdi-uploadproxy", "kubevirt.io/containerized-data-importer/cmd/cdi-uploadproxy"),
        ("cdi-uploadserver", "kubevirt.io/containerized-data-importer/cmd/cdi-uploadserver"),
        ("cdi-apiserver", "kubevirt.io/containerized-data-importer/cmd/cdi-apiserver"),
        ("cdi-operator", "kubevirt.io/containerized-data-importer/cmd/cdi-operator"),
        ("manifest-generator", "kubevirt.io/containerized-data-importer/tools/manifest-generator"),
    ],
    cgo_tags: None,
    data: &[("cloner-scripts", "kubevirt.io/containerized-data-importer", "cmd/cdi-cloner")],
};

/// The folders that hold the built programs.
pub struct Tools {
    folders: Vec<PathBuf>,
}

impl Tools {
    /// Builds what is not built yet, and prints how long that took. Programs in the folder `TOOLS_DIR` are used instead.
    ///
    /// # Errors
    /// When Go is missing or a build fails.
    pub fn ready(groups: &[Group]) -> Result<Self> {
        let own = env::var_os("TOOLS_DIR").filter(|value| !value.is_empty()).map(PathBuf::from);
        let mut folders: Vec<_> = own.into_iter().collect();
        for group in groups {
            let complete = folders.first().is_some_and(|own| group.is_complete(own));
            if !complete {
                folders.push(group.ready()?);
            }
        }
        Ok(Self { folders })
    }

    /// Where a program, or a folder of data, is.
    ///
    /// # Errors
    /// When no group brings it.
    pub fn path(&self, name: &str) -> Result<String> {
        let mut candidates = self.folders.iter().map(|folder| folder.join(name));
        let found = candidates.find(|path| path.exists());
        Ok(found.with_context(|| format!("{name} was not built"))?.display().to_string())
    }
}

impl Group {
    fn module(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("tools").join(self.module)
    }

    /// The names of its programs.
    pub fn programs(&self) -> impl Iterator<Item = &'static str> {
        self.programs.iter().map(|&(name, _)| name)
    }

    fn is_complete(&self, folder: &Path) -> bool {
        let programs = self.programs.iter().map(|(name, _)| name);
        let data = self.data.iter().map(|(name, ..)| name);
        programs.chain(data).all(|name| folder.join(name).exists())
    }

    /// The folder of this group's programs, built if need be.
    fn ready(&self) -> Result<PathBuf> {
        let folder = cache()?.join("tools").join(format!("{}-{}", self.name, self.key()?));
        if self.is_complete(&folder) {
            return Ok(folder);
        }
        eprintln!(
            "building {} programs of tests/tools/{}; minutes, once",
            self.programs.len(),
            self.module
        );
        let begin = Instant::now();
        // Under another name first: an interrupted build must not be taken for a complete one.
        let coming = folder.with_extension(format!("coming-{}", std::process::id()));
        fs::create_dir_all(&coming).with_context(|| format!("cannot make {}", coming.display()))?;
        for (name, package) in self.programs {
            self.build(package, &coming.join(name))?;
        }
        for (name, module, below) in self.data {
            let dir = shell::output(&mut self.go(&["list", "-m", "-f", "{{.Dir}}", module]))?;
            copy_files(&Path::new(dir.trim()).join(below), &coming.join(name))?;
        }
        if self.is_complete(&folder) {
            // Another process was faster, and may run its programs already.
            fs::remove_dir_all(&coming)?;
            return Ok(folder);
        }
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::rename(&coming, &folder).context("cannot rename the folder of built programs")?;
        let (seconds, mib) = (begin.elapsed().as_secs(), bytes_in(&folder)? >> 20);
        eprintln!("built {} in {seconds} s: {mib} MiB in {}", self.name, folder.display());
        Ok(folder)
    }

    fn build(&self, package: &str, target: &Path) -> Result<()> {
        let begin = Instant::now();
        let mut words = vec!["build"];
        words.extend(FLAGS);
        let link = self.link_flags()?;
        words.push(&link);
        if let Some(tags) = self.cgo_tags {
            words.extend(["-tags", tags]);
        }
        words.push("-o");
        shell::output(self.go(&words).arg(target).arg(package))?;
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        eprintln!("  {name}: {} s", begin.elapsed().as_secs());
        Ok(())
    }

    /// Kubernetes and KubeVirt report versions that only their own builds write into them.
    fn link_flags(&self) -> Result<String> {
        let mut flags = String::from("-s -w");
        let file = fs::read_to_string(self.module().join("go.mod"))?;
        let required = |module: &str| {
            let mut lines = file.lines().map(str::split_whitespace);
            lines.find_map(|mut words| (words.next() == Some(module)).then(|| words.next())?)
        };
        if self.module == KUBEVIRT.module
            && let Some(version) = required("kubevirt.io/kubevirt")
        {
            for (name, value) in [("gitVersion", version), ("gitTreeState", "clean")] {
                flags += &format!(" -X kubevirt.io/client-go/version.{name}={value}");
            }
        }
        if let Some(version) = required("k8s.io/kubernetes") {
            let mut numbers = version.trim_start_matches('v').split('.');
            let (major, minor) = (numbers.next().unwrap_or("0"), numbers.next().unwrap_or("0"));
            for (name, value) in [("Version", version), ("Major", major), ("Minor", minor)] {
                flags += &format!(" -X k8s.io/component-base/version.git{name}={value}");
            }
        }
        Ok(flags)
    }

    fn go(&self, words: &[&str]) -> Command {
        let mut command = shell::program("go", words);
        // The checksums of all modules are in the tree: no database of checksums is needed.
        let cgo = if self.cgo_tags.is_some() { "1" } else { "0" };
        command.current_dir(self.module()).env("CGO_ENABLED", cgo).env("GOFLAGS", "-mod=readonly");
        command.env("GOWORK", "off").env("GOSUMDB", "off").envs(COMPILER_MEMORY);
        command
    }

    /// Changes with anything that a build depends on.
    fn key(&self) -> Result<String> {
        let version = shell::output(&mut self.go(&["version"]))
            .context("cannot run `go version`: install Go 1.26 or newer")?;
        let mut sum = Sha256::new();
        sum.update(version);
        sum.update(FLAGS.join(" "));
        sum.update(self.cgo_tags.unwrap_or_default());
        sum.update(self.link_flags()?);
        for path in sources(&self.module())? {
            sum.update(
                path.strip_prefix(self.module()).unwrap_or(&path).to_string_lossy().as_bytes(),
            );
            sum.update(fs::read(&path)?);
        }
        Ok(sum.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
    }
}

/// The files of a module, in order.
fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(sources(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            // Not fs::copy: files of the module cache are read-only, ours should not be.
            fs::write(to.join(entry.file_name()), fs::read(entry.path())?)?;
        }
    }
    Ok(())
}

fn bytes_in(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for path in sources(folder)? {
        bytes += path.metadata()?.len();
    }
    Ok(bytes)
}

/// Outside the tree, shared by all clones.
pub fn cache() -> Result<PathBuf> {
    let base = match env::var_os("XDG_CACHE_HOME").filter(|value| !value.is_empty()) {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(env::var_os("HOME").context("HOME is not set")?).join(".cache"),
    };
    if !base.is_absolute() {
        bail!("the cache folder {} is not an absolute path", base.display());
    }
    Ok(base.join("cdi"))
}
