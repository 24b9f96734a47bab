//! What the child processes try.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::path::Path;
use std::sync::mpsc;

use runtime::sandbox::{SandboxState, sandbox_metrics};
use runtime::{SandboxPolicy, SandboxRequirement, TcpConnect, enter_sandbox};
use testkit::skip;

use crate::sys;

/// Enters the sandbox, which has to be as whole as the kernel allows.
pub fn enter(policy: &SandboxPolicy) -> SandboxState {
    let version = sys::landlock_version();
    let state = enter_sandbox(policy, SandboxRequirement::Optional).unwrap();
    assert!(state.system_calls, "this kernel has seccomp");
    assert_eq!(state.files, version >= 1, "Landlock {version}");
    assert_eq!(state.tcp_listen, version >= 4, "Landlock {version}");
    let connections = match &policy.connect {
        TcpConnect::Anywhere => None,
        TcpConnect::Ports(ports) => Some(ports.is_empty() || version >= 4),
    };
    assert_eq!(state.tcp_connect, connections, "Landlock {version}");
    let metrics = sandbox_metrics();
    for (name, held) in [("files", state.files), ("tcp_listen", state.tcp_listen)] {
        let line = format!("kubevirt_cdi_sandbox{{restriction=\"{name}\"}} {}\n", u8::from(held));
        assert!(metrics.contains(&line), "{metrics}");
    }
    state
}

/// A policy that leaves files alone.
fn any_file() -> SandboxPolicy {
    SandboxPolicy { write: vec!["/".into()], ..SandboxPolicy::default() }
}

#[track_caller]
fn expect_denied<T>(what: &str, result: io::Result<T>) {
    let error = result.err().unwrap_or_else(|| panic!("{what} is possible"));
    assert_eq!(error.raw_os_error(), Some(libc::EACCES), "{what}: {error}");
}

#[test]
#[ignore = "run in a child process"]
fn by_system_calls() {
    // A thread from before is restricted too.
    let (begin, wait) = mpsc::channel::<()>();
    let earlier = std::thread::spawn(move || {
        wait.recv().unwrap();
        refused_calls();
    });
    enter(&any_file());
    begin.send(()).unwrap();
    earlier.join().unwrap();
    refused_calls();
}

fn refused_calls() {
    for program in ["/bin/true", "/proc/self/exe"] {
        let error = std::process::Command::new(program).status().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{program}: {error}");
    }
    for (name, number) in [
        ("execve", libc::SYS_execve),
        ("execveat", libc::SYS_execveat),
        ("ptrace", libc::SYS_ptrace),
        ("process_vm_readv", libc::SYS_process_vm_readv),
        ("process_vm_writev", libc::SYS_process_vm_writev),
        ("pidfd_getfd", libc::SYS_pidfd_getfd),
        ("mount", libc::SYS_mount),
        ("umount2", libc::SYS_umount2),
        ("fsopen", libc::SYS_fsopen),
        ("open_tree", libc::SYS_open_tree),
        ("pivot_root", libc::SYS_pivot_root),
        ("chroot", libc::SYS_chroot),
        ("open_by_handle_at", libc::SYS_open_by_handle_at),
        ("setuid", libc::SYS_setuid),
        ("setgroups", libc::SYS_setgroups),
        ("capset", libc::SYS_capset),
        ("setns", libc::SYS_setns),
        ("personality", libc::SYS_personality),
        ("finit_module", libc::SYS_finit_module),
        ("bpf", libc::SYS_bpf),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("userfaultfd", libc::SYS_userfaultfd),
        ("io_uring_setup", libc::SYS_io_uring_setup),
        ("keyctl", libc::SYS_keyctl),
        ("memfd_create", libc::SYS_memfd_create),
    ] {
        assert_eq!(sys::call(number, [0; 3]), Err(libc::EPERM), "{name}");
    }
    new_processes_and_namespaces();
    other_sockets();
    x32();
}

fn new_processes_and_namespaces() {
    #[cfg(target_arch = "x86_64")]
    assert_eq!(sys::fork(libc::SYS_fork, 0), Err(libc::EPERM));
    assert_eq!(sys::fork(libc::SYS_clone, libc::SIGCHLD.into()), Err(libc::EPERM));
    assert_eq!(sys::fork(libc::SYS_clone3, 0), Err(libc::ENOSYS));
    for flag in [
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWUTS,
    ] {
        assert_eq!(
            sys::call(libc::SYS_unshare, [flag.into(), 0, 0]),
            Err(libc::EPERM),
            "{flag:#x}"
        );
        // The kernel itself answers EINVAL to threads without CLONE_SIGHAND.
        for more in [libc::SIGCHLD, libc::CLONE_THREAD] {
            let flags = i64::from(flag | more);
            assert_eq!(sys::fork(libc::SYS_clone, flags), Err(libc::EPERM), "{flags:#x}");
        }
    }
}

