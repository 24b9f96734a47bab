//! What a test against the real cluster needs: a namespace of its own, waits that report what they waited for, pods
//! that run one command, DataVolumes of the installed system, and, when it fails, all objects, events and logs of its
//! namespaces.

mod claim;
mod config;
mod disk_image;
mod editor;
#[cfg(test)]
mod examples;
mod installation;
mod kinds;
mod kubectl;
mod left;
mod machine_devices;
mod manifest;
mod option;
pub mod permissions;
mod pod;
mod release;
mod report;
pub mod results;
mod sharing;
mod tenant;
mod test;
mod tls;
mod upload;
mod upload_token;
mod usage;
mod virtctl;
mod volume;

pub use claim::{Claim, is_bound};
pub use config::config;
pub use disk_image::{Pushed, files_for_nodes, files_of_disk};
pub use installation::{NAMESPACE, Program, REGISTRY, run_installed, run_installed_alone};
pub use kinds::{MONITORING, MULTUS, OPENSHIFT, POPULATORS};
pub use kubectl::{KubectlOutput, kubectl, manifest};
pub use machine_devices::machine_devices;
pub use manifest::{HOST, SIZE, annotated, imported, server, volume};
pub use option::InstalledOption;
pub use pod::{PodPlan, is_ready};
pub use release::{cdi_condition, is_available, operator_version, release_file};
pub use test::{Kind, PATIENCE, PAUSE, Test, run, run_alone};
pub use tls::tls_acceptor;
pub use upload_token::upload_token;
pub use usage::Usage;
pub use volume::{condition, condition_is_false_with, phase, sha256};
