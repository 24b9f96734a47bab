//! Clones in the real cluster: every method, from every kind of source, with the bytes compared and no objects left
//! behind; and their failures. `cargo xtask cluster install --manifests` installs the system.

mod again;
mod apart;
mod asked;
mod drivers;
mod ends;
mod examples;
mod many;
mod rights;
mod table;
mod tenants;
mod waits;
mod world;
