//! What a program of a pod begins with.

use std::collections::BTreeMap;
use std::ffi::OsString;

use crate::{Flags, logs};

/// Reads the flags of this process, of which `own` have a meaning, and begins the log as they want it; `rooms` are those
/// whose words are shown. A flag that is not known is named there, and ignored.
pub fn begin(rooms: &[&str], own: &[&str]) -> Flags {
    let flags = Flags::parse(std::env::args_os().skip(1).map(text), own);
    logs::init(&flags, rooms);
    for flag in flags.ignored() {
        tracing::warn!("the argument {flag:?} is not known, and ignored");
    }
    flags
}

/// The variables of this process.
pub fn environment() -> BTreeMap<String, String> {
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

fn text(value: OsString) -> String {
    value.to_string_lossy().into_owned()
}
