//! The settings of the process, from flags and environment variables.

use std::collections::BTreeMap;
use std::path::PathBuf;

use importer::{Cidr, DialExceptions};
use runtime::Flags;

use crate::engine::Error;
use controller_core::data_import_cron::PollFrom;
use controller_core::data_import_cron::PollSecrets;
use controller_core::meta::Installation;
use controller_core::worker::Image;

/// Flags with a value, besides those of logs.
pub const FLAGS: [&str; 17] = [
    "kubeconfig",
    "server",
    "namespace",
    "metrics-port",
    "health-port",
    "ready-file",
    "workers",
    "leader-election",
    "certificates",
    "imports-max",
    "clones-max",
    "token-keys",
    "poll-from",
    "poll-secrets",
    "poll-deny-cidrs",
    "poll-allow-cidrs",
    "require-sandbox",
];

/// Concurrent reconciliations of each controller. They wait for the API server nearly all of the time.
const WORKERS: usize = 8;
/// Concurrent clones to one storage class. With more of them, drivers respond so late that the clones time out.
const CLONES: u16 = 32;
const METRICS_PORT: u16 = 8443;
const CERTIFICATES: &str = "/var/run";
const TOKEN_KEYS: &str = "/var/run/cdi/token/keys";
const READY_FILE: &str = "/tmp/ready";

/// The file with the namespace of the pod.
pub const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// The namespace outside of a cluster, unless a flag sets another.
const NAMESPACE: &str = "cdi";

/// The settings of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A kubeconfig file. `None`: the pod's service account, or the user's default kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// The API server's address, if not the one in the kubeconfig.
    pub server: Option<String>,
    /// The namespace of the controllers, and values for labels of the objects that they create.
    pub installation: Installation,
    /// The importer's image.
    pub image: Image,
    /// The image with forklift's program for oVirt.
    pub ovirt_populator_image: String,
    /// The upload server's image.
    pub upload_server_image: String,
    /// The image of the pods that read the source of a copy.
    pub cloner_image: String,
    /// Port of the metrics; 0 takes any, and serves none.
    pub metrics_port: u16,
    /// Port of the kubelet's probes, by plain HTTP; 0 serves none.
    pub health_port: u16,
    /// The readiness file.
    pub ready_file: PathBuf,
    /// The directory below which CA certificates are mounted.
    pub certificates: PathBuf,
    /// The directory of the keys that tokens are signed with.
    pub token_keys: PathBuf,
    /// Concurrent clones to one storage class; the others are queued. `None`: no limit.
    pub clones_max: Option<usize>,
    /// Concurrent importer pods; the others are queued. `None`: no limit.
    pub imports_max: Option<usize>,
    /// Which process polls registries for newer images.
    pub poll_from: PollFrom,
    /// Which Secrets of the installation are sent to sources that tenants have polled.
    pub poll_secrets: PollSecrets,
    /// Networks that tenants cannot have polled, in addition to those that never are, and exceptions.
    pub poll_networks: DialExceptions,
    /// Concurrent reconciliations of each controller.
    pub workers: usize,
    /// Whether to wait for the lease. Off only if no other controller runs.
    pub leader_election: bool,
}

