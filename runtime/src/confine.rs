//! Giving away what is not needed, before anything from outside is read.
//!
//! A decoder that were taken over could then not start a program, not look into other processes, not mount, and not
//! touch a file but those of its volume. Where a kernel lacks one of the means, the others still hold.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, path_beneath_rules,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// The files that a process still needs. Whatever is open already can go on being used.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    /// Files, and folders with all below them, that are read.
    pub read: Vec<PathBuf>,
    /// Those that are written, made and removed too.
    pub write: Vec<PathBuf>,
}

/// What is in force now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confined {
    /// Only the files of the [`Rights`] can be opened (landlock).
    pub files: bool,
    /// System calls that no worker needs are refused (seccomp).
    pub calls: bool,
}

impl fmt::Display for Confined {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = |held| if held { "confined" } else { "NOT confined" };
        write!(formatter, "files {}, system calls {}", state(self.files), state(self.calls))
    }
}

/// Confines this thread and all that it will start; the refusal of system calls holds for all threads of the process.
/// Never fails: what this kernel, or whoever started the process, does not allow is left out and told.
pub fn confine(rights: &Rights) -> Confined {
    if let Err(error) = rustix::thread::set_no_new_privs(true) {
        tracing::debug!("cannot give up gaining privileges: {error}");
    }
    let files = restrict_files(rights).unwrap_or_else(|error| {
        tracing::debug!("cannot confine files: {error}");
        false
    });
    let calls = refuse_calls()
        .inspect_err(|error| tracing::debug!("cannot confine system calls: {error}"))
        .is_ok();
    Confined { files, calls }
}

fn restrict_files(rights: &Rights) -> Result<bool, landlock::RulesetError> {
    let abi = ABI::V5; // of Linux 6.10; what an older kernel does not know is left out
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::BindTcp)? // who has bound its port needs no other
        .create()?
        .add_rules(path_beneath_rules(&rights.read, read))?
        .add_rules(path_beneath_rules(&rights.write, AccessFs::from_all(abi) & !AccessFs::Execute))?
        .restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// What a program that reads sockets and writes one volume never asks for.
const REFUSED: &[libc::c_long] = &[
    // starting programs
    libc::SYS_execve,
    libc::SYS_execveat,
    // other processes
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // the tree of files
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
    // who we are
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
    // parts of the kernel with a history
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

/// The same, of this architecture alone.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[libc::c_long] = &[
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_mknod,
    libc::SYS_kexec_file_load,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[libc::c_long] = &[];

/// Sockets to other machines, to this one, and to the kernel's list of addresses, which resolvers look at.
const SOCKETS: [libc::c_int; 4] = [libc::AF_INET, libc::AF_INET6, libc::AF_UNIX, libc::AF_NETLINK];

fn refuse_calls() -> Result<(), seccompiler::Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().chain(REFUSED_HERE).map(|call| (*call, Vec::new())).collect(); // no conditions: always
    let other_than = |domain: libc::c_int| {
        let domain = u64::from(domain.unsigned_abs());
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, domain)
    };
    let others = SOCKETS.map(other_than).into_iter().collect::<Result<Vec<_>, _>>()?;
    rules.insert(libc::SYS_socket, vec![SeccompRule::new(others)?]);
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM.unsigned_abs()),
        std::env::consts::ARCH.try_into()?,
    )?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter_all_threads(&program)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a process of its own: what is given away does not come back.
    #[test]
    fn what_was_given_away_is_gone() {
        let name = "confine::tests::a_confined_process";
        let test = std::env::current_exe().unwrap();
        let output = std::process::Command::new(test)
            .args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    #[test]
    #[ignore = "run by the test above"]
    fn a_confined_process() {
        let folder = tempfile::tempdir().unwrap();
        let (mine, other) = (folder.path().join("mine"), folder.path().join("other"));
        std::fs::create_dir_all(&mine).unwrap();
        std::fs::create_dir_all(&other).unwrap();
        let rights =
            Rights { read: vec!["/proc".into()], write: vec![mine.clone(), "/absent".into()] };
        let confined = confine(&rights);
        assert!(confined.calls, "this kernel has seccomp");
        std::fs::write(mine.join("a"), "text").unwrap();
        std::fs::rename(mine.join("a"), mine.join("b")).unwrap();
        assert_eq!(std::fs::read_to_string(mine.join("b")).unwrap(), "text");
        std::fs::remove_file(mine.join("b")).unwrap();
        assert!(std::fs::read_to_string("/proc/self/status").unwrap().contains("NoNewPrivs:\t1"));
        if confined.files {
            assert!(std::fs::write(other.join("a"), "text").is_err());
            assert!(std::fs::read_to_string("/etc/passwd").is_err());
            assert!(std::net::TcpListener::bind("127.0.0.1:0").is_err());
        } else {
            eprintln!("SKIPPED: this kernel has no landlock");
        }
        assert!(std::process::Command::new("/bin/true").status().is_err());
        assert!(std::net::UdpSocket::bind("127.0.0.1:0").is_ok());
        std::thread::spawn(|| ()).join().unwrap();
    }
}
