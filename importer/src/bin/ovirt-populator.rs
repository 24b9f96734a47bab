//! `ovirt-populator`: copies a disk of oVirt to a volume, for forklift's populators. See `importer::populator`.

use std::process::ExitCode;

use importer::populator::{Populator, run_populator};

fn main() -> ExitCode {
    run_populator(Populator::Ovirt)
}
