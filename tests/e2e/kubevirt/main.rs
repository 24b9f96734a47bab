//! Virtual machines of KubeVirt with disks that this project fills. Its operator, controllers and agents run in the cluster as users
//! install them; the guest prints size and checksums of the disks that it finds, so that the tests see its view of the bytes.
//!
//! `cargo xtask test --kubevirt` runs these tests. They need `cargo xtask cluster install --kubevirt`.

mod clones;
mod crashes;
mod deletion;
mod export;
mod failures;
mod golden;
mod hotplug;
mod instancetypes;
mod memory_dump;
mod resize;
mod snapshots;
mod sources;
mod templates;
mod upload;
mod vm;
mod world;
