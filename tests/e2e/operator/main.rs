//! `cdi-operator` on the real cluster: installs, repairs, upgrades, takes over from upstream CDI, and removes. Each test
//! begins in a cluster where nothing is installed, and ends so. The cluster holds the images of this project
//! (`cargo xtask cluster test` loads them).

mod admission_probe;
mod hyperconverged;
mod installation;
mod installing;
mod leadership;
mod load;
mod platform;
mod removing;
mod runbooks;
mod settings;
mod taking_over;
mod upgrading;
