//! Systems in FIPS mode.

use std::sync::LazyLock;

/// `1` in FIPS mode. A kernel that cannot be in FIPS mode does not have the file.
const KERNEL_MODE: &str = "/proc/sys/crypto/fips_enabled";

/// Whether TLS 1.2 has to use the Extended Master Secret extension (RFC 7627): without it, TLS 1.2 is not approved on a system
/// in FIPS mode. A sandbox that hides `/proc` has to be entered after the first call.
pub fn requires_extended_master_secret() -> bool {
    static IS_ENABLED: LazyLock<bool> =
        LazyLock::new(|| std::fs::read_to_string(KERNEL_MODE).is_ok_and(|mode| is_enabled(&mode)));
    *IS_ENABLED
}

fn is_enabled(mode: &str) -> bool {
    mode.trim() == "1"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_mode_is_a_number_in_a_line() {
        for (mode, expected) in
            [("1\n", true), ("1", true), ("0\n", false), ("", false), ("yes", false)]
        {
            assert_eq!(is_enabled(mode), expected, "{mode:?}");
        }
    }
}
