//! `ovirt-populator`: a disk of oVirt onto a volume, as forklift's populators order it. `importer::populator` says how.

use std::process::ExitCode;

use importer::populator::{Populator, run};

fn main() -> ExitCode {
    let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
    run(Populator::Ovirt, std::env::args_os().skip(1).map(text), &runtime::environment())
}
