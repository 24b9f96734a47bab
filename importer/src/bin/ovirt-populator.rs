//! `ovirt-populator`: copies a disk of oVirt to a volume, for forklift's populators. See `importer::populator`.

use importer::populator::{Populator, run_populator};

fn main() {
    runtime::exit_process(run_populator(Populator::Ovirt));
}