/// Sockets that Landlock does not restrict, and types that no program needs.
fn other_sockets() {
    let tcp = libc::IPPROTO_TCP;
    for (name, family, kind, protocol) in [
        ("MPTCP", libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP),
        ("MPTCP by IPv6", libc::AF_INET6, libc::SOCK_STREAM, libc::IPPROTO_MPTCP),
        ("SCTP", libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP),
        ("SCTP without a protocol", libc::AF_INET, libc::SOCK_SEQPACKET, 0),
        ("DCCP", libc::AF_INET, 6, 0),
        ("ICMP", libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP),
        ("raw", libc::AF_INET, libc::SOCK_RAW, tcp),
        ("raw with flags", libc::AF_INET6, libc::SOCK_RAW | libc::SOCK_CLOEXEC, tcp),
        ("packets", libc::AF_PACKET, libc::SOCK_RAW, 0),
        ("the hypervisor", libc::AF_VSOCK, libc::SOCK_STREAM, 0),
        ("cryptography", libc::AF_ALG, libc::SOCK_SEQPACKET, 0),
        ("the firewall", libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER),
        ("IPsec", libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_XFRM),
    ] {
        assert_eq!(sys::socket(family, kind, protocol), Err(libc::EPERM), "{name}");
    }
}

fn x32() {
    #[cfg(target_arch = "x86_64")]
    for call in
        [libc::SYS_getpid, libc::SYS_connect, libc::SYS_socket, 520 /* its own execve */]
    {
        let number = 0x4000_0000 | call;
        assert_eq!(sys::call(number, [0; 3]), Err(libc::ENOSYS), "{number:#x}");
    }
}

#[test]
#[ignore = "run in a child process"]
#[cfg(target_arch = "x86_64")]
fn by_i386_system_call() {
    enter(&any_file());
    panic!("{} was the answer", sys::i386_getpid());
}

#[test]
#[ignore = "run in a child process"]
fn on_files() {
    let root = tempfile::tempdir().unwrap();
    let [mine, certificates, other] = ["mine", "certificates", "other"].map(|name| {
        let directory = root.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("file"), "text").unwrap();
        directory
    });
    std::os::unix::fs::symlink(other.join("file"), mine.join("link")).unwrap();
    let state = enter(&SandboxPolicy {
        read: vec![certificates.clone(), "/absent".into()],
        write: vec![mine.clone()],
        ..SandboxPolicy::default()
    });

    std::fs::write(mine.join("a"), "text").unwrap();
    std::fs::rename(mine.join("a"), mine.join("b")).unwrap();
    std::fs::remove_file(mine.join("b")).unwrap();
    std::fs::create_dir(mine.join("directory")).unwrap();
    std::fs::hard_link(mine.join("file"), mine.join("directory/twin")).unwrap();
    std::fs::rename(mine.join("directory/twin"), mine.join("moved")).unwrap();
    for directory in [&mine, &certificates] {
        assert_eq!(std::fs::read_to_string(directory.join("file")).unwrap(), "text");
    }
    if !state.files {
        return skip("this kernel has no Landlock");
    }
    let secret = other.join("file");
    let through_root = Path::new("/proc/self/root").join(secret.strip_prefix("/").unwrap());
    for path in [&secret, &mine.join("link"), &mine.join("../other/file"), &through_root] {
        expect_denied("reading", std::fs::read(path));
        expect_denied("writing", std::fs::OpenOptions::new().write(true).open(path));
    }
    expect_denied("listing", std::fs::read_dir(&other));
    expect_denied("creating", std::fs::write(other.join("new"), ""));
    expect_denied("removing", std::fs::remove_file(&secret));
    expect_denied("changing certificates", std::fs::write(certificates.join("file"), ""));
    expect_denied("adding certificates", std::fs::write(certificates.join("new"), ""));
    expect_denied("changing the system", std::fs::write("/etc/new", ""));
    // Moved or linked to where it may be read: EXDEV, as between file systems.
    for result in
        [std::fs::hard_link(&secret, mine.join("new")), std::fs::rename(&secret, mine.join("new"))]
    {
        let error = result.unwrap_err().raw_os_error();
        assert!(matches!(error, Some(libc::EXDEV | libc::EACCES)), "{error:?}");
    }
    if sys::landlock_version() < 3 {
        return skip("this kernel's Landlock does not restrict truncation");
    }
    let path = std::ffi::CString::new(secret.as_os_str().as_encoded_bytes()).unwrap();
    expect_denied("truncating", sys::truncate(&path).map_err(io::Error::from_raw_os_error));
}

