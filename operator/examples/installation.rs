//! Writes what an installation consists of into a directory, except the CRDs. `cargo xtask manifests` runs it.
//!
//! Arguments: the directory; then, for a release, the registry, the tag of its images, and the version of the operator.

use std::io::{Error, ErrorKind};
use std::path::PathBuf;

use operator::manifests::{Settings, files};

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (folder, settings, version) = match arguments.as_slice() {
        [folder] => (*folder, Settings::default(), env!("CARGO_PKG_VERSION")),
        [folder, registry, tag, version] => (*folder, Settings::tagged(registry, tag), *version),
        _ => {
            let usage = "usage: installation DIRECTORY [REGISTRY TAG VERSION]";
            return Err(Error::new(ErrorKind::InvalidInput, usage));
        }
    };
    let folder = PathBuf::from(folder);
    std::fs::create_dir_all(&folder)?;
    for (name, text) in files(&settings, version) {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(&folder))?;
        std::fs::write(path, text)?;
    }
    Ok(())
}
