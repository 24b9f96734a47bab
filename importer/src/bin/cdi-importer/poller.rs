//! `cdi-source-update-poller`: the program of a poller job. See `importer::poller`.

use contract::paths;
use importer::pod::{Paths, ProcessEnvironment};
use importer::poller::{FLAGS, run_poller};
use runtime::{Flags, SandboxPolicy, SandboxRequirement, TcpConnect, enter_sandbox};

/// The exit code of a poll without a result.
const FAILED: u8 = 1;

/// Returns the exit code.
pub fn poll() -> u8 {
    let flags = runtime::start_program(&["cdi_importer", "importer", "runtime"], &FLAGS);
    // While there is one thread.
    if let Err(error) =
        enter_sandbox(&sandbox_policy(&flags), SandboxRequirement::from_environment())
    {
        tracing::error!("{error}");
        return FAILED;
    }
    let variables = runtime::environment();
    match run_poller(&flags, &ProcessEnvironment { paths: Paths::under("/"), variables }) {
        Ok(()) => 0,
        Err(error) => {
            tracing::error!("{}", runtime::chain(&error));
            FAILED
        }
    }
}

/// It reads certificates and the token of its service account, and writes and serves nothing. Users choose the ports of
/// registries.
fn sandbox_policy(flags: &Flags) -> SandboxPolicy {
    let mounted = [paths::CERTS, paths::PROXY_CERTS, "/var/run/secrets"];
    let given = flags.get("certdir").filter(|path| !path.is_empty());
    SandboxPolicy {
        read: mounted.into_iter().chain(given).map(Into::into).collect(),
        connect: TcpConnect::Anywhere,
        ..SandboxPolicy::default()
    }
}
