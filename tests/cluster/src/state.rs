//! The state folder: everything that a cluster keeps, and what `down` has to know.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::node::CONTROL_GROUP;

/// The folder of the cluster without a name; a name is appended to it.
const USUAL: &str = "/var/lib/cdi-cluster";
/// Its length bounds the names of devices and control groups that are made of it.
const NAME_LEN_MAX: usize = 16;
/// Removed as a whole by `down`, so it must be ours beyond doubt.
const MARK: &str = ".cdi-cluster";

/// The folder that is named by `CDI_CLUSTER_STATE`, or the default one of the cluster that `CDI_CLUSTER` names.
#[derive(Clone, Debug)]
pub struct State {
    folder: PathBuf,
    /// Of an additional cluster; see [`machine`](crate::machine).
    name: Option<String>,
}

impl State {
    /// The folder and name in the environment.
    ///
    /// # Errors
    /// When the path is not absolute (the programs of the cluster work in other folders), or the name is not one.
    pub fn from_environment() -> Result<Self> {
        let given = |name| env::var_os(name).filter(|value| !value.is_empty());
        let name = given("CDI_CLUSTER").map(|name| name.to_string_lossy().into_owned());
        let is_plain = |name: &str| {
            name.len() <= NAME_LEN_MAX
                && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        if let Some(name) = name.as_deref().filter(|name| !is_plain(name)) {
            bail!(
                "CDI_CLUSTER={name} is not a name: use up to {NAME_LEN_MAX} of a to z and 0 to 9"
            );
        }
        let usual = || PathBuf::from(with_name(USUAL, name.as_deref()));
        let folder = given("CDI_CLUSTER_STATE").map_or_else(usual, PathBuf::from);
        if !folder.is_absolute() {
            bail!("CDI_CLUSTER_STATE={} is not an absolute path", folder.display());
        }
        Ok(Self { folder, name })
    }

    #[cfg(test)]
    pub(crate) fn in_folder(folder: PathBuf) -> Self {
        Self { folder, name: None }
    }

    /// The name of an additional cluster.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The control group of all its pods, below each controller.
    pub fn control_group(&self) -> String {
        with_name(CONTROL_GROUP, self.name())
    }

    /// Creates the folder.
    ///
    /// # Errors
    /// When it holds something else already.
    pub fn create(&self) -> Result<()> {
        let occupied = fs::read_dir(&self.folder).is_ok_and(|mut entries| entries.next().is_some());
        if occupied && !self.exists() {
            bail!(
                "{} holds files that are not of a cluster: choose another folder by CDI_CLUSTER_STATE",
                self.folder.display()
            );
        }
        let make = |path: &Path| {
            fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))
        };
        // Marked first and unmarked last: a process that is killed in between leaves a folder that `down` removes.
        self.write(MARK, "removed by `cargo xtask cluster down`\n")?;
        ["processes", "logs", "pki", "kubelet", "registry"]
            .iter()
            .try_for_each(|sub| make(&self.path(sub)))
    }

    /// Whether a cluster is, or was left, there.
    pub fn exists(&self) -> bool {
        self.folder.join(MARK).exists()
    }

    /// Removes the folder and all in it. Not called before all mounts are gone.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub fn remove(&self) -> Result<()> {
        let remove = || {
            for entry in fs::read_dir(&self.folder)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    fs::remove_dir_all(entry.path())?;
                } else if entry.file_name() != MARK {
                    fs::remove_file(entry.path())?;
                }
            }
            fs::remove_dir_all(&self.folder)
        };
        remove().with_context(|| format!("cannot remove {}", self.folder.display()))
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A path in it, as text for a command line.
    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes a file in it and returns its path as text.
    ///
    /// # Errors
    /// When that fails.
    pub fn write(&self, name: &str, content: &str) -> Result<String> {
        let path = self.path(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)
                .with_context(|| format!("cannot create {}", parent.display()))?;
        }
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path.display().to_string())
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.path("kubeconfig")
    }
}

fn with_name(base: &str, name: Option<&str>) -> String {
    name.map_or_else(|| base.to_owned(), |name| format!("{base}-{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_state_directory_of_a_cluster_is_reused() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::in_folder(folder.path().join("state"));
        state.create().unwrap();
        state.write("logs/kubelet", "words").unwrap();
        state.create().unwrap();
        state.remove().unwrap();
        assert!(!state.folder().exists());
        state.write("letter", "to a friend").unwrap();
        assert!(state.create().is_err() && !state.exists());
    }
}
