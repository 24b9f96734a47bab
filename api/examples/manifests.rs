//! Writes the CRDs of all kinds into a directory, one file each. `cargo xtask manifests` runs it.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from).ok_or_else(|| {
        std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            "missing argument: the directory to write to",
        )
    })?;
    std::fs::create_dir_all(&folder)?;
    for (name, text) in api::v1beta1::manifests() {
        std::fs::write(folder.join(name), text)?;
    }
    Ok(())
}
