//! The installed system on the real cluster: from a manifest to the right bytes on a volume, and what is reported when
//! there are none. `cargo xtask cluster install --manifests` installs it.

mod admission;
mod adoption;
mod binding;
mod certificates;
mod chaos;
mod classes;
mod examples;
mod failures;
mod forklift;
mod gitops;
mod machines;
mod metrics;
mod moves;
mod platform;
mod profiles;
mod registry;
mod restore;
mod settings;
mod upload;
mod uploader;
mod vddk;
mod virtctl;
mod web;
mod world;