#[test]
#[ignore = "run in a child process"]
fn on_ports() {
    let listeners = ["127.0.0.1:0", "127.0.0.1:0", "[::1]:0"].map(TcpListener::bind);
    let [allowed, other, by_ipv6] =
        listeners.each_ref().map(|one| one.as_ref().ok().map(|one| one.local_addr().unwrap()));
    let (allowed, other) = (allowed.unwrap(), other.unwrap());
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let state = enter(&SandboxPolicy {
        listen: vec![free.port()],
        connect: TcpConnect::Ports(vec![allowed.port()]),
        ..any_file()
    });
    TcpStream::connect(allowed).unwrap();
    TcpListener::bind(free).unwrap();
    assert_eq!(sys::fast_open(allowed), Err(libc::EOPNOTSUPP));
    assert_eq!(sys::fast_open(other), Err(libc::EOPNOTSUPP));
    if state.tcp_connect != Some(true) {
        return skip("this kernel's Landlock does not restrict TCP");
    }
    expect_denied("connecting to another port", TcpStream::connect(other));
    if let Some(by_ipv6) = by_ipv6 {
        expect_denied("connecting by IPv6", TcpStream::connect(by_ipv6));
    }
    expect_denied("connecting to another host", TcpStream::connect("192.0.2.1:443"));
    expect_denied("listening on another port", TcpListener::bind("127.0.0.1:0"));
    // In threads that are started later, too.
    std::thread::spawn(move || expect_denied("connecting in a thread", TcpStream::connect(other)))
        .join()
        .unwrap();
}

#[test]
#[ignore = "run in a child process, also on a kernel without Landlock"]
fn without_any_port() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let before = TcpStream::connect(address).unwrap();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let path = tempfile::tempdir().unwrap();
    let _local = std::os::unix::net::UnixListener::bind(path.path().join("socket")).unwrap();
    let state = enter(&SandboxPolicy { connect: TcpConnect::Ports(Vec::new()), ..any_file() });
    assert_eq!(state.tcp_connect, Some(true), "seccomp is enough for that");
    let results = [
        ("connecting", TcpStream::connect(address).err()),
        ("connecting by UDP", datagrams.connect(address).err()),
        ("sending datagrams", UdpSocket::bind("127.0.0.1:0").err()),
        (
            "connecting to a program of this machine",
            std::os::unix::net::UnixStream::connect(path.path().join("socket")).err(),
        ),
    ];
    for (what, error) in results {
        let error = error.unwrap_or_else(|| panic!("{what} is possible"));
        assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{what}: {error}");
    }
    assert_eq!(sys::fast_open(address), Err(libc::EOPNOTSUPP));
    // What listens and what is connected goes on.
    assert_eq!(listener.accept().unwrap().1, before.local_addr().unwrap());
    before.shutdown(std::net::Shutdown::Both).unwrap();
}

#[test]
#[ignore = "run in a child process"]
fn none_of_it_in_ordinary_work() {
    enter(&SandboxPolicy { connect: TcpConnect::Anywhere, ..SandboxPolicy::default() });
    assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
    assert!(std::thread::available_parallelism().is_ok());
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "{status}");
    }
    let loopback: Vec<SocketAddr> = "localhost:80".to_socket_addrs().unwrap().collect();
    assert!(loopback.iter().all(|address| address.ip().is_loopback()), "{loopback:?}");
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", "127.0.0.1:9").unwrap();
    std::os::unix::net::UnixStream::pair().unwrap();
    for (family, kind, protocol) in [
        (libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, libc::IPPROTO_TCP),
        (libc::AF_INET6, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, libc::IPPROTO_UDP),
        (libc::AF_UNIX, libc::SOCK_STREAM, 0),
        (libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE),
    ] {
        assert_eq!(sys::socket(family, kind, protocol), Ok(()), "{family} {kind} {protocol}");
    }
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
        assert_eq!(tokio::task::spawn_blocking(|| 7).await.unwrap(), 7);
    });
}

#[test]
#[ignore = "run in a child process, on a kernel without Landlock"]
fn without_landlock() {
    assert_eq!(sys::landlock_version(), 0);
    let policy = SandboxPolicy { connect: TcpConnect::Ports(vec![443]), ..any_file() };
    let error = enter_sandbox(&policy, SandboxRequirement::Required).unwrap_err().to_string();
    assert!(
        error.contains("the kernel does not enforce files, tcp_listen, tcp_connect;"),
        "{error}"
    );
    let state = enter(&policy);
    assert!(state.to_string().starts_with("files NOT confined, system calls confined"));
    refused_calls();
}

#[test]
#[ignore = "run in a child process, in a container without seccomp"]
fn without_seccomp() {
    let policy = SandboxPolicy { connect: TcpConnect::Anywhere, ..SandboxPolicy::default() };
    let version = sys::landlock_version();
    let error = enter_sandbox(&policy, SandboxRequirement::Required).unwrap_err().to_string();
    assert!(error.contains("system_calls"), "{error}");
    let state = enter_sandbox(&policy, SandboxRequirement::Optional).unwrap();
    assert_eq!((state.system_calls, state.files), (false, version >= 1));
    if state.files {
        expect_denied("writing", std::fs::write("/tmp/new", ""));
    } else {
        skip("this kernel has no Landlock");
    }
}
