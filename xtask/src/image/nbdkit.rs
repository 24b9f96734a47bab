//! nbdkit of this machine, for the image that reads VDDK sources.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use super::Profile;
use crate::shell;

/// nbdkit is started with these filters.
const FILTERS: [&str; 2] = ["nbdkit-retry-filter.so", "nbdkit-cacheextents-filter.so"];
/// The plugin for VMware's library.
const PLUGIN: &str = "nbdkit-vddk-plugin.so";
/// VMware's library is linked with it, and comes with most others.
const LIBRARIES: [&str; 1] = ["libcrypt.so.1"];

/// Whether this machine has nbdkit at all.
pub fn is_installed() -> bool {
    shell::find("nbdkit").is_some()
}

/// Program, plugin and filters. The tests have a plugin of their own, which needs no library of VMware's.
///
/// # Errors
/// Names the package that brings what is missing.
pub fn files(profile: Profile) -> Result<Vec<PathBuf>> {
    let config = config()?;
    let path = |name: &str| -> Result<PathBuf> {
        let value = setting(&config, name);
        value.map(PathBuf::from).with_context(|| format!("`nbdkit --dump-config` has no {name}"))
    };
    let filters = path("filterdir")?;
    let mut files = vec![path("binary")?];
    files.extend(FILTERS.iter().map(|name| filters.join(name)));
    match plugin()? {
        Some(plugin) => files.push(plugin),
        None if profile == Profile::Tests => {}
        None => bail!(
            "nbdkit has no {PLUGIN} in {}: install nbdkit-plugin-vddk (Debian 13, Ubuntu 25.04) or nbdkit-vddk-plugin \
             (Fedora, CentOS Stream)",
            path("plugindir")?.display()
        ),
    }
    let libraries = path("libdir")?;
    let found = LIBRARIES.iter().map(|name| libraries.join(name)).filter(|path| path.exists());
    files.extend(found);
    Ok(files)
}

/// The plugin for VMware's library, where the distribution's nbdkit has it.
///
/// # Errors
/// When nbdkit cannot be run.
pub fn plugin() -> Result<Option<PathBuf>> {
    let config = config()?;
    let folder = setting(&config, "plugindir").map(PathBuf::from);
    Ok(folder.map(|folder| folder.join(PLUGIN)).filter(|plugin| plugin.exists()))
}

fn config() -> Result<String> {
    shell::output(&mut shell::program("nbdkit", &["--dump-config"]))
        .context("this image needs nbdkit: install the package nbdkit")
}

/// The value of a line `NAME=VALUE` of `nbdkit --dump-config`.
fn setting<'a>(config: &'a str, name: &str) -> Option<&'a str> {
    config.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_of_nbdkit_is_found_by_its_whole_name() {
        let config = "binary=/usr/bin/nbdkit\nlibdir=/usr/lib64\nplugindir=/p/plugins\n";
        assert_eq!(setting(config, "plugindir"), Some("/p/plugins"));
        assert_eq!(setting(config, "dir"), None);
        assert_eq!(setting(config, "plugin"), None);
    }
}
