//! Access to files and TCP ports, by Landlock.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, path_beneath_rules,
};

use super::{SYSTEM_PATHS, SandboxPolicy, TcpConnect};

/// The kinds of access of Linux 6.10. Those that an older kernel does not know are left out.
const FILES_ABI: ABI = ABI::V5;

/// `false` if the kernel has no Landlock.
pub(super) fn restrict_files(policy: &SandboxPolicy) -> Result<bool, RulesetError> {
    let all = AccessFs::from_all(FILES_ABI);
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .create()?
        .add_rules(path_beneath_rules(SYSTEM_PATHS, read))?
        .add_rules(path_beneath_rules(&policy.read, read))?
        .add_rules(path_beneath_rules(&policy.write, all & !AccessFs::Execute))?
        .restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// Fails if the kernel's Landlock does not know ports.
///
/// Every ruleset denies links and renames to another directory (`Refer`) unless it allows them, so this one repeats where
/// [`restrict_files`] does.
pub(super) fn restrict_tcp(policy: &SandboxPolicy) -> Result<(), RulesetError> {
    let (handled, connect): (BitFlags<AccessNet>, &[u16]) = match &policy.connect {
        TcpConnect::Anywhere => (AccessNet::BindTcp.into(), &[]),
        TcpConnect::Ports(ports) => (AccessNet::BindTcp | AccessNet::ConnectTcp, ports),
    };
    let rule = |port: &u16, access| Ok(NetPort::new(*port, access));
    let listen = policy.listen.iter().map(|port| rule(port, AccessNet::BindTcp));
    let connect = connect.iter().map(|port| rule(port, AccessNet::ConnectTcp));
    let rules: Vec<Result<_, RulesetError>> = listen.chain(connect).collect();
    let directories = policy.write.iter().filter(|path| path.is_dir());
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(handled)?
        .handle_access(AccessFs::Refer)?
        .create()?
        .add_rules(rules)?
        .add_rules(path_beneath_rules(directories, AccessFs::Refer))?
        .restrict_self()?;
    Ok(())
}
