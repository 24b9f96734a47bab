//! Writes what an installation consists of into a directory, but for the CRDs. `cargo xtask manifests` runs it.

use std::path::PathBuf;

use operator::manifests::{Settings, files};

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from).ok_or_else(|| {
        std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            "missing argument: the directory to write to",
        )
    })?;
    std::fs::create_dir_all(&folder)?;
    for (name, text) in files(&Settings::default()) {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(&folder))?;
        std::fs::write(path, text)?;
    }
    Ok(())
}
