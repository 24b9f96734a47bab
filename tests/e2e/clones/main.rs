//! Clones in the real cluster: every way, from every kind of source, with the bytes compared and nothing left behind; and
//! everything that gets in their way. `cargo xtask cluster install` installs the system.

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
