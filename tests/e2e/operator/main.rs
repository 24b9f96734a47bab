//! `cdi-operator` on the real cluster: installs, repairs, upgrades, takes over from upstream CDI, and removes. Each test
//! begins in a cluster where nothing is installed, and ends so. The cluster holds the images of this project
//! (`cargo xtask cluster test` loads them).

mod admission_probe;
mod installation;
mod installing;
mod load;
mod removing;
mod taking_over;
mod upgrading;
