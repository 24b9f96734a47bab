//! Start of a program: its flags, logs and environment.

use std::collections::BTreeMap;
use std::ffi::OsString;

use crate::{Flags, logs};

/// Parses the flags of this process, of which `own` are the program's, and starts logging of `crates`. Logs unknown flags
/// and ignores them.
pub fn start_program(crates: &[&str], own: &[&str]) -> Flags {
    let flags = Flags::parse(std::env::args_os().skip(1).map(text), own);
    logs::init(&flags, crates);
    for flag in flags.ignored() {
        tracing::warn!("ignoring the unknown argument {flag:?}");
    }
    flags
}

pub fn environment() -> BTreeMap<String, String> {
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

fn text(value: OsString) -> String {
    value.to_string_lossy().into_owned()
}
