//! Random bytes of the kernel.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// `N` random bytes, suitable for keys and unguessable names.
///
/// # Errors
/// When the system call fails.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}
