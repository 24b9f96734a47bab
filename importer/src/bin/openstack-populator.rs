//! `openstack-populator`: an image of OpenStack onto a volume, as forklift's populators order it. `importer::populator` says how.

use std::process::ExitCode;

use importer::populator::{Populator, run_populator};

fn main() -> ExitCode {
    run_populator(Populator::Openstack)
}
