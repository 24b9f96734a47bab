//! Targets on this machine: files and block devices.
