//! tar archives, by the system's `tar`.

use crate::arguments;
use crate::tool::require_tool;

/// An archive of these members in this order. `None` where there is no `tar`: the test is skipped.
pub fn tar(members: &[(&str, &[u8])]) -> Option<Vec<u8>> {
    let tar = require_tool("tar")?;
    let folder = tempfile::tempdir().expect("cannot create a folder");
    for (name, bytes) in members {
        std::fs::write(folder.path().join(name), bytes).expect("cannot write a member");
    }
    let options = arguments!["-c", "--format=ustar", "-C", folder.path()];
    let names = members.iter().map(|(name, _)| name.into());
    Some(tar.run(options.into_iter().chain(names)))
}

/// An OVA with these files, whose description is empty.
pub fn ova(files: &[(&str, &[u8])]) -> Option<Vec<u8>> {
    const DESCRIPTION: &[u8] = b"<?xml version=\"1.0\"?>\n<Envelope/>\n";
    tar(&[&[("machine.ovf", DESCRIPTION)], files].concat())
}
