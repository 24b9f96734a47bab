//! What a program of a pod begins with.

use std::collections::BTreeMap;
use std::ffi::OsString;

use crate::{Flags, init_logs};

/// Begins the log as the flags of this process want it, which has none of its own; `rooms` are those whose words are shown.
/// A flag that is not known is named there, and ignored.
pub fn begin(rooms: &[&str]) {
    let flags = Flags::parse(std::env::args_os().skip(1).map(text), &[]);
    init_logs(flags.verbosity(), rooms);
    for flag in flags.ignored() {
        tracing::warn!("the argument {flag:?} is not known, and ignored");
    }
}

/// The variables of this process.
pub fn environment() -> BTreeMap<String, String> {
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

fn text(value: OsString) -> String {
    value.to_string_lossy().into_owned()
}
