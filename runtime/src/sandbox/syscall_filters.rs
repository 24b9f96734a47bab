//! System calls that no program needs, by seccomp. They fail with an error: libraries that try one of them go on.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

/// Rules for a system call, of which one has to match. Without a rule, it always matches.
type Rules = Vec<SeccompRule>;

/// Refused whatever their arguments.
const REFUSED: &[libc::c_long] = &[
    // programs
    libc::SYS_execve,
    libc::SYS_execveat,
    // other processes
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // mounts and file handles
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_mknodat,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_fanotify_init,
    // identity and namespaces
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_capset,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_personality,
    // the machine
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    // parts of the kernel with many vulnerabilities so far
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_vmsplice,
];

/// The same, on this architecture only.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[libc::c_long] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_mknod,
    libc::SYS_kexec_file_load,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[libc::c_long] = &[];

/// Flags of `clone` that create a namespace.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// Address families: other machines, this one, and the kernel's list of addresses, which resolvers read.
const FAMILIES: [libc::c_int; 4] = [libc::AF_INET, libc::AF_INET6, libc::AF_UNIX, libc::AF_NETLINK];
/// Landlock knows TCP only: MPTCP and SCTP would connect to any port.
const PROTOCOLS: [libc::c_int; 3] = [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP];
/// Types other than streams, datagrams and the raw ones of netlink. SCTP and DCCP have no protocol number with these.
const REFUSED_TYPES: [libc::c_int; 4] =
    [libc::SOCK_RDM, libc::SOCK_SEQPACKET, SOCK_DCCP, SOCK_PACKET];
const SOCK_DCCP: libc::c_int = 6;
const SOCK_PACKET: libc::c_int = 10;
/// The rest of the argument are flags.
const TYPE_MASK: u64 = 0xf;

/// What a process may connect to, as far as seccomp can restrict it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connections {
    /// Restricted by Landlock only.
    Allowed,
    /// None, and no datagrams to other machines.
    Refused,
}

/// Restricts all threads of the process.
pub(super) fn install(connections: Connections) -> Result<(), Error> {
    #[cfg(target_arch = "x86_64")]
    seccompiler::apply_filter_all_threads(&REFUSE_X32)?;
    // `clone3` has its flags in memory, where no filter sees them. It fails as on a kernel without it, so that the C library
    // starts threads by `clone`.
    apply(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)?;
    // These connect without `connect`, unseen by Landlock of some kernels. As if TCP Fast Open was turned off.
    apply(fast_open()?, libc::EOPNOTSUPP)?;
    apply(refused(connections)?, libc::EPERM)
}

/// Numbers of system calls from here on are those of x32. That is another way to all system calls, which filters that look
/// for usual numbers would let pass.
#[cfg(target_arch = "x86_64")]
const X32_SYSCALL_BIT: u32 = 0x4000_0000;

/// Written by hand, as seccompiler compares numbers of system calls for equality only.
#[cfg(target_arch = "x86_64")]
const REFUSE_X32: [seccompiler::sock_filter; 4] = {
    const fn statement(code: u32, jt: u8, jf: u8, k: u32) -> seccompiler::sock_filter {
        seccompiler::sock_filter { code: code as u16, jt, jf, k }
    }
    const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
    [
        // The number is the first member of `seccomp_data`.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32_SYSCALL_BIT),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, REFUSE),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
};

/// Makes these system calls fail with an error. Those of another architecture end the process.
fn apply(calls: BTreeMap<i64, Rules>, error: libc::c_int) -> Result<(), Error> {
    let filter = SeccompFilter::new(
        calls,
        SeccompAction::Allow,
        SeccompAction::Errno(error.unsigned_abs()),
        std::env::consts::ARCH.try_into()?,
    )?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter_all_threads(&program)
}

fn fast_open() -> Result<BTreeMap<i64, Rules>, Error> {
    let flag = bits(libc::MSG_FASTOPEN);
    let calls = [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)];
    let rules =
        calls.map(|(call, argument)| Ok((call, vec![rule([has_bits(argument, flag, flag)?])?])));
    rules.into_iter().collect()
}

fn refused(connections: Connections) -> Result<BTreeMap<i64, Rules>, Error> {
    let mut calls: BTreeMap<i64, Rules> =
        REFUSED.iter().chain(REFUSED_HERE).map(|call| (*call, Vec::new())).collect();
    calls.insert(libc::SYS_socket, sockets(connections)?);
    if connections == Connections::Refused {
        calls.insert(libc::SYS_connect, Vec::new());
    }
    calls.insert(libc::SYS_clone, clones()?);
    Ok(calls)
}

fn sockets(connections: Connections) -> Result<Rules, Error> {
    let other_than = |argument, allowed: &[libc::c_int]| {
        let conditions =
            allowed.iter().map(|value| compare(argument, SeccompCmpOp::Ne, bits(*value)));
        rule(conditions.collect::<Result<Vec<_>, Error>>()?)
    };
    let family = |family: libc::c_int| compare(0, SeccompCmpOp::Eq, bits(family));
    let of_type = |kind: libc::c_int| has_bits(1, TYPE_MASK, bits(kind));
    let mut rules = vec![
        other_than(0, &FAMILIES)?,
        other_than(2, &PROTOCOLS)?,
        // Of netlink, routes only.
        rule([
            family(libc::AF_NETLINK)?,
            compare(2, SeccompCmpOp::Ne, bits(libc::NETLINK_ROUTE))?,
        ])?,
    ];
    let of_machines = match connections {
        Connections::Allowed => &[libc::SOCK_RAW][..],
        Connections::Refused => &[libc::SOCK_RAW, libc::SOCK_DGRAM],
    };
    for kind in of_machines {
        for internet in [libc::AF_INET, libc::AF_INET6] {
            rules.push(rule([family(internet)?, of_type(*kind)?])?);
        }
    }
    for kind in REFUSED_TYPES {
        rules.push(rule([of_type(kind)?])?);
    }
    Ok(rules)
}

/// Threads only, and no namespace for them.
fn clones() -> Result<Rules, Error> {
    let mut rules = vec![rule([has_bits(0, bits(libc::CLONE_THREAD), 0)?])?];
    for flag in NAMESPACES {
        rules.push(rule([has_bits(0, bits(flag), bits(flag))?])?);
    }
    Ok(rules)
}

/// All conditions hold.
fn rule(conditions: impl Into<Vec<SeccompCondition>>) -> Result<SeccompRule, Error> {
    Ok(SeccompRule::new(conditions.into())?)
}

fn has_bits(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition, Error> {
    compare(argument, SeccompCmpOp::MaskedEq(mask), value)
}

fn compare(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, Error> {
    Ok(SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?)
}

/// Bits as the kernel reads an `int`.
fn bits(value: libc::c_int) -> u64 {
    u64::from(value.cast_unsigned())
}
