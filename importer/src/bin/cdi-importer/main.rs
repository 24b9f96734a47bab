//! The programs of worker pods that import, as one: `cdi-importer`, which runs an importer pod (see `importer::pod`), and
//! those of other pods. They share most of their code, and the image has a link to this program for each of their names.

mod image_size;
mod poller;

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;

use importer::pod::{Paths, ProcessEnvironment, run_importer};
use importer::populator::{Populator, run_populator};

fn main() {
    let called = env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let code = match called.file_name().and_then(OsStr::to_str) {
        Some("cdi-image-size-detection") => image_size::detect(),
        Some("cdi-source-update-poller") => poller::poll(),
        Some("openstack-populator") => run_populator(Populator::Openstack),
        Some("ovirt-populator") => run_populator(Populator::Ovirt),
        _ => import(),
    };
    runtime::exit_process(code);
}

fn import() -> u8 {
    runtime::start_program(&["cdi_importer", "importer", "pipeline", "runtime"], &[]);
    let variables = runtime::environment();
    run_importer(ProcessEnvironment { paths: Paths::under("/"), variables })
}