impl Settings {
    /// From the command line and the environment. `own_namespace`: that of the pod, if the process runs in one.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub fn read(
        flags: &Flags,
        variables: &BTreeMap<String, String>,
        own_namespace: Option<&str>,
    ) -> Result<Self, Error> {
        let variable = |name: &str| variables.get(name).filter(|text| !text.is_empty()).cloned();
        let number = |name: &'static str, default: u16| match flags.get(name) {
            None => Ok(default),
            Some(text) => text.parse::<u16>().map_err(|_| Error::Setting {
                name,
                wanted: "a number from 0 to 65535",
                got: text.to_owned(),
            }),
        };
        let networks = |name: &'static str| {
            let text = flags.get(name).unwrap_or_default();
            Cidr::parse_list(text).map_err(|_| Error::Setting {
                name,
                wanted: "IP addresses and networks like 10.0.0.0/8, separated by commas",
                got: text.to_owned(),
            })
        };
        let namespace = flags.get("namespace").or(own_namespace).map(str::trim);
        let namespace = namespace.filter(|name| !name.is_empty()).unwrap_or(NAMESPACE);
        let importer = variable("IMPORTER_IMAGE").unwrap_or_else(|| "cdi-importer".into());
        let metrics_port = number("metrics-port", METRICS_PORT)?;
        // Without metrics, which is for local trials, the probes take no port either.
        let health_port = if metrics_port == 0 { 0 } else { runtime::health::PORT };
        Ok(Self {
            kubeconfig: flags.get("kubeconfig").filter(|path| !path.is_empty()).map(PathBuf::from),
            server: flags.get("server").filter(|url| !url.is_empty()).map(str::to_owned),
            installation: Installation {
                namespace: namespace.to_owned(),
                part_of: variable("INSTALLER_PART_OF_LABEL"),
                version: variable("INSTALLER_VERSION_LABEL"),
            },
            image: Image {
                importer: importer.clone(),
                importer_vddk: variable("IMPORTER_VDDK_IMAGE"),
                pull_policy: variable("PULL_POLICY"),
                verbosity: flags.verbosity().into(),
                logs_are_json: flags.logs_are_json(),
            },
            ovirt_populator_image: variable("OVIRT_POPULATOR_IMAGE").unwrap_or(importer),
            upload_server_image: variable("UPLOADSERVER_IMAGE")
                .unwrap_or_else(|| "cdi-uploadserver".into()),
            cloner_image: variable("CLONER_IMAGE").unwrap_or_else(|| "cdi-cloner".into()),
            metrics_port,
            health_port: number("health-port", health_port)?,
            ready_file: flags.get("ready-file").map_or_else(|| READY_FILE.into(), PathBuf::from),
            certificates: flags
                .get("certificates")
                .map_or_else(|| CERTIFICATES.into(), PathBuf::from),
            token_keys: flags.get("token-keys").map_or_else(|| TOKEN_KEYS.into(), PathBuf::from),
            clones_max: Some(usize::from(number("clones-max", CLONES)?)).filter(|max| *max > 0),
            imports_max: Some(usize::from(number("imports-max", 0)?)).filter(|max| *max > 0),
            poll_from: match flags.get("poll-from") {
                None | Some("" | "controller") => PollFrom::Controller,
                Some("jobs") => PollFrom::Jobs,
                Some(other) => {
                    return Err(Error::Setting {
                        name: "poll-from",
                        wanted: "controller or jobs",
                        got: other.to_owned(),
                    });
                }
            },
            poll_secrets: match flags.get("poll-secrets") {
                None | Some("" | "listed") => PollSecrets::Listed,
                Some("registries") => PollSecrets::Registries,
                Some(other) => {
                    return Err(Error::Setting {
                        name: "poll-secrets",
                        wanted: "listed or registries",
                        got: other.to_owned(),
                    });
                }
            },
            poll_networks: DialExceptions {
                deny: networks("poll-deny-cidrs")?,
                allow: networks("poll-allow-cidrs")?,
            },
            workers: usize::from(number("workers", WORKERS as u16)?).clamp(1, 256),
            leader_election: flags.get("leader-election") != Some("false"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str, variables: &[(&str, &str)]) -> Result<Settings, Error> {
        let flags = Flags::parse(line.split_whitespace().map(str::to_owned), &FLAGS);
        let variables = variables.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        Settings::read(&flags, &variables, Some("kubevirt\n"))
    }

    #[test]
    fn deployment_is_configured_by_environment_variables() {
        let settings = read(
            "-v=3",
            &[
                ("IMPORTER_IMAGE", "r/importer:1"),
                ("IMPORTER_VDDK_IMAGE", "r/importer-vddk:1"),
                ("UPLOADSERVER_IMAGE", "r/upload:1"),
                ("CLONER_IMAGE", "r/cloner:1"),
                ("OVIRT_POPULATOR_IMAGE", "r/ovirt:1"),
                ("PULL_POLICY", "IfNotPresent"),
                ("INSTALLER_PART_OF_LABEL", "hco"),
                ("INSTALLER_VERSION_LABEL", ""),
            ],
        )
        .unwrap();
        assert_eq!(settings.image.importer, "r/importer:1");
        assert_eq!(settings.image.importer_vddk.as_deref(), Some("r/importer-vddk:1"));
        assert_eq!(settings.image.pull_policy.as_deref(), Some("IfNotPresent"));
        assert_eq!(settings.image.log_arguments(), ["-v=3"]);
        let of_json = read("-v=1 --logging-format=json", &[]).unwrap();
        assert_eq!(of_json.image.log_arguments(), ["-v=1", "-logging-format=json"]);
        assert_eq!(settings.upload_server_image, "r/upload:1");
        assert_eq!(settings.cloner_image, "r/cloner:1");
        assert_eq!(settings.ovirt_populator_image, "r/ovirt:1");
        let without = read("", &[("IMPORTER_IMAGE", "r/importer:1")]).unwrap();
        assert_eq!(without.ovirt_populator_image, "r/importer:1");
        assert_eq!(without.image.importer_vddk, None);
        assert_eq!(settings.clones_max, Some(32));
        assert_eq!(settings.installation.namespace, "kubevirt");
        assert_eq!(settings.installation.part_of.as_deref(), Some("hco"));
        assert_eq!(settings.installation.version, None);
        assert!(settings.leader_election && settings.kubeconfig.is_none());
    }

    #[test]
    fn flags_replace_the_defaults() {
        let line = "-kubeconfig=/k -namespace=here -metrics-port=0 -leader-election=false -workers=0 -imports-max=3 -clones-max=0";
        let settings = read(line, &[]).unwrap();
        assert_eq!((settings.imports_max, settings.clones_max), (Some(3), None));
        assert_eq!(settings.poll_from, PollFrom::Controller);
        assert_eq!(read("-poll-from=jobs", &[]).unwrap().poll_from, PollFrom::Jobs);
        assert_eq!(settings.kubeconfig.as_deref(), Some("/k".as_ref()));
        assert_eq!(settings.installation.namespace, "here");
        assert_eq!((settings.metrics_port, settings.workers), (0, 1));
        assert_eq!(settings.health_port, 0, "no probes where there are no metrics");
        assert_eq!(read("-metrics-port=0 -health-port=9", &[]).unwrap().health_port, 9);
        assert_eq!(read("", &[]).unwrap().health_port, 8444);
        assert!(!settings.leader_election);
        assert!(read("-poll-from=nowhere", &[]).is_err());
        assert_eq!(settings.poll_secrets, PollSecrets::Listed);
        let registries = read("-poll-secrets=registries", &[]).unwrap();
        assert_eq!(registries.poll_secrets, PollSecrets::Registries);
        assert!(read("-poll-secrets=all", &[]).is_err());
        let line = "-poll-deny-cidrs=10.96.0.0/12,fd00::/8 -poll-allow-cidrs=10.98.0.2";
        let networks = read(line, &[]).unwrap().poll_networks;
        assert_eq!((networks.deny.len(), networks.allow.len()), (2, 1));
        let error = read("-poll-deny-cidrs=10.96.0.0/40", &[]).unwrap_err().to_string();
        assert!(
            error.starts_with("poll-deny-cidrs has to be IP addresses and networks"),
            "{error}"
        );
        let error = read("-metrics-port=many", &[]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "metrics-port has to be a number from 0 to 65535, not \"many\""
        );
    }
}
