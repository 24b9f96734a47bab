//! System calls that no library makes.
#![allow(unsafe_code)]

use std::net::SocketAddr;

/// The version of Landlock that the kernel has; 0 without it.
pub fn landlock_version() -> i64 {
    const VERSION: i64 = 1;
    call(libc::SYS_landlock_create_ruleset, [0, 0, VERSION]).unwrap_or(0)
}

/// Makes a call that takes no pointer, or refuses a null pointer. The error is the number of errno.
pub fn call(number: libc::c_long, arguments: [i64; 3]) -> Result<i64, i32> {
    let [first, second, third] = arguments;
    // SAFETY: no argument points anywhere.
    let result = unsafe { libc::syscall(number, first, second, third, 0, 0, 0) };
    if result == -1 { Err(errno()) } else { Ok(result) }
}

/// A call that makes a process, which ends at once if there is one after all.
pub fn fork(number: libc::c_long, flags: i64) -> Result<i64, i32> {
    let result = call(number, [flags, 0, 0]);
    if result == Ok(0) {
        // SAFETY: ends the new process, in which nothing else may run.
        unsafe { libc::_exit(0) }
    }
    result
}

/// A socket, closed at once.
pub fn socket(family: i32, kind: i32, protocol: i32) -> Result<(), i32> {
    // SAFETY: takes numbers only.
    let socket = unsafe { libc::socket(family, kind, protocol) };
    if socket == -1 {
        return Err(errno());
    }
    // SAFETY: the socket is open, and has no other owner.
    unsafe { libc::close(socket) };
    Ok(())
}

/// Connects by the first data, without `connect`.
pub fn fast_open(address: SocketAddr) -> Result<(), i32> {
    let SocketAddr::V4(address) = address else { panic!("{address} is no IPv4 address") };
    let target = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
        sin_zero: [0; 8],
    };
    // SAFETY: takes numbers only.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
    assert!(socket >= 0, "there has to be a socket to try it with");
    let text = b"hello";
    // SAFETY: both pointers are to live variables of the sizes that are given.
    let sent = unsafe {
        libc::sendto(
            socket,
            text.as_ptr().cast(),
            text.len(),
            libc::MSG_FASTOPEN,
            (&raw const target).cast(),
            size_of::<libc::sockaddr_in>() as libc::socklen_t,
        )
    };
    let result = if sent == -1 { Err(errno()) } else { Ok(()) };
    // SAFETY: the socket is open, and has no other owner.
    unsafe { libc::close(socket) };
    result
}

/// Empties a file by its path.
pub fn truncate(path: &std::ffi::CStr) -> Result<(), i32> {
    // SAFETY: the path is a string that lives until then.
    if unsafe { libc::truncate(path.as_ptr(), 0) } == -1 { Err(errno()) } else { Ok(()) }
}

/// `getpid` as programs of 32 bits call it.
#[cfg(target_arch = "x86_64")]
pub fn i386_getpid() -> i32 {
    const GETPID: i32 = 20;
    let result: i32;
    // SAFETY: the call takes no arguments and changes no memory.
    unsafe { std::arch::asm!("int 0x80", inlateout("eax") GETPID => result) };
    result
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or_default()
}
