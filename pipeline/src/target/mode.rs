//! Modes of files and directories, also on storage that has none.

use std::os::fd::AsFd;

use rustix::fs::{Mode, fchmod, fstat};
use rustix::io::Errno;

/// What the owner may do.
const OWNER: u32 = 0o700;

/// Sets the mode of a file or directory. Storage that cannot change modes (shares of SMB, some network file systems) refuses;
/// the mode that everything has there is enough if it includes the bits `needed`.
///
/// # Errors
/// On I/O errors, and where bits that are needed are missing.
pub fn set_mode(file: impl AsFd, mode: u32, needed: u32) -> Result<(), Errno> {
    let refusal = match fchmod(&file, Mode::from_raw_mode(mode)) {
        Err(error @ (Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS)) => error,
        result => return result,
    };
    if fstat(&file)?.st_mode & needed == needed { Ok(()) } else { Err(refusal) }
}

/// [`set_mode`] for a member of a tree of files, of which only the owner's permissions are needed.
///
/// # Errors
/// As [`set_mode`].
pub fn set_mode_of_member(file: impl AsFd, mode: u32) -> Result<(), Errno> {
    set_mode(file, mode, mode & OWNER)
}
