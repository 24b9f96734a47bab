//! Random bytes of the kernel.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// `N` random bytes, fit for keys and for names that nobody can guess.
///
/// # Errors
/// When the kernel has none.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}
