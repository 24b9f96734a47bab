//! The sandbox of programs that use the API server.

use std::path::{Path, PathBuf};

use kube::config::Kubeconfig;

use super::{
    DNS_PORT, SandboxMissing, SandboxPolicy, SandboxRequirement, SandboxState, TcpConnect,
    enter_sandbox, publish,
};
use crate::Flags;

/// Where pods have mounted their certificates, keys and the token of their service account.
const MOUNTS: &str = "/var/run";
const HTTPS_PORT: u16 = 443;

/// Enters the sandbox, as [`enter_sandbox`] does, with `policy` and what the flags `kubeconfig`, `server` and
/// `require-sandbox` require. A kubeconfig whose user starts a program for credentials takes the process out of the sandbox.
///
/// # Errors
/// If `-require-sandbox=true`, and there is no sandbox or no whole one.
pub fn enter_control_plane_sandbox(
    flags: &Flags,
    mut policy: SandboxPolicy,
) -> Result<SandboxState, SandboxMissing> {
    let requirement = SandboxRequirement::from_variable(flags.get("require-sandbox"));
    let given = flags.get("kubeconfig").filter(|path| !path.is_empty()).map(Path::new);
    let access = ApiServerAccess::find(given, flags.get("server"));
    if access.starts_program {
        tracing::warn!("the kubeconfig starts a program for credentials, so there is no sandbox");
        let tcp_connect = (policy.connect != TcpConnect::Anywhere).then_some(false);
        let none =
            SandboxState { files: false, system_calls: false, tcp_listen: false, tcp_connect };
        return publish(none).check(requirement);
    }
    policy.read.extend(access.files);
    if let TcpConnect::Ports(ports) = &mut policy.connect {
        ports.extend([access.port, DNS_PORT]);
    }
    enter_sandbox(&policy, requirement)
}

/// What a client of the API server needs.
#[derive(Debug, PartialEq, Eq)]
struct ApiServerAccess {
    files: Vec<PathBuf>,
    port: u16,
    /// It runs a program now and then.
    starts_program: bool,
}

impl ApiServerAccess {
    /// Finds the kubeconfig that [`crate::api_server_client`] finds, and without one the pod's service account.
    fn find(kubeconfig: Option<&Path>, server: Option<&str>) -> Self {
        let found = match kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let mut access = match found {
            Ok(config) => Self::from_kubeconfig(&config),
            // `api_server_client` reports an unreadable file.
            Err(_) => Self {
                files: vec![MOUNTS.into()],
                port: std::env::var("KUBERNETES_SERVICE_PORT")
                    .ok()
                    .and_then(|port| port.parse().ok())
                    .unwrap_or(HTTPS_PORT),
                starts_program: false,
            },
        };
        // The client reads the kubeconfig again.
        let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".kube"));
        let named = std::env::var_os("KUBECONFIG").unwrap_or_default();
        access.files.extend(kubeconfig.map(Path::to_owned));
        access.files.extend(std::env::split_paths(&named).chain(home));
        if let Some(port) = server.filter(|server| !server.is_empty()).and_then(port) {
            access.port = port;
        }
        access
    }

    fn from_kubeconfig(config: &Kubeconfig) -> Self {
        let current = config.current_context.as_deref().unwrap_or_default();
        let context = config.contexts.iter().find(|named| named.name == current);
        let context = context.and_then(|named| named.context.as_ref());
        let user = context.and_then(|context| {
            let named =
                config.auth_infos.iter().find(|one| Some(&one.name) == context.user.as_ref());
            named?.auth_info.as_ref()
        });
        let cluster = context.and_then(|context| {
            let named = config.clusters.iter().find(|one| one.name == context.cluster);
            named?.cluster.as_ref()
        });
        let of_user =
            user.map(|user| [&user.client_certificate, &user.client_key, &user.token_file]);
        let of_cluster = cluster.map(|cluster| &cluster.certificate_authority);
        let files = of_user.into_iter().flatten().chain(of_cluster).flatten();
        // Their directories: files may be replaced while the program runs.
        let directories = files.filter_map(|file| Path::new(file).parent().map(Path::to_owned));
        let server = cluster.and_then(|cluster| cluster.server.as_deref());
        Self {
            files: directories.collect(),
            port: server.and_then(port).unwrap_or(HTTPS_PORT),
            starts_program: user
                .is_some_and(|user| user.exec.is_some() || user.auth_provider.is_some()),
        }
    }
}

fn port(url: &str) -> Option<u16> {
    let url: http::Uri = url.parse().ok()?;
    let default = if url.scheme_str() == Some("http") { 80 } else { HTTPS_PORT };
    url.host().map(|_| url.port_u16().unwrap_or(default))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(server: &str, user: &str, flag: Option<&str>) -> ApiServerAccess {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        let text = format!(
            r#"{{"apiVersion":"v1","kind":"Config","current-context":"here",
            "clusters":[{{"name":"other","cluster":{{"server":"https://other:1"}}}},
                {{"name":"here","cluster":{{"server":"{server}","certificate-authority":"/ca/ca.crt"}}}}],
            "users":[{{"name":"me","user":{user}}}],
            "contexts":[{{"name":"here","context":{{"cluster":"here","user":"me"}}}}]}}"#
        );
        std::fs::write(&file, text).unwrap();
        let access = ApiServerAccess::find(Some(&file), flag);
        assert!(access.files.contains(&file), "{access:?}");
        access
    }

    #[test]
    fn kubeconfig_gives_port_and_files() {
        for (server, flag, port) in [
            ("https://api:6443", None, 6443),
            ("https://api", None, 443),
            ("http://127.0.0.1:8001/prefix", Some(""), 8001),
            ("https://api:6443", Some("https://elsewhere:7443"), 7443),
            ("https://[::1]:6443", None, 6443),
        ] {
            let access = find(server, r#"{"tokenFile":"/token/file"}"#, flag);
            assert_eq!((access.port, access.starts_program), (port, false), "{server}");
            for directory in ["/ca", "/token"] {
                assert!(access.files.contains(&directory.into()), "{access:?}");
            }
        }
    }

    #[test]
    fn kubeconfig_with_a_credential_program_is_detected() {
        let user = r#"{"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"aws"}}"#;
        assert!(find("https://api", user, None).starts_program);
        assert!(find("https://api", r#"{"auth-provider":{"name":"gcp"}}"#, None).starts_program);
    }

    #[test]
    fn missing_kubeconfig_allows_the_pods_mounts() {
        let access = ApiServerAccess::find(Some(Path::new("/nowhere")), Some("https://api:1"));
        assert!(access.files.contains(&MOUNTS.into()) && access.port == 1, "{access:?}");
    }
}
