//! `openstack-populator`: an image of OpenStack onto a volume, as forklift's populators order it. `importer::populator` says how.

use std::process::ExitCode;

use importer::populator::{Populator, run};

fn main() -> ExitCode {
    run(Populator::Openstack)
}
